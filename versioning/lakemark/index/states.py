"""A record's state as a row holds it: JSON, and instants as whole microseconds."""

from __future__ import annotations

import json
from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

from lakemark.errors import Corrupt
from lakemark.model.checkpoints.record import Record
from lakemark.model.ledger.run import Place, RecordState, Replica
from lakemark.model.values.canonical import parse
from lakemark.model.values.fields import shared
from lakemark.model.values.instants import from_text, to_text

Raw: TypeAlias = tuple[str, bytes | None]
"""A row's state, and the record.json it came with."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def micros(instant: datetime) -> int:
    """Microseconds since 1970, exactly."""
    return (instant - _EPOCH) // timedelta(microseconds=1)


def optional_micros(instant: datetime | None) -> int | None:
    """`micros`, or None of None."""
    return None if instant is None else micros(instant)


def to_row(found: RecordState, *, whole: bool) -> str:
    """JSON of `found`; its record only where `whole`, else that is read from the entry it came with."""
    return json.dumps(
        {
            "sequence": found.sequence,
            "recorded_at": to_text(found.recorded_at),
            "clock": str(found.clock),
            "replicas": [_replica(replica) for replica in found.replicas.values()],
            "superseded_by": found.superseded_by,
            "conflicts_with": found.conflicts_with,
            "ambiguous": found.ambiguous,
            "held": found.held,
            "held_until": _text(found.held_until),
            "quarantined": found.quarantined,
            "quarantined_at": _text(found.quarantined_at),
            "quarantined_by": found.quarantined_by,
            "pruned": None if found.pruned is None else list(found.pruned),
            "pruned_at": _text(found.pruned_at),
            "thinned": found.thinned,
            "released": [_where(place) for place in found.released],
            "refused": [[*_where(place), why] for place, why in found.refused.items()],
            "lost": found.lost,
            "not_before": _text(found.not_before),
            "not_after": _text(found.not_after),
            "record": found.record.as_json() if whole else None,
        },
        separators=(",", ":"),
    )


def from_row(state: str, record: bytes | None) -> RecordState:
    """What `to_row` was given; `record`: the record.json it came with. ValueError where neither holds the record."""
    try:
        return _state(json.loads(state), record)
    except (KeyError, TypeError, Corrupt) as error:
        raise ValueError(f"the index holds a record's state that can't be read: {error!r}") from error


def _state(value: dict[str, Any], record: bytes | None) -> RecordState:
    said = value.pop("record")
    # Most records are as their entry brought them: kept once, in the entry's row.
    if said is None:
        said = parse(record or b"null")
    replicas = [_from_replica(item) for item in value.pop("replicas")]
    for name in ("held_until", "quarantined_at", "pruned_at", "not_before", "not_after"):
        value[name] = None if value[name] is None else from_text(value[name])
    value["recorded_at"] = from_text(value["recorded_at"])
    # Equal ones are one object: a hundred thousand records have the same few places.
    value["released"] = shared(frozenset(_place(*where) for where in value["released"]))
    value["refused"] = {_place(*where): why for *where, why in value["refused"]}
    value["clock"] = shared(value["clock"])
    value["pruned"] = None if value["pruned"] is None else tuple(value["pruned"])
    return RecordState(
        record=Record.from_json(said), replicas={replica.place: replica for replica in replicas}, **value
    )


class LazyRecords(dict[str, RecordState]):
    """Records by id, each read from its row when it is first asked for. Behaves as the dictionary of them all."""

    def __init__(self, raw: Mapping[str, Raw | RecordState]) -> None:
        super().__init__(raw)  # type: ignore[arg-type]

    def __getitem__(self, key: str) -> RecordState:
        found: Raw | RecordState = super().__getitem__(key)
        if isinstance(found, RecordState):
            return found
        try:
            state = from_row(*found)
        except ValueError as error:
            raise Corrupt(f"the index can't be read: {error}", advice="Remove its file: it is made anew.") from error
        # Kept from now on: who asks twice gets the same object, as of a dictionary.
        super().__setitem__(key, state)
        return state

    def __iter__(self) -> Iterator[str]:  # also keeps dict() from copying what was not yet read
        return super().__iter__()

    def get(self, key: str, default: Any = None) -> Any:  # noqa: ANN401 - as dict's
        try:
            return self[key]
        except KeyError:
            return default

    def values(self) -> ValuesView[RecordState]:  # type: ignore[override]
        return ValuesView(self)

    def items(self) -> ItemsView[str, RecordState]:  # type: ignore[override]
        return ItemsView(self)

    def copy(self) -> LazyRecords:
        return LazyRecords(super().copy())

    def __eq__(self, other: object) -> bool:
        return dict(self.items()) == (dict(other.items()) if isinstance(other, LazyRecords) else other)

    __hash__ = None

    def __repr__(self) -> str:
        return repr(dict(self.items()))


def _replica(replica: Replica) -> dict[str, Any]:
    return {
        "tier": replica.place.tier,
        "node": replica.place.node,
        "part": replica.place.part,
        "verified_at": to_text(replica.verified_at),
        "replicated_at": to_text(replica.replicated_at),
        "linked": replica.linked,
        "proof": replica.proof,
        "suspect": replica.suspect,
        "damaged": replica.damaged,
    }


def _from_replica(value: dict[str, Any]) -> Replica:
    place = shared(_place(*(value.pop(name) for name in ("tier", "node", "part"))))
    value["proof"] = shared(value["proof"])
    verified_at, replicated_at = from_text(value.pop("verified_at")), from_text(value.pop("replicated_at"))
    return Replica(place=place, verified_at=verified_at, replicated_at=replicated_at, **value)


def _where(place: Place) -> list[str | int | None]:
    return [place.tier, place.node, place.part]


def _place(tier: str, node: str | None, part: int | None) -> Place:
    return Place(tier=tier, node=node, part=part)


def _text(instant: datetime | None) -> str | None:
    return None if instant is None else to_text(instant)
