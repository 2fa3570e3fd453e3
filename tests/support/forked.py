"""Command lines in processes of their own, forked from one that has everything loaded and disks that can be made to fail."""

import ctypes
import multiprocessing
import os
import sys
from multiprocessing import forkserver

FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(["tests.faults.warmed"])


def start_forking(library):
    """library: the compiled `bad_disk.c`, preloaded into whatever is forked from here on."""
    os.environ["LD_PRELOAD"] = str(library)
    try:
        forkserver.ensure_running()
    finally:
        del os.environ["LD_PRELOAD"]


def begun(lines, environ, folder, *, at=None):
    """One process for all of these command lines, as long as they end well; what it says is in `folder`: `out`, `err`.

    at: where it runs; by default where the first of all was started.
    """
    process = FORKED.Process(target=_lakemark, args=(lines, environ, str(folder), at))
    process.start()
    return process


def said(folder, name):
    return (folder / name).read_text() if (folder / name).exists() else ""


def _lakemark(lines, environ, folder, at):
    """In the forked process: command lines one after the other, their streams in files. It ends with the first that fails."""
    for name, number in (("out", 1), ("err", 2)):
        descriptor = os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(descriptor, number)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", closefd=False)
    os.environ.update(environ)
    if at is not None:
        os.chdir(at)
    ctypes.CDLL(None).bad_disk_anew()
    from lakemark.cli import run

    code = next((code for words in lines if (code := run(list(words), environ=environ))), 0)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
