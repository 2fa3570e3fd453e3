"""Which objects the records of a DVC tier use, in little memory: a tier may hold a hundred thousand records."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Final

from lakemark.adapters import dvc_layout as layout
from lakemark.adapters.blobs import Blobs
from lakemark.adapters.pool import run_all

WORKERS: Final = 4
_BYTES: Final = 8
_DIGITS: Final = 2 * _BYTES
_REMEMBERED: Final = 256


class Used:
    """Object names, by the first 8 bytes of their md5.

    What it does not contain was not added. Two names that begin alike are taken for one, so that an object may be kept
    although nothing uses it, and none is taken for unused that is not.
    """

    def __init__(self) -> None:
        self._by_first = [bytearray() for _ in range(256)]
        self._looked_at: tuple[int, int, frozenset[bytes]] = (0, 0, frozenset())

    def add(self, names: Iterable[str]) -> None:
        self.add_packed(_packed(names))

    def add_packed(self, packed: bytes) -> None:
        """As `Claims` keeps them."""
        for one in _each(packed):
            self._by_first[one[0]] += one

    def __contains__(self, name: str) -> bool:
        wanted = bytes.fromhex(name[:_DIGITS])
        first, there = wanted[0], self._by_first[wanted[0]]
        if self._looked_at[:2] != (first, len(there)):
            self._looked_at = (first, len(there), frozenset(_each(bytes(there))))
        return wanted in self._looked_at[2]


class Claims:
    """What the claims of a tier say, each read once: of an id none ever says something else. Safe for several threads."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._known: dict[bytes, bytes] = {}
        self._guard = threading.Lock()

    def used(self) -> Used | None:
        """What any claim uses that was there when this was asked. None where a listing did not end complete.

        Raises Corrupt where a claim can't be read.
        """
        listed = self._listed()
        if listed is None:
            return None
        found = Used()
        for packed in listed.values():
            found.add_packed(packed)
        return found

    def unused(self, names: Iterable[str], *, but: str) -> frozenset[str] | None:
        """Of these objects those that no claim but the record's `but` uses. None, and raises, as `used`."""
        listed = self._listed()
        if listed is None:
            return None
        own = _short(layout.claim_key(but))
        left = {_packed([name]): name for name in names}
        for key, packed in listed.items():
            if key != own:
                for one in left.keys() & set(_each(packed)):
                    del left[one]
        return frozenset(left.values())

    def _listed(self) -> dict[bytes, bytes] | None:
        with self._guard:
            records, parts = self._blobs.list(layout.RECORDS), self._blobs.list(layout.PARTS)
            if not (records.complete and parts.complete):
                return None
            there = {_short(key): key for key in records.sizes}
            self._known = {short: packed for short, packed in self._known.items() if short in there}
            self._known.update(self._read(key for short, key in there.items() if short not in self._known))
            return self._known | dict(self._read(parts.sizes))

    def _read(self, keys: Iterable[str]) -> Iterator[tuple[bytes, bytes]]:
        for key, packed in run_all((partial(self._one, key) for key in keys), workers=WORKERS):
            if packed is not None:
                yield _short(key), packed

    def _one(self, key: str) -> tuple[str, bytes | None]:
        data = self._blobs.get(key)
        return key, None if data is None else _packed(layout.used_names(data, key=key))


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


def _packed(names: Iterable[str]) -> bytes:
    """Names that are no object's are left out."""
    right = (name for name in names if layout.object_name(layout.object_key(name)) is not None)
    return b"".join(bytes.fromhex(name[:_DIGITS]) for name in right)


def _each(packed: bytes) -> Iterator[bytes]:
    return (packed[at : at + _BYTES] for at in range(0, len(packed), _BYTES))


def _short(key: str) -> bytes:
    """A claim's key, in half of the bytes where it is a record's."""
    try:
        return bytes.fromhex(layout.claimed_record(key))
    except ValueError:
        return key.encode()
