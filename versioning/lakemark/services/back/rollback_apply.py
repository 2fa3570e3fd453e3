"""Apply an approved rollback: the checkpoint and the data of that day, both or neither, then one entry that shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lakemark.errors import Conflict, NotFound, Refused
from lakemark.model.back.rollback import moved
from lakemark.model.back.rollback_plan import PlanData, RollbackPlan
from lakemark.model.checkpoints.record import DataRef, Evidence
from lakemark.model.entries.attempts import ATTEMPT, AttemptBody
from lakemark.model.entries.rollbacks import ROLLED_BACK, RolledBackBody
from lakemark.model.ledger.entry import Draft
from lakemark.model.ledger.run import Fork, RecordState, RollbackState, RunState
from lakemark.model.runs.timeline import latest
from lakemark.model.values.canonical import JSON
from lakemark.ports import Mark, MarkKind, Patience, Site
from lakemark.services.back.restore import restore_manifest
from lakemark.services.back.rollback_request import find, require_holds
from lakemark.services.data.pins import versions
from lakemark.services.ledger import recorded, require_deletable, still
from lakemark.services.runs.open_run import write_run_file
from lakemark.services.saves.known_files import remember_as
from lakemark.services.soundness import require_sound
from lakemark.services.tiers.unshare import unshare


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """checkpoint_dir: None where only the data was brought back. data: (repository, branch, commit) of each branch opened.

    gaps: what the checkpoint lacks to train on from it. notes: what else the plan said.
    """

    rollback: str
    run: str
    timeline: int
    record: str
    checkpoint_dir: Path | None
    data: tuple[tuple[str, str, str], ...]
    run_file: Path
    gaps: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def apply(site: Site, identity: str, *, directory: Path | None = None) -> Applied:
    """Restores, opens the data branches, then appends `rolled_back`: the step that makes both visible.

    Applying again, also after a crash anywhere in it, finishes the same rollback.

    Raises NotFound, Refused (not approved, expired, plan no longer holds), Conflict (timeline moved), NoReplica,
    StoreUnavailable.
    """
    require_sound(site)
    run, standing = find(site, identity)
    made = RollbackPlan.from_json(dict(standing.plan))
    target = recorded(site.ledger.run(run), made.target.record)
    if standing.state != "applied":
        _require_ready(site, run, standing, made)
    # Bytes, then branches, then the entry: a crash before the entry leaves things beside what is, and nothing changed.
    where = _restored(site, standing, made, target=target, directory=directory)
    site.progress.step("rollback.restored")
    if standing.state != "applied":
        _open_data(site, made)
        site.progress.step("rollback.data_opened")
        _append(site, standing, made, where=where)
        site.progress.step("rollback.recorded")
    return _told(site, standing.id, made, where=where)


def leftovers(site: Site, patience: Patience | None = None) -> list[str]:
    """Removes data branches of rollbacks that ended without being applied, where nobody wrote to them; says what stays."""
    require_sound(site)  # that it was applied may be among the entries that are missing
    said: list[str] = []
    patience = patience or Patience()
    for run in site.ledger.runs():
        for standing in site.ledger.outline(run).rollbacks:
            mark = Mark(MarkKind.LEFTOVER, standing.id)
            if standing.state not in ("refused", "expired", "overtaken") or site.journal.marks.get(mark) is not None:
                continue
            made = RollbackPlan.from_json(dict(standing.plan))
            try:
                with versions(site).patient(patience):
                    said.extend(_remove_branch(site, item) for item in made.data)
            except NotFound as error:  # anything on the way may say so: it is looked for again
                said.append(f"what {standing.id} left could not be looked for: {error}")
                continue
            # Only once its repository answered: a 404 on the way is no word that the branch is gone.
            site.journal.marks.set(mark, at=site.now())
    return [text for text in said if text]


def _require_ready(site: Site, run: str, standing: RollbackState, made: RollbackPlan) -> None:
    """Raises Conflict (another timeline), Refused (not approved, expired, or the plan does not hold any more)."""
    if site.ledger.run(run).timeline != made.timeline:
        raise Conflict(
            f"{run} has moved to another timeline since {standing.id} was planned", advice="Request it again."
        )
    allowed = ("approved",) if site.policies.approval.required else ("approved", "requested")
    if standing.state not in allowed:
        approve = f"lakemark rollback approve {standing.id} --digest {standing.digest[:12]}"
        raise Refused(
            f"the rollback {standing.id} is {standing.state}, not approved",
            advice=approve if standing.open else "Request it again, if it is still wanted.",
        )
    if site.now() >= standing.expires_at:
        raise Refused(f"the approval of {standing.id} expired", advice="Request it again.")
    require_holds(site, made)


def _restored(
    site: Site, standing: RollbackState, made: RollbackPlan, *, target: RecordState, directory: Path | None
) -> Path | None:
    if made.flags.data_only:
        return None
    told = standing.checkpoint_dir
    where = directory or (Path(told) if told is not None else site.restore_root / standing.id)
    manifest = site.ledger.manifest(made.run, target.record.id)
    # An earlier try restored it: that is gone on from, once every byte was read.
    if site.files.exists(where) and site.restorer.matches(where, manifest, progress=site.progress):
        return where
    if standing.state == "applied" and site.files.exists(where):
        return where
    restore_manifest(site, target, manifest, to=where)
    # Else the next sweep would find a checkpoint there, and commit it as a save of the run.
    remember_as(site, where, manifest, record=target.record.id, why="restored")
    return where


def _open_data(site: Site, made: RollbackPlan) -> None:
    """A branch of its own for each: the shared ones stay where they are. One that is there at that commit already is right."""
    for item in made.data:
        versions(site).branch_at(item.repository, item.opens_branch, item.commit)


def _append(site: Site, standing: RollbackState, made: RollbackPlan, *, where: Path | None) -> None:
    """Raises Conflict, Refused where the state that it changes no longer fits the plan. Once: the same again is no entry."""
    run = made.run

    def decide(state: RunState) -> Draft | None:
        require_deletable(state)
        if still(state.rollbacks, standing.id, what="rollback").state == "applied":
            return None
        if state.timeline != made.timeline:
            raise Conflict(f"{run} moved to timeline {state.timeline} meanwhile", advice="Request the rollback again.")
        # Once more, on the very state that it changes: records may have been pruned or held since it was approved.
        reasons = moved(made, state)
        if reasons:
            raise Refused(f"{standing.id} does not hold any more: {reasons[0]}", advice="Request it again.")
        # It may have been refused since it was looked at, which takes the approval back.
        if site.policies.approval.required and still(state.rollbacks, standing.id, what="rollback").state != "approved":
            raise Refused(f"{standing.id} is not approved", advice="lakemark rollback show " + standing.id)
        number = state.next_timeline
        body = RolledBackBody(
            rollback=standing.id,
            fork=_fork(state, made),
            data=tuple(_data(state, made)),
            checkpoint_dir=None if where is None else str(where),
            flags=made.flags.as_json(),
        )
        return ROLLED_BACK.draft(body, timeline=number, record=made.target.record, reason=made.reason)

    site.ledger.append(run, decide, site.stamp(f"rolled_back:{standing.id}"))


def _fork(state: RunState, made: RollbackPlan) -> Fork:
    """Where the new timeline leaves: at the target; where only data goes back, at the newest record."""
    found = latest(state) if made.flags.data_only else None
    record = found.record if found is not None else recorded(state, made.target.record).record
    return Fork(timeline=record.timeline, step=record.step, record=record.id)


def _data(state: RunState, made: RollbackPlan) -> Sequence[DataRef]:
    if made.flags.model_only:
        return state.interval.data if state.interval else ()
    return [
        DataRef(
            repository=item.repository,
            branch=item.opens_branch,
            commit=item.commit,
            evidence=Evidence.DECLARED,
            from_step=made.target.step,
        )
        for item in made.data
    ]


def _told(site: Site, identity: str, made: RollbackPlan, *, where: Path | None) -> Applied:
    run = made.run
    state = site.ledger.run(run)
    timeline = still(state.rollbacks, identity, what="rollback").timeline or state.timeline
    attempt = f"{identity}-{timeline}"
    body = AttemptBody(attempt=attempt, data=state.interval.data if state.interval else ())

    def decide(state: RunState) -> Draft | None:
        if attempt in state.attempts:
            return None
        return ATTEMPT.draft(body, timeline=timeline, record=made.target.record)

    site.ledger.append(run, decide, site.stamp(f"attempt:{attempt}"))
    resume: dict[str, JSON] | None = None
    if where is not None:
        resume = {"path": str(where), "step": made.target.step, "record": made.target.record, "timeline": timeline}
    state = site.ledger.run(run)
    # A later rollback or resume went on meanwhile: its run file must not be overwritten with this one's.
    current = state.timeline == timeline and state.attempt is not None and state.attempt.id == attempt
    if current:
        unshare(site, state)
    path = write_run_file(site, run, attempt=attempt, resume=resume) if current else site.run_file(run)
    site.progress.step("rollback.told")
    return Applied(
        rollback=identity,
        run=run,
        timeline=timeline,
        record=made.target.record,
        checkpoint_dir=where,
        data=tuple((item.repository, item.opens_branch, item.commit) for item in made.data),
        run_file=path,
        gaps=() if made.flags.data_only else recorded(state, made.target.record).record.gaps,
        notes=(*made.notes, *_to_move(still(state.rollbacks, identity, what="rollback"), made)),
    )


def _to_move(standing: RollbackState, made: RollbackPlan) -> list[str]:
    """What the plan wants of shared branches: they are moved after `rolled_back` alone, by a step of its own."""
    if not made.flags.move_branch or standing.moves:
        return []
    names = ", ".join(f"{item.repository}/{item.branch}" for item in made.data if item.moves_from)
    return [f"not moved yet: {names}; lakemark rollback move-branch {standing.id} --digest {standing.digest[:12]}"]


def _remove_branch(site: Site, item: PlanData) -> str:
    """Empty where the repository's own list says that the branch is not there. Raises NotFound for no such repository."""
    if item.opens_branch not in versions(site).branches(item.repository, prefix=item.opens_branch):
        return ""
    if versions(site).delete_branch(item.repository, item.opens_branch, only_at=item.commit):
        return f"removed the branch {item.repository}/{item.opens_branch}, left by a rollback that was not applied"
    return f"{item.repository}/{item.opens_branch} was written to: it stays, remove it by hand"
