"""Keeping: what retention says of each record of a run, and why. Decides nothing; a listing shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from fnmatch import fnmatchcase

from lakemark.model.back.rollback import target_of
from lakemark.model.ledger.run import RecordState, RunState
from lakemark.model.runs.timeline import lineage
from lakemark.model.tiers.retention import Kept, RetentionPolicy, apply_policy
from lakemark.ports.site import Policies


def why_kept(policies: Policies, state: RunState, *, now: datetime) -> Mapping[str, Kept]:
    """Record id -> why it stays; without reasons where no rule keeps it. Pruned records are left out."""
    current = list(lineage(state, live=True))
    ids = {found.record.id for found in current}
    groups: list[tuple[list[RecordState], RetentionPolicy | None]] = [(current, policy_for(policies, state.run))]
    # Each timeline that was left behind is counted on its own: the last of one must not push out another's.
    left: dict[int, list[RecordState]] = {}
    for found in state.live():
        if found.record.id not in ids:
            left.setdefault(found.record.timeline, []).append(found)
    groups.extend((rows, policies.retention.get("abandoned")) for rows in left.values())
    targets = {
        target_of(request): f"target of the open rollback {request.id}"
        for request in state.rollbacks.values()
        if request.open
    }
    result: dict[str, Kept] = {}
    for records, policy in groups:
        if policy is None:
            result |= {found.record.id: Kept(record=found.record.id, reasons=("no policy",)) for found in records}
            continue
        verdict = apply_policy(
            records,
            policy,
            now=now,
            zone=policies.retention_zone,
            min_keep=policies.min_keep,
            # Counts and ages may not reach what somebody is about to go back to.
            protected=targets,
        )
        result |= {one.record: one for one in verdict.keep}
        result |= {one.record: replace(one, reasons=()) for one in verdict.remove}
    return result


def policy_for(policies: Policies, run: str) -> RetentionPolicy | None:
    """The first pattern that matches the run, else `default`; None: everything is kept."""
    names = [name for name in policies.retention if name not in ("default", "abandoned") and fnmatchcase(run, name)]
    return policies.retention.get(names[0] if names else "default")
