"""Small Zstandard frames (RFC 8878), of files that may be hostile: decompressed up to a limit, or only measured."""

from __future__ import annotations

import sys
from typing import BinaryIO, Final

if sys.version_info >= (3, 14):
    from compression.zstd import DecompressionParameter, ZstdDecompressor, ZstdError
else:
    from backports.zstd import DecompressionParameter, ZstdDecompressor, ZstdError

MAGIC: Final = b"\x28\xb5\x2f\xfd"
# RFC 8878, 3.1.1.1.2: what every decoder should support, and no more than that: a frame may ask for terabytes.
_MOST_WINDOW_BITS: Final = 23


class ZstdDamaged(ValueError):
    """It is cut, or no Zstandard frame, or longer than was allowed."""


def decompress(data: bytes, *, limit_bytes: int) -> bytes:
    """Of one frame, which begins `data`. Raises Damaged; takes `limit_bytes` and a window of 8 MiB of memory at most."""
    frame = ZstdDecompressor(options={DecompressionParameter.window_log_max: _MOST_WINDOW_BITS})
    try:
        # One byte more than allowed tells a frame that ends there from one that goes on.
        found = frame.decompress(data, max_length=limit_bytes + 1)
    except ZstdError as error:
        raise ZstdDamaged(str(error)) from error
    if len(found) > limit_bytes:
        raise ZstdDamaged(f"more than {limit_bytes} bytes")
    if not frame.eof:
        raise ZstdDamaged("cut")
    return found


def length(stream: BinaryIO, size_bytes: int) -> int | None:
    """Where a frame that begins the stream ends, by the heads of its blocks; None where it is none, or is cut."""
    start = stream.read(5)
    if not start.startswith(MAGIC) or len(start) < 5:  # noqa: PLR2004 - with its flags
        return None
    at, last = _head_bytes(start[4]), False
    while not last:
        stream.seek(at)
        head = stream.read(3)
        if len(head) < 3:  # noqa: PLR2004 - of a block
            return None
        number = int.from_bytes(head, "little")
        last = bool(number & 1)
        # Type 1 (RLE) has one byte, whatever length it stands for.
        at += 3 + (1 if number >> 1 & 3 == 1 else number >> 3)
        if at > size_bytes:
            return None
    # The checksum of the content, where flag 2 says so.
    return at + (4 if start[4] >> 2 & 1 else 0)


def _head_bytes(flags: int) -> int:
    """Of a frame: its magic number, flags, window, dictionary and content size."""
    single = flags >> 5 & 1
    return 5 + (1 - single) + (0, 1, 2, 4)[flags & 3] + (single, 2, 4, 8)[flags >> 6]
