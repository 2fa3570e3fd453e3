"""One process at a time in a directory that trainers save into, on every machine that shares it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from lakemark.adapters.disk.files import make_directories, open_lock, os_errors

_ASIDE: Final = ".lakemark-aside"
_LOCK: Final = ".lock"


@contextmanager
def alone(directory: Path) -> Iterator[None]:
    """See `ports.Workspace.alone`."""
    folder = directory / _ASIDE
    with os_errors(directory):
        descriptor = _held(folder)
    try:
        yield
    finally:
        with suppress(OSError):  # others' things are in it: they tidy up
            # While it is held: who waits for it sees then that it is no longer the one of that name, and opens anew.
            os.unlink(folder / _LOCK)
            os.rmdir(folder)
        os.close(descriptor)


def _held(folder: Path) -> int:
    """The open lock, which is still the one that others would open."""
    while True:
        make_directories(folder)
        try:
            descriptor = open_lock(folder)
        except FileNotFoundError:  # whoever held it before tidied up
            continue
        with suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.stat(folder / _LOCK)):
                return descriptor
        os.close(descriptor)
