"""Is a file of `torch.save` from before the zips as long as it must be? Nothing of it is built.

torch/serialization.py, `_legacy_save`: pickles of a magic number, a version, facts of the machine, the object, and the list of
storage keys; then each storage: how many elements it has, in 8 bytes, and these. How wide they are only the names of the
storages' types say, so all widths that occur are tried: one row of them must end where the file does.
"""

from __future__ import annotations

import pickletools
import struct
from collections.abc import Iterator
from typing import IO, BinaryIO, Final, cast

MAGIC: Final = b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
_BEGINNING_BYTES: Final = 32
_BEFORE_THE_KEYS: Final = 4
_LARGEST_BYTES: Final = 16 * 2**20
# Each try reads eight bytes of the file.
_MOST_TRIED: Final = 200_000
_HEAD: Final = struct.Struct("<q")
_WIDTHS: Final = {
    "Double": 8, "Float": 4, "Half": 2, "BFloat16": 2, "Long": 8, "Int": 4, "Short": 2, "Char": 1, "Byte": 1, "Bool": 1,
    "ComplexDouble": 16, "ComplexFloat": 8, "QInt8": 1, "QUInt8": 1, "QInt32": 4, "Untyped": 1,
}  # fmt: skip
# Where the pickle says its types by protocol 4, or one of them is not known here.
_ANY: Final = (1, 2, 4, 8, 16)


class _TooLong(Exception):
    """It is not read so far."""


class _Bounded:
    """What `genops` reads from: no more than the limit in all, whatever a length in the pickle says."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._left_bytes = _LARGEST_BYTES

    def read(self, length: int) -> bytes:
        # A length in a damaged pickle may be anything: never more than the rest of the limit is read for it.
        return self._counted(self._stream.read(min(max(length, 0), self._left_bytes + 1)))

    def readline(self) -> bytes:
        return self._counted(self._stream.readline(self._left_bytes + 1))

    def tell(self) -> int:
        return self._stream.tell()

    def _counted(self, data: bytes) -> bytes:
        self._left_bytes -= len(data)
        if self._left_bytes < 0:
            raise _TooLong
        return data


def broken(stream: BinaryIO, size_bytes: int) -> str | None:
    """Why such a file is not whole; None where it is, where it is no such file, or where that can't be told."""
    stream.seek(0)
    if MAGIC not in stream.read(_BEGINNING_BYTES):
        return None
    stream.seek(0)
    types: set[str] = set()
    bounded = cast("IO[bytes]", _Bounded(stream))
    try:
        for _ in range(_BEFORE_THE_KEYS):
            types.update(_types(bounded))
        # The fifth pickle is a list of strings, one for each storage.
        keys = sum(isinstance(argument, str) for _, argument, _ in pickletools.genops(bounded))
    except _TooLong:
        # Too long to be looked at is not broken.
        return None
    except (ValueError, IndexError, struct.error):
        return "truncated pickle of torch.save"
    widths = tuple(sorted({_WIDTHS.get(name, 0) for name in types}))
    fits = _fits(stream, size_bytes, keys, widths if widths and 0 not in widths else _ANY)
    return "truncated (its storages are not all there)" if fits is False else None


def _types(stream: IO[bytes]) -> Iterator[str]:
    """Of the storages that the next pickle names; an empty text where their names are strings before the opcode."""
    for opcode, argument, _ in pickletools.genops(stream):
        if opcode.name == "GLOBAL" and isinstance(argument, str) and argument.endswith("Storage"):
            yield argument.rpartition(" ")[2].removesuffix("Storage").rpartition(".")[2]
        elif opcode.name == "STACK_GLOBAL":
            yield ""


def _fits(stream: BinaryIO, size_bytes: int, keys: int, widths: tuple[int, ...]) -> bool | None:
    """Whether so many storages of some of these widths lie from here to the end; None: too much to try."""
    pending, tried = [(keys, stream.tell())], set[tuple[int, int]]()
    while pending:
        left, at = pending.pop()
        if not left:
            if at == size_bytes:
                return True
            continue
        # Several rows of widths lead to the same place: it is tried once, so the work grows by places and not by rows.
        if (left, at) in tried or at + _HEAD.size > size_bytes:
            continue
        tried.add((left, at))
        if len(tried) > _MOST_TRIED:
            return None
        stream.seek(at)
        (count,) = _HEAD.unpack(stream.read(_HEAD.size))
        after = at + _HEAD.size
        # A negative count is none: at this place no storage begins.
        if count >= 0:
            pending.extend((left - 1, end) for width in widths if (end := after + count * width) <= size_bytes)
    return False
