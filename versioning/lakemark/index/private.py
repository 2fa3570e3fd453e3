"""Folders for an index of one process alone, where the shared one can't be used: they go with it, also where it is killed."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - made by mkdtemp, for this user alone
_PREFIX: Final = "lakemark-index-"
_JUST_MADE_SECONDS: Final = 60
"""A folder younger than this may belong to a process that has not locked it yet."""


@dataclass(frozen=True, slots=True)
class PrivateFolder:
    """lock: a descriptor of the folder, locked for as long as its process lives."""

    path: Path
    lock: int

    def remove(self) -> None:
        """Once; its owner needs it no more."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.lock)


def private_folders() -> Iterator[PrivateFolder]:
    """New ones, in memory first; the caller removes those it was given. What killed processes left there goes before."""
    # Memory first: where it is needed, the disk is often what fails.
    for place in (SHARED_MEMORY, Path(tempfile.gettempdir())):
        with suppress(OSError):
            path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
            _remove_left(place, now=path.stat().st_mtime)
            yield PrivateFolder(path, _locked(path))


def _remove_left(place: Path, *, now: float) -> None:
    """now: by the clock of that file system. The kernel frees a lock with its process: what can be locked belongs to nobody."""
    for path in place.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            found = path.lstat()
            mine = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
            if mine and now - found.st_mtime > _JUST_MADE_SECONDS:
                PrivateFolder(path, _locked(path)).remove()


def _locked(path: Path) -> int:
    """Raises OSError: BlockingIOError where another process has it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
