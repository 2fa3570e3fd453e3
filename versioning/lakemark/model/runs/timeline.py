"""Lineage, latest and as-of: which record a run was at, along its current timeline and the ones it came from."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from lakemark.errors import NoRecordAsOf
from lakemark.model.ledger.run import RecordState, RunState
from lakemark.model.values.wording import instant


def segments(state: RunState, timeline: int | None = None) -> Iterator[tuple[int, int | None]]:
    """(timeline, greatest step of it that counts, None: all) from `timeline` (default: the current) to the root."""
    number = state.timeline if timeline is None else timeline
    bound: int | None = None
    while True:
        yield number, bound
        fork = state.timelines[number].fork if number in state.timelines else None
        # A parent is older than its child: a damaged ledger must not make this go round.
        if fork is None or fork.timeline >= number:
            return
        # The lowest of all forks on the way down: a parent that was itself left lower counts only up to there.
        bound = fork.step if bound is None else min(bound, fork.step)
        number = fork.timeline


def forked_from(state: RunState, timeline: int | None = None) -> frozenset[str]:
    """Ids of the records at which the timelines of a lineage left their parents."""
    opened = (state.timelines.get(number) for number, _ in segments(state, timeline))
    return frozenset(found.fork.record for found in opened if found is not None and found.fork is not None)


def lineage(
    state: RunState, timeline: int | None = None, *, step: int | None = None, live: bool = False
) -> Iterator[RecordState]:
    """The records of a timeline, newest step first, then its parent's up to the fork, and so on to the root.

    Of several records at one step the one appended last comes first. Superseded and conflicting ones are left out.
    A fork's step counts only by the record it names: another record at that step in the parent is not of the lineage.
    step: only those of this step, without looking at the others. live: without the pruned ones, which are not looked at.
    """
    forks = forked_from(state, timeline)
    for number, bound in segments(state, timeline):
        for there, _, identity in reversed(state.by_step.get(number, ())):
            fork = identity in forks
            # The very fork is of the lineage; others at its step are what was left behind.
            above = bound is not None and (there > bound or (there == bound and not fork))
            if above or step not in (None, there) or (live and identity not in state.unpruned):
                continue
            found = state.records[identity]
            # What a timeline began from counts, also if it was superseded since.
            if found.stands or fork:
                yield found


def latest(state: RunState, timeline: int | None = None) -> RecordState | None:
    """The record of the greatest step in the lineage that was not quarantined or pruned; None where there is none."""
    return next((found for found in lineage(state, timeline) if usable(found)), None)


def as_of(state: RunState, at: datetime, timeline: int | None = None, *, known_then: bool = False) -> RecordState:
    """The record with the greatest step at or before `at` in the lineage. Raises NoRecordAsOf.

    known_then: judge as was known at `at`: a quarantine or pruning that came later does not count.
    """
    oldest: RecordState | None = None
    for found in lineage(state, timeline):
        if found.instant <= at and usable(found, at=at if known_then else None):
            return found
        if oldest is None or found.instant < oldest.instant:
            oldest = found
    tail = (
        f"; the oldest is step {oldest.record.step} of {instant(oldest.instant)}" if oldest else "; it has none at all"
    )
    raise NoRecordAsOf(
        f"{state.run} has no record at or before {instant(at)} in its lineage{tail}",
        advice=f"List what there is with `lakemark ls {state.run} --all-timelines`.",
    )


def usable(found: RecordState, *, at: datetime | None = None) -> bool:
    """Neither quarantined nor pruned: now, or as known at `at`."""
    # With `at` None any stop counts; else only those that were known then.
    stopped = [when for when in (found.quarantined_at, found.pruned_at) if when is not None]
    return not any(at is None or when <= at for when in stopped)
