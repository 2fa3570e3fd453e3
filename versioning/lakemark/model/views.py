"""The JSON that people's tools read: a record, an entry, a plan, as the command line and the pages show them.

Keys here are an interface: they are added to, never changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from lakemark.model.checkpoints.record import DataRef
from lakemark.model.ledger.entry import Entry
from lakemark.model.ledger.run import RecordState, RollbackState, RunState, Timeline
from lakemark.model.ledger.site import SiteState
from lakemark.model.tiers.retention import Kept
from lakemark.model.values.canonical import JSON
from lakemark.model.values.instants import to_text

PLAN_KEYS: Final = (
    "plan",
    "run",
    "timeline",
    "at",
    "target",
    "data",
    "flags",
    "source_tier",
    "size_bytes",
    "estimated_seconds",
    "gives_up",
    "affected",
    "data_changes",
    "notes",
    "reason",
    "requester",
    "expires_at",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a record's view rests on beside the record. domains: failure domain of each shared tier.

    copies: how many of them make a record safe. kept: why each record stays; a record that is not in it: not known.
    now: what would go at once goes now.
    """

    now: datetime
    domains: Mapping[str, str] = field(default_factory=dict)
    copies: int = 1
    kept: Mapping[str, Kept] = field(default_factory=dict)


def record_view(found: RecordState, context: Context) -> dict[str, JSON]:
    """A record with everything the ledger says of it. Where retention was not worked out, kept_by is empty, expires_at null."""
    record = found.record
    kept = context.kept.get(record.id)
    return {
        "record": record.id,
        "run": record.run,
        "timeline": record.timeline,
        "step": record.step,
        "saved_at": to_text(record.saved_at),
        "recorded_at": to_text(found.recorded_at),
        "size_bytes": record.size_bytes,
        "files": record.files,
        "framework": record.framework,
        "roles": list(record.roles),
        "resumable": record.resumable,
        "gaps": list(record.gaps),
        "data": [data_view(ref) for ref in record.data],
        "code": None if record.code is None else record.code.as_json(),
        "metrics": dict(record.metrics),
        "parent": record.parent,
        "replicas": replica_views(found),
        "safe_at": _text(safe_at(found, context.domains, copies=context.copies)),
        "supersedes": record.supersedes,
        "superseded_by": found.superseded_by,
        "conflicts_with": found.conflicts_with,
        "ambiguous": found.ambiguous,
        "held": found.held,
        "quarantined": found.quarantined,
        "pruned": None if found.pruned is None else list(found.pruned),
        "kept_by": [] if kept is None else list(kept.reasons),
        "expires_at": _text(_expires(found, kept, context.now)),
        "node": record.node,
        "attempt": record.attempt,
        "clock": str(found.clock),
        "instant": to_text(found.instant),
        "instant_by": str(found.sure),
    }


def data_view(ref: DataRef) -> dict[str, JSON]:
    """A data reference."""
    return {
        "kind": str(ref.kind),
        "repository": ref.repository,
        "branch": ref.branch,
        "commit": ref.commit,
        "evidence": str(ref.evidence),
        "from_step": ref.from_step,
        "to_step": ref.to_step,
    }


def replica_views(found: RecordState) -> list[JSON]:
    """Replicas by tier; `sound` is false for one that is damaged or may have changed."""
    ordered = sorted(found.replicas.values(), key=lambda replica: (replica.place.tier, replica.place.node or ""))
    return [
        {
            "tier": replica.place.tier,
            "node": replica.place.node,
            "verified_at": to_text(replica.verified_at),
            "linked": replica.linked,
            "proof": replica.proof,
            "sound": replica.sound,
        }
        for replica in ordered
    ]


def safe_at(found: RecordState, domains: Mapping[str, str], *, copies: int) -> datetime | None:
    """Since when `copies` sound replicas lie in shared tiers of different failure domains; None where they do not."""
    # Domains, not tiers: two stores on one disk are lost together.
    first: dict[str, datetime] = {}
    for place, replica in found.replicas.items():
        domain = domains.get(place.tier)
        if place.node is None and domain is not None and replica.sound:
            first[domain] = min(first.get(domain, replica.replicated_at), replica.replicated_at)
    instants = sorted(first.values())
    # Safe since the last of those that are needed came.
    return instants[copies - 1] if len(instants) >= max(1, copies) else None


def entry_view(entry: Entry, *, git_commit: str | None = None) -> dict[str, JSON]:
    """An entry as it stands in the ledger, and the Git commit that carries it."""
    value = entry.as_json()
    # The format is of the file in the ledger; who reads this view reads the view's own keys.
    return {**{key: one for key, one in value.items() if key != "format"}, "git_commit": git_commit}


def rollback_view(found: RollbackState) -> dict[str, JSON]:
    """A rollback: its plan, how far it came, and who decided."""
    # Every key, null where an older version's plan lacks it: whoever parses this needs no case for each.
    plan = {key: found.plan.get(key) for key in PLAN_KEYS}
    return {
        "rollback": found.id,
        "state": found.state,
        **plan,
        "requested_at": to_text(found.requested_at),
        "approvals": [dict(given) for given in found.approvals],
        "ended_by": found.ended_by,
        "ended_at": _text(found.ended_at),
        "ended_why": found.ended_why,
        "flow_run": found.flow_run,
        "opened_timeline": found.timeline,
        "checkpoint_dir": found.checkpoint_dir,
        "moved": [dict(one) for one in found.moves],
    }


def timeline_view(timeline: Timeline, state: RunState) -> dict[str, JSON]:
    """A timeline: where it leaves its parent, what opened it, how many records it has."""
    return {
        "timeline": timeline.number,
        "fork": None if timeline.fork is None else timeline.fork.as_json(),
        "opened_by": timeline.opened_by,
        "opened_at": to_text(timeline.opened_at),
        "rollback": timeline.rollback,
        "records": len(state.by_step.get(timeline.number, ())),
        "current": timeline.number == state.timeline,
        "inferred": timeline.inferred,
    }


def pin_views(site: SiteState, *, commits: frozenset[tuple[str, str]] | None = None) -> list[dict[str, JSON]]:
    """Pins that were not given up, of `commits` only where given. since: when each was first asked for."""
    return [
        {
            "repository": pin.repository,
            "commit": pin.commit,
            "pin": pin.branch,
            "state": pin.state,
            "since": to_text(pin.pinned_at),
        }
        for pin in site.pins.values()
        if pin.state != "unpinned" and (commits is None or (pin.repository, pin.commit) in commits)
    ]


def _expires(found: RecordState, kept: Kept | None, now: datetime) -> datetime | None:
    if kept is None or found.pruned is not None:
        return None
    return kept.until if kept.reasons else now


def _text(at: datetime | None) -> str | None:
    return None if at is None else to_text(at)
