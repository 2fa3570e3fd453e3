"""Zarr arrays in folders: are all chunks there that their metadata says, each as long as its own head says?

Zarr specification versions 2 (`.zarray`, chunks `0.1` or `0/1`) and 3 (`zarr.json`, chunks `c/0/1`). A writer may leave out
chunks of nothing but the fill value: only where a checkpoint says that it stores those too does a missing one mean anything.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, BinaryIO, Final

from lakemark.formats.readers import zstd
from lakemark.formats.readers.folder import Folder, Unreadable

METADATA: Final = (".zarray", "zarr.json")
_LONGEST_BYTES: Final = 2**20
_OF_BYTES: Final = re.compile(r"[<>|=]?[biufcV](\d{1,3})", re.ASCII)
_OF_BITS: Final = re.compile(r"(?:bfloat|float|u?int|complex|r)(\d{1,3})", re.ASCII)
_CHUNK: Final = re.compile(r"(?:c/?)?(?:\d+[./])*\d*", re.ASCII)
_MOST_SHOWN: Final = 3
_INDEX_ENTRY_BYTES: Final = 16
_CHECKSUM_BYTES: Final = 4
# Offset and length of an inner chunk that is not stored.
_NOTHING: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Array:
    """count: how many chunks the whole array has. chunk_bytes: of one, unpacked; None where it can't be told.

    packed: how a chunk's file is written: `raw`, `gzip`, `zstd`, `blosc`, `shard`, or empty for anything else.
    inner: of a shard, how many chunks it has.
    """

    count: int | None
    chunk_bytes: int | None
    packed: str
    inner: int = 0


def problems(folder: Folder, metadata: str, files: Sequence[str] = (), *, full: bool = False) -> Iterator[str]:
    """Why an array is not whole. metadata: its file in `folder`; files: all others beside and below that one.

    full: chunks of the fill value are stored as well.
    """
    array = metadata.rpartition("/")[0]
    try:
        made = _parsed(json.loads(folder.text(metadata, longest_bytes=_LONGEST_BYTES)))
    except Unreadable as error:
        yield f"{array}: {error}"
        return
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, ArithmeticError):
        yield f"{array}: its metadata is cut or damaged"
        return
    broken = [(name, why) for name in files if (why := _chunk_problem(folder, name, array, made))]
    yield from (f"{name}{why}" for name, why in broken[:_MOST_SHOWN])
    if len(broken) > _MOST_SHOWN:
        yield f"{array}: {len(broken)} chunks damaged"
    if full and made.count is not None and len(files) < made.count:
        yield f"{array}: {len(files)} of {made.count} chunks"


def _parsed(meta: Mapping[str, Any]) -> Array:
    shape: Sequence[int] = meta["shape"]
    # Version 2: `.zarray` says 2; what lacks the key is as old.
    if meta.get("zarr_format") != 3:  # noqa: PLR2004 - the specification's version
        sizes: Sequence[int] = meta["chunks"]
        # Filters change the length of a chunk in ways that only they know.
        packed = "" if meta.get("filters") else _packed_of_old(meta.get("compressor", ""))
        return Array(_count(shape, sizes), _bytes(meta.get("dtype"), sizes), packed)
    grid = meta["chunk_grid"]
    # How many chunks any other grid has, only its own configuration says.
    if grid["name"] != "regular":
        return Array(None, None, "")
    sizes = grid["configuration"]["chunk_shape"]
    packed, inner = _packed(meta.get("codecs") or (), sizes)
    return Array(_count(shape, sizes), _bytes(meta.get("data_type"), sizes), packed, inner)


def _count(shape: Sequence[int], sizes: Sequence[int]) -> int:
    return prod(-(-int(length) // int(size)) for length, size in zip(shape, sizes, strict=True))


def _bytes(kind: object, sizes: Sequence[int]) -> int | None:
    """kind: NumPy's letters with bytes (`<f4`), or a name with bits (`float32`)."""
    if not isinstance(kind, str):
        return None
    letters, name = _OF_BYTES.fullmatch(kind), _OF_BITS.fullmatch(kind)
    # bool has one byte and no number in its name.
    width = int(letters[1]) if letters else int(name[1]) // 8 if name else int(kind == "bool")
    return width * prod(map(int, sizes)) or None


def _packed_of_old(compressor: object) -> str:
    if compressor is None:
        return "raw"
    name = compressor.get("id") if isinstance(compressor, dict) else None
    return name if name in ("gzip", "zstd", "blosc") else ""


def _packed(codecs: Sequence[Mapping[str, Any]], sizes: Sequence[int]) -> tuple[str, int]:
    # It changes the order of the elements, not how many bytes they take.
    names = [codec["name"] for codec in codecs if codec["name"] != "transpose"]
    if names == ["sharding_indexed"]:
        options = codecs[-1]["configuration"]
        index = [codec["name"] for codec in options.get("index_codecs", ())]
        # What TensorStore and Orbax write; an index elsewhere, or packed itself, is not read.
        if options.get("index_location", "end") == "end" and index == ["bytes", "crc32c"]:
            return "shard", _count(sizes, options["chunk_shape"])
    if names == ["bytes"]:
        return "raw", 0
    last = names[1] if names[:1] == ["bytes"] and len(names) == 2 else ""  # noqa: PLR2004 - how it is written, then packed
    return (last if last in ("gzip", "zstd", "blosc") else ""), 0


def _chunk_problem(folder: Folder, name: str, array: str, made: Array) -> str | None:
    """What follows the chunk's name."""
    # Attributes, or files of the user's.
    if not _CHUNK.fullmatch(name[len(array) + 1 :]):
        return None
    try:
        with folder.open(name) as stream:
            size_bytes = os.fstat(stream.fileno()).st_size
            if size_bytes == 0:
                return " is empty"
            return ": cut or damaged" if _is_broken(stream, size_bytes, made) else None
    except (Unreadable, OSError) as error:
        return f": {error}"


def _is_broken(stream: BinaryIO, size_bytes: int, made: Array) -> bool:
    if made.packed == "raw":
        return made.chunk_bytes is not None and made.chunk_bytes != size_bytes
    if made.packed == "gzip":  # ends with the length of what it holds
        start = stream.read(2)
        stream.seek(-min(4, size_bytes), os.SEEK_END)
        length = int.from_bytes(stream.read(4), "little")
        # gzip keeps the length modulo 2^32.
        return start != b"\x1f\x8b" or (made.chunk_bytes is not None and length != made.chunk_bytes & 0xFFFFFFFF)
    if made.packed == "blosc":
        # Bytes 12 to 15 of a Blosc header: how long the packed chunk is, its header included.
        return int.from_bytes(stream.read(16)[12:], "little") != size_bytes
    if made.packed == "zstd":
        return zstd.length(stream, size_bytes) != size_bytes
    return made.packed == "shard" and _is_broken_shard(stream, size_bytes, made.inner)


def _is_broken_shard(stream: BinaryIO, size_bytes: int, inner: int) -> bool:
    """It ends with an index: of each chunk in it, where it begins and how long it is."""
    index_bytes = inner * _INDEX_ENTRY_BYTES + _CHECKSUM_BYTES
    # An index longer than the limit is not read: then only a file that can't even hold it is broken.
    if size_bytes < index_bytes or index_bytes > _LONGEST_BYTES:
        return size_bytes < index_bytes
    stream.seek(-index_bytes, os.SEEK_END)
    index = stream.read(index_bytes)
    numbers = [int.from_bytes(index[at : at + 8], "little") for at in range(0, inner * _INDEX_ENTRY_BYTES, 8)]
    ends = [start + size for start, size in zip(numbers[::2], numbers[1::2], strict=True) if start != _NOTHING]
    return max(ends, default=0) + index_bytes > size_bytes
