"""Names in the root of an HDF5 file, without opening anything but its first headers.

HDF5 File Format Specification 3.0: superblock versions 0 and 1, whose root entry caches where the names lie (a local heap).
Later versions keep them elsewhere: nothing is told of these.
"""

from __future__ import annotations

from typing import BinaryIO, Final

_SIGNATURE: Final = b"\x89HDF\r\n\x1a\n"
_HEAP: Final = b"HEAP"
_CACHED: Final = 1
_LARGEST_HEAP_BYTES: Final = 2**20
_WORD: Final = 8


def root_names(stream: BinaryIO, *, base: int = 0) -> frozenset[str] | None:
    """base: where in the stream the HDF5 file begins. None where it can't be told."""
    stream.seek(base)
    start = stream.read(128)
    # Byte 8: the superblock's version. Byte 13: how many bytes an address has; all below is for eight, the library's default.
    if not start.startswith(_SIGNATURE) or start[8] > 1 or start[13] != _WORD:
        return None
    # The root's entry follows four addresses; version 1 has the K of indexed storage and two reserved bytes before these.
    entry = start[(56 if start[8] == 0 else 60) :][:40]
    # Type of cache 1: the entry itself says where the B-tree and the heap of names lie. Else the object's header would.
    if int.from_bytes(entry[16:20], "little") != _CACHED:
        return None
    stream.seek(base + int.from_bytes(entry[32:40], "little"))
    heap = stream.read(32)
    # After signature and version: length of the heap's data, where its free list begins, where the data lie.
    size_bytes, at = int.from_bytes(heap[8:16], "little"), int.from_bytes(heap[24:32], "little")
    if not heap.startswith(_HEAP) or size_bytes > _LARGEST_HEAP_BYTES:
        return None
    stream.seek(base + at)
    names = stream.read(size_bytes)
    if len(names) < size_bytes:
        return None
    # The heap's free room may hold anything; names that Keras gives are ASCII.
    return frozenset(name.decode() for name in names.split(b"\0") if name.isascii() and name)
