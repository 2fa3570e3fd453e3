"""Bytes of data on this node's disk, by what they are: shared by all ranks and loaders, bounded, safe under kill -9.

    objects/ab/<key>        whole entries, read-only, never changed
    tmp/<key>.part          being written, by whoever holds its lock; the kernel frees that with the process
    held/<token>/…          further names of entries that a living process was given paths of; <token>.lock is locked by it
    used                    how many bytes the entries take, about; recounted where it is lost

Reading on needs no lock. Entries go by age, of a part of the cache at a time, so that no scan is ever of all.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO, Final

_LONGEST_WAIT_SECONDS: Final = 300.0
_TOUCHED_EVERY_SECONDS: Final = 600.0
# Between making a part and locking it, its lock can be had, too: only an old one is certainly nobody's.
_STALE_SECONDS: Final = 3600.0
_FREED_SHARE: Final = 0.1
_FREE_SHARE: Final = 0.05
_SHELVES: Final = [f"{number:02x}" for number in range(256)]


class CacheFull(OSError):
    """The entry can't be kept: the disk is full, it is larger than the cache may be, or another holds it too long."""


def key_of(*parts: object) -> str:
    """The name of what these parts identify."""
    return blake2b("\0".join(map(str, parts)).encode(errors="surrogateescape"), digest_size=24).hexdigest()


@dataclass(slots=True)
class Cache:
    """limit_bytes: of all entries. Whatever it is, a twentieth of the file system is left free."""

    folder: Path
    limit_bytes: int
    _holding: dict[int, tuple[Path, int]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("objects", "tmp", "held"):
            (self.folder / name).mkdir(parents=True, exist_ok=True, mode=0o700)
        self._sweep()

    def get(self, key: str, size_bytes: int, fill: Callable[[BinaryIO], None]) -> Path:
        """A file of exactly these bytes, made by `fill` where there is none. Raises NoRoom, and what `fill` raises.

        Its bytes stay readable to who has opened it; its name may go at any time. See `hold`.
        """
        path = self.folder / "objects" / key[:2] / key
        if self._fresh(path, size_bytes):
            return path
        self._make_room(size_bytes)
        with self._claim(key, path, size_bytes) as stream:
            if stream is not None:
                fill(stream)
                stream.flush()
                if os.fstat(stream.fileno()).st_size != size_bytes:
                    raise OSError(errno.EIO, f"{stream.tell()} bytes came instead of {size_bytes}")
                # Before it has its name: after power loss an entry of the right size must not be empty blocks.
                os.fdatasync(stream.fileno())
                os.fchmod(stream.fileno(), 0o444)
                path.parent.mkdir(exist_ok=True, mode=0o700)
                os.rename(stream.name, path)
                self._count(os.fstat(stream.fileno()).st_blocks * 512)
        return path

    def hold(self, path: Path, name: str) -> Path:
        """Another name of an entry, ending in `name`, that stays as long as this process lives. FileNotFoundError: it went."""
        token = self._token()
        into = token / name
        into.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            # A hard link: the bytes stay when the entry goes, and `_entries` sees by the count that somebody has them.
            os.link(path, into)
        except FileExistsError:
            # Held before, by this process: the same entry is no conflict.
            if not os.path.samefile(path, into):
                raise
        return into

    @staticmethod
    def _fresh(path: Path, size_bytes: int) -> bool:
        try:
            found = os.stat(path)
        except FileNotFoundError:
            return False
        if found.st_size != size_bytes:
            return False
        # Its age is what it goes by; more often would be a write for each read.
        if time.time() - found.st_mtime > _TOUCHED_EVERY_SECONDS:
            with suppress(OSError):
                os.utime(path)
        return True

    @contextmanager
    def _claim(self, key: str, path: Path, size_bytes: int) -> Iterator[BinaryIO | None]:
        """A file to fill, ours alone; None where another process made the entry meanwhile."""
        part = self.folder / "tmp" / f"{key}.part"
        deadline = time.monotonic() + _LONGEST_WAIT_SECONDS
        while True:
            with open(os.open(part, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "r+b") as unnamed:
                _lock(unnamed.fileno(), deadline)
                if self._fresh(path, size_bytes):
                    if _same(unnamed.fileno(), part):
                        part.unlink(missing_ok=True)
                    yield None
                    return
                # Who had the lock before has renamed or removed this file: its lock is worth nothing now.
                if not _same(unnamed.fileno(), part):
                    continue
                with open(part, "wb") as stream:  # the same inode: cut short what a dead process left
                    try:
                        yield stream
                    except BaseException as error:
                        part.unlink(missing_ok=True)
                        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                            # The reader goes past the cache then; any other error is of the fetching itself.
                            raise CacheFull(error.errno, f"no room for {size_bytes} bytes in {self.folder}") from error
                        raise
                return

    def _make_room(self, size_bytes: int) -> None:
        """Evicts what is oldest where it has to. Raises CacheFull where the entry can't fit."""
        if size_bytes > self.limit_bytes:
            raise CacheFull(errno.EFBIG, f"{size_bytes} bytes are more than the {self.limit_bytes} of {self.folder}")
        over = self._used() + size_bytes - self.limit_bytes
        # Others fill the same disk: the limit alone would not see it.
        over = max(over, size_bytes - self._free_bytes())
        if over > 0:
            self._evict(max(over, int(self.limit_bytes * _FREED_SHARE)))
            if size_bytes > self._free_bytes():
                raise CacheFull(errno.ENOSPC, f"no room for {size_bytes} bytes in {self.folder}")

    def _free_bytes(self) -> int:
        found = os.statvfs(self.folder)
        return int(found.f_bavail * found.f_frsize - found.f_blocks * found.f_frsize * _FREE_SHARE)

    def _evict(self, wanted_bytes: int) -> None:
        """The oldest half of one shelf after the other, in random order. Whoever is second leaves it to the first."""
        with self._locked("evict.lock", wait=False) as mine:
            if not mine:
                return
            freed = 0
            # Keys are digests, so any shelf is a fair sample: the oldest of a few do for the oldest of all.
            for shelf in random.sample(_SHELVES, len(_SHELVES)):
                entries = sorted(_entries(self.folder / "objects" / shelf))
                for _, size_bytes, path in entries[: -(-len(entries) // 2)]:
                    with suppress(FileNotFoundError):
                        os.unlink(path)
                        freed += size_bytes
                if freed >= wanted_bytes:
                    break
            self._count(-freed)

    def _used(self) -> int:
        try:
            return int((self.folder / "used").read_text())
        except (FileNotFoundError, ValueError):
            return self._recount()

    def _recount(self) -> int:
        total = sum(size for shelf in _SHELVES for _, size, _ in _entries(self.folder / "objects" / shelf, held=True))
        with self._locked("used.lock", wait=True):
            (self.folder / "used").write_text(str(total))
        return total

    def _count(self, change_bytes: int) -> None:
        with self._locked("used.lock", wait=True):
            try:
                used = int((self.folder / "used").read_text())
            except (FileNotFoundError, ValueError):
                return
            temporary = self.folder / "tmp" / "used"
            temporary.write_text(str(max(0, used + change_bytes)))
            # In one step, as `_used` reads it without the lock.
            os.rename(temporary, self.folder / "used")

    @contextmanager
    def _locked(self, name: str, *, wait: bool) -> Iterator[bool]:
        with open(self.folder / name, "w") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                yield False
                return
            yield True

    def _token(self) -> Path:
        """This process's folder of names; one of its own after a fork."""
        # By process: the parent's names go with the parent.
        mine = self._holding.get(os.getpid())
        while mine is None:
            token = self.folder / "held" / secrets.token_hex(8)
            descriptor = os.open(f"{token}.lock", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            # Who sweeps may have had the lock before us, and removed it: the names under it would never go then.
            if not _same(descriptor, token.with_suffix(".lock")):
                os.close(descriptor)
                continue
            token.mkdir(mode=0o700)
            self._holding[os.getpid()] = mine = (token, descriptor)
        return mine[0]

    def _sweep(self) -> None:
        """Removes what dead processes left. Its lock can be had: nobody lives who holds it."""
        for lock in (self.folder / "held").glob("*.lock"):
            with suppress(OSError), open(lock, "r+") as stream:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
                lock.unlink()
        for part in (self.folder / "tmp").glob("*.part"):
            with suppress(OSError), open(part, "r+") as stream:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _same(stream.fileno(), part) and time.time() - part.stat().st_mtime > _STALE_SECONDS:
                    part.unlink()


def _entries(shelf: Path, *, held: bool = False) -> Iterator[tuple[float, int, str]]:
    """(mtime, bytes on disk, path) of those that no living process was given the path of; held: of all."""
    with suppress(FileNotFoundError), os.scandir(shelf) as found:
        for entry in found:
            with suppress(FileNotFoundError):
                known = entry.stat(follow_symlinks=False)
                if held or known.st_nlink == 1:
                    yield known.st_mtime, known.st_blocks * 512, entry.path


def _lock(descriptor: int, deadline: float) -> None:
    """Returns with the lock. Raises CacheFull at the deadline."""
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                raise CacheFull(errno.EBUSY, "another process has been fetching this for too long") from error
            # Not a blocking flock, which has no deadline.
            time.sleep(0.01 + random.random() * 0.04)  # noqa: S311
        else:
            return


def _same(descriptor: int, path: Path) -> bool:
    try:
        named = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(descriptor), named)
