"""Blobs in memory, and what somebody else does between two of their steps."""

import io
from threading import RLock

from lakemark.adapters.disk.objects import Names
from lakemark.adapters.dvc.removals import Patience
from lakemark.errors import NotFound
from lakemark.ports.store import TierUsage


class Hours:
    """Time that passes while somebody waits, for all who share it. wall_jumps: what a node's clock is set wrong by."""

    def __init__(self):
        self.seconds = 0.0
        self.wall_jumps = 0.0

    def sleep(self, seconds):
        self.seconds += max(seconds, 7.0)

    def patience(self, sleep=None):
        return Patience(lambda: self.seconds, lambda: self.seconds + self.wall_jumps, sleep or self.sleep)


class MemoryBlobs:
    """`Blobs` over a dictionary that any number of them may share. steps: how many calls were made of this one."""

    kind, where = "directory", "memory"

    def __init__(self, held=None):
        self.held = {} if held is None else held
        self.steps = 0
        self._at, self._meanwhile = 0, None
        self._lock = RLock()

    def again(self):
        """The same place, as another process sees it."""
        return MemoryBlobs(self.held)

    def patience(self, hours):
        """How whoever uses these waits."""
        return hours.patience()

    def interrupt(self, step, meanwhile):
        """Calls `meanwhile` once, before the step of that number from now on, counted from 1."""
        self.steps, self._at, self._meanwhile = 0, step, meanwhile

    def _step(self):
        with self._lock:
            self.steps += 1
            meanwhile = self._meanwhile if self.steps == self._at else None
            if meanwhile is not None:
                self._meanwhile = None
        if meanwhile is not None:
            meanwhile()

    def prepare(self):
        pass

    def get(self, key):
        self._step()
        return self.held.get(key)

    def size(self, key):
        self._step()
        return None if key not in self.held else len(self.held[key])

    def absent(self, key):
        self._step()
        return key not in self.held

    def create(self, key, data):
        self._step()
        with self._lock:
            new = key not in self.held
            self.held.setdefault(key, bytes(data))
        return new

    def replace(self, key, data):
        self._step()
        self.held[key] = bytes(data)

    def write(self, key, stream, size_bytes, *, overwrite):
        data = b""
        while chunk := stream.read(2**20):
            data += chunk
        self._step()
        if key in self.held and not overwrite:
            return False
        self.held[key] = data
        return True

    def takes_all_workers(self, size_bytes):
        return True  # one thread: the steps come in one order

    def open(self, key, *, start=0, length=None):
        self._step()
        if key not in self.held:
            raise NotFound(key, advice="Look elsewhere.")
        return io.BytesIO(self.held[key][start:])

    def delete(self, key, *, unless_late=None):
        self._step()
        if unless_late is not None:
            unless_late()
        self.held.pop(key, None)

    def require_no_removal(self):
        pass

    def list(self, prefix, *, limit=None):
        return Names.of(self.each(prefix), limit=limit)

    def each(self, prefix):
        self._step()
        return iter([(key, len(data)) for key, data in sorted(self.held.copy().items()) if key.startswith(prefix)])

    def tidy(self):
        return 0

    def space(self):
        return TierUsage(used_bytes=None, capacity_bytes=None)

    def takes_wrong_checksum(self, key):
        return False

    def expires(self):
        return None

    def clock(self, key):
        return None
