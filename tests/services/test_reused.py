"""A file that got the inode, size and times of one that was committed is another file, and is never passed over in silence."""

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from lakemark.adapters.disk.file_identity import known_file
from lakemark.adapters.node.files import LocalFiles
from lakemark.adapters.node.journal import SqliteJournal
from lakemark.ports import KnownFile
from lakemark.services.node.sweep import sweep
from tests.services.on_disk import Yard, plain
from tests.support.restless import numbered_anew

FIXED = 1_700_000_000
UNTOLD = "TESTS_NO_BIRTH_TIMES"
"""Set where these tests run in a process that is told no birth times."""


@pytest.fixture
def yard(disk_path):
    """On a disk: in memory no file gets the inode of another."""
    return Yard(disk_path)


def fixed(path):
    """As `tar` and `cp -p` leave it: times that say nothing."""
    for one in (*path.rglob("*"), path):
        os.utime(one, (FIXED, FIXED))
    return path


def test_every_step_of_a_trainer_that_keeps_its_newest_save_alone_is_committed(yard):
    """Landed by copy, each is removed before the next is written, which then gets its inodes again."""
    yard.open()
    site = yard.site()
    site.hot._landing = "copy"
    for step in range(1, 6):
        path = fixed(plain(yard.out, step, model=f"weights of step {step}", optim=f"moments of step {step}"))
        swept = sweep(site, move=False)
        assert [done.record.step for done in swept.committed] == [step], swept
        for inside in sorted(path.rglob("*"), reverse=True):
            inside.unlink()
        path.rmdir()
    assert yard.steps() == [1, 2, 3, 4, 5]


@pytest.mark.skipif(UNTOLD in os.environ, reason="this is that process")
def test_all_of_this_holds_where_no_birth_times_are_told(tmp_path, require_command):
    """Every test of this file again, in a process whose C library knows none."""
    library = tmp_path / "no_birth_times.so"
    source = Path(__file__).parents[1] / "support" / "no_birth_times.c"
    subprocess.run([require_command("gcc"), "-shared", "-fPIC", "-o", library, source], check=True)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    options = ["-q", "-n0", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'tests'}"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, __file__],
        env=environ | {"LD_PRELOAD": str(library), UNTOLD: "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]


def test_what_tells_a_file_from_another_with_its_number(tmp_path):
    (tmp_path / "a").touch()
    mark = known_file(str(tmp_path / "a"), os.lstat(tmp_path / "a")).mark
    assert mark.startswith("h" if UNTOLD in os.environ else "b")


def test_what_is_passed_over_leaves_a_trace(yard):
    yard.open()
    path = plain(yard.out, 1)
    assert yard.sweep().passed_over == []
    assert yard.sweep().passed_over == [(path, yard.at(1).record.id)]


def test_a_file_is_known_under_any_name_and_another_with_its_numbers_is_not(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"one")
    os.utime(path, (FIXED, FIXED))
    (first,) = LocalFiles().identities(path)
    journal = SqliteJournal(tmp_path / "journal.sqlite")
    journal.remember([first], record="r" * 64, why="committed")
    journal.note_digest(first, "d" * 64)
    path.rename(tmp_path / "b")
    os.link(tmp_path / "b", tmp_path / "c")
    assert LocalFiles().identities(tmp_path / "c") == (first,)
    other = KnownFile(device=first.device, inode=first.inode, size_bytes=3, mtime_ns=first.mtime_ns, mark="b1")
    assert (journal.known(first), journal.digest(first)) == ("r" * 64, "d" * 64)
    assert (journal.known(other), journal.digest(other)) == (None, None)
    assert not journal.all_known([first, other])


def test_a_journal_of_version_1_knows_its_files_still(tmp_path):
    path = tmp_path / "journal.sqlite"
    connection = sqlite3.connect(path)
    connection.executescript(
        "CREATE TABLE files (device INTEGER, inode INTEGER, size_bytes INTEGER, mtime_ns INTEGER, record TEXT NOT NULL, "
        "why TEXT NOT NULL, PRIMARY KEY (device, inode, size_bytes, mtime_ns)) WITHOUT ROWID, STRICT;"
        "CREATE TABLE digests (device INTEGER, inode INTEGER, size_bytes INTEGER, mtime_ns INTEGER, digest TEXT NOT NULL, "
        "PRIMARY KEY (device, inode, size_bytes, mtime_ns)) WITHOUT ROWID, STRICT;"
        "INSERT INTO files VALUES (1, 2, 3, 4, 'r1', 'committed'); INSERT INTO digests VALUES (1, 2, 3, 4, 'd1');"
        "PRAGMA user_version = 1"
    )
    connection.close()
    journal = SqliteJournal(path)
    file = KnownFile(device=1, inode=2, size_bytes=3, mtime_ns=4, mark="b5")
    assert (journal.known(file), journal.digest(file)) == ("r1", None), "its digests tell nothing of writes in place"
    journal.remember([file], record="r2", why="committed")
    assert journal.known(file) == "r2"
    journal.close()
    assert SqliteJournal(path).known(file) == "r2"


# Files written over in place, of which size and times are as they were


def written_over(path, text):
    """The same inode, size and mtime, other bytes: as a tool does that sets times back (`rsync --inplace -t`, some FUSE)."""
    before = path.stat()
    assert len(text) == before.st_size
    with path.open("r+b") as file:
        file.write(text.encode())
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_ino, after.st_size, after.st_mtime_ns) == (before.st_ino, before.st_size, before.st_mtime_ns)


@pytest.mark.parametrize("landing", ["copy", "link"])
def test_a_file_written_over_with_its_size_and_times_kept_is_not_passed_over(yard, landing):
    yard.open()
    site = yard.site()
    site.hot._landing = landing
    # Its ends stay the same, so that a look at these alone tells nothing.
    path = plain(yard.out, 1, model="a" * 9000 + "1" + "z" * 9000)
    assert [done.record.step for done in sweep(site, move=False).committed] == [1]
    written_over(path / "model.bin", "a" * 9000 + "2" + "z" * 9000)
    swept = sweep(site, move=False)
    assert swept.passed_over == []
    assert swept.committed or swept.incomplete or swept.failed, "it is said what became of it"


def test_names_and_links_that_come_and_go_cost_one_reading(yard):
    """ctime changes with them, too: the bytes tell, and are not read again."""
    yard.open()
    site = yard.site()
    path = plain(yard.out, 1)
    sweep(site, move=False)
    read = []
    digest = site.files.digest
    site.files.digest = lambda one: read.append(one) or digest(one)
    assert sweep(site, move=False).passed_over
    assert read == [], "a quiet directory is not read"
    (path / "model.bin").chmod(0o600)
    os.link(path / "model.bin", yard.home / "another name")
    for _ in range(2):
        assert sweep(site, move=False).passed_over == [(path, yard.at(1).record.id)]
    assert read == [path / "model.bin"]


# Mounts that number their files anew at each look


@pytest.fixture
def restless(monkeypatch):
    with numbered_anew(monkeypatch):
        yield


def test_such_a_mount_s_saves_are_kept_and_known_again(yard, restless):
    yard.open()
    plain(yard.out, 1)
    swept = yard.sweep()
    assert [done.record.step for done in swept.committed] == [1], swept.incomplete
    assert not yard.at(1).replicas[yard.site().hot.place].linked, "what can't be told from another file is not linked"
    assert yard.sweep().committed == []


def test_a_write_is_seen_there_still(tmp_path, restless):
    path = tmp_path / "a"
    path.write_bytes(b"one")
    first = known_file(str(path), os.lstat(path))
    assert first == known_file(str(path), os.lstat(path))
    path.write_bytes(b"two!")
    assert known_file(str(path), os.lstat(path)) != first
