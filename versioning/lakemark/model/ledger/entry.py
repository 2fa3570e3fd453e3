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
from lakemark.model.checkpoints.manifest import Manifest
from lakemark.model.checkpoints.record import Record
from lakemark.model.values.canonical import JSON, digest, parse
from lakemark.model.values.fields import Fields
from lakemark.model.values.instants import to_text

FORMAT: Final = "lakemark.entry/1"
SITE: Final = "site"
LEVEL: Final = 1
"""Of features: raised with each kind that nodes of before must not pass over. A node tells its own in `node_seen`."""
_REPLAYED: Final = "replayed"
# A signature of SSH has less than two thousand characters; an entry must not carry a file.
_SIGNED_MOST: Final = 2**14


# In order of strictness: `max` over their index picks the strictest.
class Means(StrEnum):
    """What a reader that does not know an entry's kind must stop doing. Saving is always allowed."""

    IGNORE = "ignore"
    NO_DELETE = "no_delete"
    READ_ONLY = "read_only"

    @classmethod
    def of(cls, text: str) -> Means:
        """What an entry says; whatever this version does not know is the strictest."""
        return cls(text) if text in set(cls) else cls.READ_ONLY


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of entry. body: its fields, `[]` a list, `{}` an object; a reader takes an absent one as null.

    unknown_means: what a version that does not know the kind, or knows it and does not act on it, must stop doing: nothing
    where the entry only tells what happened, deleting where it may say that something is needed or is no copy any more.
    """

    body: str
    unknown_means: Means = Means.NO_DELETE


def _tells(body: str) -> Kind:
    """A kind that nothing which is kept or dropped depends on."""
    return Kind(body, Means.IGNORE)


_OF_RUNS: Final[Mapping[str, Kind]] = {
    "opened": Kind(
        "data[], parent, parts, watch{node: directory}, needs_no[], at_step (from the second on: a re-pin, a new interval)"
    ),
    "attempt": Kind("attempt, job, directory, data[]"),
    "attempt_ended": _tells("attempt, cause (preempted, node, software, unknown), noticed_by (closed, resumed, idle)"),
    "part_sealed": Kind("attempt, step, ordinal, ... (reserved for checkpoints in parts)"),
    "part_replicated": Kind("attempt, step, ordinal, tier, ... (reserved)"),
    "committed": Kind(
        "attempt, supersedes, conflicts_with, tier, node, part, linked, source (where it lay), directory (watched), "
        "recovered, saved_seconds, landed_seconds, size_bytes"
    ),
    "bound": Kind(
        "data[]; its record.json is the record with that data. Without a record: what the run reads from now on, at_step"
    ),
    "metric_added": Kind("metrics{name: number}; its record.json is the record with them"),
    "replicated": Kind(
        "tier, node (null: shared), part, linked, proof, verified_at, written_bytes, replicated_seconds, size_bytes; "
        "objects.json: file digest -> object name"
    ),
    "replica_refused": _tells(
        "tier, node, part, why: the place can't hold it as it is; nobody tries again until somebody asks for it"
    ),
    "released": Kind("items[{record, tier, node, part, survivor, survivor_verified_at, why}]"),
    "verified": Kind(
        "items[{record, tier, node, part, ok, damaged[], suspect, linked (false: it shares no file any more)}], verified_at"
    ),
    "drilled": _tells(
        "items[{drill, record, node, tier, restored_seconds, ready_seconds, size_bytes, tree_digest, objects_sampled, data_ok, "
        "probe{exit, digest}, ok}]"
    ),
    "restored": _tells(
        "to, roles[] (none: all), sources[{tier, node, files}], restored_seconds, size_bytes; of a resume also attempt, "
        "resumed_seconds (with all that a resume does beside)"
    ),
    "resumed": Kind("record, attempt, job, directory, fork{timeline, step, record} or null, inferred, accepted_gaps[]"),
    "rollback_requested": Kind(
        "rollback, plan, digest, requester, expires_at, flow_run (Prefect's, if one waits for it)"
    ),
    "rollback_approved": Kind("rollback, digest, by, alone"),
    "rollback_refused": Kind("rollback, by, expired"),
    "rollback_reviewed": _tells("rollback, by: one that was approved alone was looked at by day"),
    "rolled_back": Kind(
        "rollback, record, fork{timeline, step, record}, data[{repository, branch, commit}], checkpoint_dir"
    ),
    "branch_moved": _tells("rollback, digest, moves[{repository, branch, from, commit, made}]"),
    "held": Kind("until or null"),
    "released_hold": Kind(""),
    "quarantined": Kind(
        "of the record the entry names, or of many: items[{record, relation, why}], and data{repository, commit} where it is "
        "what a data quarantine leads to"
    ),
    "quarantine_lifted": Kind("the same; of many, only what that data quarantine had led to"),
    "pruned": Kind(
        "plan, policy (digests; null: thinned), freed_bytes{tier}, "
        "items[{record, reasons[], thinned, unexpected, frees_bytes{tier}}]"
    ),
    "unpruned": Kind(""),
    "prune_requested": _tells("prune, plan, digest, requester, expires_at, flow_run"),
    "prune_approved": _tells("prune, digest, by, alone"),
    "prune_refused": _tells("prune, by, expired"),
    "closed": Kind(""),
    "reopened": Kind(""),
    "data_lost": Kind(
        "items[{record, tier, node, part, why}]: replicas that are gone, each the last sound one of its record"
    ),
}
_OF_THE_SITE: Final[Mapping[str, Kind]] = {
    "founded": Kind("id (of the ledger, for good: what a tier's identity file names as its owner), site (its name)"),
    "tier_registered": Kind("tier, id, class, tier_kind, domain"),
    "tier_retired": Kind("tier, id"),
    "tier_moved": Kind("tier, id, node: its place is another; nothing there counts until it was read again"),
    "node_seen": _tells("node, version, level, address: only when one of them is another than before"),
    "node_retired": Kind("node"),
    "branch_observed": _tells("repository, branch, commit (null: gone), previous, observed_at, last_looked_at"),
    "data_quarantined": Kind("repository, commit"),
    "data_quarantine_lifted": Kind("repository, commit"),
    "pinned": Kind("repository, commit, pin (branch name), nonce, run"),
    "unpinning": Kind("repository, commit, pin"),
    "unpinned": Kind("repository, commit, pin"),
    "alias_set": Kind("alias, run, record (null: taken away)"),
    "policy_set": Kind(
        "policy (sha256 of the text, 64 hex), text: what retention keeps from now on, as canonical JSON"
    ),
    "muted": _tells("problem (the id that `status` shows), until"),
}
_OF_BOTH: Final[Mapping[str, Kind]] = {
    "tier_renamed": Kind(
        "tier, to, node (null: shared); on the site what it is called from now on, id; on a run whose replicas follow, "
        "items[{record}]"
    ),
    "node_renamed": Kind("node, to; on a run items[{record}]"),
    "ledger_recovered": _tells(
        "from[], entries, records, missing[]; its commit has the copies that it took in as further parents"
    ),
}
KINDS: Final[Mapping[str, Kind]] = {**_OF_RUNS, **_OF_THE_SITE, **_OF_BOTH}
"""Every kind that this version knows. What takes time says so in `<work>_seconds`, see `model.measures`."""


def branch_of(kind: str) -> str:
    """`run`, `site` or `both`: where entries of a known kind are."""
    return "run" if kind in _OF_RUNS else "site" if kind in _OF_THE_SITE else "both"


class Clock(StrEnum):
    """How far `recorded_at` can be trusted. simulated: a demo's or test's own time.

    In an entry, what its writer knew: suspect where its clock was off another's. `model.clocks` judges by the neighbours.
    """

    OK = "ok"
    SUSPECT = "suspect"
    SIMULATED = "simulated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signer:
    """Who signed what an entry decides. Declared by whoever wrote the entry, until the signature was checked.

    name: as `allowed_signers` has it. key: its SHA256 fingerprint. signed: the text under the signature, such as a plan's
    digest. signature: as `ssh-keygen -Y sign` writes it. Each is of 1 to 16,384 characters.
    """

    name: str
    key: str
    signed: str
    signature: str

    def as_json(self) -> dict[str, JSON]:
        return {"name": self.name, "key": self.key, "signed": self.signed, "signature": self.signature}

    @classmethod
    def from_json(cls, value: JSON) -> Self:
        """Raises ValueError. Fields of newer versions are not kept: what was signed is in `signed`."""
        read = Fields(value, "a signer")
        texts = {name: read.text(name) for name in ("name", "key", "signed", "signature")}
        wrong = next((name for name, text in texts.items() if not 0 < len(text) <= _SIGNED_MOST), None)
        if wrong is not None:
            raise ValueError(f"a signer: {wrong} has {len(texts[wrong])} characters, not 1 to {_SIGNED_MOST}")
        return cls(**texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """An entry before the ledger gave it a sequence. `record` is named by id; `contents` travels beside it.

    unknown_means: None is what `KINDS` says of its kind, NO_DELETE of one that this version does not know.
    joins: revisions of other copies of the ledger, taken before, whose entries the branch has by now: they become part of
    its history, and a copy that ends in them is one that was caught up with.
    """

    kind: str
    timeline: int = 0
    body: Mapping[str, JSON] = field(default_factory=dict)
    record: str | None = None
    contents: Attachments | None = None
    saved_at: datetime | None = None
    reason: str | None = None
    unknown_means: Means | str | None = None
    signer: Signer | None = None
    joins: tuple[str, ...] = ()
    extra: Mapping[str, JSON] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachments:
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
    signer: Signer | None = None
    extra: Mapping[str, JSON] = field(default_factory=dict)

    @property
    def known(self) -> bool:
        return self.kind in KINDS

    @property
    def means(self) -> Means:
        """What is to be stopped where this version does not act on it: the stricter of what it and the kind's table say."""
        said, kind = Means.of(self.unknown_means), KINDS.get(self.kind)
        return said if kind is None else max(said, kind.unknown_means, key=list(Means).index)

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
        if self.signer is not None:  # not null where there is none: few entries are signed
            value["signer"] = self.signer.as_json()
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
                signer=Signer.from_json(signer) if (signer := read.optional_mapping("signer")) else None,
                extra=read.rest(),
            )
        except ValueError as error:
            raise Corrupt(f"an entry of the ledger can't be read: {error}", advice="Run `lakemark verify`.") from error


def parsed(entry: bytes, record: bytes | None) -> tuple[Entry, Attachments]:
    """What entry.json and, where the kind has one, record.json hold. Raises Corrupt."""
    try:
        return (
            Entry.from_json(parse(entry)),
            Attachments(record=None if record is None else Record.from_json(parse(record))),
        )
    except ValueError as error:
        raise Corrupt(f"an entry of the ledger can't be read: {error}", advice="Run `lakemark verify`.") from error


def settled(draft: Draft, *, branch: str, sequence: int, stamp: Stamp) -> Entry:
    """`draft` as the entry it becomes on `branch`."""
    # The record travels beside the entry; the entry names it by id and by the digest of all its fields.
    carried = draft.contents.record if draft.contents else None
    known = KINDS.get(draft.kind)
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
        # Written into the entry itself: a version that does not know the kind has no table to look it up in.
        unknown_means=draft.unknown_means or (known.unknown_means if known else Means.NO_DELETE),
        signer=draft.signer,
        # An entry may carry a record's new form, `bound` does, or only name it.
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
