"""An entry of the ledger: one fact, appended once, never changed. `lakemark.entry/1`.

    {"format": "lakemark.entry/1", "sequence": 7, "kind": "replicated", "timeline": 1, "recorded_at": "…Z",
     "node": "node-a", "actor": "ana@node-a", "reason": null, "request": "replicate:<id>:warm", "clock": "ok",
     "record": "<64 hex>", "record_digest": null, "body": {"tier": "warm", …}}

What `body` holds for each kind is said at `KINDS`. A commit of the ledger carries the entry as `entry.json`, and beside
it, where the kind has them, `record.json`, `manifest.json` and `objects.json`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final, Self

from lakemark.errors import Corrupt
from lakemark.model.canonical import JSON, digest, parse
from lakemark.model.checkpoint import Manifest
from lakemark.model.fields import Fields
from lakemark.model.instants import to_text
from lakemark.model.record import Record

FORMAT: Final = "lakemark.entry/1"
SITE: Final = "site"
_REPLAYED: Final = "replayed"

KINDS: Final[Mapping[str, str]] = {
    # of a run
    "opened": "data[], parent, parts, watch{node: directory}, needs_no[], at_step (from the second on: a re-pin, a new interval)",
    "attempt": "attempt, job, directory, data[]",
    "part_sealed": "attempt, step, ordinal, … (reserved for checkpoints in parts)",
    "part_replicated": "attempt, step, ordinal, tier, … (reserved)",
    "committed": "attempt, supersedes, conflicts_with, tier, node, linked, source (where it lay), directory (watched), recovered",
    "bound": "data[]; its record.json is the record with that data. Without a record: what the run reads from now on, at_step",
    "replicated": "tier, node (null: shared), linked, proof, verified_at; objects.json: file digest -> object name",
    "replica_refused": "tier, node, why: the place can't hold it as it is; nobody tries again until somebody asks for it",
    "released": "items[{record, tier, node, survivor, survivor_verified_at, why}]",
    "verified": "items[{record, tier, node, ok, damaged[], suspect, linked (false: it shares no file any more)}], verified_at",
    "drilled": "items[{record, tier, ok, restored_seconds, data_ok}]",
    "resumed": "record, attempt, job, directory, fork{timeline, step, record} or null, inferred, accepted_gaps[]",
    "rollback_requested": "rollback, plan, digest, requester, expires_at, flow_run (Prefect's, if one waits for it)",
    "rollback_approved": "rollback, digest, by, alone",
    "rollback_refused": "rollback, by, expired",
    "rolled_back": "rollback, record, fork{timeline, step, record}, data[{repository, branch, commit}], checkpoint_dir",
    "branch_moved": "rollback, digest, moves[{repository, branch, from, commit, made}]",
    "held": "until or null",
    "released_hold": "",
    "quarantined": "",
    "pruned": "items[{record, reasons[], thinned}]",
    "unpruned": "",
    "ledger_recovered": "from[], entries, records, missing[]; its commit has the copies that it took in as further parents",
    "closed": "",
    "reopened": "",
    "data_lost": "items[{record, tier, node, why}]: replicas that are gone, each the last sound one of its record",
    # of a run and of the site: on the site what is called so from now on, on a run whose replicas follow
    "tier_renamed": "tier, to; on the site id, node (null: shared); on a run node, items[{record}]",
    "node_renamed": "node, to; on a run items[{record}]",
    # of the site
    "tier_registered": "tier, id, class, tier_kind, domain",
    "tier_retired": "tier, id",
    "node_seen": "node",
    "node_retired": "node",
    "branch_observed": "repository, branch, commit (null: gone), previous, observed_at, last_looked_at",
    "data_quarantined": "repository, commit",
    "pinned": "repository, commit, pin (branch name), nonce, run",
    "unpinning": "repository, commit, pin",
    "unpinned": "repository, commit, pin",
    "alias_set": "alias, run, record",
}


class Means(StrEnum):
    """What a reader that does not know an entry's kind must stop doing. Saving is always allowed."""

    IGNORE = "ignore"
    NO_DELETE = "no_delete"
    READ_ONLY = "read_only"


class Clock(StrEnum):
    """How far `recorded_at` can be trusted. simulated: a demo's or test's own time.

    In an entry, what its writer knew: suspect where its clock was off another's. `model.clocks` judges by the neighbours.
    """

    OK = "ok"
    SUSPECT = "suspect"
    SIMULATED = "simulated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """An entry before the ledger gave it a sequence. `record` is named by id; `contents` travels beside it.

    joins: revisions of other copies of the ledger, taken before, whose entries the branch has by now: they become part of
    its history, and a copy that ends in them is one that was caught up with.
    """

    kind: str
    timeline: int = 0
    body: Mapping[str, JSON] = field(default_factory=dict)
    record: str | None = None
    contents: Contents | None = None
    saved_at: datetime | None = None
    reason: str | None = None
    unknown_means: Means | str = Means.NO_DELETE
    joins: tuple[str, ...] = ()
    extra: Mapping[str, JSON] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What an entry's commit carries beside entry.json. `objects`: file digest -> object name in a DVC tier."""

    record: Record | None = None
    manifest: Manifest | None = None
    objects: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One fact. `sequence` is the order within its branch, from 1, without gaps; instants are never the order."""

    branch: str
    sequence: int
    kind: str
    timeline: int
    recorded_at: datetime
    node: str
    actor: str
    request: str
    body: Mapping[str, JSON] = field(default_factory=dict)
    record: str | None = None
    record_digest: str | None = None
    saved_at: datetime | None = None
    reason: str | None = None
    clock: str = Clock.OK
    unknown_means: str = Means.NO_DELETE
    extra: Mapping[str, JSON] = field(default_factory=dict)

    @property
    def known(self) -> bool:
        return self.kind in KINDS

    @property
    def replayed(self) -> bool:
        """Whether it was appended again from another copy: its time is past, and its place in the sequence tells none."""
        return self.extra.get(_REPLAYED) is True

    def as_json(self) -> dict[str, JSON]:
        value: dict[str, JSON] = {
            "format": FORMAT,
            "branch": self.branch,
            "sequence": self.sequence,
            "kind": self.kind,
            "timeline": self.timeline,
            "recorded_at": to_text(self.recorded_at),
            "saved_at": None if self.saved_at is None else to_text(self.saved_at),
            "node": self.node,
            "actor": self.actor,
            "reason": self.reason,
            "request": self.request,
            "clock": str(self.clock),
            "unknown_means": str(self.unknown_means),
            "record": self.record,
            "record_digest": self.record_digest,
            "body": dict(self.body),
        }
        return value | dict(self.extra)

    @classmethod
    def from_json(cls, value: JSON) -> Self:
        """Raises Corrupt for anything that is not an entry. Unknown kinds and fields are kept as they are."""
        try:
            read = Fields(value, "an entry")
            read.format(FORMAT)
            return cls(
                branch=read.text("branch"),
                sequence=read.integer("sequence", least=1),
                kind=read.text("kind"),
                timeline=read.size("timeline", default=0),
                recorded_at=read.instant("recorded_at"),
                saved_at=read.optional_instant("saved_at"),
                node=read.text("node"),
                actor=read.text("actor"),
                reason=read.optional_text("reason"),
                request=read.text("request"),
                clock=read.text("clock", default=Clock.OK.value),
                unknown_means=read.text("unknown_means", default=Means.NO_DELETE.value),
                record=read.optional_digest("record"),
                record_digest=read.optional_digest("record_digest"),
                body=read.mapping("body"),
                extra=read.rest(),
            )
        except ValueError as error:
            raise Corrupt(f"an entry of the ledger can't be read: {error}", advice="Run `lakemark verify`.") from error


def parsed(entry: bytes, record: bytes | None) -> tuple[Entry, Contents]:
    """What entry.json and, where the kind has one, record.json hold. Raises Corrupt."""
    try:
        return (
            Entry.from_json(parse(entry)),
            Contents(record=None if record is None else Record.from_json(parse(record))),
        )
    except ValueError as error:
        raise Corrupt(f"an entry of the ledger can't be read: {error}", advice="Run `lakemark verify`.") from error


def settled(draft: Draft, *, branch: str, sequence: int, stamp: Stamp) -> Entry:
    """`draft` as the entry it becomes on `branch`."""
    carried = draft.contents.record if draft.contents else None
    return Entry(
        branch=branch,
        sequence=sequence,
        kind=draft.kind,
        timeline=draft.timeline,
        recorded_at=stamp.at,
        saved_at=draft.saved_at,
        node=stamp.node,
        actor=stamp.actor,
        reason=draft.reason,
        request=stamp.request,
        clock=stamp.clock,
        unknown_means=draft.unknown_means,
        record=draft.record or (carried.id if carried else None),
        record_digest=digest(carried.as_json()) if carried else None,
        body=draft.body,
        extra=dict(draft.extra) | ({_REPLAYED: True} if stamp.replayed else {}),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """Who appends, where and when. `request` is the idempotency key: the same one again is the same entry.

    replayed: an entry of another copy of this ledger, appended again; that its time is past proves nothing of a clock.
    """

    at: datetime
    node: str
    actor: str
    request: str
    clock: str = Clock.OK
    replayed: bool = False
