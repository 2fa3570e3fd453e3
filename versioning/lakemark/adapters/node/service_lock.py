"""One process of a kind on a node: whoever holds the lock of a file, which says its process id."""

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
            if not _taken(self._descriptor):
                pid = _pid(self._descriptor)
                os.close(self._descriptor)
                raise Refused(
                    f"{what} runs already, as process {pid or 'unknown'} ({quoted(str(path))})", advice=advice
                )
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def close(self) -> None:
        """The file stays: to remove it would let two hold it, each a file of its own."""
        if self._descriptor >= 0:
            with suppress(OSError):
                os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = -1


def holder(path: Path) -> int | None:
    """The process that holds the file; None where nobody does. 0: somebody whose number is not told. Changes nothing."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        return None if _free(descriptor) else _pid(descriptor) or 0
    finally:
        os.close(descriptor)


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
