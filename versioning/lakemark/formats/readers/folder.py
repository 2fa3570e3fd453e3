"""A directory as it was listed once: names and kinds. Nothing is followed; nothing is opened unless it is asked for."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import BinaryIO, Final

# The texts that are read whole are pointers, configurations and states of trainers.
_LONGEST_TEXT_BYTES: Final = 4 * 2**20
# Links are not followed, so this ends only what is nested on purpose or by a script that went wrong.
_DEEPEST: Final = 64
_APPLE_DOUBLE: Final = "._"
_LISTED: Final = frozenset({"kinds", "files", "folders", "links", "suffixes"})


class NameKind(Enum):
    """What a name is, links not followed."""

    FILE = "file"
    FOLDER = "folder"
    LINK = "link"
    OTHER = "other"


class Unreadable(Exception):
    """A file that is gone, may not be read, or is no regular file. Its text says which."""


class Folder:
    """`at`: its path; names are as the file system has them, undecodable bytes as surrogates. depth: 0 where a search began.

    Names of things inside are relative, with `/`. A folder that can't be listed is empty and says why in `problem`.
    It is listed when one of these is first asked for. kinds: its own names, sorted. files: the regular ones. suffixes: what
    comes after the last dot of its files' names (empty text for none), to ask before looking at each name. What macOS keeps
    beside a file on foreign file systems, as `._<name>`, is not listed.
    """

    name: str
    kinds: dict[str, NameKind]
    files: tuple[str, ...]
    folders: tuple[str, ...]
    links: tuple[str, ...]
    suffixes: frozenset[str]

    def __init__(self, at: str, depth: int = 0) -> None:
        self.at = at
        self.depth = depth
        self.problem: str | None = None
        self.name = at.rstrip("/").rpartition("/")[2]
        self._subs: dict[str, Folder] = {}

    @classmethod
    def of(cls, path: Path, *, depth: int = 0) -> Folder:
        return cls(os.fspath(path), depth)

    @property
    def path(self) -> Path:
        return Path(self.at)

    @property
    def parent(self) -> Folder:
        """Listed anew at each call."""
        above = os.path.dirname(self.at.rstrip("/") or "/") or "."  # noqa: PTH120 - the text
        return Folder(above, max(self.depth - 1, 0))

    def __getattr__(self, name: str) -> object:
        """Called for what is not there yet: a search makes a million of these, and a property costs at every look."""
        # Without this a missing attribute of a subclass, or copy() and pickle, would list the folder.
        if name not in _LISTED:
            raise AttributeError(name)
        self._list()
        return self.__dict__[name]

    def _list(self) -> None:
        found: dict[str, NameKind] = {}
        try:
            with os.scandir(self.at) as entries:
                for entry in entries:
                    try:
                        found[entry.name] = NameKind.FILE if entry.is_file(follow_symlinks=False) else _kind(entry)
                    # It went while the folder was listed, or its file system can't say what it is.
                    except OSError:
                        found[entry.name] = NameKind.OTHER
        except OSError as error:
            self.problem = error.strerror or "it can't be listed"
        # Sorted: what is found first, and so every answer, must not depend on the order of a file system.
        names = sorted(name for name in found if not name.startswith(_APPLE_DOUBLE))
        self.kinds = {name: found[name] for name in names}
        self.files = tuple([name for name in names if found[name] is NameKind.FILE])
        self.folders = tuple([name for name in names if found[name] is NameKind.FOLDER])
        self.links = tuple([name for name in names if found[name] is NameKind.LINK])
        self.suffixes = frozenset([name.rpartition(".")[2] if "." in name else "" for name in self.files])

    def has_file(self, name: str) -> bool:
        return self.kinds.get(name) is NameKind.FILE

    def is_file(self, name: str) -> bool:
        """As `has_file`, and the folder is not listed for it."""
        try:
            return stat.S_ISREG(os.lstat(f"{self.at}/{name}").st_mode)
        except OSError:
            return False

    def has_folder(self, name: str) -> bool:
        return self.kinds.get(name) is NameKind.FOLDER

    def sub(self, name: str) -> Folder:
        """A folder directly in it, listed once."""
        if name not in self._subs:
            self._subs[name] = Folder(f"{self.at.rstrip('/')}/{name}", self.depth + 1)
        return self._subs[name]

    def listed(self) -> list[str]:
        """Where the folders in it lie that `sub` made, at any depth."""
        below = [one for sub in self._subs.values() for one in sub.listed()]
        return [*(sub.at for sub in self._subs.values()), *below]

    def walk(self) -> Iterator[tuple[str, NameKind]]:
        """Everything inside at any depth, folders before what they hold. A part that can't be listed sets `problem`."""
        pending = [("", self)]
        while pending:
            inside, folder = pending.pop()
            for name, kind in folder.kinds.items():
                yield f"{inside}{name}", kind
                # One that lies deeper is named, and nothing in it is.
                if kind is NameKind.FOLDER and folder.depth - self.depth < _DEEPEST:
                    pending.append((f"{inside}{name}/", folder.sub(name)))
            # A part that may not be read makes the whole unjudged: files in it could be cut.
            self.problem = self.problem or folder.problem

    def stat(self, name: str) -> os.stat_result:
        """Of the name itself, not of what a link names. Raises Unreadable."""
        try:
            return os.lstat(f"{self.at}/{name}")
        except OSError as error:
            raise Unreadable(error.strerror or "it is gone") from error

    def size_bytes(self, name: str) -> int:
        """Raises Unreadable."""
        return self.stat(name).st_size

    @contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        """A regular file to read from, never through a link, never waiting for a pipe. Raises Unreadable."""
        try:
            # O_NONBLOCK: opening a pipe that nobody writes to would wait for ever; of a regular file it changes nothing.
            descriptor = os.open(f"{self.at}/{name}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise Unreadable(f"it can't be read: {error.strerror}") from error
        # Of what was opened, not of the name: the name may mean something else by now.
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise Unreadable("it is no regular file")
        with os.fdopen(descriptor, "rb") as stream:
            yield stream

    def text(self, name: str, *, longest_bytes: int = _LONGEST_TEXT_BYTES) -> str:
        """A small text file, undecodable bytes replaced. Raises Unreadable, also for one that is longer."""
        with self.open(name) as stream:
            longer = os.fstat(stream.fileno()).st_size > longest_bytes
            # One more than allowed: a file that grows while it is read is seen to be too long.
            content = b"" if longer else stream.read(longest_bytes + 1)
        if longer or len(content) > longest_bytes:
            raise Unreadable(f"it is longer than {longest_bytes} bytes")
        return content.decode(errors="replace")


def _kind(entry: os.DirEntry[str]) -> NameKind:
    if entry.is_dir(follow_symlinks=False):
        return NameKind.FOLDER
    return NameKind.LINK if entry.is_symlink() else NameKind.OTHER
