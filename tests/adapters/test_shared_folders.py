"""Folders that several accounts keep: what lakemark makes there is the group's too, whatever the umask; elsewhere not."""

import os
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pygit2
import pytest

from lakemark.adapters.disk.directory_objects import DirectoryBlobs
from lakemark.adapters.disk.files import make_directories, open_lock, write_atomic, write_new, write_once
from lakemark.adapters.disk.workbench import Workbench
from lakemark.adapters.git import make
from lakemark.adapters.git.file_lock import acquired
from lakemark.adapters.hot.tree_files import keep_rights
from lakemark.adapters.node.journal import SqliteJournal
from lakemark.adapters.node.service_lock import Held
from lakemark.index import Index
from lakemark.trainer.together import make_folders, share


@pytest.fixture(params=[0o022, 0o077], ids=oct)
def careless(request):
    """The umask of somebody who did not think of others."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.fixture
def shared(tmp_path):
    place = tmp_path / "shared"
    place.mkdir()
    place.chmod(0o2770)
    return place


def mode(path):
    return stat.S_IMODE(os.lstat(path).st_mode)


def everything(folder):
    return [os.path.join(top, name) for top, folders, names in os.walk(folder) for name in (*folders, *names)]


def make_all(folder, *, access="group"):
    make_directories(folder / "a/b")
    write_new(folder / "a/new", b"x")
    write_atomic(folder / "a/b/atomic", b"x")
    write_once(folder / "a/once", b"x")
    os.close(open_lock(folder / "a"))
    os.close(acquired(folder / "turn", seconds=1))
    Held(folder / "run/held", what="it", advice="").close()
    bench = Workbench(folder / "bench")
    with bench.shared():
        bench.begin()
    SqliteJournal(folder / "journal.sqlite").close()
    Index(folder / "index.sqlite").close()
    make.init(folder / "ledger.git")
    make_folders(str(folder / "spool/r1"))
    (folder / "spool/r1/one").write_text("x")
    share(str(folder / "spool/r1/one"))
    blobs = DirectoryBlobs(folder / "cold", access=access)
    blobs.prepare()
    blobs.create("files/md5/ab/c", b"x")


def test_the_group_may_do_what_its_owner_may(shared, careless):
    make_all(shared)
    made = everything(shared)
    assert len(made) > 300
    for path in made:
        found = os.lstat(path)
        rights = stat.S_IMODE(found.st_mode)
        assert rights >> 3 & 0o7 == rights >> 6 & 0o7, (path, oct(rights))
        assert not rights & 0o007 or careless == 0o022, path
        assert found.st_mode & stat.S_ISGID or not stat.S_ISDIR(found.st_mode), path


def test_git_programs_know_that_the_ledger_is_shared(shared, careless):
    make.init(shared / "ledger.git")
    assert pygit2.Repository(str(shared / "ledger.git")).config["core.sharedRepository"] == "group"
    done = subprocess.run(
        ["git", "-C", shared / "ledger.git", "hash-object", "-w", "--stdin"],
        input=b"x",
        capture_output=True,
        check=True,
    )
    name = done.stdout.decode().strip()
    assert mode(shared / "ledger.git/objects" / name[:2] / name[2:]) & 0o440 == 0o440


@pytest.mark.parametrize("rights", [0o755, 0o775, 0o2755, 0o700], ids=oct)
def test_elsewhere_nobody_gets_more_than_the_umask_leaves(tmp_path, careless, rights):
    place = tmp_path / "place"
    place.mkdir()
    place.chmod(rights)
    make_all(place, access="owner")
    for path in everything(place):
        given = mode(path) & 0o777
        assert not given & careless, path
        assert not given & 0o022, path
    assert "core.sharedRepository" not in pygit2.Repository(str(place / "ledger.git")).config


def test_what_one_account_keeps_to_itself_stays_its_own(shared):
    write_new(shared / "secret", b"x", mode=0o600)
    assert mode(shared / "secret") == 0o600
    blobs = DirectoryBlobs(shared / "cold", access="owner")
    blobs.prepare()
    assert mode(shared / "cold") & 0o777 == 0o700


def test_a_tree_that_others_of_the_group_may_drop_keeps_its_files_as_they_were_saved(shared):
    tree = shared / "tree"
    (tree / "deep").mkdir(parents=True)
    write_new(tree / "deep/model", b"x", mode=0o400)
    (tree / "deep/model").chmod(0o400)
    keep_rights(tree, {".": 0o700, "deep": 0o750})
    assert [oct(mode(path)) for path in (tree, tree / "deep", tree / "deep/model")] == ["0o2770", "0o2770", "0o400"]


def test_folders_that_many_make_at_once_are_all_the_group_s(shared, careless):
    def make(number):
        for branch in range(20):
            path = shared / f"a{branch}/b/c{number % 3}"
            make_directories(path)
            write_atomic(path / f"file-{number}", b"x")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(make, range(8)))
    closed = [path for path in everything(shared) if mode(path) >> 3 & 0o7 != mode(path) >> 6 & 0o7]
    assert closed == []
    assert len(everything(shared)) == 20 * (2 + 3 + 8)
