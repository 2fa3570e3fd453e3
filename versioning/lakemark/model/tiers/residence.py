"""Tiers, when a replica stays in one, and the parts of a plan that moves replicas between them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from lakemark.model.ledger.run import Place
from lakemark.model.tiers.retention import Best

CLASSES: Final = ("hot", "warm", "cold")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """A tier as this node knows it. kind: tree, directory or s3. domain: replicas in one domain count as one."""

    name: str
    tier_class: str
    kind: str
    domain: str

    @property
    def rank(self) -> int:
        """0 hot, 1 warm, 2 cold: the greater the slower."""
        return CLASSES.index(self.tier_class)


@dataclass(frozen=True, slots=True, kw_only=True)
class Admit:
    """Which records come to a tier: `everything`, else what any of the others says.

    retained: those that retention would keep. every: the first record of each such stretch of time, per timeline.
    newest: the newest of the current lineage. best: of that lineage, by metric.
    """

    everything: bool = False
    retained: bool = False
    every: timedelta | None = None
    newest: bool = False
    best: tuple[Best, ...] = ()


ADMIT_ALL: Final = Admit(everything=True)
ADMIT_RETAINED: Final = Admit(retained=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Residence:
    """When a replica comes to a tier and when it may leave.

    It stays while it is among the `keep_last` newest of the current lineage, or its record is younger than `keep_for`;
    where neither is given, until retention takes the record. settle: how long after writing a slower replica it must be
    read back, at least, to justify a release from this tier.
    """

    keep_last: int | None = None
    settle: timedelta = timedelta(hours=1)
    keep_for: timedelta | None = None
    admit: Admit = ADMIT_ALL


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Add a replica of `record` in `tier`: this node can read a sound one."""

    record: str
    run: str
    tier: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Drop the replica at `place`; `survivor` is one that stays: planned, it settled; done, it was read back right before."""

    record: str
    place: Place
    survivor: Place
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recheck:
    """Read the replica at `place` in full: something waits for the outcome."""

    record: str
    place: Place
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """What would be due in `tier` and is not done, and why; until: when that changes by itself."""

    record: str
    tier: str
    why: str
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Moves:
    """A plan: the parts can be done in this order; each says why."""

    replicate: tuple[Move, ...] = ()
    recheck: tuple[Recheck, ...] = ()
    release: tuple[Release, ...] = ()
    waiting: tuple[Waiting, ...] = ()
