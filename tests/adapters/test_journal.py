import os
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from lakemark.adapters.node.journal import SqliteJournal
from lakemark.errors import Corrupt, Denied, Misconfigured
from lakemark.ports import Directory, Kept, KnownFile, Mark, MarkKind
from tests.model.building import at

FILE = KnownFile(device=2**63 + 5, inode=2**64 - 1, size_bytes=2**50, mtime_ns=-1)


@pytest.fixture
def journal(tmp_path):
    journal = SqliteJournal(tmp_path / "deep/journal.db")
    yield journal
    journal.close()


@pytest.fixture
def again(journal, tmp_path):
    """What another process sees."""
    other = SqliteJournal(tmp_path / "deep/journal.db")
    yield other
    other.close()


def test_files(journal, again):
    assert journal.known(FILE) is None
    journal.remember([FILE], record="a" * 64, why="committed")
    assert again.known(FILE) == "a" * 64
    again.remember([FILE], record="b" * 64, why="restored")
    assert journal.known(FILE) == "b" * 64
    for change in ({"device": 1}, {"inode": 1}, {"size_bytes": 1}, {"mtime_ns": 0}):
        other = KnownFile(
            **{"device": FILE.device, "inode": FILE.inode, "size_bytes": FILE.size_bytes, "mtime_ns": -1} | change
        )
        assert journal.known(other) is None


def test_how_a_file_is_known_and_which_others_have_its_bytes(journal, again):
    journal.remember([replace(FILE, digest="d" * 64)], record="a" * 64, why="copy")
    assert again.kept(FILE) == Kept(record="a" * 64, why="copy", digest="d" * 64)
    assert again.twins("d" * 64) == (FILE,)
    assert (again.twins("e" * 64), again.kept(replace(FILE, mtime_ns=0))) == ((), None)
    journal.remember([replace(FILE, ctime_ns=1, digest="d" * 64)], record="a" * 64, why="copy")
    assert again.kept(replace(FILE, ctime_ns=2)) is None, "its bytes are in doubt"


def test_many_files_at_once(journal, again):
    files = [KnownFile(device=1, inode=number, size_bytes=1, mtime_ns=1) for number in range(2000)]
    assert journal.all_known([])
    assert not journal.all_known(files)
    journal.remember(files, record="a" * 64, why="committed")
    assert again.all_known(files)
    assert not again.all_known([*files, FILE])


def test_a_directory_is_the_same_under_all_its_names(journal, again, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    bound = Directory(run="r", timeline=1, attempt="0" * 16, sequence=7)
    journal.bind_directory(tmp_path / "link" / "out", bound)
    for name in ("real/out", "link/out", "real/../link/out"):
        assert again.directory(tmp_path / name) == bound
    assert again.directory(tmp_path / "real") is None


def test_digests(journal, again):
    assert journal.digest(FILE) is None
    journal.note_digest(FILE, "d" * 64)
    assert again.digest(FILE) == "d" * 64
    assert again.known(FILE) is None
    again.note_digest(FILE, "e" * 64)
    assert journal.digest(FILE) == "e" * 64


def test_directories(journal, again, tmp_path, monkeypatch):
    directory = Directory(run="r", timeline=2, attempt="t", sequence=7)
    path = tmp_path / "out\udcff"
    assert journal.directory(path) is None
    journal.bind_directory(path, directory)
    assert again.directory(path) == directory
    monkeypatch.chdir(tmp_path)
    assert again.directory(Path("x/../out\udcff")) == directory
    journal.bind_directory(path, Directory(run="s", timeline=1, attempt="u", sequence=8))
    assert again.directory(path).run == "s"


def test_marks(journal, again):
    mark = Mark(MarkKind.BRANCH, "data/main")
    assert journal.marks.get(mark) is None
    assert journal.marks.set(mark, at=at(1)) is None
    assert again.marks.set(mark, at=at(2)) == at(1)
    assert journal.marks.get(mark) == at(2)


def test_marks_of_a_kind_are_forgotten_by_age(journal, again):
    """Whatever other kinds' names begin with."""
    old, young = Mark(MarkKind.LEDGER_KEPT, "cold"), Mark(MarkKind.LEDGER_KEPT, "warm")
    others = [Mark(kind, of) for kind in MarkKind for of in ("", "cold") if kind is not MarkKind.LEDGER_KEPT]
    for mark in (old, Mark(MarkKind.LEDGER_KEPT), *others):
        journal.marks.set(mark, at=at(1))
    journal.marks.set(young, at=at(3))
    again.marks.forget(MarkKind.LEDGER_KEPT, before=at(2))
    left = [mark for mark in (old, Mark(MarkKind.LEDGER_KEPT), young, *others) if journal.marks.get(mark) is not None]
    assert left == [young, *others]


def test_what_marks_are_called_on_disk_stays():
    """Journals of the versions before are gone on with."""
    assert Mark(MarkKind.RELEASE_BEGUN, "warm").key == "release begun:warm"
    assert Mark(MarkKind.TIDIED).key == "journal:tidied"
    assert Mark(MarkKind.LEDGER_CHECKED).key == "ledger check"


def test_all_or_nothing(journal):
    def files():
        yield FILE
        raise RuntimeError

    with pytest.raises(RuntimeError):
        journal.remember(files(), record="a" * 64, why="x")
    assert journal.known(FILE) is None
    journal.remember([FILE], record="a" * 64, why="x")


def test_a_new_one_that_somebody_is_making_is_waited_for(tmp_path):
    path = tmp_path / "journal.db"
    maker = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    maker.execute("BEGIN IMMEDIATE")
    maker.execute("CREATE TABLE theirs (one)")
    made = threading.Timer(0.3, maker.execute, ["COMMIT"])
    made.start()
    with closing(maker), closing(SqliteJournal(path)) as journal:
        made.join()
        assert journal.known(FILE) is None


def test_many_writers(tmp_path):
    code = """
import sys, pathlib
from lakemark.adapters.node.journal import SqliteJournal
from lakemark.ports import KnownFile
journal = SqliteJournal(pathlib.Path(sys.argv[1]))
for number in range(40):
    journal.remember([KnownFile(device=int(sys.argv[2]), inode=number, size_bytes=1, mtime_ns=1)], record=sys.argv[2], why="x")
"""
    path = tmp_path / "journal.db"
    processes = [subprocess.Popen([sys.executable, "-c", code, str(path), str(number)]) for number in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    journal = SqliteJournal(path)
    for device in range(3):
        for inode in range(40):
            assert journal.known(KnownFile(device=device, inode=inode, size_bytes=1, mtime_ns=1)) == str(device)
    journal.close()


def test_threads_and_forks(journal):
    def work(device):
        for inode in range(20):
            journal.remember([KnownFile(device=device, inode=inode, size_bytes=1, mtime_ns=1)], record="r", why="x")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    child = os.fork()
    if child == 0:
        work(9)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert all(
        journal.known(KnownFile(device=device, inode=19, size_bytes=1, mtime_ns=1)) for device in (0, 1, 2, 3, 9)
    )


def test_killed_after_an_acknowledgement_nothing_is_lost(tmp_path):
    code = """
import os, signal, sys, pathlib
from lakemark.adapters.node.journal import SqliteJournal
from lakemark.ports import KnownFile
journal = SqliteJournal(pathlib.Path(sys.argv[1]))
journal.remember([KnownFile(device=1, inode=1, size_bytes=1, mtime_ns=1)], record="r", why="x")
os.kill(os.getpid(), signal.SIGKILL)
"""
    path = tmp_path / "journal.db"
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode == -9
    journal = SqliteJournal(path)
    assert journal.known(KnownFile(device=1, inode=1, size_bytes=1, mtime_ns=1)) == "r"
    journal.close()


def test_it_waits_for_the_disk(journal):
    with journal._reading() as connection:
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_what_is_no_journal(tmp_path):
    path = tmp_path / "journal.db"
    path.write_bytes(b"not a database, but long enough to be looked at" * 100)
    with pytest.raises(Corrupt, match="not a database"):
        SqliteJournal(path)
    assert path.read_bytes().startswith(b"not a database")


def test_a_newer_one(tmp_path):
    path = tmp_path / "journal.db"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(Misconfigured, match="version 99"):
        SqliteJournal(path)


def test_no_right(tmp_path):
    (tmp_path / "file").mkdir()
    with pytest.raises(Denied):
        SqliteJournal(tmp_path / "file")


def test_at_its_first_use_it_is_opened_as_often_as_that_fails(tmp_path):
    path = tmp_path / "deep" / "file"
    with closing(SqliteJournal(path, at_first_use=True)) as journal:
        assert not path.parent.exists()
        path.mkdir(parents=True)
        for _ in range(2):
            with pytest.raises(Denied):
                journal.known(FILE)
        path.rmdir()
        assert journal.marks.get(Mark(MarkKind.TIDIED)) is None
        assert path.is_file()
    SqliteJournal(tmp_path / "other", at_first_use=True).close()
    assert not (tmp_path / "other").exists()


def test_digests_of_the_oldest_files_are_forgotten_once_there_are_many(tmp_path):
    path = tmp_path / "journal.db"
    journal = SqliteJournal(path, kept_digests=10)
    files = [KnownFile(device=1, inode=9_000 - number, size_bytes=1, mtime_ns=number) for number in range(600)]
    for number, file in enumerate(files):
        journal.remember([file], record="a" * 64, why="committed")
        journal.note_digest(file, f"{number % 256:02x}" * 32)
    left = [number for number, file in enumerate(files) if journal.digest(file) is not None]
    assert left == list(range(503, 600))  # the last look was at the 513th
    assert journal.all_known(files)
    journal.close()


def test_one_that_was_opened_for_reading_alone_takes_what_it_is_told_once_it_can(tmp_path):
    SqliteJournal(tmp_path / "journal").close()
    journal = SqliteJournal(tmp_path / "journal")
    journal._connection.close()
    journal._connection, journal._only_read = journal._for_reading(), True  # as where its disk took nothing
    assert journal.seen() == ()
    journal.saw("here", {"r1": "a" * 40})
    assert [one.branch for one in journal.seen()] == ["r1"]
    journal.close()


def seen(ctime_ns, *, inode=5, digest="", place="/out/a"):
    return KnownFile(
        device=1, inode=inode, size_bytes=3, mtime_ns=4, mark="b6", ctime_ns=ctime_ns, place=place, digest=digest
    )


def test_a_file_whose_ctime_moved_on_is_known_by_its_bytes_alone(journal, again):
    journal.remember([seen(7, digest="d" * 64)], record="a" * 64, why="committed")
    assert again.known(seen(7)) == "a" * 64
    assert again.doubtful([seen(7)]) == ()
    assert again.known(seen(8)) is None
    assert not again.all_known([seen(8)])
    assert again.known(seen(8, digest="d" * 64)) == "a" * 64, "who read it just now need not read it again"
    assert again.doubtful([seen(8), seen(1, inode=9)]) == (seen(8),), "one that nobody remembered is new"
    journal.confirm(seen(8, digest="d" * 64))
    assert again.known(seen(8)) == "a" * 64
    assert again.known(seen(7)) is None
    journal.confirm(seen(9, digest="e" * 64))
    assert (again.known(seen(8)), again.known(seen(9)), again.doubtful([seen(8), seen(9)])) == (None, None, ())


def test_a_digest_is_of_a_file_as_it_was_read(journal, again):
    journal.note_digest(seen(7), "d" * 64)
    assert (again.digest(seen(7)), again.digest(seen(8))) == ("d" * 64, None)


def test_of_the_files_that_had_an_inode_the_last_is_known(journal, again):
    """There is one at a time: the journal grows with the files that are there, not with those that were."""
    other = KnownFile(device=1, inode=5, size_bytes=3, mtime_ns=4, mark="b7")
    journal.remember([seen(7)], record="a" * 64, why="committed")
    journal.remember([other, seen(7, inode=6)], record="b" * 64, why="committed")
    assert [again.known(one) for one in (seen(7), other, seen(7, inode=6))] == [None, "b" * 64, "b" * 64]
    for size in (1, 2):  # numbers that change from look to look are nobody's
        nameless = KnownFile(device=1, inode=0, size_bytes=size, mtime_ns=4, mark="h1")
        journal.remember([nameless], record="c" * 64, why="committed")
    assert again.all_known([nameless, KnownFile(device=1, inode=0, size_bytes=1, mtime_ns=4, mark="h1")])


def test_a_journal_of_version_2_knows_its_files_still(tmp_path):
    path = tmp_path / "journal.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "CREATE TABLE known_files (device INTEGER, inode INTEGER, size_bytes INTEGER, mtime_ns INTEGER, mark TEXT, "
            "record TEXT NOT NULL, why TEXT NOT NULL, PRIMARY KEY (device, inode, size_bytes, mtime_ns, mark)) "
            "WITHOUT ROWID, STRICT;"
            "CREATE TABLE known_digests (device INTEGER, inode INTEGER, size_bytes INTEGER, mtime_ns INTEGER, mark TEXT, "
            "digest TEXT NOT NULL, PRIMARY KEY (device, inode, size_bytes, mtime_ns, mark)) WITHOUT ROWID, STRICT;"
            "INSERT INTO known_files VALUES (1, 5, 3, 4, 'b6', 'r1', 'committed');"
            "INSERT INTO known_digests VALUES (1, 5, 3, 4, 'b6', 'd1'); PRAGMA user_version = 2"
        )
    with closing(SqliteJournal(path)) as journal:
        assert (journal.known(seen(7)), journal.digest(seen(7))) == ("r1", None)
        assert journal.doubtful([seen(7)]) == ()
        journal.remember([seen(7, digest="d" * 64)], record="r2", why="committed")
        assert (journal.known(seen(7)), journal.known(seen(8))) == ("r2", None)
    with closing(SqliteJournal(path)) as journal:
        assert journal.known(seen(7)) == "r2"
