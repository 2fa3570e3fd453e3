"""Looks at a trainer's tree without touching it: what is there, and whether it is still being written."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from lakemark.adapters.disk.file_identity import known_file
from lakemark.adapters.disk.files import as_ours
from lakemark.errors import Incomplete, NotFound, Refused, Unsteady, quoted
from lakemark.model.checkpoints.manifest import FileType, check_links, check_path, check_target
from lakemark.ports.files import KnownFile

# Fewer bytes of holes than this are written as zeros: finding them again would cost more than it saves.
_WORTH_BYTES: Final = 2**20
_LATER: Final = "Let the trainer finish and commit it again; the next `lakemark sweep` does so too."


class FileStat(NamedTuple):
    """What is kept of a stat result, under its names: a tree may have a hundred thousand files."""

    st_dev: int
    st_ino: int
    st_mode: int
    st_size: int
    st_mtime_ns: int
    st_ctime_ns: int
    st_blocks: int

    @classmethod
    def of(cls, found: os.stat_result) -> FileStat:
        return cls(
            found.st_dev,
            found.st_ino,
            found.st_mode,
            found.st_size,
            found.st_mtime_ns,
            found.st_ctime_ns,
            found.st_blocks,
        )


@dataclass(frozen=True, slots=True)
class ScannedPath:
    """One path of the tree as it was found. `target`: of a symlink. `known`: of a regular file."""

    path: str
    type: FileType
    stat: FileStat
    target: str | None = None
    known: KnownFile | None = None

    @property
    def sparse(self) -> bool:
        """Whether it has holes worth keeping: the disk holds less of it than its size."""
        return self.stat.st_size - self.room_bytes >= _WORTH_BYTES

    @property
    def room_bytes(self) -> int:
        """What a copy of it needs."""
        # `st_blocks` counts in 512 bytes, whatever the file system's own blocks are.
        return min(self.stat.st_size, self.stat.st_blocks * 512)

    @property
    def steady(self) -> bool:
        """Whether its inode's number says who it is."""
        return self.known is None or self.known.inode != 0

    def same_file(self, now: os.stat_result | FileStat) -> bool:
        """By its inode, not by ctime, which changes with our own link; by ctime, which can't be set, where inodes change."""
        then = self.stat
        who, whose = (then.st_ino, now.st_ino) if self.steady else (then.st_ctime_ns, now.st_ctime_ns)
        return (then.st_dev, who, then.st_size, then.st_mtime_ns) == (now.st_dev, whose, now.st_size, now.st_mtime_ns)


def place_of(source: Path, members: Sequence[Path]) -> tuple[Path, tuple[str, ...]]:
    """What is to be scanned, a link to it resolved, and which paths in it; none: all.

    Refused where members don't lie beneath the folder that `source` is in: then they are not one checkpoint.
    """
    if not members:
        return Path(os.path.realpath(source)), ()
    base = source.parent
    if not all(member != base and member.is_relative_to(base) for member in members):
        folders = len({member.parent for member in members})
        raise Refused(
            f"what {quoted(str(source))} consists of lies in {folders} folders, not all of them in {quoted(str(base))}",
            advice="`lakemark inspect` of the folder above them says what belongs together, and by which path.",
        )
    return Path(os.path.realpath(base)), tuple(sorted({member.relative_to(base).as_posix() for member in members}))


def scan(source: Path, members: Sequence[str] = ()) -> dict[str, ScannedPath]:
    """Everything below `source` (or the one file it is), by path, in order; of a directory only `members`, where given.

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
    if members:
        found = [seen for name in members for seen in _member(source, name)]
    else:
        found = list(_walk(str(source), "")) if stat.S_ISDIR(top.st_mode) else [_seen(source.name, str(source), top)]
    # Once all are known: a link may lead through another one.
    check_links({seen.path: seen.target for seen in found if seen.target is not None})
    return {seen.path: seen for seen in sorted(found, key=lambda seen: seen.path)}


def require_unchanged(before: dict[str, ScannedPath], after: dict[str, ScannedPath]) -> None:
    """Raises Incomplete naming the first path that is new, gone or was written between two scans."""
    for path in sorted(before.keys() | after.keys()):
        then, now = before.get(path), after.get(path)
        if now is None:
            raise gone(path)
        if then is None:
            raise changed(path, "appeared")
        if then.type is not now.type or then.target != now.target:
            raise changed(path, "was replaced")
        # A directory's stamps move whenever a name in it comes or goes: those are compared one by one.
        if then.type is FileType.FILE and not then.same_file(now.stat):
            raise changed(path, "was written")


def gone(path: str) -> Incomplete:
    """To raise where a file that was seen is not there any more."""
    return Incomplete(f"{quoted(path)} is gone: it vanished while it was landed", advice=_LATER)


def changed(path: str, how: str = "changed") -> Unsteady:
    """To raise where a file is not what was seen."""
    return Unsteady(f"{quoted(path)} {how} while it was landed", advice=_LATER)


def is_closed(descriptor: int) -> bool | None:
    """Whether nobody has the file open for writing or mapped writable, under any name; None where that can't be proven.

    By a read lease taken and given back at once. Should a writer open the file in between, the signal that breaks the
    lease is one that nobody hears.
    """
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:
        # EAGAIN alone proves a writer: EACCES says that leases are for the file's owner, others that there are none here.
        return False if error.errno == errno.EAGAIN else None
    with suppress(OSError):
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return True


def require_closed(descriptor: int, path: str) -> None:
    """Raises Incomplete where somebody provably has the file open for writing."""
    if is_closed(descriptor) is False:
        raise Unsteady(f"{quoted(path)} is still open for writing", advice=_LATER)


def _member(folder: Path, name: str) -> list[ScannedPath]:
    """One path that was asked for, with all below it. Raises Incomplete where it is gone."""
    check_path(name)
    try:
        found = os.lstat(folder / name)
    except FileNotFoundError as error:
        raise gone(name) from error
    except OSError as error:
        raise as_ours(error, folder / name) from error
    return _entry(name, str(folder / name), found)


def _walk(folder: str, prefix: str) -> Iterator[ScannedPath]:
    """Everything below `folder`, whose paths begin with `prefix`. Raises Incomplete where something vanishes meanwhile."""
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise gone(prefix or folder) from error
    except OSError as error:
        raise as_ours(error, folder) from error
    for name in names:
        path, place = f"{prefix}{name}", f"{folder}/{name}"
        check_path(path)
        try:
            found = os.lstat(place)
        except FileNotFoundError as error:
            raise gone(path) from error
        yield from _entry(path, place, found)


def _entry(path: str, place: str, found: os.stat_result) -> list[ScannedPath]:
    """A directory is what is in it; only an empty one stands for itself."""
    if stat.S_ISDIR(found.st_mode):
        return list(_walk(place, f"{path}/")) or [ScannedPath(path, FileType.DIRECTORY, FileStat.of(found))]
    return [_seen(path, place, found)]


def _seen(path: str, place: str, found: os.stat_result) -> ScannedPath:
    """Raises Incomplete where it vanished, Refused for what can't be kept."""
    check_path(path)
    if stat.S_ISREG(found.st_mode):
        try:
            return ScannedPath(path, FileType.FILE, FileStat.of(found), known=known_file(place, found))
        except FileNotFoundError as error:
            raise gone(path) from error
    if stat.S_ISLNK(found.st_mode):
        try:
            target = os.readlink(place)
        except OSError as error:
            raise gone(path) from error
        check_target(path, target)
        return ScannedPath(path, FileType.SYMLINK, FileStat.of(found), target)
    raise Refused(
        f"{quoted(path)} is a {_kind(found.st_mode)}, not a file, directory or symlink",
        advice="Save the checkpoint without it.",
    )


def _kind(mode: int) -> str:
    kinds = {stat.S_IFIFO: "FIFO", stat.S_IFSOCK: "socket", stat.S_IFBLK: "device", stat.S_IFCHR: "device"}
    return kinds.get(stat.S_IFMT(mode), "special file")
