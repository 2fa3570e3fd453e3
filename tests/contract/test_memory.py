"""The adapters in memory keep every promise that the real ones keep."""

import itertools
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lakemark.adapters.disk.digests import Digester
from lakemark.contract.data import CHECKS as DATA_CHECKS
from lakemark.contract.store import CHECKS as STORE_CHECKS, LEDGER, StoreUnderCheck
from lakemark.errors import Refused
from tests.support.contract.hot import CHECKS as HOT_CHECKS, Bench
from tests.support.memory import MemoryData, MemoryDisk, MemoryHot, MemoryShelf, MemoryStore

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)


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


def digests(content, part_size_bytes):
    digester = Digester(part_size_bytes)
    digester.update(memoryview(content))
    found = digester.finish()
    return found.digest, found.parts


def shared_shelf():
    held = MemoryShelf()

    def store(shelf):
        return MemoryStore(shelf, name="warm", tier_class="warm")

    def corrupt(checkpoint, path):
        digest = next(file.digest for file in checkpoint.manifest.files if file.path == path)
        held.objects[digest] = bytes([held.objects[digest][0] ^ 1]) + held.objects[digest][1:]

    made = StoreUnderCheck(
        store=store(held),
        digests=digests,
        again=lambda: store(held),
        elsewhere=lambda: store(MemoryShelf()),
        foreign=lambda: store(MemoryShelf(foreign=True)),
        corrupt=corrupt,
    )
    made.store.claim(LEDGER, now=made.now)
    return made


def hot_shelf():
    disk = MemoryDisk(lambda: NOW)
    store = MemoryHot(disk, name="hot", node="node-a")

    def foreign():
        other = MemoryDisk(lambda: NOW)
        other.write(Path("/hot/thesis.tex"), b"mine")
        return MemoryHot(other, name="hot", node="node-a")

    def corrupt(checkpoint, path):
        place = store.path(checkpoint.record) / path
        data = disk.read(place)
        disk.write(place, bytes([data[0] ^ 1]) + data[1:])

    store.claim(LEDGER, now=NOW)
    return StoreUnderCheck(
        store=store,
        digests=digests,
        again=store.restarted,
        elsewhere=lambda: MemoryHot(MemoryDisk(lambda: NOW), name="hot", node="node-a"),
        foreign=foreign,
        corrupt=corrupt,
    )


@pytest.mark.parametrize("check", STORE_CHECKS, ids=lambda check: check.name)
@pytest.mark.parametrize("shelf", [shared_shelf, hot_shelf])
def test_stores(check, shelf):
    check.run(shelf())


LOOKS_AT_THE_TREE = {"lands"}
"""On the real disk, where these trees do not lie."""


@pytest.mark.parametrize(
    "check", [one for one in HOT_CHECKS if one.name not in LOOKS_AT_THE_TREE], ids=lambda check: check.name
)
def test_hot_lands_from_the_real_disk(tmp_path, check):
    store = MemoryHot(MemoryDisk(lambda: NOW), name="hot", node="node-a")
    store.claim(LEDGER, now=NOW)
    check.run(Bench(store=store, folder=tmp_path / "out", now=NOW))
