"""What a run's entries add up to: its records with their replicas, its timelines, attempts and rollbacks.

These are the values; `fold` makes them out of entries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Self

from lakemark.model.checkpoints.record import DataRef, Record
from lakemark.model.ledger import moments
from lakemark.model.ledger.clocks import Clocks
from lakemark.model.ledger.entry import Means
from lakemark.model.ledger.requests import Requests
from lakemark.model.values.canonical import JSON
from lakemark.model.values.codec import Coded, Number
from lakemark.model.values.outside import digest
from lakemark.model.values.persistent import Layered, Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a replica is: a tier, and the node where the tier is a node's own (hot).

    part: the ordinal of the only part of the checkpoint that lies there, where it was saved in parts; None: all of it.
    """

    tier: str
    node: str | None = None
    part: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """A verified copy. damaged: the last look found other bytes; suspect: it may have changed and is not yet re-read.

    verified_at: when all its bytes were last read and compared. proof: how `replicated` knew.
    """

    place: Place
    verified_at: datetime
    replicated_at: datetime
    linked: bool = False
    proof: str = "read_back"
    suspect: bool = False
    damaged: bool = False

    @property
    def sound(self) -> bool:
        return not (self.suspect or self.damaged)


def _id_or_none(record: str) -> str:
    return digest(record) if record else record


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork(Coded, what="a fork"):
    """Where a timeline leaves its parent: after `record`, at `step`, of timeline `timeline`.

    A process that began anew left it before the first step, after no record: `record` is empty, and `step` may be -1.
    """

    timeline: Number
    step: int
    record: Annotated[str, _id_or_none]

    def __post_init__(self) -> None:
        if self.step < (0 if self.record else -1):
            raise ValueError(f"step: {self.step} is before the first")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """1 has no fork; every other one was opened by a `rolled_back` or `resumed` entry.

    inferred: it was seen in what a process saved, and nobody has said so since. current_since, current_at: the entry by which
    it became the run's current one; None: it never did. ahead: of one that is in doubt, the step that it alone has saved.
    """

    number: int
    fork: Fork | None
    opened_by: str
    opened_at: datetime
    sequence: int
    rollback: str | None = None
    inferred: bool = False
    current_since: int | None = None
    current_at: datetime | None = None
    ahead: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """From `sequence` on, attempts of `timeline` open `data`. at_step: the step it begins at, where that was said.

    declared: somebody said by hand that this is what the run reads.
    """

    sequence: int
    timeline: int
    opened_at: datetime
    data: tuple[DataRef, ...]
    at_step: int | None = None
    declared: bool = False


class Cause(StrEnum):
    """Why an attempt ended, as somebody said: its allocation was taken, its node failed, its program failed."""

    PREEMPTED = "preempted"
    NODE = "node"
    SOFTWARE = "software"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One start of the trainer's process. `record`: what it was resumed from, where that was decided for it.

    accepted_gaps: what that record lacks, and somebody said that it may. decided, decided_at: the entry that decided it.
    ended_at: when that was noticed; None while nobody knows that it ended. cause: text, as a newer version may know more.
    """

    id: str
    timeline: int
    sequence: int
    node: str
    started_at: datetime
    job: str | None = None
    directory: str | None = None
    data: tuple[DataRef, ...] = ()
    record: str | None = None
    accepted_gaps: tuple[str, ...] = ()
    decided: int = 0
    decided_at: datetime | None = None
    ended_at: datetime | None = None
    cause: str | None = None


@dataclass(slots=True, kw_only=True)
class RecordState:
    """A record and what later entries said of it. `record` carries the newest data binding.

    refused: places that can't hold it as it is -> why; a replica that comes there after all ends it.
    released: places it was released or thinned from and has not come back to; its bytes may still lie there after a crash,
    and may go: nothing but this says that a tree of a record may be dropped.
    quarantined_by: `repository@commit` where it follows from a data quarantine; None where the record itself was meant.
    lost: why its last sound replica is gone, until there is one again.
    ambiguous: nobody can tell which of the run's lives it is of, so it is nobody's newest.
    clock: as `model.clocks` judges it. not_before, not_after: where it holds the instant of one that is suspect.
    Never changed once it is in a `RunState`: the next entry replaces it.
    """

    record: Record
    sequence: int
    recorded_at: datetime
    clock: str
    replicas: dict[Place, Replica] = field(default_factory=dict)
    superseded_by: str | None = None
    conflicts_with: str | None = None
    ambiguous: bool = False
    held: str | None = None
    held_until: datetime | None = None
    quarantined: str | None = None
    quarantined_at: datetime | None = None
    quarantined_by: str | None = None
    pruned: tuple[str, ...] | None = None
    pruned_at: datetime | None = None
    thinned: bool = False
    released: frozenset[Place] = frozenset()
    refused: Mapping[Place, str] = field(default_factory=dict)
    lost: str | None = None
    not_before: datetime | None = None
    not_after: datetime | None = None

    @property
    def instant(self) -> datetime:
        """When it was saved: what as-of compares."""
        return moments.instant(self.record.saved_at, self.recorded_at, self.not_before, self.not_after)

    @property
    def sure(self) -> moments.Sure:
        """How sure `instant` is."""
        return moments.sure(self.clock, announced=self.record.announced)

    @property
    def known_at(self) -> datetime:
        """When the ledger came to know of it; held as `instant` is."""
        return moments.held(self.recorded_at, self.not_before, self.not_after)

    @property
    def stands(self) -> bool:
        """Whether it may be anybody's `latest`: neither superseded, nor in conflict with another, nor of a life in doubt."""
        return self.superseded_by is None and self.conflicts_with is None and not self.ambiguous


@dataclass(slots=True, kw_only=True)
class RollbackState:
    """A rollback request and how far it came: requested, approved, refused, expired, overtaken or applied.

    overtaken: the run went on in another timeline than the plan's; nobody can approve it any more. ended_by, ended_at and
    ended_why: of one that is no longer open; the ledger's own words where no person ended it. moves: shared data branches
    set back after it was applied, each with the head it had and the commit that was made. reviewed_by, reviewed_at: of one
    that its requester had approved alone.
    """

    id: str
    digest: str
    plan: Mapping[str, JSON]
    requester: str
    reason: str | None
    requested_at: datetime
    expires_at: datetime
    sequence: int
    state: str = "requested"
    approvals: list[Mapping[str, JSON]] = field(default_factory=list)
    flow_run: str | None = None
    timeline: int | None = None
    checkpoint_dir: str | None = None
    moves: tuple[Mapping[str, JSON], ...] = ()
    ended_by: str | None = None
    ended_at: datetime | None = None
    ended_why: str | None = None
    reviewed_by: str | None = None
    reviewed_at: datetime | None = None

    @property
    def open(self) -> bool:
        return self.state in ("requested", "approved")


@dataclass(slots=True, kw_only=True)
class RunState:
    """Everything the ledger says of one run. Readers treat it as read-only; its ledger folds into it.

    unpruned: the sequences of the records that retention did not take. drills: tier -> when a record was last restored from
    it and proven right. decided: the last entry by which somebody said where the run goes on.
    """

    run: str
    sequence: int = 0
    last_recorded_at: datetime | None = None
    records: Layered[str, RecordState] = field(default_factory=Layered)
    unpruned: Layered[str, int] = field(default_factory=Layered)
    timelines: dict[int, Timeline] = field(default_factory=dict)
    by_step: dict[int, Rows[tuple[int, int, str]]] = field(default_factory=dict)
    intervals: list[Interval] = field(default_factory=list)
    attempts: dict[str, Attempt] = field(default_factory=dict)
    rollbacks: dict[str, RollbackState] = field(default_factory=dict)
    watch: dict[str, str] = field(default_factory=dict)
    drills: dict[str, datetime] = field(default_factory=dict)
    requests: Requests = field(default_factory=Requests)
    clocks: Clocks = field(default_factory=Clocks)
    parent: str | None = None
    parts: int = 1
    decided: int = 0
    needs_no: frozenset[str] = frozenset()
    closed: bool = False
    closed_at: datetime | None = None
    blocked: Means = Means.IGNORE
    unknown: list[str] = field(default_factory=list)

    def snapshot(self) -> Self:
        """A copy that later entries do not reach, however large the run. What it holds is shared: replaced, never changed."""
        return replace(
            self,
            records=self.records.copy(),
            timelines=dict(self.timelines),
            unpruned=self.unpruned.copy(),
            by_step={timeline: rows.copy() for timeline, rows in self.by_step.items()},
            intervals=list(self.intervals),
            attempts=dict(self.attempts),
            rollbacks=dict(self.rollbacks),
            watch=dict(self.watch),
            drills=dict(self.drills),
            requests=self.requests.copy(),
            clocks=self.clocks.copy(),
            unknown=list(self.unknown),
        )

    def add(self, found: RecordState) -> None:
        """Takes in a record that it did not have."""
        record = found.record
        self.records[record.id] = found
        if found.pruned is None:
            self.unpruned[record.id] = found.sequence
        self.by_step.setdefault(record.timeline, Rows()).add((record.step, found.sequence, record.id))

    def live(self) -> Iterator[RecordState]:
        """The records that were not pruned: what passes look at, as a run of years may have pruned most of its records."""
        return (self.records[identity] for identity in self.unpruned)

    @property
    def written_at(self) -> datetime | None:
        """When its newest entry was written whose clock is not suspect: a clock before that is behind."""
        # Without any trusted time, as in a simulation, the last entry's.
        return self.clocks.newest or self.last_recorded_at

    def takes(self, made_at: datetime | None) -> bool:
        """Whether a save made then is the run's: it was open. None: nobody knows when it was made."""
        # Saves that are found after the closing, and were made before it, are still the run's.
        return not self.closed or self.closed_at is None or made_at is None or made_at <= self.closed_at

    @property
    def exists(self) -> bool:
        return self.sequence > 0

    @property
    def timeline(self) -> int:
        """The current timeline: the one that became so last. One that was only inferred is none until it has gone on."""
        taken = ((one.current_since, one.number) for one in self.timelines.values() if one.current_since is not None)
        return max(taken, default=(0, 1))[1]

    @property
    def next_timeline(self) -> int:
        """The number of the one that is opened next."""
        return max(self.timelines, default=0) + 1

    @property
    def in_doubt(self) -> tuple[Timeline, ...]:
        """Timelines that were inferred since the current one was opened, or anybody decided: one of them may take over."""
        current = self.timelines.get(self.timeline)
        settled = max(self.decided, current.sequence if current is not None else 0)
        return tuple(
            one
            for one in self.timelines.values()
            if one.inferred and one.current_since is None and one.sequence > settled
        )

    @property
    def interval(self) -> Interval | None:
        """What an attempt that starts now would open."""
        here = [interval for interval in self.intervals if interval.timeline == self.timeline]
        # A timeline that was opened without a change of data reads what its run read last.
        return here[-1] if here else (self.intervals[-1] if self.intervals else None)

    @property
    def attempt(self) -> Attempt | None:
        """The newest attempt."""
        return max(self.attempts.values(), key=lambda attempt: attempt.sequence, default=None)
