"""Every ledger keeps every promise of its port."""

import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest

from lakemark.adapters.git.ledger import GitLedger
from lakemark.adapters.git.make import init
from lakemark.index import Index
from tests.support.contract.ledger import CHECKS, Opens


def git(folder: Path) -> Opens:
    init(folder / "ledger.git")
    return lambda: GitLedger(folder / "ledger.git")


def git_with_index(folder: Path) -> Opens:
    init(folder / "ledger.git")
    return lambda: GitLedger(folder / "ledger.git", cache=Index(folder / "index.sqlite"))


def memory(folder: Path) -> Opens:
    from tests.support.memory import MemoryLedger

    ledger = MemoryLedger()
    return lambda: ledger


KINDS: dict[str, Callable[[Path], Opens]] = {"git": git, "git_with_index": git_with_index}
if importlib.util.find_spec("tests.support.memory"):
    KINDS["memory"] = memory


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_ledger(check, kind, tmp_path):
    check.run(KINDS[kind](tmp_path))
