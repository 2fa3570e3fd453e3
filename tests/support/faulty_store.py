"""A tier whose answers go wrong as a test says, in the order of its calls: for blame, failover and whatever waits.

`FaultyStore(store, verify=[...], open=[...], put=[...])` stands before any store that implements the port. Each call of a
method takes the next fault of its list, `None` being none; a list that has ended stands for none, `Always(fault)` for that
fault for good. Nothing here is random, and what lies in the store behind is never touched.
"""

import errno
import io
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, repeat

from lakemark.errors import StoreUnavailable, TargetDamaged
from lakemark.ports import Damage


@dataclass(frozen=True)
class Flip:
    """One byte of what is read is another: at `at`, counted from the start of the reading."""

    at: int = 0


@dataclass(frozen=True)
class Cut:
    """What is read ends after `after` bytes, as if that were all."""

    after: int = 0


@dataclass(frozen=True)
class Reset:
    """The connection breaks: at once, or after so many bytes of what is read."""

    after: int = 0


@dataclass(frozen=True)
class Eio:
    """The disk can't read it (EIO after so many bytes); of a put: can't make it durable."""

    after: int = 0


@dataclass(frozen=True)
class Lie:
    """`verify` names this path as damaged, although it is not."""

    path: str = "model.bin"
    missing: bool = False


@dataclass(frozen=True)
class Stall:
    """Calls `meanwhile` before it answers: what others do while this one hangs."""

    meanwhile: object


@dataclass(frozen=True)
class Raise:
    """Answers with this error."""

    error: Exception


class Always:
    """The same fault at every call."""

    def __init__(self, fault):
        self.fault = fault

    def __iter__(self):
        return repeat(self.fault)


class FaultyStore:
    """`store`, but for its faults. calls: how often each method was called that may fail."""

    FAILING = ("open", "verify", "put", "drop", "identity", "records", "claimed", "expires", "keep_ledger", "changed")

    def __init__(self, store, **faults):
        unknown = set(faults) - set(self.FAILING)
        assert not unknown, unknown
        self.store = store
        self.calls = dict.fromkeys(self.FAILING, 0)
        self._faults = {name: chain(faults.get(name, ()), repeat(None)) for name in self.FAILING}

    def __getattr__(self, name):
        return getattr(self.store, name)

    def _next(self, name):
        self.calls[name] += 1
        fault = next(self._faults[name])
        if isinstance(fault, Stall):
            fault.meanwhile()
            return None
        if isinstance(fault, Raise):
            raise fault.error
        return fault

    def open(self, checkpoint, file, *, start=0, length=None):
        return self._opened(self._next("open"), checkpoint, file, start, length)

    @contextmanager
    def _opened(self, fault, checkpoint, file, start, length):
        with self.store.open(checkpoint, file, start=start, length=length) as stream:
            yield stream if fault is None else _Faulty(stream, fault, self.store.name)

    def verify(self, checkpoint, *, progress):
        fault = self._next("verify")
        found = self.store.verify(checkpoint, progress=progress)
        if isinstance(fault, Reset):
            raise reset(self.store.name)
        if isinstance(fault, Lie):
            return (*found, Damage(path=fault.path, why="has other bytes", missing=fault.missing))
        return found

    def put(self, checkpoint, source, *, now, progress):
        fault = self._next("put")
        if isinstance(fault, Reset):
            raise reset(self.store.name)
        if isinstance(fault, Eio):
            raise TargetDamaged(f"{self.store.name}: could not be made durable", advice="Look at the disk.")
        return self.store.put(checkpoint, source, now=now, progress=progress)

    def __dir__(self):
        return sorted({*super().__dir__(), *dir(self.store)})


def _passing(name):
    def call(self, *args, **kwargs):
        fault = self._next(name)
        if isinstance(fault, Reset):
            raise reset(self.store.name)
        return getattr(self.store, name)(*args, **kwargs)

    return call


for _name in ("drop", "identity", "records", "claimed", "expires", "keep_ledger", "changed"):
    setattr(FaultyStore, _name, _passing(_name))


def reset(name):
    return StoreUnavailable(f"{name} does not answer: connection reset by peer", advice="Try again.")


class _Faulty(io.RawIOBase):
    def __init__(self, stream, fault, name):
        super().__init__()
        self._stream, self._fault, self._name, self._done = stream, fault, name, 0

    def readable(self):
        return True

    def readinto(self, buffer):
        view = memoryview(buffer).cast("B")
        fault = self._fault
        if isinstance(fault, Flip):
            got = self._stream.readinto(view)
            at = fault.at - self._done
            if 0 <= at < got:
                view[at] ^= 1
            self._done += got
            return got
        left = fault.after - self._done
        if left <= 0 and isinstance(fault, Reset):
            raise reset(self._name)
        if left <= 0 and isinstance(fault, Eio):
            raise OSError(errno.EIO, "Input/output error")
        got = self._stream.readinto(view[:left]) if left > 0 else 0
        self._done += got
        return got
