"""No more bytes a second than allowed: what background work reads is paced, and it writes nothing else."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, Final, cast

from lakemark.adapters.disk.digests import Readable
from lakemark.adapters.disk.objects import Blobs
from lakemark.model.checkpoints.manifest import File
from lakemark.ports import Checkpoint, HotStore

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

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever blobs have
        return getattr(self._blobs, name)

    def open(self, key: str, *, start: int = 0, length: int | None = None) -> BinaryIO:
        return paced(self._blobs.open(key, start=start, length=length), self._pace)


class PacedHot:
    """A hot store whose files are read at a pace by whoever copies them elsewhere; everything else is what it is without."""

    def __init__(self, hot: HotStore, pace: Pace) -> None:
        self._hot = hot
        self._pace = pace

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a hot store has
        return getattr(self._hot, name)

    @contextmanager
    def open(self, checkpoint: Checkpoint, file: File, **part: Any) -> Iterator[BinaryIO]:  # noqa: ANN401 - as the store's
        with self._hot.open(checkpoint, file, **part) as stream, paced(stream, self._pace) as slower:
            yield slower
