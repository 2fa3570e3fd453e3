"""Files below one root and nowhere else: every directory on the way is opened without following links.

A tier's keys are made of names that come from outside, and whoever may write into a directory tier may put a link there. The
root itself is whatever the configuration names, links and all.
"""

from __future__ import annotations

import errno
import os
import shlex
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from lakemark.adapters.disk.files import make_directory
from lakemark.errors import Corrupt, Refused, quoted

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_SUCH: Final = frozenset({errno.ENOTDIR, errno.ELOOP})


class Below:
    """root: need not exist yet. Raises OSErrors as they come, Refused for a name or link that leads elsewhere."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @contextmanager
    def parent(self, key: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """The directory that a key's last name is in, opened, and that name. make: what is missing on the way, durably.

        Raises FileNotFoundError and NotADirectoryError as a path would.
        """
        *folders, name = self._names(key)
        # By descriptors from here on: a path would be looked up anew each time, and might lead through a link by then.
        here = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for folder in folders:
                there = self._enter(here, folder, key, make=make)
                os.close(here)
                here = there
            yield here, name
        finally:
            os.close(here)

    def open(self, key: str) -> int:
        """A regular file, for reading; nothing else is opened: a pipe would keep its reader waiting for good. Else Corrupt."""
        with self.parent(key) as (folder, name):
            try:
                descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
            except OSError as error:
                # A link answers ELOOP, a socket ENXIO.
                if error.errno in (errno.ELOOP, errno.ENXIO):
                    raise self._no_file(key) from error
                raise
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise self._no_file(key)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def size(self, key: str) -> int:
        """Of whatever has that name."""
        with self.parent(key) as (folder, name):
            return os.stat(name, dir_fd=folder, follow_symlinks=False).st_size

    def unlink(self, key: str) -> None:
        """Durable on return."""
        with self.parent(key) as (folder, name):
            os.unlink(name, dir_fd=folder)
            os.fsync(folder)

    def require_real(self, key: str) -> None:
        """Refused where a directory on the way to `key`, or that itself, is a link."""
        with suppress(FileNotFoundError, NotADirectoryError), self.parent(f"{key.rstrip('/')}/x"):
            pass

    def _enter(self, here: int, folder: str, key: str, *, make: bool) -> int:
        """A directory in the open one `here`, opened. Raises Refused for a link, FileNotFoundError, NotADirectoryError."""
        try:
            return os.open(folder, _DIRECTORY, dir_fd=here)
        except FileNotFoundError:
            if not make:
                raise
            with suppress(FileExistsError):
                make_directory(folder, within=here)
            # Also where another process made it: that one may not have come to it yet.
            os.fsync(here)
            return os.open(folder, _DIRECTORY, dir_fd=here)
        except OSError as error:
            # A link in a directory's place answers ENOTDIR or ELOOP, by kernel and file system: lstat tells which it was.
            if error.errno not in _NO_SUCH:
                raise
            if stat.S_ISLNK(os.stat(folder, dir_fd=here, follow_symlinks=False).st_mode):
                raise Refused(
                    f"{quoted(str(self.root / key))} goes through {quoted(folder)}, which is a link",
                    advice="Put the directory itself there; nothing is read or written through a link in a tier.",
                ) from error
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(self.root / key)) from error

    def _names(self, key: str) -> list[str]:
        """The names that a key goes through. Raises Refused where one of them would lead elsewhere."""
        names = key.split("/")
        if not all(names) or {".", ".."} & set(names) or "\0" in key:
            raise Refused(
                f"{quoted(key)} is no name below {quoted(str(self.root))}", advice="Whoever made that name is damaged."
            )
        return names

    def in_the_way(self, key: str) -> Refused:
        """To raise where a directory has an object's name. It may hold anything: only a person moves it."""
        place = self.root / key
        away = self.root.with_name(f"{self.root.name}.{place.name}.away")
        return Refused(
            f"{quoted(str(place))} is a directory, where an object is to lie",
            advice=f"Move it out of the tier, `{shlex.join(['mv', str(place), str(away)])}`: the object is written anew by the "
            "next sweep, or by `lakemark verify --repair`.",
        )

    def _no_file(self, key: str) -> Corrupt:
        return Corrupt(
            f"{quoted(str(self.root / key))} is no regular file",
            advice="See who put it there; what is to lie there is put back by `lakemark verify --repair`.",
        )
