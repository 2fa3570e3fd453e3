"""Durable files: whole or not there, and never over what exists."""

import errno
import os
import threading
from contextlib import suppress

import pytest

from lakemark.adapters.disk import files
from lakemark.adapters.disk.workbench import Workbench
from lakemark.errors import Conflict, Corrupt, Denied, NotFound, Refused, StoreUnavailable


def test_an_atomic_write_replaces_and_leaves_nothing_else(tmp_path):
    files.write_atomic(tmp_path / "a", b"one")
    files.write_atomic(tmp_path / "a", b"two")
    assert (tmp_path / "a").read_bytes() == b"two"
    assert os.listdir(tmp_path) == ["a"]


def test_write_once_keeps_the_first(tmp_path):
    assert files.write_once(tmp_path / "a", b"one")
    assert not files.write_once(tmp_path / "a", b"two")
    assert (tmp_path / "a").read_bytes() == b"one"
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("rename", [files.rename_new, lambda a, b: files._rename_new_without_flags(str(a), str(b))])
@pytest.mark.parametrize("kind", ["file", "directory"])
def test_a_rename_replaces_nothing(tmp_path, rename, kind):
    source, target = tmp_path / "source", tmp_path / "target"
    if kind == "file":
        source.write_text("new")
    else:
        (source / "deep").mkdir(parents=True)
    target.write_text("old")
    with pytest.raises(FileExistsError):
        rename(source, target)
    assert target.read_text() == "old"
    target.unlink()
    rename(source, target)
    assert target.exists()
    assert not source.exists()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errno.ENOSPC, Refused),
        (errno.EDQUOT, Refused),
        (errno.EACCES, Denied),
        (errno.EROFS, Denied),
        (errno.ENOENT, NotFound),
        (errno.EEXIST, Conflict),
        (errno.EIO, Corrupt),
        (errno.ENAMETOOLONG, Refused),
        (errno.ESTALE, StoreUnavailable),
        (errno.ETIMEDOUT, StoreUnavailable),
    ],
)
def test_errors_of_the_system_are_ours(code, kind):
    with pytest.raises(kind, match="some where") as caught, files.os_errors("some where"):
        raise OSError(code, os.strerror(code))
    assert caught.value.advice


def test_a_removed_tree_takes_nothing_it_links_to(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("x")
    (tmp_path / "tree" / "deep").mkdir(parents=True)
    (tmp_path / "tree" / "link").symlink_to(tmp_path / "kept")
    files.remove_tree(tmp_path / "tree")
    files.remove_tree(tmp_path / "tree")
    assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))] == ["kept", "kept/file"]


def test_a_tree_goes_although_somebody_looks_into_it(tmp_path):
    """Looking whether it is dead makes its lock file: between the listing and the removal, too."""
    done = threading.Event()

    def look():
        while not done.is_set():
            for number in range(40):
                with suppress(FileNotFoundError):
                    os.close(files.open_lock(tmp_path / str(number)))

    lookers = [threading.Thread(target=look) for _ in range(2)]
    for thread in lookers:
        thread.start()
    try:
        for number in [*range(40)] * 5:
            place = tmp_path / str(number)
            place.mkdir()
            files.remove_tree(place)
            assert not place.exists()
    finally:
        done.set()
        for thread in lookers:
            thread.join()


@pytest.mark.parametrize("token", ["", ".", "..", "../outside", "a/b"])
def test_a_bench_gives_nothing_outside_itself(tmp_path, token):
    (tmp_path / "outside").mkdir()
    bench = Workbench(tmp_path / "bench")
    place = bench.begin()
    assert bench.find(place.name) == place
    with pytest.raises(NotFound):
        bench.find(token)
    bench.end(place.name)
