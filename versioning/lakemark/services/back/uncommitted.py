"""Whole saves that are no records: a resume must not go below one of them in silence, nor take it out of the trainer's way."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lakemark.errors import LakemarkError, NoRoom, NotFound, Refused, quoted
from lakemark.model.ledger.run import RecordState, RunState
from lakemark.ports import Found, Site, Verdict
from lakemark.services.back.later_steps import later_than
from lakemark.services.back.older import require_answered, without_older
from lakemark.services.ledger import require_identity
from lakemark.services.saves.find import is_looked_through
from lakemark.services.saves.layout import layout_of
from lakemark.services.saves.outcomes import Saves, known

_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncommitted:
    """A save later than the record that training goes on from, of which nothing was kept."""

    path: Path
    step: int
    why: str
    advice: str = ""

    @property
    def said(self) -> str:
        return f"step {self.step} is not committed: {self.path}: {self.why}"


def require_committed(
    site: Site, state: RunState, found: RecordState, *, to: Path, saves: Saves, without: Collection[int]
) -> tuple[Uncommitted, ...]:
    """Those that were passed over because `without` names their steps. Raises Refused for any other, naming its step.

    saves: what became of the saves in `to` a moment ago. What is later than `found` would be moved aside, and is nowhere else.
    """
    left = sorted(uncommitted(site, state, found, to=to, saves=saves), key=lambda one: one.step)
    refused = [one for one in left if one.step not in without]
    if not refused:
        return tuple(left)
    steps = [str(one.step) for one in refused]
    shown = ", ".join(steps[:_SHOWN]) + (", …" if len(steps) > _SHOWN else "")
    last = refused[-1]
    words = " ".join(f"--without-step {step}" for step in steps)
    raise Refused(
        f"{state.run} would go on from step {found.record.step}, and step {shown} lies there and is not committed: "
        f"{quoted(str(last.path))}: {last.why}",
        advice=f"{last.advice or 'Commit it: lakemark sweep.'} To go on without it: "
        f"lakemark resume {state.run} --to {to} {words}",
    )


def require_none_left(run: str, *, to: Path, saves: Saves, without: Collection[int]) -> None:
    """Where there is no record: a trainer that is told so starts anew, over a save that is nowhere else. Raises Refused."""
    errors = dict((*saves.unsteady, *saves.failed))
    steps = {path: saves.steps[path] for path in errors if path in saves.steps and saves.steps[path] not in without}
    if not steps:
        return
    last = max(steps, key=lambda path: steps[path])
    raise Refused(
        f"{run} has no record to resume from, and step {steps[last]} lies there and is not committed: "
        f"{quoted(str(last))}: {errors[last]}",
        advice=f"{errors[last].advice or 'Commit it: lakemark sweep.'} "
        f"To start anew, let the trainer save into another directory than {quoted(str(to))}.",
    )


def foresee(
    site: Site, state: RunState, found: RecordState, *, to: Path, without: Collection[int]
) -> tuple[tuple[Found, ...], tuple[Uncommitted, ...]]:
    """Before a resume, changing nothing: the later saves in `to` that it would commit first, and those it would leave.

    found: what it would go on from as the ledger is now. Raises what `require_committed` would, as far as that can be told
    without taking anything: by names, links, the tier and its room.
    """
    require_answered(site, state, found, to=to, without=without, keep=False)
    whole = [(one, step) for one, step in _whole_there(site, state, to=to) if step > found.record.step]
    refused = {one.path: error for one, _ in whole if (error := _not_kept(site, one)) is not None}
    own = is_looked_through(site, state, to)
    taken = [(one, step) for one, step in whole if own and one.path not in refused]
    newest = max((step for _, step in taken), default=found.record.step)
    saves = Saves(steps={one.path: step for one, step in whole})
    for one, step in whole:
        if one.path in refused and step > newest:
            saves.failed.append((one.path, refused[one.path]))
        elif own:  # taken first, or no later than what is
            saves.incomplete.append((one.path, ""))
    left = require_committed(site, state, found, to=to, saves=saves, without=without)
    return tuple(one for one, _ in taken), left


def foresee_first(site: Site, state: RunState, *, to: Path, without: Collection[int]) -> tuple[tuple[Path, int], ...]:
    """The same of a run that has nothing to go on from yet: the saves in `to` that a resume would commit, path and step.

    Raises Refused as `require_none_left` does.
    """
    whole = _whole_there(site, state, to=to) if is_looked_through(site, state, to) else []
    saves = Saves(steps={one.path: step for one, step in whole})
    saves.failed.extend((one.path, error) for one, _ in whole if (error := _not_kept(site, one)) is not None)
    refused = {path for path, _ in saves.failed}
    taken = tuple((one.path, step) for one, step in whole if one.path not in refused)
    if not taken:
        require_none_left(state.run, to=to, saves=saves, without=without)
    return taken


def _whole_there(site: Site, state: RunState, *, to: Path) -> list[tuple[Found, int]]:
    """Whole saves in `to` that are of no record and not older than the run, with their steps."""
    finds = list(site.recogniser.find(to, skip=lambda paths: known(site, paths))) if site.files.exists(to) else []
    finds = without_older(site, state, finds, to=to)
    return [(one, one.step) for one in finds if one.verdict is Verdict.COMPLETE and one.step is not None]


def _not_kept(site: Site, one: Found) -> LakemarkError | None:
    """What would keep it from being taken, as far as that is told without reading it."""
    try:
        # An ephemeral one begins anew by itself where it was emptied.
        if not site.policies.ephemeral_hot:
            require_identity(site, site.hot)
        site.files.require_keepable(one.path, one.members)
        if site.hot.full():
            raise NoRoom(
                f"{site.hot.name} has less room than its `min_free`",
                advice="Make room on that file system, or lower the tier's `min_free`.",
            )
    except LakemarkError as error:
        return error
    return None


def uncommitted(site: Site, state: RunState, found: RecordState, *, to: Path, saves: Saves) -> Iterator[Uncommitted]:
    """Whole saves of later steps: those that could not be taken, and those that nobody tried to take."""
    errors: dict[Path, LakemarkError] = dict((*saves.unsteady, *saves.failed))
    # What was looked at and found unfinished is no save that anybody could miss.
    judged = {path for path, _ in saves.incomplete} - errors.keys()
    for path, error in errors.items():
        step = saves.steps.get(path)
        if step is not None and step > found.record.step:
            yield Uncommitted(path=path, step=step, why=str(error), advice=error.advice)
    for one in later_there(site, state, found, to=to, unknown=True):
        whole = one.verdict is Verdict.COMPLETE and one.step is not None
        if whole and one.step is not None and one.path not in errors and one.path not in judged:
            yield Uncommitted(path=one.path, step=one.step, why="nobody committed it")


def later_there(site: Site, state: RunState, found: RecordState, *, to: Path, unknown: bool = False) -> list[Found]:
    """What lies in `to` of later steps than `found`. unknown: only what is of no record."""

    def skip(paths: Sequence[Path]) -> bool:
        return unknown and known(site, paths)

    finds = list(site.recogniser.find(to, skip=skip)) if site.files.exists(to) else []
    finds = without_older(site, state, finds, to=to)
    return later_than(site, state, found, finds, native=_native(site, state, found, finds, to=to))


def _native(site: Site, state: RunState, found: RecordState, finds: Sequence[Found], *, to: Path) -> Found | None:
    """The record's checkpoint as the recogniser sees it there: frameworks that count saves compare by their own number."""
    if not finds:
        return None
    path = layout_of(site, state, found, to=to).path
    try:
        return site.recogniser.judge(path)
    except NotFound:
        return None
