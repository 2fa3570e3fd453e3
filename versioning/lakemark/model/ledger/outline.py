"""A run in outline: what a pass over all runs asks of each, small enough to be kept of every run at once.

A run's state has some 4 kB a record, so a ledger keeps few in memory; a pass that asks each of many runs something would
read them all again for each question. An outline has 40 bytes a record, and more only of what lies in nodes' own tiers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Self

from lakemark.model.ledger.run import Interval, Place, RollbackState, RunState

_ID_BYTES: Final = 32
_CONTENT_BYTES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """Of a run as of `sequence`; what it does not say is in its state, which is asked for where this tells that it matters.

    begun: some attempt was opened. alive_at: when the newest attempt last showed itself, by its start or a record; None where
    it ended, or there is none. places: all that an entry names as having, having had or having refused one of its
    records. kept: of each node's own tier the records that have a replica there; linked: those of them that are sound and
    share their files with the trainer.
    """

    run: str
    sequence: int = 0
    written_at: datetime | None = None
    closed: bool = False
    closed_at: datetime | None = None
    begun: bool = False
    alive_at: datetime | None = None
    watch: Mapping[str, str] = field(default_factory=dict)
    intervals: tuple[Interval, ...] = ()
    rollbacks: tuple[RollbackState, ...] = ()
    places: frozenset[Place] = frozenset()
    kept: Mapping[Place, frozenset[str]] = field(default_factory=dict)
    linked: Mapping[Place, frozenset[str]] = field(default_factory=dict)
    ids: bytes = field(default=b"", repr=False)
    contents: bytes = field(default=b"", repr=False)

    @classmethod
    def of(cls, state: RunState) -> Self:
        """`state` is read through once and not held on to."""
        places: set[Place] = set()
        kept: dict[Place, set[str]] = {}
        linked: dict[Place, set[str]] = {}
        for identity, found in state.records.items():
            places.update(found.replicas, found.released, found.refused)
            for place, replica in found.replicas.items():
                # Shared tiers hold nearly every record: only nodes' own are asked for by record.
                if place.node is None:
                    continue
                kept.setdefault(place, set()).add(identity)
                if replica.linked and replica.sound:
                    linked.setdefault(place, set()).add(identity)
        return cls(
            run=state.run,
            sequence=state.sequence,
            written_at=state.written_at,
            closed=state.closed,
            closed_at=state.closed_at,
            begun=state.attempt is not None,
            alive_at=_alive_at(state),
            watch=dict(state.watch),
            intervals=tuple(state.intervals),
            rollbacks=tuple(state.rollbacks.values()),
            places=frozenset(places),
            kept={place: frozenset(ids) for place, ids in kept.items()},
            linked={place: frozenset(ids) for place, ids in linked.items()},
            # Sorted and joined: found by bisection without an object for each.
            ids=b"".join(sorted(map(bytes.fromhex, state.records))),
            contents=b"".join(sorted(_start(found.record.content) for found in state.live())),
        )

    @property
    def exists(self) -> bool:
        return self.sequence > 0

    def records_of(self, ids: Collection[str]) -> frozenset[str]:
        """Those of `ids` that are records of the run."""
        return frozenset(one for one in ids if self._has(bytes.fromhex(one))) if self.ids else frozenset()

    def may_hold(self, content: str) -> bool:
        """Whether a record that was not pruned may have these bytes: False is certain, True is to be looked at in the state."""
        return _among(self.contents, _start(content))

    def _has(self, wanted: bytes) -> bool:
        return _among(self.ids, wanted)


def _start(content: str) -> bytes:
    """So much of a digest that others hardly ever begin with the same."""
    return bytes.fromhex(content[: 2 * _CONTENT_BYTES])


def _among(rows: bytes, wanted: bytes) -> bool:
    """rows: sorted, of the length of `wanted` each."""
    length = len(wanted)

    def at(number: int) -> bytes:
        return rows[number * length : (number + 1) * length]

    number = bisect_left(range(len(rows) // length), wanted, key=at)
    # Beyond the end the slice is empty and equals nothing.
    return at(number) == wanted


def _alive_at(state: RunState) -> datetime | None:
    attempt = state.attempt
    if attempt is None or attempt.ended_at is not None:
        return None
    return max((attempt.started_at, *(found.known_at for found in state.records.values())))
