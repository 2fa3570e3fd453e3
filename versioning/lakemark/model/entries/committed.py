"""A save becomes a record, in one piece or, one day, in parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Final

from lakemark.model.checkpoints.record import Record
from lakemark.model.entries.kind import Bytes, EntryBody, Kind, Told, change, take_over
from lakemark.model.ledger.entry import Entry
from lakemark.model.ledger.run import Place, RecordState, Replica, RunState
from lakemark.model.runs.lives import Gain, gain
from lakemark.model.values.codec import LEFT_OUT, PASSED_OVER, Size
from lakemark.model.values.fields import shared


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedBody(EntryBody):
    """recovered: brought back from a tier's record, so that an entry of its own says where its bytes are.

    ambiguous: nobody can tell which of the run's lives it is of, so it is nobody's newest.

    What only tells of the save is passed over where it can't be read: the record must not be lost for it.
    """

    attempt: Annotated[str | None, PASSED_OVER] = None
    supersedes: Annotated[str | None, PASSED_OVER] = None
    conflicts_with: str | None = None
    ambiguous: Annotated[bool, "nobody can tell which life it is of"] = field(default=False, metadata=LEFT_OUT)
    tier: str | None = None
    node: Annotated[str | None, PASSED_OVER] = None
    part: Size | None = None
    linked: bool = False
    source: Annotated[str | None, "where it lay", PASSED_OVER] = None
    directory: Annotated[str | None, "watched", PASSED_OVER] = None
    recovered: bool = field(default=False, metadata=LEFT_OUT)
    notes: Annotated[tuple[str, ...] | None, "what people should know of it", PASSED_OVER] = None
    pointers: Annotated[Mapping[str, str] | None, "name to form", PASSED_OVER] = None
    saved_seconds: Told = None
    landed_seconds: Told = None
    size_bytes: Bytes = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartSealedBody(EntryBody):
    attempt: str | None = None
    step: Size | None = None
    ordinal: Size | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartReplicatedBody(PartSealedBody):
    tier: str | None = None


def _committed(state: RunState, entry: Entry, body: CommittedBody, record: Record | None) -> None:
    if record is None:
        return
    # CommittedBody once more by another request: what was said of its replicas since must not be forgotten.
    if record.id not in state.records:
        # A save is sealed in a node's own tier, so its first place has the node.
        place = shared(Place(tier=body.tier or "hot", node=entry.node, part=body.part))
        sealed = Replica(
            place=place,
            verified_at=entry.recorded_at,
            replicated_at=entry.recorded_at,
            linked=body.linked,
            proof="sealed",
        )
        new = RecordState(
            record=record,
            sequence=entry.sequence,
            recorded_at=entry.recorded_at,
            clock=shared(entry.clock),
            conflicts_with=body.conflicts_with,
            ambiguous=body.ambiguous,
            replicas={} if body.recovered else {place: sealed},
        )
        gained = gain(state, record) if new.stands else None
        state.add(new)
        if gained is not None:
            gains(state, entry, record, gained)
    change(state, record.supersedes, superseded_by=record.id)


def gains(state: RunState, entry: Entry, record: Record, gained: Gain) -> None:
    """Notes what a timeline in doubt gained by a save: the first step that it alone has, or that the run goes on in it."""
    if gained is Gain.CURRENT:
        take_over(state, entry, record.timeline)
    else:
        state.timelines[record.timeline] = replace(state.timelines[record.timeline], ahead=record.step)


PART_SEALED: Final = Kind(name="part_sealed", body=PartSealedBody, note="reserved for checkpoints in parts")
PART_REPLICATED: Final = Kind(name="part_replicated", body=PartReplicatedBody, note="reserved")
COMMITTED: Final = Kind(name="committed", body=CommittedBody, with_record=_committed, of_records=True)

KINDS: Final = (PART_SEALED, PART_REPLICATED, COMMITTED)
