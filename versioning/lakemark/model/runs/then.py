"""What was known at some time, and what is to be said of an answer about a time where a clock was wrong."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from datetime import datetime
from itertools import accumulate, takewhile

from lakemark.model.ledger.clocks import TOLERANCE
from lakemark.model.ledger.moments import Sure, held
from lakemark.model.ledger.run import RecordState, RunState
from lakemark.model.runs.timeline import lineage, usable
from lakemark.model.values.wording import instant


def known_then(state: RunState, at: datetime) -> RecordState | None:
    """The newest record as the ledger had it at `at`: the timeline of then, and only what had been recorded."""
    around = _Around(state) if len(state.timelines) > 1 else None
    taken = [
        (one.current_since, one.number)
        for one in state.timelines.values()
        if one.current_since is not None and one.current_at is not None
        if (around.at(one.current_since, one.current_at) if around else one.current_at) <= at
    ]
    # The run did not exist then.
    if not taken:
        return None
    _, current = max(taken)
    # Recorded, not saved: a save that was committed later was known to nobody at that time.
    known = (found for found in lineage(state, current) if found.known_at <= at and usable(found, at=at))
    return next(known, None)


def doubts(state: RunState, found: RecordState, *, at: datetime | None = None) -> tuple[str, ...]:
    """A sentence for each record whose clock was wrong: of the one that was found, and of later ones that may be of `at` too."""
    later = takewhile(lambda one: one.record.id != found.record.id, lineage(state)) if at is not None else ()
    wrong = [one for one in (found, *later) if one.sure is Sure.HELD and (one is found or usable(one))]
    if not wrong:
        return ()
    around = _Around(state)
    return tuple(
        _said(one, around) for one in wrong if one is found or at is None or (around.before(one.sequence) or at) <= at
    )


def _said(found: RecordState, around: _Around) -> str:
    bounds = (("after", around.before(found.sequence)), ("before", around.after(found.sequence)))
    told = " and ".join(f"{word} {instant(bound)}" for word, bound in bounds if bound is not None)
    return (
        f"the clock was wrong when step {found.record.step} was recorded, at {instant(found.recorded_at)} by it: "
        f"that was {told or 'nobody knows when'}; it counts as of {instant(found.instant)}"
    )


class _Around:
    """The instants of a run's right entries, by sequence: of its records, and of the newest entries of any kind."""

    def __init__(self, state: RunState) -> None:
        rows = {one.sequence: one.at for one in state.clocks.trusted}
        rows |= {one.sequence: one.recorded_at for one in state.records.values() if one.sure is not Sure.HELD}
        self._sequences = sorted(rows)
        times = [rows[sequence] for sequence in self._sequences]
        self._before = list(accumulate(times, max))
        self._after = list(accumulate(reversed(times), min))[::-1]

    def before(self, sequence: int) -> datetime | None:
        """The latest of those before the entry `sequence`."""
        at = bisect_left(self._sequences, sequence)
        return self._before[at - 1] if at else None

    def after(self, sequence: int) -> datetime | None:
        """The earliest of those after it."""
        at = bisect_right(self._sequences, sequence)
        return self._after[at] if at < len(self._after) else None

    def at(self, sequence: int, told: datetime) -> datetime:
        """When the entry `sequence` was written, which says `told`.

        Held up to the next right entry where its clock contradicts those around it, as records are.
        """
        before, after = self.before(sequence), self.after(sequence)
        fell = before is not None and told < before - TOLERANCE
        jumped = after is not None and told > after + TOLERANCE
        return after or held(told, before, None) if fell or jumped else told
