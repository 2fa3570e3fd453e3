"""How much a DVC tier may still take in, without looking through millions of objects at every put."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Final

from lakemark.adapters.disk.objects import Blobs
from lakemark.adapters.dvc.layout import OBJECTS, object_key
from lakemark.errors import NoRoom

_WRITERS: Final = 64


class Room:
    """Up to `capacity_bytes` of objects; None: any amount.

    What was free at the last look is shared out among 64 writers; who has used up its share looks again. So one writer
    never goes beyond the capacity. Several may: by what the others have under way at a look, and by their shares.
    """

    def __init__(self, blobs: Blobs, capacity_bytes: int | None, *, name: str) -> None:
        self._blobs = blobs
        self._capacity = capacity_bytes
        self._name = name
        self._share = 0
        self._guard = threading.Lock()

    def require(self, objects: Mapping[str, int]) -> None:
        """Takes room for these (name -> bytes), as far as they are not there already. Raises NoRoom."""
        if self._capacity is None:
            return
        with self._guard:
            new = sum(objects.values())
            if new > self._share:
                # A whole listing, so only when the share is used up; what these objects take is counted in it.
                self._share = self._left(self._capacity, objects) // _WRITERS
            else:
                self._share -= new

    def _left(self, capacity: int, objects: Mapping[str, int]) -> int:
        """What is free once these are there too, by a listing of all objects. Raises NoRoom."""
        missing = {object_key(name): size_bytes for name, size_bytes in objects.items()}
        used = 0
        for key, size_bytes in self._blobs.each(OBJECTS):
            missing.pop(key, None)
            used += size_bytes
        new = sum(missing.values())
        if new and used + new > capacity:
            raise NoRoom(
                f"{self._name} holds {used} bytes; {new} more are beyond its capacity of {capacity}",
                advice="Raise the tier's `capacity`, or release or prune something there: it goes after the grace.",
            )
        return max(0, capacity - used - new)
