"""Tiers: places that hold whole checkpoints. What a tier is asked for is cut by who asks; one adapter meets it all.

A place has one identity, one lock and one memory of its claims, so it stays one object; whoever works with it takes the
narrowest port that does, and a fake of that is a few methods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import BinaryIO, Protocol, TypeAlias

from lakemark.model.checkpoints.manifest import File, Manifest
from lakemark.model.checkpoints.record import Record
from lakemark.model.ledger.run import Place
from lakemark.model.values.canonical import JSON
from lakemark.ports.work import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A record with its manifest: what a store needs to know of the bytes it holds. `objects` as `Ledger.objects`.

    entry: what the entry that commits it says besides, as hot keeps it; empty where it was not told.
    released: its replica in the store was let go: `open` reads what of its `objects` was not collected yet.
    """

    record: Record
    manifest: Manifest
    objects: Mapping[str, str] = field(default_factory=dict)
    entry: Mapping[str, JSON] = field(default_factory=dict)
    released: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What a tier's `lakemark-tier.json` says: which tier this is, and which ledger owns it."""

    id: str
    tier_class: str
    ledger: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A put that was proven. `objects`: file digest -> object name and `dir` (DVC tiers), else empty."""

    verified_at: datetime
    proof: str
    written_bytes: int
    linked: bool = False
    objects: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A path whose bytes are not those of the manifest, or could not be read. `missing`: it is not there at all.

    suspect: it is a linked file that changed under another name; what it holds now is not ours. unread: the store gave no
    bytes of it, though it answers else: that blames nobody, however often it is seen.
    """

    path: str
    why: str
    missing: bool = False
    suspect: bool = False
    unread: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Record ids a tier holds whole. `complete`: the listing reached its end; where not, it proves nothing."""

    records: tuple[str, ...]
    complete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TierUsage:
    """Bytes; None where the store can't tell. `file_system_free_share` in [0, 1]."""

    used_bytes: int | None
    capacity_bytes: int | None
    free_bytes: int | None = None
    file_system_free_share: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry:
    """That a place removes what lies there after some time. rule: the store's name for it.

    known: False where the store does not let its rules be read; then `rule` says why, and it may do so or not.
    """

    rule: str
    known: bool = True


Source: TypeAlias = Callable[[File], AbstractContextManager[BinaryIO]]
"""Opens one regular file of a checkpoint for reading from its start."""


class Named(Protocol):
    """What every port of a tier is called by, in messages and in the ledger."""

    @property
    def name(self) -> str: ...

    @property
    def place(self) -> Place:
        """What the ledger calls this store: its name, and the node where it is a node's own."""


class TierPlace(Named, Protocol):
    """A tier as a place. Guarantees, each a check of `contract.store`.

    - A place with another identity, or a non-empty one without any, is Refused and stays as it is.
    - Nothing depends on a clock of the store; `clock` only says what it is.
    - What lies there stays until somebody drops or collects it, unless `expires` says otherwise.

    Raises: StoreUnavailable (try again later), Denied, Refused (identity), Corrupt. So do the other ports of a tier.
    """

    @property
    def tier_class(self) -> str:
        """hot, warm or cold."""

    @property
    def kind(self) -> str:
        """tree, directory or s3."""

    @property
    def domain(self) -> str:
        """Failure domain: two replicas in one domain count as one."""

    def identity(self) -> Identity | None:
        """None where there is no identity file: never claimed, not mounted, or another disk."""

    def claim(self, ledger: str, *, now: datetime) -> Identity:
        """Makes this place a tier of `ledger`, or answers the identity it already has. Refused for another owner's."""

    def usage(self) -> TierUsage: ...

    def free_space_bytes(self) -> int | None:
        """Of the file system behind it, without listing anything there; None where there is none, or it is not told."""

    def expires(self) -> Expiry | None:
        """By what the place itself may remove what lies there after some time; None where it is sure that it does not."""

    def clock(self) -> datetime | None:
        """The store's own time as it answers; None where it has no clock but this machine's."""


class Replicas(Named, Protocol):
    """A tier's replicas. Guarantees, each a check of `contract.store`.

    - `put` that returned is durable, whole, and was read back and compared with the manifest. Readers never see a part of
      a checkpoint: contents first, marker last. Putting what is there already verifies it and writes nothing.
    - Bytes handed in that are not the manifest's raise AnswerDamaged and leave the checkpoint absent: whoever gave them reads
      his side again before he blames it. What the source raises passes through as it is. Whatever is wrong with this place
      itself is TargetDamaged: it read back otherwise, or could not be made durable; no source had part in it.
    - Other bytes under a name that ours would have here are never replaced: NameTaken, and the checkpoint stays absent.
    - What a place keeps beside the bytes (a claim, a marker) may be gone, garbled or another's: `put` writes it anew, `verify`
      names it, `open` does without it where the ledger's `objects` say enough.
    - `open` gives the stored bytes, in any number of readers at once; it does not verify.
    - `verify` reads every byte of every file of the manifest, and names every damaged path. It is one reading: nobody is
      blamed for what only one of them says. Only ctime changed is not damage.
    - `drop` makes the checkpoint absent before its first byte goes (marker first), leaves others that share objects whole,
      and is a no-op where there is nothing. Shared objects go only through `Garbage.collect`, after the grace; until then
      `open` still gives them for a checkpoint that says `released`.

    Raises: NotFound (`open` of what is absent), Refused (full), too.
    """

    def holds(self, record: str) -> bool:
        """Whether the marker of the checkpoint of that record id is there. Proves nothing about its bytes."""

    def put(self, checkpoint: Checkpoint, source: Source, *, now: datetime, progress: Progress) -> Stored:
        """Copies the checkpoint here from `source`, verified. May go on where an interrupted put stopped."""

    def open(
        self, checkpoint: Checkpoint, file: File, *, start: int = 0, length: int | None = None
    ) -> AbstractContextManager[BinaryIO]:
        """From the byte `start` on; with `length` the reader takes no more than that, which may be all that is there."""

    def verify(self, checkpoint: Checkpoint, *, progress: Progress) -> tuple[Damage, ...]: ...

    def drop(self, checkpoint: Checkpoint, *, now: datetime) -> int:
        """Bytes freed at once, or left to `collect`; those that others use too may be among them."""

    def claimed(self) -> Listing:
        """All that the place keeps a record of, whole or not; of a place without identity nothing. Reads a listing only."""

    def records(self) -> Listing:
        """Of them those that are whole as far as the place itself can tell without reading their bytes."""

    def load(self, record: str) -> Checkpoint:
        """What the place's own record of a checkpoint says of an id that `claimed` lists: enough to put it back into a ledger.

        Raises NotFound; Corrupt where it can't be read or is another's.
        """


class Garbage(Named, Protocol):
    """What is left in a tier that nothing uses. Guarantees, each a check of `contract.store`.

    `collect` may be stopped between any two of its steps for any time and go on: what was put since, stays. So a removal is
    sent only within 40 seconds after it was announced, by clocks looked at last, with the announcement standing; and
    `Replicas.put` waits up to a minute for removals of what it needs that were announced before it claimed it.
    """

    def due(self, *, now: datetime, grace: timedelta) -> bool:
        """Whether `collect` would remove something that was condemned; cheap, as it is asked again and again."""

    def collect(self, *, now: datetime, grace: timedelta, needed: Iterable[Checkpoint]) -> int:
        """Removes what was dropped or condemned longer than `grace` ago and nothing in `needed` or of the tier's own uses.

        What nothing uses and nobody condemned is condemned. Reads all of the tier's listings, and of its records those that
        came since the last time. `needed` is drawn from once. Answers the bytes freed. Deletes nothing where the tier's own
        listing did not end complete.
        """

    def strangers(self) -> tuple[str, ...]:
        """Names where only the tier's own lie that are of no form of its own. They are passed over, and never removed."""


class LedgerCopy(Named, Protocol):
    """The copies of the ledger that a tier keeps. `open_ledger` gives what `keep_ledger` was handed last."""

    def keep_ledger(self, bundle: BinaryIO, *, slot: str | None = None) -> None:
        """Replaces the copy of the ledger that the tier keeps by all that is in `bundle`, which can be sought in.

        slot: a name of lower-case letters, under which another copy is kept beside it. The caller proves first that what it
        replaces is part of `bundle`: a store can't tell.
        """

    def open_ledger(self, slot: str | None = None) -> AbstractContextManager[BinaryIO]:
        """That copy. Raises NotFound where the place's own listing says, too, that there is none."""

    def ledger_slots(self) -> tuple[str, ...]:
        """Names under which copies of the ledger are kept beside the newest one. Raises StoreUnavailable, not a short answer."""


class CheckpointStore(TierPlace, Replicas, Garbage, LedgerCopy, Protocol):
    """One whole tier, as its adapter meets it and `Site.tiers` has it."""
