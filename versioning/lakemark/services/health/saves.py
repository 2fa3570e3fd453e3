"""What `status` says of saves that are no records: which can't be taken as they are, and runs that have none at all.

Decides; looks at nothing itself: a pass noted what it found (`waiting_saves`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from lakemark.model.ledger.run import RunState
from lakemark.model.values.instants import later
from lakemark.services.health.status import AMBER, RED, Problem, Rules
from lakemark.services.saves.waiting import LATE, LEFT, LOST, REFUSED, STEPLESS, WaitingSave

_SHOWN: Final = 5


def problems_of_refused(run: str, waiting: Sequence[WaitingSave]) -> Iterator[Problem]:
    """Saves that stay nowhere but where the trainer left them until somebody mends what is named. Red from the first pass on."""
    refused = _of(waiting, REFUSED)
    if refused:
        first = refused[0]
        what = f"{len(refused)} save(s) of {run} can't be committed, the first {first.path}: {first.why}"
        yield Problem(colour=RED, what=what, since=first.since, next=first.advice or f"lakemark inspect {first.path}")


def problems_of_late(run: str, waiting: Sequence[WaitingSave]) -> Iterator[Problem]:
    """Saves of a trainer that goes on although its run is closed."""
    late = _of(waiting, LATE)
    if late:
        what = f"{len(late)} save(s) of {run} were written after it was closed, the first {late[0].path}; they are kept nowhere"
        yield Problem(colour=AMBER, what=what, since=late[0].since, next=late[0].advice)


def problems_of_lost(run: str, waiting: Sequence[WaitingSave]) -> Iterator[Problem]:
    """Announced saves that their trainer removed or wrote over before they were taken, with none taken since."""
    lost = _of(waiting, LOST)
    if lost:
        last = lost[-1]
        what = f"{len(lost)} announced save(s) of {run} are kept nowhere, the last {last.path}: {last.why}"
        advice = "Let its trainer keep each save until the next one is there, and `lakemark watch` run beside it."
        yield Problem(colour=AMBER, what=what, since=lost[0].since, next=advice)


def problems_of_left(run: str, waiting: Sequence[WaitingSave]) -> Iterator[Problem]:
    """Whole saves in the run's directories that no pass takes because of whose they are."""
    left = _of(waiting, LEFT)
    if left:
        what = f"{len(left)} save(s) in directories of {run} are not taken, the first {left[0].path}: {left[0].why}"
        yield Problem(colour=AMBER, what=what, since=left[0].since, next=left[0].advice)


def problems_of_stepless(run: str, waiting: Sequence[WaitingSave]) -> Iterator[Problem]:
    """Whole saves that are passed over, as nothing says of which step they are."""
    rows = _of(waiting, STEPLESS)
    if rows:
        what = f"{len(rows)} save(s) of {run} say no step and are kept nowhere, the first {rows[0].path}"
        yield Problem(colour=AMBER, what=what, since=rows[0].since, next=rows[0].advice)


def _of(waiting: Sequence[WaitingSave], sort: str) -> list[WaitingSave]:
    """Those of one sort, the oldest first."""
    return sorted((one for one in waiting if one.sort == sort), key=lambda one: one.since)


def problems_of_best(state: RunState, modes: Mapping[str, str]) -> Iterator[Problem]:
    """A rule that keeps the best by a metric that no record has keeps nothing. modes: the metrics that retention names."""
    named = {name for found in state.records.values() for name in found.record.metrics}
    # Before the first metric nobody can know what they will be called.
    if state.closed or not named or not modes or not named.isdisjoint(modes):
        return
    what = f"retention keeps the best of {state.run} by {', '.join(sorted(modes))}, which none of its records has"
    advice = f"Name one that they have in `retention:`: {', '.join(sorted(named)[:_SHOWN])}."
    yield Problem(colour=AMBER, what=what, next=advice)


def problems_without_record(
    state: RunState, waiting: Sequence[WaitingSave], rules: Rules, *, announced: int
) -> Iterator[Problem]:
    """A run whose trainer saves, and of which nothing was ever committed for longer than may be lost.

    announced: how many announcements lie in its spool.
    """
    attempt = state.attempt
    # What is somebody else's is no save of its trainer.
    waiting = [one for one in waiting if one.sort != LEFT]
    if (
        state.records
        or state.closed
        or attempt is None
        or rules.now - attempt.started_at <= rules.rpo
        or not (waiting or announced)
    ):
        return
    since = later(attempt.started_at, rules.rpo)
    if not waiting:
        what = f"{state.run} has announced {announced} save(s) and has no record at all"
        yield Problem(colour=RED, what=what, since=since, next="lakemark sweep, or start the node's lakemark watch.")
        return
    first = min(waiting, key=lambda one: one.since)
    what = f"{state.run} saves and has no record at all: {len(waiting)} save(s), the first {first.path}: {first.why}"
    advice = first.advice or f"lakemark inspect {first.path} says what lies there; lakemark sweep tries again."
    yield Problem(colour=RED, what=what, since=since, next=advice)
