"""Writing new files fast: past the page cache where the file system can, in small steps where it can't."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from lakemark.adapters.disk.digests import STEP_BYTES, Hash, Readable, read_into

# Measured: direct writes of 1 MiB reach nine tenths of what the disk can do, of 8 MiB all of it, of 32 MiB no more.
CHUNK_BYTES: Final = 8 * 2**20
"""What a buffer for these writes should hold: a multiple of any device's block."""
# A direct write starts and ends at a block of the device, and no common one has larger ones.
_BLOCK: Final = 4096
_DIRECT_FROM_BYTES: Final = 2**20
_libc = ctypes.CDLL(None, use_errno=True)


class NewFile:
    """A file being written at known offsets, from several threads if they like. `finish` makes it durable.

    Chunks start at multiples of CHUNK_BYTES, come in page-aligned buffers, and only the last may be shorter. sparse: no room
    is reserved, and what is not written stays a hole.
    """

    def __init__(self, path: str | Path, size_bytes: int, *, sparse: bool = False) -> None:
        self._path = path
        self._size = size_bytes
        self.sparse = sparse
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        self._fd, self._direct = _open(path, flags, direct=size_bytes >= _DIRECT_FROM_BYTES)
        self._reserve()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, buffer: memoryview, length: int, offset: int) -> None:
        """Writes the first `length` bytes of `buffer`; what follows them in it may be overwritten."""
        if self._direct:
            padded = min(-(-length // _BLOCK) * _BLOCK, len(buffer))
            # Up to the next block; `finish` cuts it off again.
            buffer[length:padded] = bytes(padded - length)
            try:
                _pwrite(self._fd, buffer[:padded], offset, step=len(buffer))
                return
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                # Some file systems take the flag when a file is opened and refuse the first write.
                self._go_buffered()
        _pwrite(self._fd, buffer[:length], offset, step=STEP_BYTES)

    def finish(self, mode: int) -> None:
        """Cuts to size, sets the mode and fsyncs. The caller fsyncs the directory."""
        if os.fstat(self._fd).st_size != self._size:
            os.ftruncate(self._fd, self._size)
        with suppress(PermissionError):  # file systems without modes
            os.fchmod(self._fd, mode)
        os.fsync(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _go_buffered(self) -> None:
        self._direct = False
        flags = fcntl.fcntl(self._fd, fcntl.F_GETFL)
        fcntl.fcntl(self._fd, fcntl.F_SETFL, flags & ~os.O_DIRECT)

    def _reserve(self) -> None:
        """Says ENOSPC before the first byte, where the file system can reserve at all."""
        if self._size < _DIRECT_FROM_BYTES or self.sparse:
            return
        failed = _libc.fallocate(self._fd, 0, ctypes.c_int64(0), ctypes.c_int64(self._size))
        code = ctypes.get_errno()
        # Any other error says that the file system can't reserve: then the writes themselves will tell.
        if failed and code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            self.close()
            os.unlink(self._path)
            raise OSError(code, os.strerror(code), str(self._path))


def write_stream(path: Path, stream: Readable, size_bytes: int, *, buffer: memoryview, mode: int) -> None:
    """A new durable file of all that is in `stream`, about `size_bytes`; the caller fsyncs its directory."""
    with NewFile(path, size_bytes) as target:
        offset = 0
        while True:
            got = read_into(stream, buffer)
            if got:
                target.write(buffer, got, offset)
                offset += got
            if got < len(buffer):
                break
        target.finish(mode)


def copy_part(source: int, target: NewFile, *, offset: int, length: int, buffer: memoryview, digest: Hash) -> int:
    """Copies `length` bytes at `offset`, hashing them; answers how many there were. Holes of a sparse file stay holes."""
    done = 0
    while done < length:
        want = min(len(buffer), length - done)
        hole = target.sparse and _is_hole(source, offset + done, want)
        # A hole is read and hashed too, as the zeros that it stands for: only its room is spared.
        got = _pread(source, buffer[:want], offset + done)
        digest.update(buffer[:got])
        if got and not hole:
            target.write(buffer, got, offset + done)
        done += got
        if got < want:
            break
    return done


def _is_hole(descriptor: int, offset: int, length: int) -> bool:
    """Whether the file system says that nothing was ever written there."""
    try:
        return os.lseek(descriptor, offset, os.SEEK_DATA) >= offset + length
    except OSError as error:
        return error.errno == errno.ENXIO  # no data up to the end


def _open(path: str | Path, flags: int, *, direct: bool) -> tuple[int, bool]:
    """A descriptor of the new file, and whether it takes direct writes."""
    if direct:
        try:
            return os.open(path, flags | os.O_DIRECT, 0o600), True
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            # The kernel makes the file before it finds that there are no direct writes here.
            with suppress(FileNotFoundError):
                os.unlink(path)
    # Its maker's alone until `finish`: its real mode may be wider, and its bytes are not all there.
    return os.open(path, flags, 0o600), False


def _pread(descriptor: int, view: memoryview, offset: int) -> int:
    """Fills `view`; answers how many bytes there were: fewer only at the file's end."""
    done = 0
    while done < len(view):
        got = os.preadv(descriptor, [view[done:]], offset + done)
        if not got:
            break
        done += got
    return done


def _pwrite(descriptor: int, view: memoryview, offset: int, *, step: int) -> None:
    """Writes all of `view`, `step` bytes a call."""
    while len(view):
        wrote = os.pwrite(descriptor, view[:step], offset)
        view, offset = view[wrote:], offset + wrote
