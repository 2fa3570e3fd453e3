"""What a DVC tier needs of the store below it, as checks. All are safe on a store in use: they use names of their own."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import BinaryIO, Final, Protocol

from lakemark.contract import Check, require


class ListedNames(Protocol):
    """A listing."""

    @property
    def sizes(self) -> Mapping[str, int]: ...
    @property
    def complete(self) -> bool: ...


class ObjectsUnderCheck(Protocol):
    """What `CHECKS` ask of the store below a DVC tier."""

    def get(self, key: str) -> bytes | None: ...
    def absent(self, key: str) -> bool: ...
    def create(self, key: str, data: bytes) -> bool: ...
    def replace(self, key: str, data: bytes) -> None: ...
    def delete(self, key: str, *, unless_late: Callable[[], None] | None = None) -> None: ...
    def require_no_removal(self) -> None: ...
    def list(self, prefix: str, *, limit: int | None = None) -> ListedNames: ...
    def takes_wrong_checksum(self, key: str) -> bool: ...
    def open(self, key: str, *, start: int = 0, length: int | None = None) -> AbstractContextManager[BinaryIO]: ...


def _name() -> str:
    return f"lakemark/probe/{secrets.token_hex(8)}"


def _creates_once(blobs: ObjectsUnderCheck) -> None:
    key = _name()
    try:
        require(blobs.create(key, b"first"), "creating a new name answers that it exists")
        require(not blobs.create(key, b"second"), "creating a name twice does not answer that it exists")
        require(
            blobs.get(key) == b"first", "creating a name twice wrote over the first: conditional writes are ignored"
        )
        racers = [bytes([number]) * 10 for number in range(8)]
        race = _name()
        with ThreadPoolExecutor(len(racers)) as pool:
            won = [
                data for data, new in zip(racers, pool.map(lambda d: blobs.create(race, d), racers), strict=True) if new
            ]
        kept = blobs.get(race)
        blobs.delete(race)
        require(len(won) == 1, f"{len(won)} of {len(racers)} writers were told that they had created the same name")
        require(kept == won[0], "the bytes are not those of the writer that was told it created the name")
    finally:
        blobs.delete(key)


def _reads_its_writes(blobs: ObjectsUnderCheck) -> None:
    key = _name()
    try:
        require(blobs.get(key) is None, "a name never written has bytes")
        require(blobs.absent(key), "a name never written is listed")
        blobs.replace(key, b"one")
        require(blobs.get(key) == b"one", "what was written is not read back")
        require(not blobs.absent(key), "what was written is not listed")
        blobs.replace(key, b"another")
        require(blobs.get(key) == b"another", "old bytes are read after a write")
        with blobs.open(key, start=2, length=3) as stream:
            require(stream.read(3) == b"oth", "a range answers other bytes")
    finally:
        blobs.delete(key)
    require(blobs.get(key) is None, "bytes are read after a delete")
    require(blobs.absent(key), "a name is listed after a delete")


def _lists_all(blobs: ObjectsUnderCheck) -> None:
    folder = _name()
    names = frozenset(f"{folder}/{number:04}" for number in range(12))
    try:
        for name in names:
            blobs.create(name, b"x")
        listing = blobs.list(f"{folder}/")
        found = listing.sizes.keys()
        require(listing.complete, "a listing does not end complete")
        require(found == names, f"a listing right after {len(names)} writes names {len(found)}")
    finally:
        for name in names:
            blobs.delete(name)
    require(not blobs.list(f"{folder}/").sizes, "a listing names what was deleted")


def _checks_checksums(blobs: ObjectsUnderCheck) -> None:
    require(not blobs.takes_wrong_checksum(_name()), "it takes bytes whose stated checksum is wrong")


class _TooLate(Exception):
    pass


def _removes_in_time(blobs: ObjectsUnderCheck) -> None:
    key = _name()

    def late() -> None:
        raise _TooLate

    try:
        blobs.create(key, b"kept")
        try:
            blobs.delete(key, unless_late=late)
        except _TooLate:
            pass
        else:
            require(holds=False, seen="it does not ask before a removal whether that is still in time")
        require(blobs.get(key) == b"kept", "it removed what was too late to be removed")
        blobs.require_no_removal()
        blobs.delete(key, unless_late=lambda: None)
        require(blobs.get(key) is None, "it did not remove what was in time")
    finally:
        blobs.delete(key)


CHECKS: Final = (
    Check("late", "A removal that has become too late is not made.", _removes_in_time),
    Check("create", "Creating a name succeeds once, whoever races for it.", _creates_once),
    Check("read", "What was written is read, what was deleted is not.", _reads_its_writes),
    Check("list", "A listing is complete right after writes and deletes.", _lists_all),
    Check("checksum", "Bytes with a wrong checksum are rejected.", _checks_checksums),
)
