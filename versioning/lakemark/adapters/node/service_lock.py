"""One process of a kind on a node: whoever holds the lock of a file, which says its process id.

A process that was ended while a disk kept one of its threads in the kernel keeps its locks until that disk answers. It will
run nothing of ours any more: its file is put away, and the next one holds a new file of that name.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from lakemark.adapters.disk.files import make_directories, open_shared, os_errors, try_lock
from lakemark.errors import Refused, quoted

_TRIES: Final = 5
_BETWEEN_SECONDS: Final = 0.05


class Held:
    """The lock of the file at `path`, until `close` or the end of the process, however that comes."""

    def __init__(self, path: Path, *, what: str, advice: str) -> None:
        """Raises Refused, naming the process that holds it; Denied."""
        with os_errors(path):
            make_directories(path.parent)
            self._descriptor = open_shared(path, os.O_NOFOLLOW)
            # Locked, and still the file of that name: it may have been put away between the two.
            while not (_taken(self._descriptor) and _is_at(path, self._descriptor)):
                pid = _pid(self._descriptor)
                if pid is not None and _is_ending(pid):
                    _put_away(path, self._descriptor)
                moved = not _is_at(path, self._descriptor)
                os.close(self._descriptor)
                if not moved:
                    raise Refused(
                        f"{what} runs already, as process {pid or 'unknown'} ({quoted(str(path))})", advice=advice
                    )
                self._descriptor = open_shared(path, os.O_NOFOLLOW)
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def close(self) -> None:
        """The file stays: to remove it while processes live would let two hold it, each a file of its own."""
        if self._descriptor >= 0:
            with suppress(OSError):
                os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = -1


def holder(path: Path) -> int | None:
    """The process that holds the file; None where nobody does. 0: somebody whose number is not told. Changes nothing.

    Raises what the disk does, in our words.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        with os_errors(path):
            if _free(descriptor):
                return None
            pid = _pid(descriptor) or 0
            return None if pid and _is_ending(pid) else pid
    finally:
        os.close(descriptor)


def _is_ending(pid: int) -> bool:
    """Whether that process was ended and is only waited for in the kernel: its main thread is gone, another is not."""
    try:
        # Behind the name, which may have any signs in it.
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2][:1]
        return state == b"Z" and len(os.listdir(f"/proc/{pid}/task")) > 1
    except OSError:
        return False


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether the open file is the one of that name."""
    seen = os.fstat(descriptor)
    try:
        now = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return (seen.st_dev, seen.st_ino) == (now.st_dev, now.st_ino)


def _put_away(path: Path, descriptor: int) -> None:
    """Removes the file whose lock an ending process keeps; another one of that name, which somebody may hold, stays.

    Under a lock of its own: of two that start at once the second would remove what the first holds already.
    """
    turn = open_shared(path.with_name(f"{path.name}.turn"), os.O_NOFOLLOW)
    try:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if _is_at(path, descriptor):
            os.unlink(path)
    finally:
        os.close(turn)


def _taken(descriptor: int) -> bool:
    """Somebody who only looks whether it is held holds it for a moment, too."""
    for _ in range(_TRIES):
        if try_lock(descriptor):
            return True
        time.sleep(_BETWEEN_SECONDS)
    return False


def _free(descriptor: int) -> bool:
    try:
        # Shared: several may look at once without one taking another for the holder.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _pid(descriptor: int) -> int | None:
    text = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
    return int(text) if text.isdecimal() else None
