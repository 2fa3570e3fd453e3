"""What the `.index` of a TensorFlow checkpoint says: its keys, and how long each file of data must be.

tensorflow `core/util/tensor_bundle` (a LevelDB table of uncompressed blocks, `core/lib/io/table_format.txt`) and
`core/protobuf/tensor_bundle.proto`: key "" holds how many files of data there are, every other key where its tensor lies.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

from lakemark.formats.readers.varint import varint

# Two handles of at most 20 bytes, filled up, then the magic number.
_FOOTER_BYTES: Final = 48
_LARGEST_BYTES: Final = 64 * 2**20
_MOST_KEYS: Final = 1_000_000
_MAGIC: Final = 0xDB4775248B80FB57


@dataclass(frozen=True, slots=True)
class TensorIndex:
    """needed_bytes: number of the file of data -> how long it must be at least."""

    keys: tuple[str, ...]
    files: int
    needed_bytes: dict[int, int]


def read(stream: BinaryIO, size_bytes: int) -> TensorIndex | None:
    """None where it is no such table, or one that is compressed or too large to be looked at."""
    if not _FOOTER_BYTES <= size_bytes <= _LARGEST_BYTES:
        return None
    stream.seek(0)
    table = stream.read(size_bytes)
    try:
        return _parsed(table)
    except (IndexError, ValueError):
        return None


def _parsed(table: bytes) -> TensorIndex | None:
    footer = table[-_FOOTER_BYTES:]
    if int.from_bytes(footer[-8:], "little") != _MAGIC:
        return None
    at = 0
    for _ in range(2):  # where the meta-index lies, which is not needed
        _, at = varint(footer, at)
    keys: list[str] = []
    needed: defaultdict[int, int] = defaultdict(int)
    files = 0
    # The index names the blocks of data; their keys are bounds and mean nothing here.
    for _, handle in _block(table, *_handle(footer, at)):
        for key, value in _block(table, *_handle(handle, 0)):
            numbers = _numbers(value)
            # BundleHeaderProto: field 1 is num_shards.
            if not key:
                files = numbers.get(1, 0)
                continue
            # BundleEntryProto: shard_id 3, offset 4, size 5. Zeros are not written.
            shard = numbers.get(3, 0)
            needed[shard] = max(needed[shard], numbers.get(4, 0) + numbers.get(5, 0))
            keys.append(key.decode(errors="replace"))
            if len(keys) > _MOST_KEYS:
                return None
    return TensorIndex(tuple(keys), files, dict(needed))


def _handle(text: bytes, at: int) -> tuple[int, int]:
    offset, at = varint(text, at)
    size, _ = varint(text, at)
    return offset, size


def _block(table: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Keys are written as how much they share with the one before. ValueError for a compressed or cut block."""
    # A byte follows the block that says how it is compressed, 0 for not at all; then a checksum.
    block = table[offset : offset + size + 1]
    if len(block) != size + 1 or block[-1] != 0:
        raise ValueError("a compressed or cut block")
    # The block ends with the places at which a key is written in full, and how many these are.
    restarts = int.from_bytes(block[size - 4 : size], "little")
    end = size - 4 - 4 * restarts
    at, key = 0, b""
    while at < end:
        shared, at = varint(block, at)
        own, at = varint(block, at)
        length, at = varint(block, at)
        key = key[:shared] + block[at : at + own]
        at += own
        yield key, block[at : at + length]
        at += length


def _numbers(message: bytes) -> dict[int, int]:
    """The integer fields of a Protocol Buffers message."""
    found: dict[int, int] = {}
    at = 0
    while at < len(message):
        tag, at = varint(message, at)
        kind = tag & 7
        if kind == 0:
            found[tag >> 3], at = varint(message, at)
        elif kind == 2:  # noqa: PLR2004 - the wire format's own: text, with its length
            length, at = varint(message, at)
            at += length
        else:
            # Fixed64, else fixed32: the checksum is one.
            at += 8 if kind == 1 else 4
    return found
