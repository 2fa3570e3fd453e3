"""No more bytes a second than allowed: what background work reads is paced, and it writes nothing else."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, BinaryIO, Final, cast

from lakemark.adapters.disk.digests import Readable
from lakemark.adapters.disk.objects import Blobs, Names
from lakemark.ports.store import Expiry, TierUsage

_STEP_BYTES: Final = 2**20
_BURST_SECONDS: Final = 0.25


class Pace:
    """So many bytes a second, for all threads that share it together; a quarter of a second's worth may come at once."""

    def __init__(
        self,
        bytes_per_second: int,
        *,
        seconds: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate = bytes_per_second
        self._seconds = seconds
        self._sleep = sleep
        self._lock = threading.Lock()
        self._paid_until = seconds()

    def take(self, size_bytes: int) -> None:
        """Returns when so many bytes are allowed. Whoever comes next pays for them."""
        with self._lock:
            now = self._seconds()
            start = max(self._paid_until, now - _BURST_SECONDS)
            # Before the wait, so that other threads line up behind it.
            self._paid_until = start + size_bytes / self._rate
            wait = self._paid_until - now
        # Outside of the lock: whoever sleeps must not keep others from working out their own wait.
        if wait > 0:
            self._sleep(wait)


class Paced(io.RawIOBase):
    """A stream whose bytes come at a pace; closing it closes the stream underneath."""

    def __init__(self, stream: Readable, pace: Pace) -> None:
        super().__init__()
        self._stream = stream
        self._pace = pace

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any writable buffer
        # In small steps: one large read would come at full speed and then be paid for in one long pause.
        view = memoryview(buffer).cast("B")[:_STEP_BYTES]
        got: int = self._stream.readinto(view) or 0  # type: ignore[union-attr]
        if got:
            self._pace.take(got)
        return got

    def close(self) -> None:
        self._stream.close()
        super().close()


def paced(stream: Readable, pace: Pace) -> BinaryIO:
    """The stream, at that pace."""
    return cast("BinaryIO", io.BufferedReader(Paced(stream, pace), _STEP_BYTES))


class PacedBlobs:
    """`Blobs` whose objects are read at a pace; everything else is what it is without one."""

    def __init__(self, blobs: Blobs, pace: Pace) -> None:
        self._blobs = blobs
        self._pace = pace

    def open(self, key: str, *, start: int = 0, length: int | None = None) -> BinaryIO:
        return paced(self._blobs.open(key, start=start, length=length), self._pace)

    @property
    def kind(self) -> str:
        return self._blobs.kind

    @property
    def where(self) -> str:
        return self._blobs.where

    def prepare(self) -> None:
        self._blobs.prepare()

    def get(self, key: str) -> bytes | None:
        return self._blobs.get(key)

    def size(self, key: str) -> int | None:
        return self._blobs.size(key)

    def absent(self, key: str) -> bool:
        return self._blobs.absent(key)

    def create(self, key: str, data: bytes) -> bool:
        return self._blobs.create(key, data)

    def replace(self, key: str, data: bytes) -> None:
        self._blobs.replace(key, data)

    def write(self, key: str, stream: Readable, size_bytes: int, *, overwrite: bool) -> bool:
        return self._blobs.write(key, stream, size_bytes, overwrite=overwrite)

    def takes_all_workers(self, size_bytes: int) -> bool:
        return self._blobs.takes_all_workers(size_bytes)

    def delete(self, key: str, *, unless_late: Callable[[], None] | None = None) -> None:
        self._blobs.delete(key, unless_late=unless_late)

    def require_no_removal(self) -> None:
        self._blobs.require_no_removal()

    def list(self, prefix: str, *, limit: int | None = None) -> Names:
        return self._blobs.list(prefix, limit=limit)

    def each(self, prefix: str) -> Iterator[tuple[str, int]]:
        return self._blobs.each(prefix)

    def tidy(self) -> int:
        return self._blobs.tidy()

    def space(self) -> TierUsage:
        return self._blobs.space()

    def takes_wrong_checksum(self, key: str) -> bool:
        return self._blobs.takes_wrong_checksum(key)

    def expires(self) -> Expiry | None:
        return self._blobs.expires()

    def clock(self, key: str) -> datetime | None:
        return self._blobs.clock(key)
