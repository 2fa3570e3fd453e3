"""A process of the trainer starts, goes on from a record, ends."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Final

from lakemark.model.entries.kind import Data, EntryBody, Kind, confirm, leave, take_over
from lakemark.model.ledger.entry import Entry, Means
from lakemark.model.ledger.run import Attempt, Cause, Fork, RunState
from lakemark.model.values.codec import LEFT_OUT


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptBody(EntryBody):
    """A start; all nodes of a job tell of the same."""

    attempt: str | None = None
    job: str | None = None
    directory: str | None = None
    data: Data = ()
    record: str | None = None
    in_doubt: Annotated[bool, "later steps of another life lay where it saves"] = field(
        default=False, metadata=LEFT_OUT
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumedBody(AttemptBody):
    """A start that goes on from a record. inferred: nobody decided it; it was seen in what the process saved.

    recovered: its own entry was lost; that there was such a timeline is known from a record of it.
    """

    fork: Annotated[Fork | None, "null: the timeline goes on"] = None
    inferred: Annotated[bool, "nobody decided it: the timeline is current once it has gone on"] = False
    accepted_gaps: tuple[str, ...] | None = None
    recovered: bool = field(default=False, metadata=LEFT_OUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEndedBody(EntryBody):
    """An end that somebody noticed."""

    attempt: str | None = None
    cause: Annotated[str | None, "preempted, node, software, unknown"] = None
    noticed_by: Annotated[str | None, "closed, resumed, idle"] = None


def _started(state: RunState, entry: Entry, body: AttemptBody) -> None:
    # Who starts a trainer in a timeline says that the run goes on there; not where the trainer may load another life's steps.
    if not body.in_doubt:
        _goes_on_in(state, entry)
    _attempt(state, entry, body)


def _goes_on_in(state: RunState, entry: Entry) -> None:
    """Somebody said, by starting a process in it, that the run goes on in the entry's timeline."""
    if any(one.number == entry.timeline for one in state.in_doubt):
        take_over(state, entry, entry.timeline)
    if entry.timeline == state.timeline:
        confirm(state, entry.timeline)


def _attempt(state: RunState, entry: Entry, body: AttemptBody) -> None:
    identity = body.attempt
    # All nodes of a job open the same attempt: the first entry holds.
    if identity and identity not in state.attempts:
        state.attempts[identity] = Attempt(
            id=identity,
            timeline=entry.timeline,
            sequence=entry.sequence,
            node=entry.node,
            started_at=entry.recorded_at,
            job=body.job,
            directory=body.directory,
            data=body.data,
            record=entry.record or body.record,
        )


def _resumed(state: RunState, entry: Entry, body: ResumedBody) -> None:
    # A ledger that lost its entries can't tell what was only inferred: there the one that was opened last is current.
    inferred = body.inferred and not body.recovered
    leave(state, entry, body.fork, inferred=inferred)
    if not inferred:
        _goes_on_in(state, entry)
        state.decided = entry.sequence
    _attempt(state, entry, body)
    found = state.attempts.get(body.attempt or "")
    if found is None:
        return
    # An inferred resume was seen afterwards in what the process saved; nobody decided a record for it.
    decided = None if body.inferred else entry.record
    new = replace(found, timeline=entry.timeline, record=found.record or decided)
    # The first decision holds for all nodes of the start.
    if decided is not None and found.decided_at is None:
        new = replace(new, decided=entry.sequence, decided_at=entry.recorded_at)
    state.attempts[found.id] = new if body.accepted_gaps is None else replace(new, accepted_gaps=body.accepted_gaps)


def _ended(state: RunState, entry: Entry, body: AttemptEndedBody) -> None:
    found = state.attempts.get(body.attempt or "")
    # A cause that is known later replaces `unknown`; the time it ended does not move.
    if found is not None and (found.ended_at is None or found.cause == Cause.UNKNOWN):
        at, cause = found.ended_at or entry.recorded_at, body.cause or Cause.UNKNOWN
        state.attempts[found.id] = replace(found, ended_at=at, cause=cause)


ATTEMPT: Final = Kind(name="attempt", body=AttemptBody, on_run=_started)
ATTEMPT_ENDED: Final = Kind(name="attempt_ended", body=AttemptEndedBody, on_run=_ended, unknown_means=Means.IGNORE)
RESUMED: Final = Kind(name="resumed", body=ResumedBody, on_run=_resumed)

KINDS: Final = (ATTEMPT, ATTEMPT_ENDED, RESUMED)
