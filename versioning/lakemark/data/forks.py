"""Locks that a forked process does not find held by a thread it does not have."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Self


class Lock:
    """A `threading.Lock` for `with`, new in the child after a fork."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _ALL.add(self)

    def renew(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._lock.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()


_ALL: weakref.WeakSet[Lock] = weakref.WeakSet()


def _renew_all() -> None:
    for lock in list(_ALL):
        lock.renew()


os.register_at_fork(after_in_child=_renew_all)
