"""A rollback: what its plan is made of, when that no longer holds, and who may let it go on."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from lakemark.model.back.rollback_plan import Affected, Flags, GivesUp, PlanData, PlanTarget, RollbackPlan
from lakemark.model.checkpoints.record import DataKind, Evidence
from lakemark.model.ledger.entry import Means
from lakemark.model.ledger.run import RecordState, RollbackState, RunState
from lakemark.model.runs.then import doubts
from lakemark.model.runs.timeline import lineage
from lakemark.model.values.instants import later
from lakemark.model.values.wording import instant

__all__ = [
    "Affected",
    "Flags",
    "GivesUp",
    "PlanData",
    "PlanTarget",
    "RollbackPlan",
    "affected",
    "alone",
    "gives_up",
    "may_approve",
    "moved",
    "plan_rollback",
    "target_of",
    "unsound",
]

_NOT_IN_A_BRANCH: Final = re.compile(r"[^a-z0-9-]+", re.ASCII)


def plan_rollback(
    state: RunState,
    target: RecordState,
    *,
    reason: str,
    requester: str,
    expires_at: datetime,
    flags: Flags | None = None,
    at: datetime | None = None,
    others: Iterable[RunState] = (),
) -> RollbackPlan:
    """The plan of going back to `target`. Estimates and the data's diff come later, by `advised`.

    others: the site's other runs, for what hangs on what is given up. Asks nothing whether it is allowed: see `moved`.
    """
    flags = flags or Flags()
    record = target.record
    plan = RollbackPlan(
        run=state.run,
        timeline=state.timeline,
        target=PlanTarget(record=record.id, timeline=record.timeline, step=record.step, saved_at=record.saved_at),
        reason=reason,
        requester=requester,
        expires_at=expires_at,
        at=at,
        flags=flags,
        size_bytes=0 if flags.data_only else record.size_bytes,
        gives_up=gives_up(state, target),
        notes=(*_notes(target), *doubts(state, target, at=at)),
    )
    # Of the plan without its branches, whose names it goes into: the same decisions give the same names.
    nonce = plan.digest[:8]
    data = () if flags.model_only else _data(state.run, target, nonce)
    return replace(plan, data=data, affected=affected(state, plan.gives_up, others=others))


def gives_up(state: RunState, target: RecordState) -> GivesUp:
    """What of the current lineage is not in the one that starts at `target`."""
    record = target.record
    # In the target's own lineage: it may lie in a timeline that was left before.
    stays = {found.record.id for found in lineage(state, record.timeline) if found.record.step <= record.step}
    stays.add(record.id)
    current = list(lineage(state))
    lost = [found for found in current if found.record.id not in stays]
    if not lost:
        return GivesUp()
    # The newest that both have: training is done again from there on.
    common = next((found for found in current if found.record.id in stays), None)
    steps = lost[0].record.step - (common.record.step if common else 0)
    span = lost[0].instant - (common.instant if common else lost[-1].instant)
    return GivesUp(
        records=tuple(found.record.id for found in lost),
        steps=max(0, steps),
        hours=round(max(timedelta(0), span) / timedelta(hours=1), 2),
    )


def affected(state: RunState, given: GivesUp, *, others: Iterable[RunState] = ()) -> tuple[Affected, ...]:
    """Holds and open rollbacks on records given up, and other runs that started from one."""
    lost = set(given.records)
    rows: list[Affected] = []
    for identity in given.records:
        hold = state.records[identity].held
        if hold is not None:
            rows.append(Affected(run=state.run, record=identity, why=f"held: {hold}"))
    for request in state.rollbacks.values():
        name = target_of(request)
        if request.open and name in lost:
            rows.append(Affected(run=state.run, record=name, why=f"target of the open rollback {request.id}"))
    # Another run began from it: what it came from is not in this lineage any more.
    rows.extend(
        Affected(run=other.run, record=other.parent, why=f"{other.run} started from it")
        for other in others
        if other.run != state.run and other.parent in lost and other.parent is not None
    )
    return tuple(rows)


def moved(plan: RollbackPlan, state: RunState, *, data_gone: Sequence[str] = ()) -> tuple[str, ...]:
    """Why the plan does not hold (any more); empty where it does. New commits of the same timeline do not count.

    data_gone: `repository@commit` of the plan's data that can't be read.
    """
    reasons: list[str] = []
    # Another rollback or resume came between: what is given up is something else now.
    if state.timeline != plan.timeline:
        reasons.append(f"{plan.run} is in timeline {state.timeline}, no longer in {plan.timeline}")
    if state.blocked is not Means.IGNORE:
        kinds = ", ".join(sorted(set(state.unknown)))
        reasons.append(f"the ledger has entries of a newer version ({kinds}) that forbid rollbacks")
    target = state.records.get(plan.target.record)
    if target is None:
        reasons.append(f"the ledger does not know the target {plan.target.record[:12]}")
    else:
        reasons.extend(_lost_target(plan, target))
    # Model and data come back together or not at all, unless the plan itself leaves data alone.
    reasons.extend(f"the data {gone} can't be read any more" for gone in data_gone if not plan.flags.model_only)
    return tuple(reasons)


def may_approve(
    request: RollbackState,
    approver: str,
    *,
    now: datetime,
    plan_digest: str,
    alone_after: timedelta | None,
    applied: Collection[str] = (),
) -> str | None:
    """Why `approver` may not approve `request` now; None where they may.

    The same account on another host (`ana@a`, `ana@b`) is the same person: they may approve alone `alone_after` the
    request (None: never). applied: digests of plans that were applied before; one approval serves one rollback.
    """
    # Counted by the ledger's own time of the request.
    opens = None if alone_after is None else later(request.requested_at, alone_after)
    rules = (
        (request.state != "requested", f"the rollback {request.id} is {request.state} already"),
        (now >= request.expires_at, f"the rollback {request.id} expired at {instant(request.expires_at)}"),
        (
            # By a clock that was set back an expired request would live again.
            request.requested_at - now > timedelta(minutes=5),
            f"this clock is behind the request, which was made at {instant(request.requested_at)}",
        ),
        (
            # What was read and what was requested must be the same decisions.
            plan_digest != request.digest,
            f"the plan {plan_digest[:12]} is not the one requested ({request.digest[:12]})",
        ),
        (plan_digest in applied, f"the plan {plan_digest[:12]} was applied already"),
        (not approver.strip(), "the approver has no name"),
        (
            alone(request, approver) and (opens is None or now < opens),
            f"{request.requester} asked for it: a second person must approve"
            + (f", or the same one from {instant(opens)}" if opens else ""),
        ),
    )
    return next((why for broken, why in rules if broken), None)


def alone(request: RollbackState, approver: str) -> bool:
    """Whether approver and requester are one person: the same account, on whatever host."""
    return _account(request.requester) == _account(approver)


def target_of(request: RollbackState) -> str:
    """The record id a request's plan goes back to; empty where the plan can't be read."""
    target = request.plan.get("target")
    # The target may also be written as the id of its record alone.
    name = target.get("record") if isinstance(target, Mapping) else target
    return name if isinstance(name, str) else ""


def unsound(target: RecordState) -> tuple[str, ...]:
    """Why a record can't be gone back to, whatever the plan says; empty where it can."""
    reasons: list[str] = []
    if target.pruned is not None:
        reasons.append("it was pruned")
    if target.quarantined is not None:
        reasons.append(f"it is quarantined: {target.quarantined}")
    if target.superseded_by is not None:
        reasons.append(f"it was superseded by {target.superseded_by[:12]}")
    if target.conflicts_with is not None:
        reasons.append(f"it is in conflict with {target.conflicts_with[:12]}")
    if not any(replica.sound for replica in target.replicas.values()):
        reasons.append("no sound replica of it is left")
    return tuple(reasons)


def _lost_target(plan: RollbackPlan, target: RecordState) -> list[str]:
    # Data alone need no bytes of the model.
    skip = "no sound replica of it is left" if plan.flags.data_only else ""
    reasons = [f"the target {plan.target.record[:12]}: {why}" for why in unsound(target) if why != skip]
    if not plan.flags.model_only:
        if not target.record.bound:
            reasons.append(f"the target {plan.target.record[:12]}: nobody knows what data it was trained with")
        # A `bound` that came after the plan may have changed which data are the right ones.
        have = {(ref.repository, ref.commit) for ref in target.record.data if ref.kind == DataKind.LAKEFS}
        if have != {(item.repository, item.commit) for item in plan.data}:
            reasons.append(f"the target {plan.target.record[:12]} was bound to other data")
    return reasons


def _data(run: str, target: RecordState, nonce: str) -> tuple[PlanData, ...]:
    name = f"rollback-{_NOT_IN_A_BRANCH.sub('-', run)}-{target.record.step}-{nonce}"
    rows: dict[tuple[str, str], PlanData] = {}
    per_repository: dict[str, int] = {}
    for ref in target.record.data:
        if ref.kind != DataKind.LAKEFS or (ref.repository, ref.commit) in rows:
            continue
        # A record may have several commits of one repository: each gets a branch of its own.
        number = per_repository[ref.repository] = per_repository.get(ref.repository, 0) + 1
        rows[ref.repository, ref.commit] = PlanData(
            repository=ref.repository,
            commit=ref.commit,
            opens_branch=name if number == 1 else f"{name}-{number}",
            branch=ref.branch,
        )
    return tuple(rows.values())


def _notes(target: RecordState) -> tuple[str, ...]:
    record = target.record
    notes: list[str] = []
    if record.resumable is False:
        notes.append(f"training can't go on from it alone: {', '.join(record.gaps) or 'it is not whole'}")
    elif record.resumable is None:
        notes.append(f"whether training can go on from it is unknown ({record.framework})")
    declared = [ref for ref in record.data if ref.evidence == Evidence.DECLARED]
    if declared:
        notes.append("what data it was trained with was declared, not seen")
    return tuple(notes)


def _account(actor: str) -> str:
    # `ana@node-a`: the host is no second person, and neither is another case.
    return actor.strip().partition("@")[0].casefold()
