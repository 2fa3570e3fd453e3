"""Going back: asked for, decided, done, looked at afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Annotated, Final

from lakemark.model.entries.kind import Data, EntryBody, Kind, interval, leave
from lakemark.model.ledger.entry import Entry, Means
from lakemark.model.ledger.run import Fork, RollbackState, RunState
from lakemark.model.values.canonical import JSON
from lakemark.model.values.instants import to_text


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rollback(EntryBody):
    rollback: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackRequestedBody(_Rollback):
    plan: Mapping[str, JSON] = field(default_factory=dict)
    digest: str = ""
    requester: str | None = None
    expires_at: datetime | None = None
    flow_run: Annotated[str | None, "Prefect's, if one waits for it"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackApprovedBody(_Rollback):
    digest: str | None = None
    by: str | None = None
    alone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackRefusedBody(_Rollback):
    by: str | None = None
    expired: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackReviewedBody(_Rollback):
    by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RolledBackBody(_Rollback):
    record: str | None = None
    fork: Fork | None = None
    data: Data = ()
    checkpoint_dir: str | None = None
    flags: Mapping[str, JSON] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchMovedBody(_Rollback):
    digest: str | None = None
    moves: Annotated[tuple[Mapping[str, JSON], ...], "repository, branch, from, commit, made"] = ()


def _requested(state: RunState, entry: Entry, body: RollbackRequestedBody) -> None:
    identity = body.rollback
    if identity and identity not in state.rollbacks:
        state.rollbacks[identity] = RollbackState(
            id=identity,
            digest=body.digest,
            plan=body.plan,
            requester=body.requester or entry.actor,
            reason=entry.reason,
            requested_at=entry.recorded_at,
            expires_at=body.expires_at or entry.recorded_at,
            sequence=entry.sequence,
            flow_run=body.flow_run,
        )


def _approved(state: RunState, entry: Entry, body: RollbackApprovedBody) -> None:
    request = state.rollbacks.get(body.rollback or "")
    if request is not None and request.open:
        approval = dict(entry.body) | {"at": to_text(entry.recorded_at), "actor": entry.actor}
        state.rollbacks[request.id] = replace(request, state="approved", approvals=[*request.approvals, approval])


def _refused(state: RunState, entry: Entry, body: RollbackRefusedBody) -> None:
    request = state.rollbacks.get(body.rollback or "")
    if request is not None and request.open:
        state.rollbacks[request.id] = replace(
            request,
            state="expired" if body.expired else "refused",
            ended_by=body.by or entry.actor,
            ended_at=entry.recorded_at,
            ended_why=entry.reason,
        )


def _reviewed(state: RunState, entry: Entry, body: RollbackReviewedBody) -> None:
    request = state.rollbacks.get(body.rollback or "")
    if request is not None:
        by = body.by or entry.actor
        state.rollbacks[request.id] = replace(request, reviewed_by=by, reviewed_at=entry.recorded_at)


def _rolled_back(state: RunState, entry: Entry, body: RolledBackBody) -> None:
    leave(state, entry, body.fork, rollback=body.rollback)
    state.decided = entry.sequence
    state.intervals.append(interval(state, entry, body.data, at_step=None))
    request = state.rollbacks.get(body.rollback or "")
    if request is not None:
        state.rollbacks[request.id] = replace(
            request,
            state="applied",
            timeline=entry.timeline,
            checkpoint_dir=body.checkpoint_dir,
            ended_by=entry.actor,
            ended_at=entry.recorded_at,
        )


def _branch_moved(state: RunState, _entry: Entry, body: BranchMovedBody) -> None:
    request = state.rollbacks.get(body.rollback or "")
    if request is not None:
        state.rollbacks[request.id] = replace(request, moves=(*request.moves, *body.moves))


ROLLBACK_REQUESTED: Final = Kind(name="rollback_requested", body=RollbackRequestedBody, on_run=_requested)
ROLLBACK_APPROVED: Final = Kind(name="rollback_approved", body=RollbackApprovedBody, on_run=_approved)
ROLLBACK_REFUSED: Final = Kind(name="rollback_refused", body=RollbackRefusedBody, on_run=_refused)
ROLLBACK_REVIEWED: Final = Kind(
    name="rollback_reviewed",
    body=RollbackReviewedBody,
    on_run=_reviewed,
    unknown_means=Means.IGNORE,
    note="one that was approved alone was looked at by day",
)
ROLLED_BACK: Final = Kind(name="rolled_back", body=RolledBackBody, on_run=_rolled_back)
BRANCH_MOVED: Final = Kind(name="branch_moved", body=BranchMovedBody, on_run=_branch_moved, unknown_means=Means.IGNORE)

KINDS: Final = (ROLLBACK_REQUESTED, ROLLBACK_APPROVED, ROLLBACK_REFUSED, ROLLBACK_REVIEWED, ROLLED_BACK, BRANCH_MOVED)
