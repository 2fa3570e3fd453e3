"""Objects as files below a directory: a slow disk, a mounted share, a USB disk."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import BinaryIO, Final

from lakemark.adapters.disk import copying
from lakemark.adapters.disk.digests import Readable
from lakemark.adapters.disk.files import (
    as_ours,
    as_ours_of_place,
    forget_pages,
    fsync_directory,
    make_directories,
    open_lock,
    os_errors,
    rename_new,
    share,
    write_new,
)
from lakemark.adapters.disk.free_space import Space
from lakemark.adapters.disk.objects import Names
from lakemark.adapters.disk.pool import Buffers
from lakemark.adapters.disk.rooted import Below
from lakemark.adapters.disk.workbench import Workbench
from lakemark.errors import StoreUnavailable, quoted
from lakemark.ports.store import Expiry, TierUsage

WORKERS: Final = 4
MODES: Final = {"owner": 0o700, "group": 0o750, "all": 0o755}
# Not below files/md5: there `dvc gc` of any clone removes whatever it does not know.
_UNFINISHED: Final = "lakemark/tmp"
_REMOVALS: Final = "lakemark/removals"
_NOT_OURS: Final = "lost+found"
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
# What mounts without locks answer: NFS without its lock daemon, and many FUSE file systems.
_NO_LOCKS: Final = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})
# Together five seconds: a removal that was let through is one unlink, unless its process is stopped.
_LOCK_TRIES: Final = 100
_LOCK_SECONDS: Final = 0.05


class DirectoryBlobs:
    """Implements `Blobs`. Objects are 0444 and appear whole, by rename; what is unfinished lies in lakemark/tmp.

    Nothing is opened but regular files below the root, and no link in it is followed.
    min_free: a share of the file system's bytes, or bytes, that must stay free. access: who may enter a root that is made
    here, owner, group or all: what lies in it may be read by whoever may enter.
    """

    kind: Final = "directory"

    def __init__(self, root: Path, *, min_free: Fraction | int = 0, access: str = "owner") -> None:
        self._root = Path(os.path.abspath(root))
        self._mode = MODES[access]
        self._below = Below(self._root)
        self.where = str(self._root)
        self._space = Space(self._root, min_free)
        self._bench = Workbench(self._root / _UNFINISHED)
        self._buffers = Buffers(WORKERS, copying.CHUNK_BYTES)

    def prepare(self) -> None:
        """The mode of a root that is there already stays."""
        with os_errors(self._root):
            if self._root.exists():
                return
            make_directories(self._root.parent)
            with suppress(FileExistsError):
                # As narrow as it is to be from its first moment; the umask may only have narrowed it further.
                self._root.mkdir(mode=self._mode)
                self._root.chmod(self._mode)
                if self._mode & stat.S_IRGRP:
                    share(self._root, folder=self._root.parent)
            fsync_directory(self._root.parent)

    def get(self, key: str) -> bytes | None:
        with self._errors(key):
            try:
                with os.fdopen(self._below.open(key), "rb") as stream:
                    return stream.read()
            except (FileNotFoundError, NotADirectoryError):
                return None

    def size(self, key: str) -> int | None:
        with self._errors(key):
            try:
                return self._below.size(key)
            except (FileNotFoundError, NotADirectoryError):
                return None

    def absent(self, key: str) -> bool:
        if self.size(key) is not None:
            return False
        try:
            # A mount point without its disk has no object either, and looks like a place from which all was removed.
            lies = any(name != _NOT_OURS for name in os.listdir(self._root))
        except FileNotFoundError:
            lies = False
        except OSError as error:
            raise as_ours_of_place(error, self._root) from error
        if not lies:
            raise StoreUnavailable(
                f"{quoted(self.where)} is empty: its disk may not be mounted", advice="Mount it, then try again."
            )
        return True

    def create(self, key: str, data: bytes) -> bool:
        with self._draft() as draft:
            write_new(draft, data)
            return self._publish(draft, key, overwrite=False)

    def replace(self, key: str, data: bytes) -> None:
        with self._draft() as draft:
            write_new(draft, data)
            self._publish(draft, key, overwrite=True)

    def write(self, key: str, stream: Readable, size_bytes: int, *, overwrite: bool) -> bool:
        self._space.require(size_bytes)
        with self._draft() as draft, self._buffers.take() as buffer:
            copying.write_stream(draft, stream, size_bytes, buffer=buffer, mode=0o444)
            return self._publish(draft, key, overwrite=overwrite)

    def takes_all_workers(self, size_bytes: int) -> bool:  # noqa: ARG002 - one thread per file, however large
        return False

    def open(self, key: str, *, start: int = 0, length: int | None = None) -> BinaryIO:  # noqa: ARG002
        with self._errors(key):
            stream = os.fdopen(self._below.open(key), "rb", buffering=2**20)
            # Whoever reads back what was just written is to see the disk, not what the cache remembers of the write.
            forget_pages(stream.fileno())
            stream.seek(start)
            return stream

    def delete(self, key: str, *, unless_late: Callable[[], None] | None = None) -> None:
        with self._errors(key), suppress(FileNotFoundError, NotADirectoryError):
            if unless_late is None:
                self._below.unlink(key)
                return
            with self._below.parent(key) as (folder, name):
                # A process that is stopped between the two lines holds the lock: `require_no_removal` sees it.
                with self._removing():
                    unless_late()
                    os.unlink(name, dir_fd=folder)
                os.fsync(folder)

    def require_no_removal(self) -> None:
        with os_errors(self._root):
            descriptor = self._open_removals()
            if descriptor is None:
                return
            try:
                for _ in range(_LOCK_TRIES):
                    if _locks(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB):
                        return
                    time.sleep(_LOCK_SECONDS)
            finally:
                os.close(descriptor)
        raise StoreUnavailable(
            f"{quoted(self.where)}: a process that removes something there was stopped half-way",
            advice="Let it go on or end it (`fuser` names it), then try again.",
        )

    def list(self, prefix: str, *, limit: int | None = None) -> Names:
        return Names.of(self.each(prefix), limit=limit)

    def each(self, prefix: str) -> Iterator[tuple[str, int]]:
        start = self._root / prefix
        with self._errors(prefix):
            if prefix:
                self._below.require_real(prefix)

        def fail(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError):
                raise as_ours_of_place(error, start) from error

        for folder, folders, names in os.walk(start, onerror=fail):
            here = Path(folder).relative_to(self._root)
            # In place: what is taken out of the list here is not walked into.
            folders[:] = [name for name in folders if str(here / name) not in (_UNFINISHED, _REMOVALS, _NOT_OURS)]
            for name in names:
                try:
                    size_bytes = os.lstat(os.path.join(folder, name)).st_size
                except FileNotFoundError:
                    continue
                except OSError as error:
                    raise as_ours_of_place(error, self._root / here / name) from error
                yield str(here / name), size_bytes

    def tidy(self) -> int:
        count = 0
        with os_errors(self._root):
            for place in self._bench.dead():
                self._bench.end(place.name)
                count += 1
        return count

    def space(self) -> TierUsage:
        total, free = self._space.totals()
        return TierUsage(
            used_bytes=None,
            capacity_bytes=total,
            free_bytes=free,
            file_system_free_share=free / total if total else None,
        )

    def takes_wrong_checksum(self, key: str) -> bool:  # noqa: ARG002 - nobody states one to a directory
        return False

    def expires(self) -> Expiry | None:
        return None

    def clock(self, key: str) -> datetime | None:  # noqa: ARG002 - a directory has no clock of its own
        return None

    @contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        """OSErrors inside, which know only the last name, come out as errors of our tree with the whole path."""
        try:
            yield
        except IsADirectoryError as error:
            raise self._below.in_the_way(key) from error
        except OSError as error:
            raise as_ours(error, self._root / key) from error

    @contextmanager
    def _removing(self) -> Iterator[None]:
        descriptor = self._open_removals()
        try:
            if descriptor is not None:
                _locks(descriptor, fcntl.LOCK_SH)
            yield
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def _open_removals(self) -> int | None:
        """None where there is no room for the file: the time that a removal is young for is what counts then."""
        try:
            make_directories(self._root / _REMOVALS)
            return open_lock(self._root / _REMOVALS)
        except OSError as error:
            # A full tier must still be able to remove: otherwise it would stay full.
            if error.errno not in _FULL:
                raise
            return None

    @contextmanager
    def _draft(self) -> Iterator[Path]:
        with os_errors(self._root):
            place = self._bench.begin()
            try:
                yield place / "new"
            finally:
                self._bench.end(place.name)

    def _publish(self, draft: Path, key: str, *, overwrite: bool) -> bool:
        with self._errors(key), self._below.parent(key, make=True) as (folder, name):
            try:
                if overwrite:
                    os.rename(draft, name, dst_dir_fd=folder)
                else:
                    rename_new(draft, name, folder=folder)
            except FileExistsError:
                return False
            os.fsync(folder)
        return True


def _locks(descriptor: int, how: int) -> bool:
    """Whether the lock was taken; True where the file system has none."""
    try:
        fcntl.flock(descriptor, how)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return True
