"""`resume`."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from cyclopts import Parameter

from lakemark.cli.commands.move import role_lines, shown, wanted_record
from lakemark.cli.options import Whole, absolute, is_directory, require_kept
from lakemark.cli.output import pairs, plain
from lakemark.cli.session import Answer, Session, session, would
from lakemark.cli.watchable import require_watchable
from lakemark.errors import NotFound, Refused, Usage, quoted
from lakemark.model.ledger.run import Cause, RecordState
from lakemark.model.runs.starts import Start
from lakemark.model.views import data_view

if TYPE_CHECKING:
    from lakemark.services.back.resume import Resumed

_MANY = Parameter(consume_multiple=True)


@dataclass(frozen=True, kw_only=True)
class Going:
    """What it may go on without, and what is known of the attempt before."""

    without: Annotated[tuple[str, ...], _MANY] = ()
    """Roles that may be missing, such as rng for torchtitan, which never saves it."""

    without_step: Annotated[tuple[Whole, ...], _MANY] = ()
    """Steps of whole saves that could not be committed, to go on without them."""

    because: Literal["preempted", "node", "software", "unknown"] = "unknown"
    """Why the attempt before ended, where you know: its allocation was taken, its node failed, its program failed."""


def resume(
    run: str,
    /,
    *,
    to: Path,
    record: str | None = None,
    job: str | None = None,
    world: Whole | None = None,
    asked: Annotated[Going | None, Parameter(name="*")] = None,
    dry_run: bool = False,
) -> Answer:
    """Make a run's directory ready to train on: the newest record in it that training can go on from.

    It comes back under the names the trainer gave it, the framework's own pointer is set at it, and later steps are moved
    aside, never deleted.

    Parameters
    ----------
    run: str
        Its name.
    to: Path
        The directory in which the trainer saves.
    record: str
        Which; an older one than the newest needs a rollback where approval is required.
    job: str
        The scheduler's job id, by default as the environment has it: the same start of a job decides the same.
    world: int
        How many processes the job has: `notes` then says what the checkpoint needs of that number.
    dry_run: bool
        Say what would be done, and change nothing.
    """
    from lakemark.services.back.resume import resume as make_ready

    here, wish = session(), asked or Going()
    if world is not None and world < 1:
        raise Usage(f"--world {world} is not 1 or more", advice="Give the number of processes.")
    name = here.history.name(run)
    where = absolute(to)
    _require_directory(here, where)
    chosen = wanted_record(here, record, look=where) if record else None
    # Another run's record would be on no timeline of this one.
    if chosen is not None and chosen.record.run != name:
        raise Usage(f"{shown(chosen)} is not of {name}", advice="Open another run with --parent to go on from it.")
    identity = chosen.record.id if chosen else None
    start = Start.of(job, here.environ)
    if dry_run:
        asked_for = (wish.without, wish.without_step)
        return _would_resume(here, name, where, identity, start=start, without=asked_for, world=world)
    done = make_ready(
        here.site,
        name,
        to=where,
        record=identity,
        job=start,
        without=wish.without,
        without_steps=wish.without_step,
        because=Cause(wish.because),
    )
    for one in done.passed_over:
        # Only one whose bytes are right nowhere any more; that another lacks a role is in the answer, and no alarm.
        if one.lost:
            here.warn(f"step {one.found.record.step} is passed over: {one.why}")
    done = replace(done, notes=(*done.notes, *_of_world(here, done.found, world)))
    return Answer(document=_document(done), lines=_lines(done))


def _of_world(here: Session, found: RecordState, world: int | None) -> tuple[str, ...]:
    if world is None:
        return ()
    return here.site.recogniser.of_world(here.site.ledger.manifest(found.record.run, found.record.id), world)


def _require_directory(here: Session, to: Path) -> None:
    require_kept("--to", to)
    require_watchable(here, to, option="--to")
    try:
        os.lstat(to)
    except OSError as error:
        # `lexists` below would answer False for it, and the name would pass for one that can be made.
        if error.errno == errno.ENAMETOOLONG:
            raise Refused(f"--to {quoted(str(to))}: {error.strerror}", advice="Choose another place or name.") from None
    nearest = next(path for path in (to, *to.parents) if os.path.lexists(path))
    if not is_directory(nearest):
        raise Usage(
            f"--to {quoted(str(to))}: {quoted(str(nearest))} is not a directory",
            advice="Give the directory in which the trainer saves.",
        )


def _document(done: Resumed) -> dict[str, Any]:
    return {
        "record": done.found.record.id,
        "step": done.found.record.step,
        "timeline": done.timeline,
        "path": str(done.path),
        "data": [{**data_view(ref), "uri": ref.uri} for ref in done.data],
        "run_file": str(done.run_file),
        "moved_aside": [str(path) for path in done.moved_aside],
        "attempt": done.attempt,
        "roles": done.roles.as_json(),
        "accepted_gaps": list(done.accepted),
        "passed_over": [
            {
                "record": one.found.record.id,
                "step": one.found.record.step,
                "why": one.why,
                "gaps": list(one.found.record.gaps),
            }
            for one in done.passed_over
        ]
        + [{"record": None, "step": one.step, "gaps": [], "why": one.said} for one in done.uncommitted],
        "pointers": [
            {"path": str(one.path), "kind": str(one.kind), "content": one.content, "why": one.why}
            for one in done.pointers
        ],
        "baked_paths": [{"file": str(one.file), "path": one.path} for one in done.baked],
        "notes": list(done.notes),
    }


def _lines(done: Resumed) -> list[str]:
    from lakemark.services.saves.roles import is_weights_only

    record = done.found.record
    passed = ((one.found.record.step, one.why) for one in done.passed_over)
    rows = [
        ("ready", f"{shown(done.found)} in {done.path}" + ("" if done.changed else " (it was already)")),
        *([("weights only", "not a full resume")] if is_weights_only(record) else []),
        ("timeline", str(done.timeline)),
        *(("data", ref.uri) for ref in done.data),
        ("run file", done.run_file),
        *(("moved aside", path) for path in done.moved_aside),
        *(("pointer", f"{one.path}: {one.kind} {one.content}".rstrip()) for one in done.pointers),
        *(("passed over", f"step {step}: {why}") for step, why in passed),
        *(("mind", note) for note in done.notes),
    ]
    return [*pairs(rows), *map(plain, role_lines(done.roles))]


_FROM_THESE: Final = "resume from the newest of these that training can go on from"


def _would_resume(
    here: Session,
    run: str,
    to: Path,
    record: str | None,
    *,
    start: Start,
    without: tuple[tuple[str, ...], tuple[int, ...]],
    world: int | None,
) -> Answer:
    from lakemark.services.back.lives import require_decided
    from lakemark.services.back.prepare_directory import foreseen
    from lakemark.services.back.resume import decided, is_decided, lives, unfollowed
    from lakemark.services.back.uncommitted import foresee, foresee_first
    from lakemark.services.runs.open_run import new_attempt
    from lakemark.services.saves.layout import aside_of
    from lakemark.services.saves.roles import require_words

    roles, steps = without
    require_words(roles, option="--without")
    here.require_sound()
    state = here.site.ledger.run(run)
    attempt = new_attempt(state, start)
    try:
        found = decided(here.site, state, attempt=attempt, record=record, to=to, without=roles, without_steps=steps)
    except NotFound:
        taken = foresee_first(here.site, state, to=to, without=steps) if record is None else ()
        if not taken:
            raise
        said = [f"commit {path} as {run}@{step} first" for path, step in taken]
        return would(*said, _FROM_THESE, f"write {here.site.run_file(run)}", record=None, step=None)
    if record is None and not is_decided(state, attempt):
        require_decided(here.site, state, found, lives(state, roles), to=to)
    first, left = foresee(here.site, state, found, to=to, without=steps)
    said = [f"commit {one.path} as {run}@{one.step} first" for one in first]
    said += [f"go on although {one.said}" for one in left]
    said += [f"mind: {one}" for one in unfollowed(state, found, record)]
    # Which of them it will be shows only when they are sealed: roles are read from the sealed files.
    if first and record is None:
        said.append(_FROM_THESE)
    else:
        said.append(f"resume from {shown(found)}")
        said += [f"mind: {one}" for one in _of_world(here, found, world)]
        said += foreseen(here.site, state, found, to=to, aside=aside_of(to, run=run, start=start, attempt=attempt))
    said.append(f"write {here.site.run_file(run)}")
    return would(*said, record=found.record.id, step=found.record.step)
