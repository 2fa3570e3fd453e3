"""The user's files on this node's disk, as they are looked at."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Protocol

from lakemark.model.checkpoints.survey import Survey


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFile:
    """A regular file's identity. A file keeps it under any name until it is written.

    inode: 0 where the mount gives no lasting numbers. mark: what another file can't have though it got the inode's number
    and was given the same size and times: its birth time, else a hash of its ends. Empty: nobody looked.

    What follows is of the look at it, no part of who it is. ctime_ns: as it was before its bytes were read; 0: not known. It
    can't be set: while it stands nothing was written, and where it moved on, only the bytes tell whether something was.
    place: its path. digest: of its bytes as a manifest has it; empty: they were not read.
    """

    device: int
    inode: int
    size_bytes: int
    mtime_ns: int
    mark: str = ""
    ctime_ns: int = field(default=0, compare=False)
    place: str = field(default="", compare=False)
    digest: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class OnDisk:
    """A regular file of a checkpoint as it lies there. path: as its manifest would say. names: hard links to it."""

    path: str
    file: KnownFile
    names: int = 1


class Files(Protocol):
    """Looks at files of the user, and changes nothing."""

    def exists(self, path: Path) -> bool: ...

    def resolved(self, path: Path) -> Path:
        """The same place by the name that has no link in it; what is not there is taken as it is written."""

    def regular(self, path: Path, members: Sequence[Path] = ()) -> tuple[OnDisk, ...]:
        """The regular files of a checkpoint, in order of path: of `path`, or of `members` where it consists of these.

        A `path` that is a link is what it names, as it is where it lands. Raises NotFound, Denied.
        """

    def identities(self, path: Path) -> tuple[KnownFile, ...]:
        """Of the regular files at or under `path`."""

    def is_gone(self, file: KnownFile) -> bool:
        """Whether it is proven that `file` lies at its place no more.

        The folder of that place, or the nearest above it that is there, is on the file's device and has no such name, or has
        another file by it. False where that can't be told, as of a disk that is not mounted.
        """

    def require_keepable(self, path: Path, members: Sequence[Path] = ()) -> None:
        """Raises Refused where no tier could keep what lies there, however long one waits. Reads no bytes.

        For names, for links that lead out, for anything that is no file, directory or link. Also NotFound, Denied.
        """

    def last_change(self, paths: Iterable[Path]) -> datetime | None:
        """When anything at or under `paths`, directories too, was written last; None where nothing is there."""

    def survey(self, root: Path) -> Survey | None:
        """All directories at or under `root`, and the regular files in them, as they are. Nothing is followed below `root`.

        None where that could not tell what changes: something can't be read, there are a million of them, or the file system
        is one whose directories' times tell nothing.
        """

    def same(self, before: Survey) -> bool:
        """Whether all that `before` names is as it was. No directory is listed for it."""

    def digest(self, path: Path) -> str:
        """Of one regular file, as a manifest has it. Reads all of it. Raises NotFound, Denied."""
