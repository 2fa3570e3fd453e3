"""Lives: a process that went back by itself began one that nobody decided, and which of them the run goes on in.

Such a timeline was only inferred from what was saved. It becomes current with its second save at a step that the other life
never had, or when it passes the other's newest, or when somebody says so. A loop that writes old steps anew does neither.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from enum import Enum, auto

from lakemark.model.checkpoints.record import Record
from lakemark.model.ledger.run import RecordState, RunState
from lakemark.model.runs.timeline import latest, lineage, segments


class Gain(Enum):
    """What a timeline in doubt gains by a save."""

    AHEAD = auto()
    """It is its first at a step that the other life never had."""
    CURRENT = auto()
    """The run goes on in it from now on."""


def gain(state: RunState, record: Record) -> Gain | None:
    """What `record`, which `state` does not have yet and which will stand, brings its timeline; None where nothing changes."""
    mine = next((one for one in state.in_doubt if one.number == record.timeline), None)
    if mine is None:
        return None
    newest = next(lineage(state), None)
    if newest is None or record.step > newest.record.step:
        return Gain.CURRENT
    if mine.ahead == record.step or had(state, record.step):
        return None
    return Gain.AHEAD if mine.ahead is None else Gain.CURRENT


def had(state: RunState, step: int, timeline: int | None = None) -> bool:
    """Whether the life of a timeline (default: the current) ever saved that step, also where the record counts no more."""
    for number, bound in segments(state, timeline):
        rows = state.by_step.get(number, ())
        at = bisect_left(rows, (step,))
        if (bound is None or step <= bound) and at < len(rows) and rows[at][0] == step:
            return True
    return False


def other_lives(state: RunState) -> tuple[int, ...]:
    """Timelines that the run may as well go on in, as nobody decided between them and the current one."""
    found = [one.number for one in state.in_doubt]
    at = state.timelines.get(state.timeline)
    # What an inferred one took over from, and so on down to the one that somebody decided.
    while at is not None and at.inferred and at.current_since is not None:
        since = at.current_since
        before = [
            one for one in state.timelines.values() if one.current_since is not None and one.current_since < since
        ]
        at = max(before, key=lambda one: one.current_since or 0, default=None)
        if at is not None:
            found.append(at.number)
    return tuple(found)


def of_another_life(state: RunState, found: RecordState) -> bool:
    """Whether it is a record of a life that the current timeline does not go on."""
    for number, bound in segments(state):
        if number == found.record.timeline and (bound is None or found.record.step <= bound):
            return False
    return True


def later_of_others(state: RunState, ids: Iterable[str]) -> list[RecordState]:
    """Those of `ids` that are of another life than the current, and later than what that has."""
    newest = next(lineage(state), None)
    step = -1 if newest is None else newest.record.step
    known = (state.records[one] for one in ids if one in state.records)
    return [found for found in known if found.record.step > step and of_another_life(state, found)]


def newest_of_lives(state: RunState) -> dict[int, RecordState]:
    """The newest of the current life and of each that nobody decided against; of one without any, none."""
    newest = ((number, latest(state, number)) for number in (state.timeline, *other_lives(state)))
    return {number: found for number, found in newest if found is not None}
