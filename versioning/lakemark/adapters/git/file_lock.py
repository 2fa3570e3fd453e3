"""Waiting for a file's `flock`: in order of arrival, and not for ever."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from lakemark.adapters.disk.files import open_shared, try_lock

_LOOK_SECONDS: Final = 0.02
_SHORT_SECONDS: Final = 2.0


class Locked(Exception):
    """Somebody holds a lock, and keeps it."""


def acquired(path: Path, *, seconds: float) -> int:
    """A descriptor of the file at `path`, made if need be, that holds its exclusive flock. Raises Locked after `seconds`."""
    descriptor = open_shared(path)
    try:
        if not try_lock(descriptor):
            _wait(descriptor, str(path), seconds)
    except Locked:
        raise
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _wait(descriptor: int, path: str, seconds: float) -> None:
    """Returns with the lock; raises Locked without it, and the descriptor is closed then, or will be."""
    with _Waiter.guard:
        left_behind = path in _Waiter.left
    if left_behind:
        # A thread of ours waits there already, for a holder that was too slow before: not one more each time.
        deadline = time.monotonic() + min(seconds, _SHORT_SECONDS)
        while not try_lock(descriptor):
            if time.monotonic() > deadline:
                os.close(descriptor)
                raise Locked(path)
            time.sleep(_LOOK_SECONDS)
    elif not _Waiter(descriptor, path).done(seconds):
        raise Locked(path)


class _Waiter:
    """A thread in the blocking call, since the kernel's queue is fair and has no deadline."""

    guard = threading.Lock()
    left: Final[set[str]] = set()

    def __init__(self, descriptor: int, path: str) -> None:
        self._descriptor = descriptor
        self._path = path
        self._has_it = threading.Event()
        self._given_up = False
        self._error: OSError | None = None
        # A daemon: nothing ends a blocking flock, and a process that is done must not wait for it.
        threading.Thread(target=self._run, name=f"waits for {path}", daemon=True).start()

    def done(self, seconds: float) -> bool:
        """Whether the lock is held now; else the descriptor is the thread's, which closes it in the end."""
        if not self._has_it.wait(seconds):
            with self.guard:
                # Asked again under the guard: the lock may have come just after the time was over.
                if not self._has_it.is_set():
                    self._given_up = True
                    self.left.add(self._path)
                    return False
        if self._error is not None:
            raise self._error
        return True

    def _run(self) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        except OSError as error:
            self._error = error
        with self.guard:
            self._has_it.set()
            # Nobody waits for it any more: kept, it would shut all others out.
            if self._given_up:
                self.left.discard(self._path)
                with suppress(OSError):
                    os.close(self._descriptor)
