"""What we keep in a directory that trainers save into: `.lakemark-aside`, whose lock lets one process at a time work there."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from lakemark.adapters.disk.files import fsync_directory, make_directories, open_lock, os_errors, rename_new
from lakemark.errors import NotFound, quoted

_ASIDE: Final = ".lakemark-aside"
_LOCK: Final = ".lock"
_MOST_NAMESAKES: Final = 10_000


@contextmanager
def alone(directory: Path) -> Iterator[None]:
    """See `ports.Restorer.alone`."""
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


def move_aside(paths: Iterable[Path], into: Path) -> tuple[Path, ...]:
    """See `ports.Restorer.move_aside`."""
    with os_errors(into):
        make_directories(into)
        leaving = tuple(paths)
        moved = tuple(_moved(path, into) for path in leaving)
        for folder in {into, *(path.parent for path in leaving)}:
            fsync_directory(folder)
    return moved


def tidy(path: Path) -> None:
    """Only what is empty goes, and nothing above `.lakemark-aside`."""
    while _ASIDE in path.parts:
        try:
            os.rmdir(path)
        except OSError:
            return
        path = path.parent


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


def _moved(path: Path, into: Path) -> Path:
    """Where `path` is afterwards. One that an interrupted call moved already is found there."""
    for number in range(1, _MOST_NAMESAKES):
        target = into / (path.name if number == 1 else f"{path.name}.{number}")
        try:
            rename_new(path, target)
        except FileExistsError:
            continue
        except FileNotFoundError:
            # The name that an interrupted call moved it to; under a later one another file of that name may lie.
            if number == 1 and os.path.lexists(target):
                return target
            raise NotFound(f"{quoted(str(path))} is not there to be moved", advice="Look at the directory.") from None
        return target
    raise NotFound(f"{quoted(str(into))} has no room for another {path.name!r}", advice="Clear it out.")
