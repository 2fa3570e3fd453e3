"""Room on a file system: what is free, and what must stay so."""

from __future__ import annotations

import os
from fractions import Fraction
from pathlib import Path

from lakemark.adapters.disk.files import os_errors
from lakemark.errors import NoRoom, quoted


class Space:
    """The file system that `path` is on. `min_free` is a share of all its bytes, or bytes, that must stay free."""

    def __init__(self, path: Path, min_free: Fraction | int) -> None:
        self._path = path
        self._min_free = min_free

    def totals(self) -> tuple[int, int]:
        """(all bytes, bytes free to this user)."""
        with os_errors(self._path):
            found = os.statvfs(self._path)
        # `f_bavail`, not `f_bfree`: what is set aside for root is not there for us.
        return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize

    def require(self, size_bytes: int) -> None:
        """NoRoom unless `size_bytes` more still leave min_free."""
        total, free = self.totals()
        keep = self._min_free if isinstance(self._min_free, int) else int(self._min_free * total)
        if free - size_bytes < keep or size_bytes > free:
            raise NoRoom(
                f"{quoted(str(self._path))}: {free} bytes are free, {size_bytes} are asked for and {keep} must stay free",
                advice="Make room on that file system, or lower the tier's `min_free`.",
            )

    def full(self, need_bytes: int = 0) -> bool:
        """Whether less than min_free is free, or would be with so much more."""
        total, free = self.totals()
        return free - need_bytes < (self._min_free if isinstance(self._min_free, int) else self._min_free * total)
