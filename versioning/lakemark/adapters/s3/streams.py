"""Bodies of S3 requests and responses, without copies."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

from lakemark.adapters.disk.objects import TooSlow
from lakemark.errors import StoreUnavailable

_AT_ONCE_BYTES: Final = 2**18


class Streaming(Protocol):
    """A response's body as boto3 hands it out."""

    def close(self) -> None: ...


class Part:
    """A body that hands out its bytes in steps, without a copy, so that it can be told how far it is."""

    def __init__(self, data: memoryview, *, step_bytes: int) -> None:
        self._data = data
        self._step_bytes = step_bytes
        self._at = 0

    def __len__(self) -> int:
        return len(self._data)

    def read(self, _most: int = -1) -> memoryview | bytes:
        # More than is asked for: the HTTP library asks for a few KiB at a time, and each step costs CPU, not bytes.
        step = self._data[self._at : self._at + self._step_bytes]
        self._at += len(step)
        return step or b""

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = (0, self._at, len(self._data))[whence] + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def seekable(self) -> bool:
        return True


class Raw(Protocol):
    """What is below it: answers what came, without waiting for more."""

    def read1(self, amt: int, /) -> bytes: ...


class Rate:
    """How fast an answer has to come: at least `bytes_a_second` over each `seconds` of waiting for it."""

    def __init__(self, bytes_a_second: int, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._least = bytes_a_second * seconds
        self._seconds = seconds
        self._clock = clock
        self._waited = 0.0
        self._came = 0

    def timed(self, read: Callable[[], bytes]) -> bytes:
        """What `read` gives. Raises TooSlow where too little came; what the caller does meanwhile does not count."""
        began = self._clock()
        data = read()
        self._waited += self._clock() - began
        self._came += len(data)
        if self._waited >= self._seconds:
            if self._came < self._least:
                raise TooSlow(
                    f"{self._came} bytes came in {self._waited:.0f} s, fewer than {self._least / self._seconds:.0f} a second",
                    advice="It is given up and tried later; look at the store, or lower `limits.minimum_rate`.",
                )
            # Window by window: what came fast before does not excuse what comes slowly now.
            self._waited, self._came = 0.0, 0
        return data


class Body(io.RawIOBase):
    """A response's bytes; what goes wrong while they come is in our words. size_bytes: as many as the answer announced."""

    def __init__(
        self, body: Streaming, size_bytes: int, errors: Callable[[], AbstractContextManager[None]], *, rate: Rate
    ) -> None:
        super().__init__()
        self._body = body
        self._raw: Raw = body._raw_stream  # type: ignore[attr-defined]  # noqa: SLF001 - botocore's own waits for all
        self._errors = errors
        self._left = size_bytes
        self._rate = rate

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any writable buffer
        """What came: waiting for a whole buffer of a slow answer would last for ever."""
        view = memoryview(buffer).cast("B")
        if not self._left or not view:
            return 0
        # Bounded, so that the rate is looked at often enough while a large buffer is filled.
        most = min(len(view), self._left, _AT_ONCE_BYTES)
        with self._errors():
            data = self._rate.timed(lambda: self._raw.read1(most))
        if not data:
            raise StoreUnavailable(
                f"the answer ended {self._left} bytes early", advice="Try again; look at the network."
            )
        view[: len(data)] = data
        self._left -= len(data)
        return len(data)

    def close(self) -> None:
        self._body.close()
        super().close()
