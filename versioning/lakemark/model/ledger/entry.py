"""An entry of the ledger: one fact, appended once, never changed. `lakemark.entry/1`.

    {"format": "lakemark.entry/1", "sequence": 7, "kind": "replicated", "timeline": 1, "recorded_at": "…Z",
     "node": "node-a", "actor": "ana@node-a", "reason": null, "request": "replicate:<id>:warm", "clock": "ok",
     "record": "<64 hex>", "record_digest": null, "body": {"tier": "warm", …}}

What `body` holds for each kind is said in `model.entries`. A commit of the ledger carries the entry as `entry.json`, and beside
it, where the kind has them, `record.json`, `manifest.json` and `objects.json`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final, Self, TypeAlias

from lakemark.errors import Corrupt
from lakemark.model.checkpoints.manifest import Manifest
from lakemark.model.checkpoints.record import Record
from lakemark.model.values.canonical import JSON, parse
from lakemark.model.values.codec import LEFT_OUT, Coded, Digest, Number, Size, read

FORMAT: Final = "lakemark.entry/1"
SITE: Final = "site"
LEVEL: Final = 1
"""Of features: raised with each kind that nodes of before must not pass over. A node tells its own in `node_seen`."""
REPLAYED: Final = "replayed"
"""Among `extra`: the entry was appended again from another copy."""
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


class Clock(StrEnum):
    """How far `recorded_at` can be trusted. simulated: a demo's or test's own time.

    In an entry, what its writer knew: suspect where its clock was off another's. `model.clocks` judges by the neighbours.
    """

    OK = "ok"
    SUSPECT = "suspect"
    SIMULATED = "simulated"


def _short(text: str) -> str:
    if not 0 < len(text) <= _SIGNED_MOST:
        raise ValueError(f"it has {len(text)} characters, not 1 to {_SIGNED_MOST}")
    return text


Signed: TypeAlias = Annotated[str, _short]


@dataclass(frozen=True, slots=True, kw_only=True)
class Signer(Coded, what="a signer"):
    """Who signed what an entry decides. Declared by whoever wrote the entry, until the signature was checked.

    name: as `allowed_signers` has it. key: its SHA256 fingerprint. signed: the text under the signature, such as a plan's
    digest. signature: as `ssh-keygen -Y sign` writes it. Each is of 1 to 16,384 characters.
    Fields of newer versions are not kept: what was signed is in `signed`.
    """

    name: Signed
    key: Signed
    signed: Signed
    signature: Signed


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """An entry before the ledger gave it a sequence. `record` is named by id; `contents` travels beside it.

    unknown_means: None is what `entries.table` says of its kind, NO_DELETE of one that this version does not know.
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
class Entry(Coded, what="an entry", document=FORMAT):
    """One fact. `sequence` is the order within its branch, from 1, without gaps; instants are never the order."""

    branch: str
    sequence: Number
    kind: str
    timeline: Size = 0
    recorded_at: datetime
    saved_at: datetime | None = None
    node: str
    actor: str
    reason: str | None = None
    request: str
    clock: str = Clock.OK
    unknown_means: str = Means.NO_DELETE
    record: Digest | None = None
    record_digest: Digest | None = None
    body: Mapping[str, JSON] = field(default_factory=dict)
    # Not null where there is none: few entries are signed.
    signer: Signer | None = field(default=None, metadata=LEFT_OUT)
    extra: Mapping[str, JSON] = field(default_factory=dict)

    @property
    def replayed(self) -> bool:
        """Whether it was appended again from another copy: its time is past, and its place in the sequence tells none."""
        return self.extra.get(REPLAYED) is True

    @classmethod
    def from_json(cls, value: JSON) -> Self:
        """Raises Corrupt for anything that is not an entry. Unknown kinds and fields are kept as they are."""
        try:
            return read(cls, value)
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
