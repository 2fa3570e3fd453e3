"""Which entry a request made, in 16 to 24 bytes for each: a branch has hundreds of thousands, and keeps them all."""

from __future__ import annotations

from array import array
from hashlib import blake2b
from typing import Final

_LEAST_SLOTS: Final = 64


class Requests:
    """Sequences of entries by their idempotency keys. Answers candidates: whoever asks compares the entry's own key.

    Keys are hashed to 64 bits (`_hashes`, in order of sequence; 0: none) and found over an open table of places in it, at most
    half full. So adding and asking cost the same however many there are, but for the doubling of the table.
    """

    __slots__ = ("_before", "_count", "_hashes", "_slots")

    def __init__(self) -> None:
        self._before: int | None = None  # the sequence before the first key's
        self._hashes = array("Q")
        self._slots = array("I", bytes(_LEAST_SLOTS * array("I").itemsize))
        self._count = 0

    def add(self, request: str, sequence: int) -> None:
        """Notes the key of entry `sequence`, from 1. Gaps are allowed, going back is not: sequences only grow."""
        if self._before is None:
            self._before = sequence - 1
        gap = sequence - 1 - self._before - len(self._hashes)
        if gap < 0:
            message = f"entry {sequence} is no later one"
            raise ValueError(message)
        # A selection of entries is folded as well: places without a key keep the sequence's order.
        self._hashes.extend([0] * gap)
        self._hashes.append(_hashed(request))
        self._count += 1
        if self._count * 2 > len(self._slots):
            self._grow()
        else:
            self._place(len(self._hashes))

    def of(self, request: str) -> list[int]:
        """Entries whose key may be `request`, the newest first; nearly always at most one, and never one too few."""
        wanted, mask = _hashed(request), len(self._slots) - 1
        found, slot = [], wanted & mask
        # At most half full, so an empty slot ends every search.
        while number := self._slots[slot]:
            if self._hashes[number - 1] == wanted:
                found.append(number + (self._before or 0))
            slot = (slot + 1) & mask
        return sorted(found, reverse=True)

    def copy(self) -> Requests:
        made = Requests()
        made._before, made._count = self._before, self._count
        made._hashes, made._slots = self._hashes[:], self._slots[:]
        return made

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Requests):
            return NotImplemented
        # The table depends on when it grew, and says nothing else.
        return (self._before, self._hashes) == (other._before, other._hashes)

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"<{self._count} requests>"

    def _place(self, number: int) -> None:
        mask = len(self._slots) - 1
        slot = self._hashes[number - 1] & mask
        while self._slots[slot]:
            slot = (slot + 1) & mask
        self._slots[slot] = number

    def _grow(self) -> None:
        # Rebuilt from the hashes: the keys themselves are not kept.
        self._slots = array("I", bytes(2 * len(self._slots) * self._slots.itemsize))
        for number, hashed in enumerate(self._hashes, 1):
            if hashed:
                self._place(number)


def _hashed(request: str) -> int:
    # blake2b and not hash(), which differs from process to process. 0 marks a gap, so no key may have it.
    return int.from_bytes(blake2b(request.encode(errors="surrogatepass"), digest_size=8).digest(), "big") or 1
