"""Resume: make a node's run directory ready to train on, once per job and the same for every node of it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from lakemark.errors import NotFound, Refused
from lakemark.model.back.rollback import unsound
from lakemark.model.checkpoints.record import DataRef, Evidence
from lakemark.model.entries.attempts import RESUMED, ResumedBody
from lakemark.model.entries.reads import RestoredBody
from lakemark.model.ledger.entry import Draft
from lakemark.model.ledger.measures import told
from lakemark.model.ledger.run import Cause, Fork, RecordState, RunState
from lakemark.model.runs.lives import other_lives
from lakemark.model.runs.starts import Start
from lakemark.model.runs.timeline import latest, lineage, usable
from lakemark.model.values.canonical import JSON
from lakemark.model.values.names import printable
from lakemark.ports import Baked, Directory, Pointer, Site, Verdict
from lakemark.services.back.lives import left_aside, require_decided, with_ways
from lakemark.services.back.newer_records import PassedOver, newer, passed_over, require_no_suspect, reread, why_not
from lakemark.services.back.older import require_answered
from lakemark.services.back.prepare_directory import Arranged, arrange, require_can_arrange
from lakemark.services.back.restore import tell_restored
from lakemark.services.back.uncommitted import Uncommitted, require_committed, require_none_left
from lakemark.services.data.pins import require_data
from lakemark.services.directories import bind
from lakemark.services.ledger import committed, opened, recorded, require_writable, still
from lakemark.services.runs.attempts import end_before
from lakemark.services.runs.open_run import new_attempt, require_job, write_run_file
from lakemark.services.saves.find import commit_directory
from lakemark.services.saves.layout import aside_of
from lakemark.services.saves.roles import Roles, gaps_beyond, is_weights_only, require_words, role_of, roles_of
from lakemark.services.tiers.unshare import unshare


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """path: the checkpoint in the run's directory. moved_aside: where later and other steps went.

    pointers: the framework's own, where they had to be changed. baked: places in files that are wrong now.
    passed_over: every newer record of the lineage, and of what was moved aside, with why. accepted: gaps of this one, accepted.
    uncommitted: later whole saves of which nothing is kept, as somebody said that it may go on without them.
    """

    found: RecordState
    timeline: int
    attempt: str
    path: Path
    data: tuple[DataRef, ...]
    run_file: Path
    moved_aside: tuple[Path, ...]
    changed: bool
    roles: Roles
    pointers: tuple[Pointer, ...] = ()
    baked: tuple[Baked, ...] = ()
    passed_over: tuple[PassedOver, ...] = ()
    accepted: tuple[str, ...] = ()
    uncommitted: tuple[Uncommitted, ...] = ()
    notes: tuple[str, ...] = ()


def resume(
    site: Site,
    run: str,
    *,
    to: Path,
    record: str | None = None,
    job: str | Start | None = None,
    without: Collection[str] = (),
    without_steps: Collection[int] = (),
    because: Cause = Cause.UNKNOWN,
) -> Resumed:
    """Makes the directory `to` ready to train on.

    Brings `record` (default: the newest of the current timeline that can be resumed from) into it under the trainer's own
    names, sets the framework's pointers at it, moves later steps aside, and writes the run file. The same start of a job
    decides the same and changes nothing that is right already, until its process has saved; job: its id, or which start of
    it this is, where its scheduler tells. without: roles that may be missing. without_steps: steps
    of whole saves that could not be committed, and that it goes on without. because: why the attempt before ended.

    Raises NotFound, Refused (an older record where approval is required, gaps nobody accepted, data that is gone, a later
    whole save that is no record, a timeline that was only inferred where newer steps would be moved aside for it), Usage,
    NoReplica, Conflict.
    """
    begun = site.seconds()
    require_words(without, option="--without")
    start = job if isinstance(job, Start) else Start(job=job)
    require_job(start.job)
    require_writable(opened(site, run))
    decision = _decide(site, run, start, to=to, record=record, because=because, without=without, steps=without_steps)
    arranged, run_file = _make_ready(site, decision, to=to)
    state, found, left = decision.state, decision.found, decision.uncommitted
    # A directory that was right already was not restored: nothing is to be measured, or told.
    if arranged.brought_bytes:
        body = RestoredBody(
            to=printable(to),
            attempt=decision.attempt,
            restored_seconds=told(arranged.brought_seconds),
            resumed_seconds=told(site.seconds() - begun),
            size_bytes=arranged.brought_bytes,
        )
        tell_restored(site, found, body)
    interval = state.interval
    named = {one.found.record.id for one in decision.passed_over}
    aside = tuple(left_aside(site, state, found, arranged.moved, to=to, named=named))
    return Resumed(
        found=found,
        timeline=decision.timeline,
        attempt=decision.attempt,
        path=arranged.path,
        data=tuple(replace(ref, evidence=Evidence.OPENED) for ref in (interval.data if interval else ())),
        run_file=run_file,
        moved_aside=arranged.moved,
        changed=arranged.changed,
        roles=roles_of(site.ledger.manifest(run, found.record.id), committed(site, found).notes or ()),
        pointers=arranged.pointers,
        baked=arranged.baked,
        # Who named the record knows that he passes over others; how to have them back is said all the same.
        passed_over=(*decision.passed_over, *aside) if record is None else decision.passed_over,
        accepted=found.record.gaps,
        uncommitted=left,
        notes=(
            *unfollowed(state, found, record),
            *(one.said for one in left),
            *arranged.notes,
            *(f"step {one.found.record.step} was moved aside: {one.why}" for one in aside if record is not None),
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decision:
    """What a start goes on from, as the ledger says in `state`. aside: where what lies wrong in the directory goes."""

    state: RunState
    attempt: str
    timeline: int
    found: RecordState
    aside: Path
    passed_over: tuple[PassedOver, ...]
    uncommitted: tuple[Uncommitted, ...]


def _decide(
    site: Site,
    run: str,
    start: Start,
    *,
    to: Path,
    record: str | None,
    because: Cause,
    without: Collection[str],
    steps: Collection[int],
) -> _Decision:
    """Decides it in the ledger, for every node of this start, and moves no file."""
    # First of all: what lies there may be the newest there is, and would be moved aside as nobody's.
    saves = commit_directory(site, run, to)
    state = site.ledger.run(run)
    # Before anything is moved: its address is handed out at the end, and a trainer that reads nothing loses its allocation.
    require_data(site, state)
    attempt = new_attempt(state, start)
    state = _reread(site, state, record=record, without=without)
    try:
        found = decided(site, state, attempt=attempt, record=record, to=to, without=without, without_steps=steps)
    except NotFound:
        if record is None:
            require_none_left(run, to=to, saves=saves, without=steps)
        raise
    require_answered(site, state, found, to=to, without=steps)
    left = require_committed(site, state, found, to=to, saves=saves, without=steps)
    left_behind = with_ways(site, state, passed_over(state, found), to=to) if record is None else ()
    if record is None and not is_decided(state, attempt):
        require_decided(site, state, found, lives(state, without), to=to)
    aside = aside_of(to, run=run, start=start, attempt=attempt)
    # Before the decision: what no node can bring must not be what every start of this job goes by.
    require_can_arrange(site, state, found, to=to, aside=aside)
    # Before any file moves: all nodes of the job, and one that is started again, go by this entry.
    _append(site, run, found, attempt=attempt, job=start.job, to=to)
    site.progress.step("resume.recorded")
    end_before(site, run, attempt, cause=because)
    state = site.ledger.run(run)
    began = still(state.attempts, attempt, what="attempt")
    if began.record != found.record.id:  # another node of this start decided between our look and our entry
        found = recorded(state, began.record or "")
        left = require_committed(site, state, found, to=to, saves=saves, without=steps)
    return _Decision(
        state=state,
        attempt=attempt,
        timeline=began.timeline,
        found=found,
        aside=aside,
        passed_over=left_behind,
        uncommitted=left,
    )


def _make_ready(site: Site, decision: _Decision, *, to: Path) -> tuple[Arranged, Path]:
    """What was done to the directory, and the run file that names its checkpoint."""
    state, found, attempt = decision.state, decision.found, decision.attempt
    # Ranks of one node may each call this: two that move the same files would move each other's.
    with site.restorer.alone(to):
        # The trainer may write over its files in place, and hot's linked ones are the same files.
        unshare(site, state)
        arranged = arrange(site, state, found, to=to, aside=decision.aside)
        directory = Directory(run=state.run, timeline=decision.timeline, attempt=attempt, sequence=state.sequence)
        bind(site, to, directory)
        site.progress.step("resume.bound")
        run_file = _tell(site, found, arranged.path, attempt=attempt, timeline=decision.timeline)
        site.progress.step("resume.told")
    return arranged, run_file


def _reread(site: Site, state: RunState, *, record: str | None, without: Collection[str]) -> RunState:
    """What may have changed is read before anybody goes on without it."""
    return reread(site, state, record=record, good=_good(state, without))


def decided(
    site: Site,
    state: RunState,
    *,
    attempt: str,
    record: str | None,
    to: Path,
    without: Collection[str],
    without_steps: Collection[int] = (),
) -> RecordState:
    """The record to go on from: what was decided for this job, else `record`, else the newest that can be.

    Raises NotFound, Refused.
    """
    before = state.attempts.get(attempt)
    # The ledger moves on while a job's nodes start one after another; they must all load the same step.
    if before is not None and before.record is not None:
        return recorded(state, before.record)
    if record is None:
        require_no_suspect(state, _good(state, without), skip=without_steps)
        newest = newest_resumable(state, without=without, to=to)
        _require_target(state, newest, without, to=to)
        return newest
    found = recorded(state, record)
    wrong = unsound(found)
    if wrong:
        raise Refused(
            f"{state.run}@{found.record.step} can't be resumed from: {wrong[0]}", advice="Choose another record."
        )
    _require_accepted(found, {*without, *state.needs_no}, to=to)
    last = latest(state)
    # Between lives of which nobody decided one there is nothing to go back from.
    chosen = other_lives(state) and record in {one.record.id for one in lives(state, without).values()}
    if last is not None and last.record.id != record and not chosen and site.policies.approval.required:
        older = "is older than" if found.record.step <= last.record.step else "is of another life than"
        raise Refused(
            f"{state.run}@{found.record.step} {older} the newest record, {last.record.step}",
            advice=f"lakemark rollback request {state.run} --to id:{record} --reason '…'",
        )
    return found


def unfollowed(state: RunState, found: RecordState, record: str | None) -> tuple[str, ...]:
    """That the record asked for is not the one that this start decided before: one start of a job goes on from one record."""
    asked = state.records.get(record or "")
    if asked is None or asked.record.id == found.record.id:
        return ()
    decided_before = (
        f"this start of {state.run} decided step {found.record.step} before; another one needs another --job"
    )
    return (f"step {asked.record.step} was asked for, but {decided_before}",)


def newest_resumable(state: RunState, *, without: Collection[str] = (), to: Path | None = None) -> RecordState:
    """The newest of the lineage that has no gap but of the roles in `without`, or that its run needs not.

    Raises NotFound where there is none.
    """
    without = {*without, *state.needs_no}
    good = _good(state, without)
    if good is not None:
        return good
    gapped = next((found for found in lineage(state) if _reachable(found)), None)
    if gapped is None:
        last = next(newer(state, None), None)
        said = f": the newest, step {last.record.step}: {why_not(last)}" if last is not None else ""
        advice = f"lakemark ls {state.run} --all-timelines"
        raise NotFound(f"{state.run} has no record to resume from{said}", advice=advice)
    record = gapped.record
    raise NotFound(
        f"{state.run} has no record that training can go on from: the newest, step {record.step}, has {_shown(gapped)}",
        advice=_advice(gapped, without, to=to),
    )


def lives(state: RunState, without: Collection[str] = ()) -> dict[int, RecordState]:
    """Of each timeline that the run may go on in, as nobody decided yet, what it would go on from."""
    without = {*without, *state.needs_no}
    good = ((number, _good(state, without, number)) for number in (state.timeline, *other_lives(state)))
    return {number: found for number, found in good if found is not None}


def is_decided(state: RunState, attempt: str) -> bool:
    """Whether a node of this start has decided what it goes on from."""
    before = state.attempts.get(attempt)
    return before is not None and before.record is not None


def _good(state: RunState, without: Collection[str], timeline: int | None = None) -> RecordState | None:
    found = (one for one in lineage(state, timeline) if _reachable(one) and not _unaccepted(one, without))
    return next(found, None)


def lying_there(site: Site, to: Path, step: int) -> str | None:
    """What lies in a directory of a step that is no record, in words; None where nothing does."""
    for one in site.recogniser.find(to):
        if one.step == step and one.verdict in (Verdict.INCOMPLETE, Verdict.TEMPORARY, Verdict.COMPLETE):
            return f"{one.path} is {one.verdict}: {one.why}"
    return None


def _reachable(found: RecordState) -> bool:
    """By the ledger alone: whether it can be read now, reading shows."""
    return usable(found) and any(replica.sound for replica in found.replicas.values())


def _unaccepted(found: RecordState, without: Collection[str]) -> tuple[str, ...]:
    """Gaps nobody accepted; of a record known not to be resumable that names none, that it is so."""
    if found.record.resumable is not False:
        return ()
    return gaps_beyond(found.record.gaps or ("it is not whole",), without)


def _require_target(state: RunState, chosen: RecordState, without: Collection[str], *, to: Path) -> None:
    """A rollback was approved to its very target: that is never passed over for an older one in silence."""
    timeline = state.timelines.get(state.timeline)
    if timeline is None or timeline.rollback is None or timeline.fork is None:
        return
    target = state.records.get(timeline.fork.record)
    if target is not None and chosen.record.step < target.record.step and _unaccepted(target, without):
        raise Refused(
            f"{state.run} was rolled back to step {target.record.step}, which has {_shown(target)}; "
            f"the next one without gaps is step {chosen.record.step}",
            advice=_advice(target, without, to=to, named=True),
        )


def _require_accepted(found: RecordState, without: Collection[str], *, to: Path) -> None:
    """Raises Refused for gaps that nobody accepted by name."""
    if not _unaccepted(found, without):
        return
    record = found.record
    what = "holds weights only: starting from it is not a resume" if is_weights_only(record) else "is not all there"
    raise Refused(
        f"{record.run}@{record.step} {what}: {_shown(found)}", advice=_advice(found, without, to=to, named=True)
    )


def _advice(found: RecordState, without: Collection[str], *, to: Path | None, named: bool = False) -> str:
    """The line to paste."""
    record = found.record
    where = f" --to {to}" if to is not None else ""
    if is_weights_only(record):
        return (
            f"For its weights alone: lakemark restore id:{record.id[:12]} --to DIRECTORY; "
            f"to start a run from them: lakemark run open NEW-RUN --parent id:{record.id[:12]}"
        )
    roles = sorted({*without, *(role for gap in record.gaps if (role := role_of(gap)))})
    chosen = f" --record id:{record.id[:12]}" if named else ""
    return f"If that is meant: lakemark resume {record.run}{where}{chosen} --without {' '.join(roles)}"


def _shown(found: RecordState) -> str:
    return ", ".join(found.record.gaps) or "gaps that nobody named"


def _tell(site: Site, found: RecordState, path: Path, *, attempt: str, timeline: int) -> Path:
    """Writes the run file, by the path that trainers see."""
    run = found.record.run
    resume: dict[str, JSON] = {
        "path": str(site.there(run, path)),
        "step": found.record.step,
        "record": found.record.id,
        "timeline": timeline,
    }
    return write_run_file(site, run, attempt=attempt, resume=resume)


def _append(site: Site, run: str, found: RecordState, *, attempt: str, job: str | None, to: Path) -> None:
    """Appends what this start goes on from, once: whichever of its nodes came first has decided."""

    def decide(state: RunState) -> Draft | None:
        require_writable(state)
        if is_decided(state, attempt):
            return None
        # Going on from the newest record is no going back: its timeline goes on, be it in doubt until now.
        doubted = (one.number for one in state.in_doubt if one.number == found.record.timeline)
        timeline, fork = next(doubted, state.timeline), None
        newest = next(lineage(state, timeline), None)
        # Decided on the state it is appended to: another node's save may have come in between.
        if newest is None or newest.record.id != found.record.id:
            timeline = state.next_timeline
            at = found.record
            fork = Fork(timeline=at.timeline, step=at.step, record=at.id)
        interval = state.interval
        body = ResumedBody(
            attempt=attempt,
            job=job,
            directory=str(to),
            fork=fork,
            accepted_gaps=found.record.gaps,
            data=interval.data if interval else (),
        )
        return RESUMED.draft(body, timeline=timeline, record=found.record.id)

    # By the attempt: however many nodes decide at once, one entry is appended, and all read it afterwards.
    site.ledger.append(run, decide, site.stamp(f"resumed:{attempt}"))
