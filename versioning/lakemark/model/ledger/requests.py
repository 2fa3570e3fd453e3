"""Which entry a request made, in 16 to 24 bytes for each: a branch has hundreds of thousands, and keeps them all."""

from __future__ import annotations

from array import array
from hashlib import blake2b
from typing import Final

_LEAST_SLOTS: Final = 64


class Requests:
    """Sequences of entries by their idempotency keys. Answers candidates: whoever asks compares the entry's own key.

    Keys are hashed to 64 bits (`_hashes`, in order of sequence; 0: none) and found over an open table of places in it, at most
    half full. So adding and asking cost the same however many there are, but for the doubling of the table. Copies share
    both, of which each knows how many keys are its own.
    """

    __slots__ = ("_before", "_count", "_hashes", "_length", "_slots")

    def __init__(self) -> None:
        self._before: int | None = None  # the sequence before the first key's
        self._hashes = array("Q")
        self._slots = array("I", bytes(_LEAST_SLOTS * array("I").itemsize))
        self._length = self._count = 0

    def add(self, request: str, sequence: int) -> None:
        """Notes the key of entry `sequence`, from 1. Gaps are allowed, going back is not: sequences only grow."""
        if self._before is None:
            self._before = sequence - 1
        gap = sequence - 1 - self._before - self._length
        if gap < 0:
            message = f"entry {sequence} is no later one"
            raise ValueError(message)
        if len(self._hashes) != self._length:  # another copy went on already
            self._hashes = self._hashes[: self._length]
            self._make_slots(len(self._slots))
        # A selection of entries is folded as well: places without a key keep the sequence's order.
        self._hashes.extend([0] * gap)
        self._hashes.append(_hashed(request))
        self._length += gap + 1
        self._count += 1
        if self._count * 2 > len(self._slots):
            self._make_slots(2 * len(self._slots))
        else:
            self._place(self._length)

    def of(self, request: str) -> list[int]:
        """Entries whose key may be `request`, the newest first; nearly always at most one, and never one too few."""
        wanted, mask = _hashed(request), len(self._slots) - 1
        found, slot = [], wanted & mask
        # At most half full, so an empty slot ends every search.
        while number := self._slots[slot]:
            if number <= self._length and self._hashes[number - 1] == wanted:
                found.append(number + (self._before or 0))
            slot = (slot + 1) & mask
        return sorted(found, reverse=True)

    def copy(self) -> Requests:
        made = Requests()
        made._before, made._length, made._count = self._before, self._length, self._count
        made._hashes, made._slots = self._hashes, self._slots
        return made

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Requests):
            return NotImplemented
        # The table depends on when it grew, and says nothing else.
        mine, others = self._hashes[: self._length], other._hashes[: other._length]
        return (self._before, mine) == (other._before, others)

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

    def _make_slots(self, count: int) -> None:
        # From the hashes, as the keys themselves are not kept; anew, as copies have the old ones.
        self._slots = array("I", bytes(count * self._slots.itemsize))
        for number, hashed in enumerate(self._hashes, 1):
            if hashed:
                self._place(number)


def _hashed(request: str) -> int:
    # blake2b and not hash(), which differs from process to process. 0 marks a gap, so no key may have it.
    return int.from_bytes(blake2b(request.encode(errors="surrogatepass"), digest_size=8).digest(), "big") or 1
