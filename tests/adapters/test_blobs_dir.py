"""A directory as a store of objects: whole or not there, read-only, and never full by our doing."""

import io
import stat
import subprocess
import sys
from fractions import Fraction

import pytest

from lakemark.adapters.disk.directory_objects import DirectoryBlobs
from lakemark.errors import Refused, StoreUnavailable
from tests.adapters.disks import tmpfs


def test_objects_are_read_only_and_nothing_else_is_left(tmp_path):
    blobs = DirectoryBlobs(tmp_path)
    assert blobs.write("files/md5/ab/c", io.BytesIO(b"bytes"), 5, overwrite=False)
    assert not blobs.write("files/md5/ab/c", io.BytesIO(b"other"), 5, overwrite=False)
    assert stat.S_IMODE((tmp_path / "files/md5/ab/c").stat().st_mode) == 0o444
    assert blobs.list("").sizes == {"files/md5/ab/c": 5}
    assert list((tmp_path / "lakemark/tmp").glob("[!.]*")) == []
    assert blobs.write("files/md5/ab/c", io.BytesIO(b"other"), 5, overwrite=True)
    assert blobs.get("files/md5/ab/c") == b"other"


def test_a_stream_that_breaks_off_leaves_nothing(tmp_path):
    class Broken(io.RawIOBase):
        def readable(self):
            return True

        def readinto(self, buffer):
            raise ConnectionResetError

    blobs = DirectoryBlobs(tmp_path)
    with pytest.raises(StoreUnavailable):
        blobs.write("x", Broken(), 5, overwrite=False)
    assert blobs.get("x") is None
    assert list((tmp_path / "lakemark/tmp").glob("[!.]*")) == []


def test_listings_stop_where_asked_and_say_so(tmp_path):
    blobs = DirectoryBlobs(tmp_path)
    for number in range(5):
        blobs.create(f"a/{number}", b"x")
    assert len(blobs.list("a/", limit=3).sizes) == 3
    assert not blobs.list("a/", limit=3).complete
    assert blobs.list("a/", limit=5).complete
    assert blobs.list("nowhere/").sizes == {}


def test_min_free_is_kept(tmp_path):
    blobs = DirectoryBlobs(tmp_path, min_free=Fraction(1))
    with pytest.raises(Refused, match="must stay free"):
        blobs.write("x", io.BytesIO(b"x"), 1, overwrite=False)


def test_a_full_disk_is_refused_and_left_clean(require_root, tmp_path):
    with tmpfs(tmp_path / "small", "size=2m") as small:
        blobs = DirectoryBlobs(small)
        endless = io.BytesIO(b"x" * 4 * 2**20)
        with pytest.raises(Refused, match="No space left"):
            blobs.write("x", endless, 1000, overwrite=False)
        assert blobs.list("").sizes == {}
        assert list((small / "lakemark/tmp").glob("[!.]*")) == []


def test_a_directory_closed_to_us_is_denied(require_root, tmp_path):
    (tmp_path / "closed").mkdir(mode=0o700)
    script = """
import os, sys
from pathlib import Path
from lakemark.adapters.disk.directory_objects import DirectoryBlobs
from lakemark.errors import Denied
os.setuid(65534)
try:
    DirectoryBlobs(Path(sys.argv[1])).get("x")
except Denied as error:
    print(error.kind)
"""
    command = [sys.executable, "-c", script, tmp_path / "closed"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "Denied", done.stderr
