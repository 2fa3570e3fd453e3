"""The adapters in memory keep every promise that the real ones keep."""

import itertools
from datetime import UTC, datetime, timedelta

import pytest

from lakemark.adapters.memory import MemoryData
from lakemark.contract.data import CHECKS as DATA_CHECKS
from lakemark.errors import Refused


class Scratch:
    """A repository in memory and an ordinary client of it; every look at the clock is a second later."""

    repository = "data"
    branch = "main"

    def __init__(self):
        seconds = itertools.count()
        self.data = MemoryData(lambda: datetime(2026, 11, 26, tzinfo=UTC) + timedelta(seconds=next(seconds)))
        self.data.create(self.repository)
        self.put("main", {"first": b"1"}, message="first")

    def put(self, branch, changes, *, message):
        return self.data.commit(self.repository, branch, changes, message=message)

    def stage(self, branch, path, content):
        self.data.stage(self.repository, branch, path, content)

    def make_branch(self, name, commit):
        self.data.set_branch(self.repository, name, commit)

    def make_tag(self, name, commit):
        self.data.tag(self.repository, name, commit)

    def attack(self, branch):
        head = self.data.head(self.repository, "main")
        tries = {
            "write": lambda: self.stage(branch, "x", b"x"),
            "merge": lambda: self.put(branch, {"x": b"x"}, message="merge"),
            "reset": lambda: self.make_branch(branch, head),
            "delete": lambda: self.make_branch(branch, None),
        }
        return {what: refused(call) for what, call in tries.items()}

    def collect(self, commit, path):
        self.data.lose(self.repository, commit, path)
        return True


def refused(call):
    try:
        call()
    except Refused:
        return True
    return False


@pytest.mark.parametrize("check", DATA_CHECKS, ids=lambda check: check.name)
def test_data(check):
    check.run(Scratch())
