"""Retention: records pruned or thinned, brought back, and who decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Final

from lakemark.model.entries.kind import EntryBody, Kind, Nothing, RecordItem, change
from lakemark.model.ledger.entry import Entry, Means
from lakemark.model.ledger.run import RunState
from lakemark.model.values.canonical import JSON
from lakemark.model.values.codec import Size


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunedRecord(RecordItem):
    reasons: tuple[str, ...] = ()
    thinned: bool = False
    unexpected: bool = False
    frees_bytes: Annotated[Mapping[str, Size], "tier: bytes"] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunedBody(EntryBody):
    plan: Annotated[str | None, "digest; null: thinned"] = None
    policy: Annotated[str | None, "digest"] = None
    freed_bytes: Annotated[Mapping[str, Size], "tier: bytes"] = field(default_factory=dict)
    items: tuple[PrunedRecord, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneRequestedBody(EntryBody):
    prune: str | None = None
    plan: Mapping[str, JSON] = field(default_factory=dict)
    digest: str | None = None
    requester: str | None = None
    expires_at: datetime | None = None
    flow_run: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneApprovedBody(EntryBody):
    prune: str | None = None
    digest: str | None = None
    by: str | None = None
    alone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneRefusedBody(EntryBody):
    prune: str | None = None
    by: str | None = None
    expired: bool = False


def _pruned(state: RunState, entry: Entry, body: PrunedBody) -> None:
    for item in body.items:
        change(
            state,
            item.record,
            pruned=item.reasons or ("pruned",),
            pruned_at=entry.recorded_at,
            thinned=item.thinned,
        )
        found = state.records.get(item.record or "")
        if item.thinned and found is not None:  # without grace: its last bytes go at once
            change(state, item.record, replicas={}, released=found.released | found.replicas.keys())


def _unpruned(state: RunState, entry: Entry, _body: Nothing) -> None:
    change(state, entry.record, pruned=None, pruned_at=None, thinned=False)


PRUNED: Final = Kind(name="pruned", body=PrunedBody, on_run=_pruned, of_records=True)
UNPRUNED: Final = Kind(name="unpruned", body=Nothing, on_run=_unpruned, of_records=True)
PRUNE_REQUESTED: Final = Kind(name="prune_requested", body=PruneRequestedBody, unknown_means=Means.IGNORE)
PRUNE_APPROVED: Final = Kind(name="prune_approved", body=PruneApprovedBody, unknown_means=Means.IGNORE)
PRUNE_REFUSED: Final = Kind(name="prune_refused", body=PruneRefusedBody, unknown_means=Means.IGNORE)

KINDS: Final = (PRUNED, UNPRUNED, PRUNE_REQUESTED, PRUNE_APPROVED, PRUNE_REFUSED)
