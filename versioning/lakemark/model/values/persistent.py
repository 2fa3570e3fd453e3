"""Collections whose copies share what they have: a copy costs little however much there is, and no later change reaches it.

A ledger answers each reader its state, and goes on with a copy where somebody reads on: a run may have a hundred thousand
records. Values inside are replaced, never changed. What nobody adds to any more can be read without a lock.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import ItemsView, Iterable, Iterator, Mapping, MutableMapping, Sequence, ValuesView
from itertools import islice
from math import isqrt
from operator import length_hint
from typing import Any, Final, TypeVar, cast, overload

K = TypeVar("K")
V = TypeVar("V")
_Row = TypeVar("_Row", bound=tuple[Any, ...])

_LEAST_CHANGES: Final = 64


class _Absent:
    """In the place of a value."""


_GONE: Final = _Absent()
"""The key was removed; what is shared below still has it."""
_UNKNOWN: Final = _Absent()


class Layered(MutableMapping[K, V]):
    """A dictionary: what all copies share, and over it what changed since, which each has for itself.

    A copy takes the changes along; once there are more of them than about the root of the whole, it makes a new whole of
    both. Asking, adding and replacing cost the same however many there are. Keys are in the order in which they came.
    """

    __slots__ = ("_base", "_count", "_top")

    def __init__(self, base: dict[K, V] | None = None) -> None:
        """`base` is not copied: nobody may change it any more."""
        self._base: dict[K, V] = {} if base is None else base
        self._top: dict[K, V | _Absent] = {}
        self._count = len(self._base)

    def copy(self) -> Layered[K, V]:
        if len(self._top) > _LEAST_CHANGES + isqrt(self._count):
            # In this order: who reads meanwhile looks into the top first, and finds the same in either.
            self._base = self._whole()
            self._top = {}
        made: Layered[K, V] = Layered(self._base)
        made._top, made._count = self._top.copy(), self._count
        return made

    def _whole(self) -> dict[K, V]:
        whole = self._base.copy()
        for key, value in self._top.items():
            if isinstance(value, _Absent):
                whole.pop(key, None)
            else:
                whole[key] = value
        return whole

    def __getitem__(self, key: K) -> V:
        found = self._top.get(key, _UNKNOWN)
        if not isinstance(found, _Absent):
            return found
        if found is _GONE:
            raise KeyError(key)
        return self._base[key]

    def __contains__(self, key: object) -> bool:
        found = self._top.get(cast("K", key), _UNKNOWN)
        return found is not _GONE and (found is not _UNKNOWN or key in self._base)

    def __setitem__(self, key: K, value: V) -> None:
        self._count += key not in self
        self._top[key] = value

    def __delitem__(self, key: K) -> None:
        if key not in self:
            raise KeyError(key)
        self._count -= 1
        if key in self._base:
            self._top[key] = _GONE
        else:
            del self._top[key]

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[K]:
        # The top first, as `copy` says.
        top, base = self._top, self._base
        if not top:
            yield from base
            return
        for key in base:
            if top.get(key) is not _GONE:
                yield key
        for key, value in top.items():
            if value is not _GONE and key not in base:
                yield key

    def values(self) -> ValuesView[V]:
        return ValuesView(self) if self._top else self._base.values()

    def items(self) -> ItemsView[K, V]:
        return ItemsView(self) if self._top else self._base.items()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mapping) and dict(self.items()) == dict(other.items())

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(dict(self.items()))


class Rows(Sequence[_Row]):
    """Rows in order, which nearly always come at the end. A copy costs the same however many there are.

    Copies share one list, of which each knows how much is its own.
    """

    __slots__ = ("_count", "_rows", "_shared")

    def __init__(self, rows: Iterable[_Row] = ()) -> None:
        self._rows = sorted(rows)
        self._count = len(self._rows)
        self._shared = False

    def copy(self) -> Rows[_Row]:
        made: Rows[_Row] = Rows()
        made._rows, made._count = self._rows, self._count
        made._shared = self._shared = True
        return made

    def add(self, row: _Row) -> None:
        last = self._count == len(self._rows) and (not self._count or self._rows[-1] <= row)
        # Behind their ends others do not look; before them, and where another copy went on already, they would see it.
        if self._shared and not last:
            self._rows, self._shared = self._rows[: self._count], False
        insort(self._rows, row)
        self._count += 1

    @overload
    def __getitem__(self, index: int) -> _Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[_Row]: ...
    def __getitem__(self, index: int | slice) -> _Row | list[_Row]:
        # Through a range: it counts from the end, and raises, as a list of that length does.
        found = range(self._count)[index]
        return [self._rows[one] for one in found] if isinstance(found, range) else self._rows[found]

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[_Row]:
        return islice(self._rows, self._count)

    def __reversed__(self) -> Iterator[_Row]:
        backwards = reversed(self._rows)
        # As the iterator counts, not the list: that may have grown in between.
        return islice(backwards, length_hint(backwards) - self._count, None)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))
