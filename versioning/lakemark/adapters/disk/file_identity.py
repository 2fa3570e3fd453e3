"""Who a file is, beyond what a new file can have by chance: an inode number is given again, size and times can be copied.

The birth time tells, where the file system keeps one: it can't be set. Elsewhere a hash of the file's first and last block.
Neither tells of a write in place that keeps size and times; ctime does, and goes along: where it moved on, the file is read.
Where inode numbers change from look to look (FUSE without `use_ino`), they say nothing and are left out.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import stat
import struct
from typing import Final

from lakemark.ports.files import KnownFile

# Of the kernel's headers; Python has no statx. In `struct statx` the mask comes first, the birth time at byte 80.
_AT_FDCWD: Final = -100
_AT_SYMLINK_NOFOLLOW: Final = 0x100
_STATX_BTIME: Final = 0x800
_BTIME_AT: Final = 80
_BLOCK: Final = 4096
_libc = ctypes.CDLL(None, use_errno=True)
_steady: dict[int, bool] = {}


def known_file(place: str, found: os.stat_result) -> KnownFile:
    """The identity of the regular file at `place`, of which `found` was just seen. Raises OSError where it is gone."""
    return KnownFile(
        device=found.st_dev,
        inode=found.st_ino if inodes_stay(place, found) else 0,
        size_bytes=found.st_size,
        mtime_ns=found.st_mtime_ns,
        mark=_mark(place, found),
        ctime_ns=found.st_ctime_ns,
        place=place,
    )


def inodes_stay(place: str, found: os.stat_result) -> bool:
    """Whether the mount gives a file the same number twice. Asked once for each mount by this process."""
    known = _steady.get(found.st_dev)
    if known is None:
        again = os.lstat(place)
        moved = (again.st_size, again.st_mtime_ns, again.st_ctime_ns) != (
            found.st_size,
            found.st_mtime_ns,
            found.st_ctime_ns,
        )
        if moved:  # somebody replaced it at this moment: that tells nothing of the mount
            return True
        known = _steady[found.st_dev] = again.st_ino == found.st_ino
    return known


def forget_mounts() -> None:
    """Asks every mount again: another one may have come in its place, under the same number."""
    _steady.clear()


def _mark(place: str, found: os.stat_result) -> str:
    born_ns = _born_ns(place)
    return f"b{born_ns}" if born_ns is not None else _ends(place, found.st_size)


def _born_ns(place: str) -> int | None:
    """None where the file system, or the C library, keeps or tells none."""
    statx = getattr(_libc, "statx", None)
    if statx is None:
        return None
    # As large as `struct statx` is.
    answer = ctypes.create_string_buffer(256)
    if statx(_AT_FDCWD, os.fsencode(place), _AT_SYMLINK_NOFOLLOW, _STATX_BTIME, answer):
        return None
    (mask,) = struct.unpack_from("=I", answer.raw, 0)
    # A file system that keeps none leaves the bit out, and zeros in its place.
    if not mask & _STATX_BTIME:
        return None
    seconds, nanoseconds = struct.unpack_from("=qI", answer.raw, _BTIME_AT)
    return int(seconds) * 10**9 + int(nanoseconds)


def _ends(place: str, size_bytes: int) -> str:
    """Empty where it can't be read: then nothing is known of it."""
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return ""
        head = os.pread(descriptor, _BLOCK, 0)
        tail = os.pread(descriptor, _BLOCK, max(0, size_bytes - _BLOCK))
    except OSError:
        return ""
    finally:
        os.close(descriptor)
    return f"h{hashlib.blake2b(head + tail, digest_size=8).hexdigest()}"
