"""Files of one save are copied one after the other: by how much the times of a copy may differ that keeps none of them."""

from __future__ import annotations

from typing import Final

# FAT and some network file systems keep times to two seconds.
APART_NS: Final = 2 * 10**9
# Slow for a disk or a network: a copy is allowed more time than it takes, and what is overwritten well after is told.
_BYTES_PER_SECOND: Final = 20_000_000


def copied_ns(size_bytes: float) -> int:
    """How much newer a file of a whole save may be than one that was written after it. size_bytes: of all that is newer."""
    return APART_NS + int(size_bytes * 10**9 / _BYTES_PER_SECOND)
