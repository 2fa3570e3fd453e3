"""A replica comes to a place, can't come there, goes, or is lost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Final

from lakemark.model.entries.kind import Bytes, EntryBody, Kind, Nodes, ReplicaItem, Told, change
from lakemark.model.ledger.entry import Draft, Entry, Means
from lakemark.model.ledger.run import Place, Replica, RunState
from lakemark.model.values.codec import LEFT_OUT, Size
from lakemark.model.values.fields import shared


@dataclass(frozen=True, slots=True, kw_only=True)
class _At(EntryBody):
    tier: str = ""
    node: Nodes = None
    part: Size | None = None

    @property
    def place(self) -> Place:
        return shared(Place(tier=self.tier, node=self.node, part=self.part))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicatedBody(_At):
    linked: bool = False
    proof: Annotated[str | None, shared] = None
    verified_at: datetime | None = None
    written_bytes: Bytes = None
    replicated_seconds: Told = None
    size_bytes: Bytes = None
    recovered: bool = field(default=False, metadata=LEFT_OUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaRefusedBody(_At):
    why: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedReplica(ReplicaItem):
    survivor: str | None = None
    survivor_verified_at: datetime | None = None
    why: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedBody(EntryBody):
    items: tuple[ReleasedReplica, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LostReplica(ReplicaItem):
    why: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DataLostBody(EntryBody):
    items: tuple[LostReplica, ...] = ()


def gone_from(records: Iterable[str], place: Place, *, why: str, last: bool, timeline: int, reason: str) -> Draft:
    """That replicas are not in `place` any more. last: each was its record's last sound one."""
    tier, node = place.tier, place.node
    if last:
        lost = DataLostBody(items=tuple(LostReplica(record=one, tier=tier, node=node, why=why) for one in records))
        return DATA_LOST.draft(lost, timeline=timeline, reason=reason)
    released = ReleasedBody(items=tuple(ReleasedReplica(record=one, tier=tier, node=node, why=why) for one in records))
    return RELEASED.draft(released, timeline=timeline, reason=reason)


def _replicated(state: RunState, entry: Entry, body: ReplicatedBody) -> None:
    found = state.records.get(entry.record or "")
    if found is None:
        return
    place = body.place
    copy = Replica(
        place=place,
        verified_at=body.verified_at or entry.recorded_at,
        replicated_at=entry.recorded_at,
        linked=body.linked,
        proof=body.proof or "read_back",
    )
    held = {**found.replicas, place: copy}
    # It came there after all, so nothing is refused or lost any more.
    refused = {where: why for where, why in found.refused.items() if where != place}
    change(state, entry.record, replicas=held, released=found.released - {place}, refused=refused, lost=None)


def _refused(state: RunState, entry: Entry, body: ReplicaRefusedBody) -> None:
    found = state.records.get(entry.record or "")
    if found is not None:
        why = body.why or "it can't be kept there"
        change(state, entry.record, refused={**found.refused, body.place: why})


def _released(state: RunState, _entry: Entry, body: ReleasedBody) -> None:
    for item in body.items:
        found, place = state.records.get(item.record or ""), item.place
        if found is not None:
            left = {where: copy for where, copy in found.replicas.items() if where != place}
            change(state, item.record, replicas=left, released=found.released | {place})


def _data_lost(state: RunState, entry: Entry, body: DataLostBody) -> None:
    for item in body.items:
        found, place = state.records.get(item.record or ""), item.place
        if found is not None:
            # Not among `released`: nobody decided that its bytes may go.
            left = {where: copy for where, copy in found.replicas.items() if where != place}
            change(state, item.record, replicas=left, lost=item.why or entry.reason or "lost")


REPLICATED: Final = Kind(
    name="replicated",
    body=ReplicatedBody,
    on_run=_replicated,
    of_records=True,
    note="objects.json: file digest -> object name",
)
REPLICA_REFUSED: Final = Kind(
    name="replica_refused",
    body=ReplicaRefusedBody,
    on_run=_refused,
    of_records=True,
    unknown_means=Means.IGNORE,
    note="the place can't hold it as it is; nobody tries again until somebody asks for it",
)
RELEASED: Final = Kind(name="released", body=ReleasedBody, on_run=_released, of_records=True)
DATA_LOST: Final = Kind(
    name="data_lost",
    body=DataLostBody,
    on_run=_data_lost,
    of_records=True,
    note="replicas that are gone, each the last sound one of its record",
)

KINDS: Final = (REPLICATED, REPLICA_REFUSED, RELEASED, DATA_LOST)
