"""Folders of an index that is one process's own."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from lakemark.index.private import SHARED_MEMORY, private_folders

HOLDS = """
import sys, time
from lakemark.index.private import private_folders
folder = next(private_folders())
print(folder.path, flush=True)
time.sleep(600)
"""


@pytest.fixture
def process():
    """One that has made a folder; its path."""
    begun = subprocess.Popen([sys.executable, "-c", HOLDS], stdout=subprocess.PIPE, text=True)
    try:
        yield begun, Path(begun.stdout.readline().strip())
    finally:
        begun.kill()
        begun.wait()
        begun.stdout.close()


def made():
    folder = next(private_folders())
    folder.remove()
    return folder.path


def age(path):
    os.utime(path, (1, 1))


def test_what_a_killed_process_left_goes_with_the_next(process):
    begun, left = process
    (left / "index.sqlite").write_bytes(b"much")
    begun.send_signal(signal.SIGKILL)
    begun.wait()
    made()
    assert left.exists()  # too young: its process may be about to lock it
    age(left)
    made()
    assert not left.exists()


def test_what_a_process_has_stays_however_old(process):
    _, held = process
    age(held)
    made()
    assert held.exists()


def test_only_folders_of_that_name_go(tmp_path):
    other, link = tmp_path / "of-another", SHARED_MEMORY / "lakemark-index-link-of-a-test"
    other.mkdir()
    link.symlink_to(other)
    try:
        os.utime(link, (1, 1), follow_symlinks=False)
        with tempfile.NamedTemporaryFile(prefix="lakemark-index-", dir=SHARED_MEMORY) as file:
            age(file.name)
            made()
            assert os.path.exists(file.name)
        assert other.exists()
    finally:
        link.unlink()
