"""What was read back: replicas looked at, drills, restores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Final

from lakemark.model.entries.kind import Bytes, EntryBody, Kind, RecordItem, ReplicaItem, Told, change
from lakemark.model.ledger.entry import Entry, Means
from lakemark.model.ledger.run import RunState
from lakemark.model.values.canonical import JSON
from lakemark.model.values.codec import Coded, Size


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedReplica(ReplicaItem):
    ok: bool = False
    damaged: tuple[str, ...] = ()
    suspect: bool = False
    linked: Annotated[bool | None, "false: it shares no file any more"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedBody(EntryBody):
    items: tuple[VerifiedReplica, ...] = ()
    verified_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DrilledRecord(RecordItem):
    drill: str | None = None
    node: str | None = None
    tier: str | None = None
    restored_seconds: Told = None
    ready_seconds: Told = None
    size_bytes: Bytes = None
    tree_digest: str | None = None
    objects_sampled: Size | None = None
    data_ok: bool | None = None
    probe: Annotated[Mapping[str, JSON] | None, "exit, digest"] = None
    ok: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DrilledBody(EntryBody):
    items: tuple[DrilledRecord, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredFrom(Coded, what="a source", sparse=True):
    tier: str | None = None
    node: str | None = None
    files: Size | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredBody(EntryBody):
    to: str | None = None
    roles: Annotated[tuple[str, ...], "none: all"] = ()
    sources: tuple[RestoredFrom, ...] = ()
    restored_seconds: Told = None
    size_bytes: Bytes = None
    attempt: Annotated[str | None, "of a resume"] = None
    resumed_seconds: Annotated[Told, "of a resume: with all that it does beside"] = None


def _verified(state: RunState, entry: Entry, body: VerifiedBody) -> None:
    at = body.verified_at or entry.recorded_at
    for item in body.items:
        found = state.records.get(item.record or "")
        replica = found.replicas.get(item.place) if found else None
        if found is None or replica is None:
            continue
        seen = replace(
            replica,
            # Never back to linked: a copy of our own does not become the trainer's file again.
            linked=replica.linked and item.linked is not False,
            # A look that found damage proves nothing of when it was whole last.
            verified_at=at if item.ok else replica.verified_at,
            damaged=not item.ok and not item.suspect,
            suspect=not item.ok and item.suspect,
        )
        change(state, item.record, replicas={**found.replicas, replica.place: seen})


def _drilled(state: RunState, entry: Entry, body: DrilledBody) -> None:
    for item in body.items:
        if item.tier and item.ok:
            state.drills[item.tier] = entry.recorded_at


VERIFIED: Final = Kind(name="verified", body=VerifiedBody, on_run=_verified, of_records=True)
DRILLED: Final = Kind(name="drilled", body=DrilledBody, on_run=_drilled, unknown_means=Means.IGNORE)
RESTORED: Final = Kind(name="restored", body=RestoredBody, history=True, unknown_means=Means.IGNORE)

KINDS: Final = (VERIFIED, DRILLED, RESTORED)
