"""Reading JSON objects strictly, and keeping the fields a newer version wrote."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, TypeVar, cast

from lakemark.model.values.canonical import JSON
from lakemark.model.values.instants import from_text
from lakemark.model.values.outside import bounded

# Not None, which is a value that a field can have.
_ABSENT: Final[Any] = object()
_MOST: Final = 2**53 - 1
"""What every JSON reader keeps exact."""
_Value = TypeVar("_Value", bound=Hashable)


def shared(value: _Value) -> _Value:
    """An equal one that was read before, if lately: all the records of a run say the same of much, and are kept in memory."""
    return cast("_Value", _shared(value))


class Fields:
    """One JSON object being read: every field asked for is taken out; `rest()` is what nobody asked for.

    A field of another type, or one absent without a default, is a ValueError that names it.
    """

    def __init__(self, value: JSON, what: str) -> None:
        if not isinstance(value, Mapping):
            message = f"{what} is {type(value).__name__}, not an object"
            raise ValueError(message)
        self._left: dict[str, JSON] = dict(value)
        self._what = what

    def format(self, expected: str) -> None:
        """Takes `format`; another major version is a ValueError."""
        found = self.text("format")
        if found != expected:
            message = f"{self._what} has the format {found!r}; this version reads {expected!r}"
            raise ValueError(message)

    def text(self, name: str, *, default: str = _ABSENT) -> str:
        value: str = self._take(name, str, default)
        return value

    def optional_text(self, name: str) -> str | None:
        value: str | None = self._take(name, str, None)
        return value

    def integer(self, name: str, *, default: int = _ABSENT, least: int = -_MOST, most: int = _MOST) -> int:
        """From `least` to `most`, both allowed; one beyond is a ValueError that names the field."""
        value: int = self._take(name, int, default)
        return bounded(value, least=least, most=most, what=f"{self._what}: {name}")

    def size(self, name: str, *, default: int = _ABSENT) -> int:
        """A number of bytes, files or parts, of a step or an entry: none is negative."""
        return self.integer(name, default=default, least=0)

    def optional_integer(self, name: str) -> int | None:
        value: int | None = self._take(name, int, None)
        return value

    def flag(self, name: str, *, default: bool = _ABSENT) -> bool:
        value: bool = self._take(name, bool, default)
        return value

    def instant(self, name: str) -> datetime:
        return from_text(self.text(name))

    def optional_instant(self, name: str) -> datetime | None:
        text = self.optional_text(name)
        return None if text is None else from_text(text)

    def items(self, name: str) -> Sequence[JSON]:
        """An array; absent or null is empty."""
        value = self._take(name, Sequence, None)
        return () if value is None else value

    def texts(self, name: str) -> tuple[str, ...]:
        items = self.items(name)
        if not all(isinstance(item, str) for item in items):
            message = f"{self._what}: {name} holds something that is not text"
            raise ValueError(message)
        return tuple(str(item) for item in items)

    def mapping(self, name: str) -> dict[str, JSON]:
        """An object; absent or null is empty."""
        value = self._take(name, Mapping, None)
        return {} if value is None else dict(value)

    def optional_mapping(self, name: str) -> dict[str, JSON] | None:
        value = self._take(name, Mapping, None)
        return None if value is None else dict(value)

    def rest(self) -> dict[str, JSON]:
        return dict(self._left)

    def _take(self, name: str, kind: type[Any], default: Any) -> Any:  # noqa: ANN401 - the callers name the type
        value = self._left.pop(name, _ABSENT)
        # null and absent are the same wherever there is a default: newer versions may write either.
        if (value is _ABSENT or value is None) and default is not _ABSENT:
            return default
        # True is an int to Python, and text is a sequence: neither is meant.
        right = isinstance(value, kind) and not (kind is int and isinstance(value, bool))
        if not right or (kind is Sequence and isinstance(value, str)):
            shown = "missing" if value is _ABSENT else repr(value)[:80]
            message = f"{self._what}: {name} is {shown}, not {kind.__name__}"
            raise ValueError(message)
        return value


# typed: 1, 1.0 and True are equal and must not become each other.
@lru_cache(maxsize=4096, typed=True)
def _shared(value: Hashable) -> Hashable:
    return value
