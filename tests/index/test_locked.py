"""The index' file kept by somebody: the ledger is read without it, and appended to."""

import sqlite3
from contextlib import closing, contextmanager

import pytest

from lakemark.adapters.git.ledger import GitLedger
from lakemark.index import Index
from lakemark.model.ledger.entry import Draft, Stamp
from tests.adapters.test_git_ledger import RUN, START, Told


@contextmanager
def kept(path, how):
    """Another process' hold: of writing, as amid a transaction it was stopped in, or of everything."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        if how == "everything":
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO alarms VALUES ('x')")
        if how == "everything":
            connection.execute("COMMIT")
        yield


@pytest.fixture
def told(tmp_path):
    made = Told(tmp_path / "ledger.git")
    made.commit(10)
    return made


@pytest.mark.parametrize("how", ["writing", "everything"])
@pytest.mark.parametrize("known", [True, False], ids=["filled", "behind"])
def test_readers_and_writers_go_on(told, tmp_path, how, known):
    path = tmp_path / "ledger.index.sqlite"
    with closing(Index(path)) as first:
        if known:
            first.catch_up(told.ledger)
    with kept(path, how), closing(Index(path)) as index:
        index.catch_up(told.ledger)
        assert index.latest(RUN).record.step == 10
        ledger = GitLedger(told.path, cache=index)
        stamp = Stamp(at=START, node="node-a", actor="ana", request="a request")
        assert ledger.append(RUN, lambda _: Draft(kind="closed", timeline=1), stamp).state.sequence == 3
        index.catch_up(ledger)
        assert index.structure(RUN).closed
    with closing(Index(path)) as index:
        index.catch_up(told.ledger)
        assert index.structure(RUN).closed


def test_nobody_waits_for_it_longer_than_a_second(told, tmp_path):
    """By what SQLite is told: what a machine takes besides is another matter."""
    with closing(Index(tmp_path / "ledger.index.sqlite")) as index:
        index.catch_up(told.ledger)
        assert index._open_one.execute("PRAGMA busy_timeout").fetchone() == (1000,)


def test_one_that_was_open_before_goes_aside_and_comes_back(told, tmp_path):
    path = tmp_path / "ledger.index.sqlite"
    with closing(Index(path)) as index:
        index.catch_up(told.ledger)
        with kept(path, "writing"):
            told.commit(20)
            index.catch_up(told.ledger)
            assert index.latest(RUN).record.step == 20
            assert index.path != path
        index._again_at = 0.0
        index.catch_up(told.ledger)
        assert index.path == path
        assert index.latest(RUN).record.step == 20


def test_who_only_reads_says_so(told, tmp_path):
    path = tmp_path / "ledger.index.sqlite"
    with closing(Index(path)) as index:
        index.catch_up(told.ledger)
    with kept(path, "everything"), pytest.raises(Exception, match="locked"):
        Index(path, read_only=True)
