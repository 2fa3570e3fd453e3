"""Whose save is it: the timeline, parent and data of a checkpoint that was found or announced.

A save belongs to the process that made it, not to the moment it was found. Where that process can't be told, the answer
says so (`ambiguous`) instead of guessing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from lakemark.model.checkpoints.record import DataRef, Evidence, record_id
from lakemark.model.ledger.run import Attempt, Fork, Interval, RecordState, RunState
from lakemark.model.runs.lives import later_of_others
from lakemark.model.runs.timeline import lineage, segments

_Choice: TypeAlias = tuple[tuple[DataRef, ...], int | None]
"""Data that a process may have had open, and the step at which it began to, where that was said."""
# Two callbacks write one step within seconds of each other.
_MOMENT: Final = timedelta(minutes=1)
_MISSED: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """What is known of a save before it is placed.

    announced: the trainer spooled it; then `attempt`, `data` and `resumed_timeline` are what its process had.
    attempt: of the process, or of the directory it was found in. found: nobody asked for this commit, a sweep saw it.
    newest_mtime: of its files, by this node's clock; None where that clock is simulated, or they are of the future.
    oldest_mtime: the same, of its heavy files. lying: ids of records that lie in its directory.
    pass_began: the run's last entry when the pass that found it began. placed: the timeline that it was placed in a moment ago.
    sealed_again: record ids of which it still contains at least one sealed file, unchanged. grown: those of them that it
    has whole, with more.
    beside: record ids whose own files still lie unchanged on this node, under other names.
    adopted: somebody said that it is the run's; it is of no attempt. dated: it was written while its attempt was open, as far
    as anybody can tell. doubtful: nobody knows which timeline it is of.
    """

    step: int
    content: str
    announced: bool = False
    found: bool = False
    attempt: str | None = None
    resumed_timeline: int | None = None
    directory_timeline: int | None = None
    data: tuple[DataRef, ...] = ()
    newest_mtime: datetime | None = None
    oldest_mtime: datetime | None = None
    pass_began: int | None = None
    lying: frozenset[str] = frozenset()
    placed: int | None = None
    sealed_again: frozenset[str] = frozenset()
    grown: frozenset[str] = frozenset()
    beside: frozenset[str] = frozenset()
    supersede: bool = False
    adopted: bool = False
    dated: bool = True
    doubtful: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where a save goes. known: this very content is a record already. fork: a timeline has to be opened first.

    collides: another record holds the same run, timeline and step with other bytes, and nothing says which is right.
    conflicts: the same in a timeline that was left behind; there both are kept, and this one is nobody's newest.
    ambiguous: nobody can tell which of the run's lives it is of: it is kept, and nobody's newest.
    """

    timeline: int
    parent: str | None = None
    data: tuple[DataRef, ...] = ()
    known: str | None = None
    supersedes: str | None = None
    fork: Fork | None = None
    collides: str | None = None
    conflicts: str | None = None
    ambiguous: bool = False
    why: str = ""


def place(state: RunState, save: Save) -> Placement:
    """Decides by these rules, the first that fits.

    The same bytes are the same record. An explicit commit of other bytes collides unless it supersedes. A find of the same
    attempt that only grew supersedes: it was taken too early. One that still holds a sealed file and lost or changed others
    is another state of that save, and conflicts; so does a second file of one save. What a process saved that somebody
    started by hand where another life's later steps lie is ambiguous. Any other find of the same step, or one below what an
    earlier pass recorded and younger than that, opens a timeline, unless its own was left behind.
    """
    # By its process, before anything is compared: the same step may be in several timelines.
    timeline = timeline_of(state, save)
    data = _or_of_twins(state, save, data_of(state, save))
    same = _already(state, save, timeline)
    if same is not None:
        why = "these bytes are committed already"
        return Placement(timeline=same.record.timeline, data=data, known=same.record.id, why=why)
    # An explicit commit never opens a timeline: who gives it says where it belongs, or is told that it collides.
    may_fork = save.found and not save.adopted and not save.doubtful
    may_fork = may_fork and timeline in {state.timeline, *(one.number for one in state.in_doubt)}
    if not may_fork:
        # Below a fork a step belongs to the parent, whose record of it is the one to compare with.
        timeline = _owner(state, timeline, save.step)
    other = standing(state, timeline, save.step)
    # What is older than the run came from none of its steps.
    parent = None if save.adopted else before(state, timeline, save.step)
    # Where the first timeline is still the current one, what is filed there for want of a better place must not be its newest.
    unknown = save.doubtful and timeline == state.timeline
    placed = Placement(timeline=timeline, parent=parent.record.id if parent else None, data=data, ambiguous=unknown)
    if _ambiguous(state, save, timeline) and not (other is not None and other.record.id in save.sealed_again):
        return _in_doubt(placed)
    if other is None and may_fork:
        if _further_back(state, save, timeline):
            return _fork(state, placed, save, number=timeline)
        if _went_back(state, save, timeline):
            return _fork(state, placed, save)
    if other is None:
        return placed
    return _beside(state, save, placed, other, parent=parent, may_fork=may_fork)


def _beside(
    state: RunState, save: Save, placed: Placement, other: RecordState, *, parent: RecordState | None, may_fork: bool
) -> Placement:
    """Where a save goes whose step `other` holds with other bytes."""
    # A file that is still the sealed one shows that this is the same save, going on; a new save of the step replaces them all.
    same_save = other.record.id in save.sealed_again
    grew = same_save and other.record.attempt == save.attempt and other.record.id in save.grown
    if save.supersede or (save.found and grew):
        why = "asked for" if save.supersede else "the same attempt had not finished it when it was taken"
        return replace(placed, supersedes=other.record.id, why=why)
    # A person or a trainer said that these bytes are that step: nobody else decides which are right.
    if not save.found:
        return replace(placed, collides=other.record.id)
    # Stripped, or converted in part: what was recorded first was whole, and stays the one that counts.
    if same_save:
        why = "files of it were removed or written again since it was recorded; both are kept"
        return replace(placed, conflicts=other.record.id, why=why)
    # Before a fork is thought of: two names of one save are no going back.
    if _twice(save, other, parent):
        why = "the same attempt saved this step under two names; both are kept"
        return replace(placed, conflicts=other.record.id, why=why)
    if may_fork:
        return _fork(state, placed, save)
    return replace(
        placed, conflicts=other.record.id, why="a timeline that was left behind has other bytes at this step"
    )


def timeline_of(state: RunState, save: Save) -> int:
    """Of `run.resume` if its process read it, else its attempt's, else its directory's, else the current one.

    A process that went back by itself took its attempt along to the timeline that was opened for it; where that is in doubt,
    what the life that it seemed to leave would have saved next is that one's.
    """
    if save.doubtful:
        # The first of all was left by every other: what is filed there is kept, and never the newest.
        return min(state.timelines, default=state.timeline)
    if save.placed in state.timelines:
        return save.placed
    attempt = state.attempts.get(save.attempt or "")
    said, mine = save.resumed_timeline, attempt.timeline if attempt else None
    # `run.resume` was read at the process's start. Its attempt has moved on since, if it went back by itself.
    if mine in state.timelines and any(number == said for number, _ in segments(state, mine)):
        said = mine
    found = next((number for number in (said, mine, save.directory_timeline) if number in state.timelines), None)
    number = state.timeline if found is None else found
    doubted = any(one.number == number for one in state.in_doubt)
    return state.timeline if doubted and _not_of_it(state, save, number) else number


def _not_of_it(state: RunState, save: Save, doubted: int) -> bool:
    """Whether the current life saved it, and not the one that was inferred: nobody may have gone back at all.

    Its files are older than that one's first save, and it is no going back of its own. Or that one only wrote steps anew, as
    a conversion does, and this is later than the current life's newest: whoever went back would have come by the steps in
    between.
    """
    own = state.by_step.get(doubted, ())
    if not own:
        return False
    _, _, first = min(own, key=lambda row: row[1])
    if save.newest_mtime is not None and save.newest_mtime < state.records[first].record.saved_at:
        return not _went_back(state, save, state.timeline)
    newest = next(lineage(state), None)
    if newest is None or state.timelines[doubted].ahead is not None:
        return False
    if not own[-1][0] < newest.record.step < save.step:
        return False
    # It went on since: then the process that seemed to have gone back was none.
    if newest.sequence > max(sequence for _, sequence, _ in own):
        return True
    previous = before(state, state.timeline, newest.record.step)
    pace = newest.record.step - (previous.record.step if previous is not None else 0)
    off = abs(save.step - newest.record.step - pace)
    gap = save.step - own[-1][0]
    # By the pace of each. That of one that saved a single step is not known: the other's, of which one may have gone unseen.
    if len(own) > 1:
        return off < abs(gap - (own[-1][0] - own[-2][0]))
    return off == 0 and gap > _MISSED * pace


def data_of(state: RunState, save: Save) -> tuple[DataRef, ...]:
    """What the save's process had open; without a spool file, what it must have had open, or all it may have had.

    Where a change of data was said to begin at a step, that step tells the saves before it from those after it. What
    somebody declared by hand is what files written later were trained with, if their process says nothing itself.
    """
    # The process itself: stronger than anything worked out below.
    if save.announced and save.data:
        return save.data
    # Of a time before the run: whoever adopts it knows no data, and `bind` says it.
    if save.adopted:
        return ()
    declared = _declared(state, save)
    if declared is not None or save.announced:
        return declared or ()
    timeline = timeline_of(state, save)
    if not save.dated:
        return _any_of([data for data, _ in (_choice(interval, timeline) for interval in state.intervals)])
    attempt = state.attempts.get(save.attempt or "")
    choices: list[_Choice]
    # Nothing tells whose directory it was found in: any interval may be its own.
    if save.directory_timeline is None:
        choices = [_choice(interval, timeline) for interval in state.intervals]
    elif attempt is not None and _by_it(state, save, attempt, timeline=timeline):
        choices = [(attempt.data, None)]
    else:
        choices = [_choice(interval, timeline) for interval in _intervals(state, timeline)]
    began = attempt.sequence if attempt is not None else 0
    # A process may have opened data anew after a re-pin that came while it ran.
    choices.extend(_choice(interval, timeline) for interval in state.intervals if interval.sequence > began)
    left = _at_step(choices, save.step)
    # By what was read, not by how it is known: several intervals of the same data are one answer.
    if len({frozenset((ref.repository, ref.commit) for ref in choice) for choice in left}) <= 1:
        return _plain(left[0]) if left else ()
    return _any_of(left)


def _or_of_twins(state: RunState, save: Save, data: tuple[DataRef, ...]) -> tuple[DataRef, ...]:
    """`data`; of what may be a copy of another step, found again, also what that was trained with, all of it ambiguous."""
    if save.announced or not save.found or not data:
        return data
    twins = [
        found.record.data
        for found in state.records.values()
        if found.record.content == save.content and found.record.step != save.step
    ]
    # By what was read: of twins of the same data there is nothing to doubt.
    read = {frozenset((ref.repository, ref.commit) for ref in one) for one in (data, *twins) if one}
    return data if len(read) <= 1 else _any_of([data, *twins])


def _any_of(choices: Sequence[tuple[DataRef, ...]]) -> tuple[DataRef, ...]:
    """All that it may have read, none of it certain: shown to people, and no target of a rollback."""
    every = dict.fromkeys(replace(ref, evidence=Evidence.AMBIGUOUS) for choice in choices for ref in _plain(choice))
    return tuple(every)


def _choice(interval: Interval, timeline: int) -> _Choice:
    """Steps are told apart within one timeline; in another the same number is another moment."""
    return interval.data, interval.at_step if interval.timeline == timeline else None


def _at_step(choices: Sequence[_Choice], step: int) -> list[tuple[DataRef, ...]]:
    """Of what a process may have had open, in order, that which a save of `step` may be of."""
    first, last = 0, len(choices)
    for index, (_, at) in enumerate(choices):
        if at is not None and step >= at:
            first = index
        # The first that begins after this step: it and what follows can't be of it.
        elif at is not None and index > 0:
            last = index
            break
    return [data for data, _ in choices[first:last]]


def _declared(state: RunState, save: Save) -> tuple[DataRef, ...] | None:
    """What somebody said by hand that the run reads from now on; None of what was written before, or said before a re-pin."""
    interval = state.interval
    if interval is None or not interval.declared:
        return None
    later = save.newest_mtime is not None and save.newest_mtime > interval.opened_at
    # Declared from a step on: earlier saves were trained before, whenever they were written.
    reached = interval.at_step is None or save.step >= interval.at_step
    return _plain(interval.data) if later and reached else None


def before(state: RunState, timeline: int, step: int) -> RecordState | None:
    """The record of the greatest step below `step` in the timeline's lineage."""
    return next((found for found in lineage(state, timeline) if found.record.step < step), None)


def standing(state: RunState, timeline: int, step: int) -> RecordState | None:
    """The record that holds (timeline, step) now: neither superseded nor in conflict."""
    rows = state.by_step.get(timeline, ())
    here = [state.records[identity] for at, _, identity in rows if at == step]
    # The one appended last.
    return next((found for found in reversed(here) if found.stands), None)


def _already(state: RunState, save: Save, timeline: int) -> RecordState | None:
    """The record of these very bytes at this step in the lineage; of a find that may be any process's, anywhere."""
    numbers = [number for number, bound in segments(state, timeline) if bound is None or save.step <= bound]
    if save.found and not save.announced and (save.directory_timeline is None or _older(state, save)):
        # A file that lay there before its directory's attempt may be of any timeline: the same bytes are not committed twice.
        numbers.extend(sorted(state.timelines, reverse=True))
    ids = (record_id(state.run, number, save.step, save.content) for number in numbers)
    return next((state.records[identity] for identity in ids if identity in state.records), None)


def _owner(state: RunState, timeline: int, step: int) -> int:
    """The timeline of the lineage that has this step: below a fork it is one of its parents."""
    # The last in order is the oldest: a step at the fork itself is the parent's.
    return [number for number, bound in segments(state, timeline) if bound is None or step <= bound][-1]


def _intervals(state: RunState, timeline: int) -> list[Interval]:
    """Of the timeline; where it did not begin with one of its own, of those it came from too: its process may be older."""
    found: list[Interval] = []
    for number, _ in segments(state, timeline):
        here = [interval for interval in state.intervals if interval.timeline == number]
        found = here + found
        opened = state.timelines.get(number)
        # It began with data of its own, as after a rollback: what came before can't be meant.
        if here and opened is not None and here[0].sequence == opened.sequence:
            break
    return found or state.intervals[-1:]


def _older(state: RunState, save: Save) -> bool:
    """Whether it lay there before the attempt of its directory began."""
    attempt = state.attempts.get(save.attempt or "")
    return attempt is not None and save.newest_mtime is not None and save.newest_mtime <= attempt.started_at


def _by_it(state: RunState, save: Save, attempt: Attempt, *, timeline: int) -> bool:
    """Whether no older process can have saved it: the attempt opened its timeline by resuming, or began before the files."""
    opened = state.timelines.get(timeline)
    resumed = opened is not None and attempt.sequence == opened.sequence
    later = save.newest_mtime is not None and save.newest_mtime > attempt.started_at
    return bool(attempt.data) and (resumed or later)


def _went_back(state: RunState, save: Save, timeline: int) -> bool:
    """Whether its process was resumed from an older step by itself.

    It saves below where its timeline began, or below what an earlier pass recorded, and its files are younger than that
    one's. What one pass finds comes in any order, and is no going back.
    """
    opened = state.timelines.get(timeline)
    # A timeline begins after its fork: whoever saves at or below it went back once more.
    if opened is not None and opened.fork is not None and save.step <= opened.fork.step:
        return _before_its_pass(save, opened.sequence)
    rows = state.by_step.get(timeline)
    # The usual case: the next step.
    if not rows or save.step > rows[-1][0]:
        return False
    earlier = (state.records[identity] for _, sequence, identity in reversed(rows) if _before_its_pass(save, sequence))
    newest = next((found for found in earlier if found.stands), None)
    if newest is None or save.step > newest.record.step:
        return False
    if save.oldest_mtime is not None:
        return save.oldest_mtime > newest.record.saved_at
    # No file tells the time: a later attempt does. Saves of the same one may have been found late.
    before, mine = state.attempts.get(newest.record.attempt or ""), state.attempts.get(save.attempt or "")
    return before is not None and mine is not None and mine.sequence > before.sequence


def _further_back(state: RunState, save: Save, timeline: int) -> bool:
    """Whether the same pass found a later save of its process before, from which it was inferred where that had gone back to."""
    opened = state.timelines.get(timeline)
    if opened is None or opened.fork is None or not opened.inferred or _before_its_pass(save, opened.sequence):
        return False
    return save.step <= opened.fork.step


def _before_its_pass(save: Save, sequence: int) -> bool:
    return save.pass_began is None or sequence <= save.pass_began


def _ambiguous(state: RunState, save: Save, timeline: int) -> bool:
    """Whether its process may have gone on from another life: started by hand where that one's later steps lay, and lie.

    What a process announces it says itself, and who resumed moved those steps aside.
    """
    attempt = state.attempts.get(save.attempt or "")
    if not save.found or save.announced or attempt is None or attempt.decided_at is not None:
        return False
    opened = state.timelines.get(timeline)
    if timeline != state.timeline or opened is None or opened.fork is None or attempt.sequence < opened.sequence:
        return False
    return bool(later_of_others(state, save.lying))


def _in_doubt(placed: Placement) -> Placement:
    data = tuple(replace(ref, evidence=Evidence.AMBIGUOUS) for ref in placed.data)
    why = "later steps of another life lie there: nobody can tell which one its process went on from"
    return replace(placed, data=data, ambiguous=True, why=why)


def _twice(save: Save, other: RecordState, parent: RecordState | None) -> bool:
    """Whether a process saved one step twice, as two of Lightning's callbacks do, and did not come to it a second time.

    Its files and the other's lie beside each other, and less time passed between them than half of what the steps before took.
    """
    if save.newest_mtime is None or other.record.id not in save.beside or other.record.attempt != save.attempt:
        return False
    saved_at = other.record.saved_at
    # Who trains to the step a second time needs about as long as the first time.
    took = (saved_at - parent.record.saved_at) / 2 if parent is not None else _MOMENT
    return abs(save.newest_mtime - saved_at) < took


def _fork(state: RunState, placed: Placement, save: Save, *, number: int | None = None) -> Placement:
    """number: of a timeline that is open already, and leaves its parent before this save."""
    at = state.records[placed.parent].record if placed.parent else None
    opened = state.timelines.get(number or 0)
    left = opened.fork.timeline if opened is not None and opened.fork is not None else placed.timeline
    fork = Fork(timeline=at.timeline if at else left, step=at.step if at else -1, record=at.id if at else "")
    back = "begun anew" if at is None else f"gone back to step {at.step}"
    why = f"step {save.step} was saved again by a process that had {back}"
    return replace(placed, timeline=number or state.next_timeline, fork=fork, why=why)


def _plain(data: tuple[DataRef, ...]) -> tuple[DataRef, ...]:
    return tuple(replace(ref, evidence=Evidence.DECLARED, from_step=None, to_step=None) for ref in data)
