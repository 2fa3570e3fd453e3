"""The objects' bytes: one file each, named by chance, written once."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from lakemark.sandbox.lakefs.faults import no_data

__all__ = ["Blob", "BlobWriter", "ObjectFiles"]

_CHUNK_BYTES = 256 * 1024
_SHARD_DIGITS = 2


@dataclass(frozen=True, slots=True)
class Blob:
    """What was written: the file's name, the bytes' MD5 in hex, their count."""

    name: str
    checksum: str
    size_bytes: int


class ObjectFiles:
    """Files below `objects/`, in folders named by their first two digits. A removed file reads as collected."""

    def __init__(self, directory: Path) -> None:
        self._objects = directory / "objects"
        self._incoming = directory / "incoming"
        # What a crash left half-written was never acknowledged.
        shutil.rmtree(self._incoming, ignore_errors=True)
        self._objects.mkdir(parents=True, exist_ok=True)
        self._incoming.mkdir()
        _sync_directory(directory)

    def path(self, name: str) -> Path:
        return self._objects / name[:_SHARD_DIGITS] / name

    def writer(self) -> BlobWriter:
        return BlobWriter(self, self._incoming / secrets.token_hex(16))

    def keep(self, incoming: Path) -> None:
        """Make a complete, synced file permanent under its own name; durable on return."""
        target = self.path(incoming.name)
        # A new folder's own name must be durable before anything in it is.
        if not target.parent.is_dir():
            target.parent.mkdir(exist_ok=True)
            _sync_directory(self._objects)
        # Renamed after its bytes are synced: under its name a file is whole or absent.
        incoming.replace(target)
        _sync_directory(target.parent)

    def discard(self, name: str) -> None:
        self.path(name).unlink(missing_ok=True)

    def read(self, name: str, start: int, length: int) -> Iterator[bytes]:
        """The bytes from `start` on, in chunks; raises Fault 410 at once when the file is gone."""
        try:
            file = self.path(name).open("rb")
        except FileNotFoundError:
            raise no_data() from None
        return _chunks(file, start, length)


class BlobWriter:
    """Takes bytes piecemeal. Leaving the block without `finish` leaves nothing behind."""

    def __init__(self, blobs: ObjectFiles, incoming: Path) -> None:
        self._blobs = blobs
        self._incoming = incoming
        self._file = incoming.open("xb")
        # What lakeFS answers as `checksum`, and compares objects by; no protection against anybody.
        self._digest = hashlib.md5(usedforsecurity=False)
        self._size_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()
        # After `finish` there is nothing of that name any more.
        self._incoming.unlink(missing_ok=True)

    def write(self, data: bytes) -> None:
        self._file.write(data)
        self._digest.update(data)
        self._size_bytes += len(data)

    def finish(self) -> Blob:
        """Durable on return: file synced, renamed, folder synced."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._blobs.keep(self._incoming)
        return Blob(self._incoming.name, self._digest.hexdigest(), self._size_bytes)


def _chunks(file: BinaryIO, start: int, length: int) -> Iterator[bytes]:
    with file:
        file.seek(start)
        # In chunks: an object may be larger than memory.
        while length > 0 and (data := file.read(min(_CHUNK_BYTES, length))):
            length -= len(data)
            yield data


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
