"""Which objects the records of a DVC tier use, in little memory: a tier may hold a hundred thousand records."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Final

from lakemark.adapters.disk.objects import Blobs
from lakemark.adapters.disk.pool import run_all
from lakemark.adapters.dvc import layout

WORKERS: Final = 4
# Half of an md5: a tier of a hundred thousand records has millions of names. Two that begin alike only keep an object longer.
_BYTES: Final = 8
_DIGITS: Final = 2 * _BYTES
_REMEMBERED: Final = 256


class Used:
    """Object names, by the first 8 bytes of their md5.

    What it does not contain was not added. Two names that begin alike count as one: so an object may be kept that nothing
    uses, but none that is used ever looks unused.
    """

    def __init__(self) -> None:
        self._by_first = [bytearray() for _ in range(256)]
        self._sorted_bytes = [0] * 256

    def add(self, names: Iterable[str]) -> None:
        self.add_packed(_packed(names))

    def add_packed(self, packed: bytes) -> None:
        """As `Claims` keeps them."""
        for one in _each(packed):
            self._by_first[one[0]] += one

    def __contains__(self, name: str) -> bool:
        return self._has(bytes.fromhex(name[:_DIGITS]))

    def has_any(self, packed: bytes) -> bool:
        """Whether any of these names was added."""
        return any(self._has(one) for one in _each(packed))

    def _has(self, wanted: bytes) -> bool:
        first = wanted[0]
        if len(self._by_first[first]) != self._sorted_bytes[first]:
            # Once after names were added, not once a look: who asks for many asks for one of another group each time.
            names = sorted(set(_each(bytes(self._by_first[first]))))
            self._by_first[first] = bytearray().join(names)
            self._sorted_bytes[first] = len(self._by_first[first])
        return _found(self._by_first[first], wanted)


def _found(names: bytearray, wanted: bytes) -> bool:
    low, high = 0, len(names) // _BYTES
    while low < high:
        middle = (low + high) // 2
        name = names[middle * _BYTES : (middle + 1) * _BYTES]
        if name == wanted:
            return True
        low, high = (middle + 1, high) if name < wanted else (low, middle)
    return False


class Claims:
    """What claims and notes of drops say, each read once: of a key none ever says something else. Safe for several threads."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._records = _Kept(blobs, layout.RECORDS, is_ours=lambda key: layout.claimed_record(key) is not None)
        self._drops = _Kept(blobs, layout.DROPPED, is_ours=lambda key: layout.dropped_at(key) is not None)

    def used(self) -> Used | None:
        """What any claim uses that was there when this was asked. None where a listing did not end complete.

        Raises Corrupt where a claim can't be read.
        """
        records, parts = self._records.look(), self._blobs.list(layout.PARTS)
        if records is None or not parts.complete:
            return None
        found = Used()
        ours = (key for key in parts.sizes if layout.is_part(key))
        for packed in (*records.values(), *dict(_read(self._blobs, ours)).values()):
            found.add_packed(packed)
        return found

    def has(self, record: str) -> bool:
        """Whether there was a claim of the record when `used` was asked last."""
        return bytes.fromhex(record) in self._records.known

    def records(self) -> list[str]:
        """Ids of the records that there were claims of then."""
        return [short.hex() for short in self._records.known]

    def drops(self) -> dict[str, bytes] | None:
        """Key of each drop's note -> its object names, packed. None, and raises, as `used`."""
        found = self._drops.look()
        return None if found is None else {short.decode(): packed for short, packed in found.items()}


class _Kept:
    """The object names in everything of ours under a prefix, packed, by short key. known: at the last look."""

    def __init__(self, blobs: Blobs, prefix: str, *, is_ours: Callable[[str], bool]) -> None:
        self._blobs = blobs
        self._prefix = prefix
        self._is_ours = is_ours
        self.known: dict[bytes, bytes] = {}
        self._guard = threading.Lock()

    def look(self) -> dict[bytes, bytes] | None:
        with self._guard:
            listed = self._blobs.list(self._prefix)
            if not listed.complete:
                return None
            there = {_short(key): key for key in listed.sizes if self._is_ours(key)}
            # What is gone from the listing goes here too; what is new is read, once: a claim's names never change.
            known = {short: packed for short, packed in self.known.items() if short in there}
            new = (key for short, key in there.items() if short not in known)
            known.update(_read(self._blobs, new))
            self.known = known
            return known


def _read(blobs: Blobs, keys: Iterable[str]) -> Iterator[tuple[bytes, bytes]]:
    def one(key: str) -> tuple[str, bytes | None]:
        data = blobs.get(key)
        return key, None if data is None else _packed(layout.used_names(data, key=key))

    for key, packed in run_all((partial(one, key) for key in keys), workers=WORKERS):
        if packed is not None:
            yield _short(key), packed


class Remembered:
    """Object names of the records asked for last."""

    def __init__(self) -> None:
        self._objects: OrderedDict[str, Mapping[str, str]] = OrderedDict()
        self._guard = threading.Lock()

    def get(self, record: str) -> Mapping[str, str] | None:
        with self._guard:
            return self._objects.get(record)

    def put(self, record: str, objects: Mapping[str, str] | None) -> None:
        """None: it is forgotten."""
        with self._guard:
            self._objects.pop(record, None)
            if objects is not None:
                self._objects[record] = objects
            while len(self._objects) > _REMEMBERED:
                self._objects.popitem(last=False)


def count(packed: bytes) -> int:
    """How many names these are."""
    return len(packed) // _BYTES


def _packed(names: Iterable[str]) -> bytes:
    """Names that are no object's are left out."""
    right = (name for name in names if layout.object_name(layout.object_key(name)) is not None)
    return b"".join(bytes.fromhex(name[:_DIGITS]) for name in right)


def _each(packed: bytes) -> Iterator[bytes]:
    return (packed[at : at + _BYTES] for at in range(0, len(packed), _BYTES))


def _short(key: str) -> bytes:
    """A claim's key, in half of the bytes where it is a record's."""
    record = layout.claimed_record(key)
    return key.encode() if record is None else bytes.fromhex(record)
