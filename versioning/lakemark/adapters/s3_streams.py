"""Bodies of S3 requests and responses, without copies."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol


class Streaming(Protocol):
    """A response's body as boto3 hands it out."""

    def readinto(self, buffer: Any, /) -> int: ...  # noqa: ANN401 - any writable buffer
    def close(self) -> None: ...


class Part:
    """A body that hands out all its bytes in one piece: one send, no copy."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    def __len__(self) -> int:
        return len(self._data)

    def read(self, _most: int = -1) -> memoryview | bytes:
        rest = self._data[self._at :]
        self._at = len(self._data)
        return rest or b""

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = (0, self._at, len(self._data))[whence] + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def seekable(self) -> bool:
        return True


class Body(io.RawIOBase):
    """A response's bytes; what goes wrong while they come is in our words."""

    def __init__(self, body: Streaming, errors: Callable[[], AbstractContextManager[None]]) -> None:
        super().__init__()
        self._body = body
        self._errors = errors

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any writable buffer
        with self._errors():
            return int(self._body.readinto(buffer))

    def close(self) -> None:
        self._body.close()
        super().close()
