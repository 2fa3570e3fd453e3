"""Which of a branch's entries were written under a clock that had jumped: those that lie apart from their neighbours.

Sequence is the order; `recorded_at` should not go back along it. Where it does, either those before the fall had jumped
ahead or those after it fell behind. Whoever jumped ahead and was set right again falls by no more than it rose: what was
recorded meanwhile took no longer, by its own times, than the time between the neighbours that are left. Only where that
does not hold (or nothing is left before) the fewer are the ones that jumped.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, NamedTuple, Self

from lakemark.errors import Corrupt
from lakemark.model.ledger.entry import Clock, Entry
from lakemark.model.values.canonical import JSON
from lakemark.model.values.fields import Fields
from lakemark.model.values.instants import from_text, to_text

TOLERANCE: Final = timedelta(minutes=5)
"""Clocks of nodes differ, and a stamp is made before its append waits for its turn."""
WINDOW: Final = 128
"""So many entries before a fall can still turn out to have jumped; those before them stand as they were judged."""


class ToldTime(NamedTuple):
    """What an entry says of its time. record: the one it committed."""

    sequence: int
    at: datetime
    record: str | None

    def as_json(self) -> JSON:
        return [self.sequence, to_text(self.at), self.record]

    @classmethod
    def from_json(cls, value: JSON) -> Self:
        match value:
            case [int(sequence), str(at), str() | None as record]:
                return cls(sequence, from_text(at), record)
        message = f"{value!r} does not tell an entry's time"
        raise ValueError(message)


class ClockMark(NamedTuple):
    """The judgement on the entry `sequence`, which committed `record`: it replaces the one before.

    not_before, not_after: where its instant is held: up to the next right entry's, so that as-of never names it too early,
    and where none came yet, from the one's before it on.
    """

    sequence: int
    record: str
    suspect: bool
    not_before: datetime | None = None
    not_after: datetime | None = None


@dataclass(slots=True, kw_only=True)
class Clocks:
    """Folds the entries of one branch, each in its turn, and answers which records' marks change with each.

    trusted: the last entries that agree with each other. apart: those since that lie before them, at most one more.
    off: those since that were written as suspect. The same entries give the same marks, however they come in pieces;
    each costs the same however many came before.
    """

    newest: datetime | None = None
    trusted: list[ToldTime] = field(default_factory=list)
    apart: list[ToldTime] = field(default_factory=list)
    off: list[ToldTime] = field(default_factory=list)

    def copy(self) -> Clocks:
        return Clocks(newest=self.newest, trusted=self.trusted[:], apart=self.apart[:], off=self.off[:])

    def add(self, entry: Entry) -> list[ClockMark]:
        """Takes the next entry in. Simulated times, and entries replayed from another copy, say nothing and stay as written."""
        # Only records are marked; other entries of a jumped clock are evidence, and nothing is asked of their age.
        told = ToldTime(entry.sequence, entry.recorded_at, entry.record if entry.kind == "committed" else None)
        if entry.replayed or entry.clock == Clock.SIMULATED:
            return []
        # Its writer knew: it is no evidence for or against its neighbours.
        if entry.clock != Clock.OK:
            self.off = [*self.off, told][-WINDOW:]
            return _marks([told], suspect=True, not_before=self.newest)
        # Against the newest, not the last one: many small steps back would else go unseen.
        if self.newest is None or told.at >= self.newest - TOLERANCE:
            return self._agrees(told)
        return self._falls(told)

    def _agrees(self, told: ToldTime) -> list[ClockMark]:
        # Of those that fell behind it is known by now that they were written before this one, and no more.
        behind, self.apart = _marks(self.apart, suspect=True, not_before=told.at), []
        # Within the tolerance an entry may lie before the newest, which stays the mark.
        self.newest = told.at if self.newest is None else max(self.newest, told.at)
        self.trusted.append(told)
        if len(self.trusted) > WINDOW:
            del self.trusted[0]
        return [*behind, *self._hold_back(told.at)]

    def _falls(self, told: ToldTime) -> list[ClockMark]:
        """After a fall: either those that are ahead of `told` had jumped, or it fell behind."""
        kept, ahead = self._parted(told.at)
        times = [one.at for one in ahead]
        # Those ahead took no longer, by their own times, than passed between the neighbours that are left: one jump and its end.
        if kept and times and max(times) - min(times) <= max(told.at - kept[-1].at, timedelta(0)):
            return self._overturn(kept, ahead, [told])
        # Else the fewer jumped: those that agree with this one, and with each other, are counted against those ahead.
        with_it = self._with(told)
        kept, ahead = self._parted(with_it[0].at)
        if len(with_it) > len(ahead):
            return self._overturn(kept, ahead, with_it)
        # One more than the window: so many outvote all that is kept, so no more need be kept.
        self.apart = [*self.apart, told][-WINDOW - 1 :]
        return _marks([told], suspect=True, not_before=self.newest)

    def _with(self, told: ToldTime) -> list[ToldTime]:
        """Of those apart as many as go on to `told` without a fall, and of these the ones that outvote the most.

        Who fell a year behind before them agrees with all that came since, and with nothing that is trusted: counted in, it
        would have to outvote that as well.
        """
        line = [*_without_fall([one for one in self.apart if one.at <= told.at + TOLERANCE]), told]
        return max(
            (line[at:] for at in range(len(line))), key=lambda some: len(some) - len(self._parted(some[0].at)[1])
        )

    def _parted(self, at: datetime) -> tuple[list[ToldTime], list[ToldTime]]:
        """The trusted entries that one of `at` may follow, and those that it may not."""
        kept = [one for one in self.trusted if one.at <= at + TOLERANCE]
        return kept, [one for one in self.trusted if one.at > at + TOLERANCE]

    def _overturn(self, kept: list[ToldTime], ahead: list[ToldTime], right: list[ToldTime]) -> list[ClockMark]:
        """`ahead` had jumped; what lies apart and agrees with what is left never had."""
        # What lay apart may still be before what stays, or after what turned out right: then it jumped as well.
        least = kept[-1].at if kept else min(one.at for one in right)
        after, back = right[-1].at, list[ToldTime]()
        for one in self.apart:
            if one.sequence < right[0].sequence and least - TOLERANCE <= one.at <= right[0].at:
                back.append(one)
                least = max(least, one.at)
        agreed = [*back, *right]
        self.trusted = [*kept, *agreed][-WINDOW:]
        behind, self.apart = [one for one in self.apart if one not in agreed], []
        self.newest = max(one.at for one in self.trusted)
        return [
            *_marks(behind, suspect=True, not_before=after),
            *_marks(ahead, suspect=True, not_after=min(one.at for one in agreed)),
            *_marks(agreed, suspect=False),
            *self._hold_back(after),
        ]

    def _hold_back(self, at: datetime) -> list[ClockMark]:
        """What was written as suspect since the last trusted entry was written before this one of `at`."""
        off, self.off = self.off, []
        # The last but one: the very last is the entry that came just now.
        before = self.trusted[-2].at if off and len(self.trusted) > 1 else None
        return _marks(off, suspect=True, not_before=before, not_after=at)

    def as_json(self) -> JSON:
        return {
            "newest": None if self.newest is None else to_text(self.newest),
            "trusted": [one.as_json() for one in self.trusted],
            "apart": [one.as_json() for one in self.apart],
            "off": [one.as_json() for one in self.off],
        }

    @classmethod
    def from_json(cls, value: JSON) -> Self:
        """Raises Corrupt."""
        try:
            read = Fields(value, "the clocks of a branch")
            newest, lists = read.optional_instant("newest"), {}
            for name in ("trusted", "apart", "off"):
                lists[name] = [ToldTime.from_json(one) for one in read.items(name)]
        except ValueError as error:
            raise Corrupt(f"what is kept of clocks can't be read: {error}", advice="Remove the index.") from error
        return cls(newest=newest, **lists)


def _without_fall(entries: list[ToldTime]) -> list[ToldTime]:
    """The longest line of them, in order, in which no time goes back (by patience sorting, Schensted 1961)."""
    # Of each length the line that ends earliest, by its last entry; and of each entry the one before it in its line.
    ends: list[int] = []
    before: list[int | None] = []
    for number, one in enumerate(entries):
        length = bisect_right(ends, one.at, key=lambda end: entries[end].at)
        before.append(ends[length - 1] if length else None)
        ends[length : length + 1] = [number]
    line: list[ToldTime] = []
    last = ends[-1] if ends else None
    while last is not None:
        line.append(entries[last])
        last = before[last]
    return line[::-1]


def _marks(
    entries: list[ToldTime], *, suspect: bool, not_before: datetime | None = None, not_after: datetime | None = None
) -> list[ClockMark]:
    return [
        ClockMark(one.sequence, one.record, suspect, not_before, not_after) for one in entries if one.record is not None
    ]
