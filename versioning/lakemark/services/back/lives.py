"""Between lives: what a resume may not decide by itself, and what it leaves of the others, with the way to have it otherwise."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from lakemark.errors import LakemarkError, Refused
from lakemark.model.ledger.run import RecordState, RunState
from lakemark.model.runs.lives import of_another_life
from lakemark.ports import Site, Verdict
from lakemark.services.back.newer_records import PassedOver, why_not
from lakemark.services.back.uncommitted import later_there
from lakemark.services.saves.known_files import records_of


def require_decided(
    site: Site, state: RunState, found: RecordState, lives: Mapping[int, RecordState], *, to: Path
) -> None:
    """Raises Refused where the current timeline was only inferred, and going on in it would move newer whole steps aside.

    lives: of each timeline that the run may go on in, what it would go on from.
    """
    current = state.timelines.get(state.timeline)
    if current is None or not current.inferred or len(lives) < 2:  # noqa: PLR2004 - one life is no choice
        return
    later = later_there(site, state, found, to=to)
    steps = sorted({one.step for one in later if one.verdict is Verdict.COMPLETE and one.step is not None})
    if not steps:
        return
    shown = ", ".join(map(str, steps))
    choices = "; ".join(
        f"in timeline {number} from step {one.record.step}: {_resume(one, to)}" for number, one in sorted(lives.items())
    )
    raise Refused(
        f"{state.run} seems to have gone back by itself: timeline {current.number} was only inferred from what was saved, "
        f"and going on from its step {found.record.step} would move step {shown} aside",
        advice=f"Say which life goes on: {choices}",
    )


def left_aside(
    site: Site, state: RunState, found: RecordState, moved: Sequence[Path], *, to: Path, named: Collection[str]
) -> Iterator[PassedOver]:
    """Records later than `found` that were moved aside, but for those in `named`: each with the way to go on from it."""
    told = set(named)
    for path in moved:
        try:
            records = set(records_of(site, [path]) or ())
        except LakemarkError:
            continue  # it is where `moved` says, and whose it is nobody can tell now
        for one in (state.records[identity] for identity in sorted(records - told) if identity in state.records):
            if one.record.step > found.record.step:
                told.add(one.record.id)
                yield PassedOver(found=one, why=_why(site, state, one, to=to))


def with_ways(site: Site, state: RunState, passed: Sequence[PassedOver], *, to: Path) -> tuple[PassedOver, ...]:
    """The same, each that is only passed over as nobody can tell whose it is with the way to go on from it."""
    return tuple(
        replace(one, why=f"{one.why}; to go on from it: {otherwise(site, state, one.found, to=to)}")
        if one.found.ambiguous
        else one
        for one in passed
    )


def otherwise(site: Site, state: RunState, found: RecordState, *, to: Path) -> str:
    """The line to paste to go on from `found` after all."""
    if site.policies.approval.required:
        return f"lakemark rollback request {state.run} --to id:{found.record.id[:12]} --reason '…'"
    return _resume(found, to)


def _resume(found: RecordState, to: Path) -> str:
    return f"lakemark resume {found.record.run} --to {to} --record id:{found.record.id[:12]}"


def _why(site: Site, state: RunState, found: RecordState, *, to: Path) -> str:
    left = of_another_life(state, found) or found.record.timeline != state.timeline
    which = f"it is of timeline {found.record.timeline}, which was left" if left else "it is later than what goes on"
    if found.ambiguous:
        which = why_not(found)
    return f"{which}; to go on from it: {otherwise(site, state, found, to=to)}"
