"""Approve or refuse a rollback. Both are entries; Prefect's form only mirrors them."""

from __future__ import annotations

from lakemark.errors import Conflict, Refused
from lakemark.model.back.rollback import alone, may_approve
from lakemark.model.back.rollback_plan import RollbackPlan
from lakemark.model.entries.rollbacks import (
    ROLLBACK_APPROVED,
    ROLLBACK_REFUSED,
    RollbackApprovedBody,
    RollbackRefusedBody,
)
from lakemark.model.ledger.entry import Draft
from lakemark.model.ledger.run import RollbackState, RunState
from lakemark.ports import Site
from lakemark.services.back.rollback_request import find, open_rollbacks, require_holds
from lakemark.services.ledger import require_deletable, still


def approvable(site: Site, identity: str, *, digest: str) -> tuple[RollbackState, RollbackPlan]:
    """The rollback `site.actor` may approve now, having seen the plan `digest` (8 digits or more). Changes nothing.

    Raises NotFound, Refused (same person too early, expired, another plan, decided already, target or data lost since),
    Conflict (the timeline moved).
    """
    run, standing = find(site, identity)
    state, plan = site.ledger.run(run), RollbackPlan.from_json(dict(standing.plan))
    if state.timeline != plan.timeline and standing.state != "applied":
        raise Conflict(f"{run} has moved to another timeline since {identity} was planned", advice="Request it again.")
    # Of what people saw: a plan that was made anew has another digest, and needs eyes of its own.
    seen = len(digest) >= 8 and standing.digest.startswith(digest.lower())  # noqa: PLR2004
    _require(site, state, standing, standing.digest if seen else digest)
    require_holds(site, plan)
    return standing, plan


def approve(site: Site, identity: str, *, digest: str, by: str | None = None) -> RollbackState:
    """Lets the rollback go on. The approver is `site.actor`; `by` only adds a name. Raises as `approvable` does."""
    standing, plan = approvable(site, identity, digest=digest)

    def decide(state: RunState) -> Draft | None:
        require_deletable(state)
        now = still(state.rollbacks, standing.id, what="rollback")
        if now.state == "approved" and any(given.get("actor") == site.actor for given in now.approvals):
            return None
        # On the state it is appended to: it may have expired, or been refused, since it was looked at.
        _require(site, state, now, standing.digest)
        body = RollbackApprovedBody(
            rollback=standing.id, digest=standing.digest, by=by or site.actor, alone=alone(now, site.actor)
        )
        return ROLLBACK_APPROVED.draft(body, timeline=state.timeline, record=plan.target.record)

    # By approver: a second person's word is another entry, the same one's again is not.
    request = f"rollback_approved:{standing.id}:{site.actor}"
    state = site.ledger.append(plan.run, decide, site.stamp(request)).state
    site.progress.step("rollback.approved")
    return still(state.rollbacks, standing.id, what="rollback")


def refuse(site: Site, identity: str, *, reason: str, by: str | None = None) -> RollbackState:
    """Ends the request. Raises NotFound, Refused where it is over already. Refusing twice is once."""
    run, standing = find(site, identity)

    def decide(state: RunState) -> Draft | None:
        now = still(state.rollbacks, standing.id, what="rollback")
        if now.state == "refused":
            return None
        if not now.open:
            raise Refused(f"the rollback {now.id} is {now.state} already", advice="lakemark rollback show " + now.id)
        body = RollbackRefusedBody(rollback=standing.id, by=by or site.actor)
        return ROLLBACK_REFUSED.draft(body, timeline=state.timeline, reason=reason)

    state = site.ledger.append(run, decide, site.stamp(f"rollback_refused:{standing.id}")).state
    return still(state.rollbacks, standing.id, what="rollback")


def expire(site: Site) -> list[str]:
    """Ends every open request whose time is over; answers their ids."""
    ended: list[str] = []
    for run, standing in list(open_rollbacks(site)):
        if site.now() < standing.expires_at:
            continue

        def decide(state: RunState, *, identity: str = standing.id) -> Draft | None:
            if not still(state.rollbacks, identity, what="rollback").open:
                return None
            body = RollbackRefusedBody(rollback=identity, by=site.actor, expired=True)
            return ROLLBACK_REFUSED.draft(body, timeline=state.timeline, reason="it expired")

        site.ledger.append(run, decide, site.stamp(f"rollback_expired:{standing.id}"))
        ended.append(standing.id)
    return ended


def _require(site: Site, state: RunState, standing: RollbackState, digest: str) -> None:
    """Raises Refused where `site.actor` may not approve; his own, sent again, is no error."""
    applied = [other.digest for other in state.rollbacks.values() if other.state == "applied"]
    why = may_approve(
        standing,
        site.actor,
        now=site.now(),
        plan_digest=digest,
        alone_after=site.policies.approval.alone_after,
        applied=applied,
    )
    # An approval that is sent again, as after a lost answer, is no second one and no error.
    repeated = standing.state == "approved" and any(given.get("actor") == site.actor for given in standing.approvals)
    if why is not None and not repeated:
        raise Refused(why, advice=f"lakemark rollback show {standing.id}")
