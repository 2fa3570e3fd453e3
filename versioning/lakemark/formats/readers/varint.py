"""Whole numbers of seven bits a byte, the lowest first (LEB128): Protocol Buffers, LevelDB's tables and OCDBT write them."""

from __future__ import annotations


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The number that begins at `at`, and where it ends. IndexError where the data end, ValueError after ten bytes."""
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the last of its bytes
            return value, at
    raise ValueError("a number that does not end")
