"""Looks at a trainer's tree without touching it: what is there, and whether it is still being written."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lakemark.adapters.files import as_ours
from lakemark.errors import Incomplete, NotFound, Refused, quoted
from lakemark.model.checkpoint import FileType, check_path, check_target

_LATER: Final = "Let the trainer finish and commit it again; the next `lakemark sweep` does so too."


@dataclass(frozen=True, slots=True)
class Seen:
    """One path of the tree as it was found. `target`: of a symlink."""

    path: str
    type: FileType
    stat: os.stat_result
    target: str | None = None

    def same_file(self, now: os.stat_result) -> bool:
        """Not ctime: it changes with our own link."""
        then = self.stat
        return (then.st_dev, then.st_ino, then.st_size, then.st_mtime_ns) == (
            now.st_dev,
            now.st_ino,
            now.st_size,
            now.st_mtime_ns,
        )


def scan(source: Path) -> dict[str, Seen]:
    """Everything below `source` (or the one file it is), by path, in order.

    Raises NotFound, Denied, Incomplete (vanished meanwhile), Refused: names that can't be kept, links that lead out,
    anything that is not a file, a directory or a symlink.
    """
    try:
        top = os.lstat(source)
    except FileNotFoundError as error:
        raise NotFound(
            f"there is nothing at {quoted(str(source))}", advice="Check the path; `lakemark inspect` looks at one."
        ) from error
    except OSError as error:
        raise as_ours(error, source) from error
    found = list(_walk(source, "")) if stat.S_ISDIR(top.st_mode) else [_seen(source.name, source, top)]
    return {seen.path: seen for seen in sorted(found, key=lambda seen: seen.path)}


def require_unchanged(before: dict[str, Seen], after: dict[str, Seen]) -> None:
    """Raises Incomplete naming the first path that is new, gone or was written between two scans."""
    for path in sorted(before.keys() | after.keys()):
        then, now = before.get(path), after.get(path)
        if now is None:
            raise gone(path)
        if then is None:
            raise changed(path, "appeared")
        if then.type is not now.type or then.target != now.target:
            raise changed(path, "was replaced")
        if then.type is FileType.FILE and not then.same_file(now.stat):
            raise changed(path, "was written")


def gone(path: str) -> Incomplete:
    """To raise where a file that was seen is not there any more."""
    return Incomplete(f"{quoted(path)} is gone: it vanished while it was landed", advice=_LATER)


def changed(path: str, how: str = "changed") -> Incomplete:
    """To raise where a file is not what was seen."""
    return Incomplete(f"{quoted(path)} {how} while it was landed", advice=_LATER)


def is_closed(descriptor: int) -> bool | None:
    """Whether nobody has the file open for writing or mapped writable, under any name; None where that can't be proven.

    By a read lease taken and given back at once. Should a writer open the file in between, the signal that breaks the
    lease is one that nobody hears.
    """
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:
        return False if error.errno == errno.EAGAIN else None
    with suppress(OSError):
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return True


def require_closed(descriptor: int, path: str) -> None:
    """Raises Incomplete where somebody provably has the file open for writing."""
    if is_closed(descriptor) is False:
        raise Incomplete(f"{quoted(path)} is still open for writing", advice=_LATER)


def _walk(folder: Path, prefix: str) -> Iterator[Seen]:
    try:
        with os.scandir(folder) as listing:
            entries = list(listing)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise gone(prefix or folder.name) from error
    except OSError as error:
        raise as_ours(error, folder) from error
    for entry in entries:
        path = f"{prefix}{entry.name}"
        check_path(path)
        try:
            found = entry.stat(follow_symlinks=False)
        except FileNotFoundError as error:
            raise gone(path) from error
        if stat.S_ISDIR(found.st_mode):
            below = list(_walk(Path(entry.path), f"{path}/"))
            yield from below or [Seen(path, FileType.DIRECTORY, found)]
        else:
            yield _seen(path, Path(entry.path), found)


def _seen(path: str, place: Path, found: os.stat_result) -> Seen:
    check_path(path)
    if stat.S_ISREG(found.st_mode):
        return Seen(path, FileType.FILE, found)
    if stat.S_ISLNK(found.st_mode):
        try:
            target = os.readlink(place)
        except OSError as error:
            raise gone(path) from error
        check_target(path, target)
        return Seen(path, FileType.SYMLINK, found, target)
    raise Refused(
        f"{quoted(path)} is a {_kind(found.st_mode)}, not a file, directory or symlink",
        advice="Save the checkpoint without it.",
    )


def _kind(mode: int) -> str:
    kinds = {stat.S_IFIFO: "FIFO", stat.S_IFSOCK: "socket", stat.S_IFBLK: "device", stat.S_IFCHR: "device"}
    return kinds.get(stat.S_IFMT(mode), "special file")
