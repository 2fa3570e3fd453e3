"""What background work may take from a machine that trains: processors, priority, its turn at the disk."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Iterator
from typing import Final

# The C library has no call for it: the kernel's number by machine; the other values are those of linux/ioprio.h.
_IOPRIO_SET: Final = {"x86_64": 251, "aarch64": 30, "riscv64": 30, "ppc64le": 273, "s390x": 282}
_WHO_PROCESS: Final = 1
_CLASSES: Final = {"best-effort": 2, "idle": 3}
_CLASS_SHIFT: Final = 13
_LOWEST: Final = 7
_libc = ctypes.CDLL(None, use_errno=True)


def take_limits(*, cpus: int, nice: int, io_class: str) -> tuple[str, ...]:
    """Holds this thread, and every thread and process it starts from now on, to these limits. Never asks for more than it has.

    cpus: on so many processors, the last ones it may use. io_class: `idle`, `best-effort` (its lowest level) or `none`,
    which changes nothing. Answers what this machine did not allow, a sentence each.
    """
    return tuple(why for why in (*_processors(cpus), *_priority(nice), *_disk(io_class)) if why)


def _processors(cpus: int) -> Iterator[str]:
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) <= cpus:
        return
    try:
        os.sched_setaffinity(0, allowed[-cpus:])
    except OSError as error:
        yield f"`limits.cpus`: {cpus} of {len(allowed)} processors could not be chosen: {error.strerror}"


def _priority(nice: int) -> Iterator[str]:
    # It is as low already: only root may raise it, and whoever started us so meant it.
    if os.getpriority(os.PRIO_PROCESS, 0) >= nice:
        return
    try:
        os.setpriority(os.PRIO_PROCESS, 0, nice)
    except OSError as error:
        yield f"`limits.nice`: {nice} could not be set: {error.strerror}"


def _disk(io_class: str) -> Iterator[str]:
    number = _IOPRIO_SET.get(platform.machine())
    if io_class not in _CLASSES:
        return
    if number is None:
        yield f"`limits.io_class`: it is not known how to set it on {platform.machine()}"
        return
    value = _CLASSES[io_class] << _CLASS_SHIFT
    if io_class == "best-effort":
        value |= _LOWEST
    failed = _libc.syscall(ctypes.c_long(number), _WHO_PROCESS, 0, value)
    if failed:
        yield f"`limits.io_class`: {io_class} could not be set: {os.strerror(ctypes.get_errno())}"
