"""A shared tier in memory: objects by digest, shared between checkpoints, and a marker for each checkpoint."""

from __future__ import annotations

import io
import secrets
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from threading import RLock
from typing import BinaryIO

from lakemark.adapters.disk.digests import STEP_BYTES, VerifiedStream
from lakemark.errors import Corrupt, NotFound, Refused, StoreUnavailable, TargetDamaged
from lakemark.model.checkpoints.manifest import File, Manifest
from lakemark.model.ledger.run import Place
from lakemark.ports import Checkpoint, Damage, Expiry, Identity, Listing, Progress, Source, Stored, TierUsage


@dataclass(slots=True)
class MemoryShelf:
    """What a shared tier holds: its disk or bucket. Any number of `MemoryStore`s may look at one.

    objects: file digest -> bytes. markers: record id -> its checkpoint. condemned: digest -> since when nothing used it.
    reachable: False while the tier is away. foreign: there are files here that no tier made. ledger: its copy. rule: by which
    the place removes things itself. time: by its own clock.
    """

    objects: dict[str, bytes] = field(default_factory=dict)
    markers: dict[str, Checkpoint] = field(default_factory=dict)
    condemned: dict[str, datetime] = field(default_factory=dict)
    identity: Identity | None = None
    foreign: bool = False
    reachable: bool = True
    listing_complete: bool = True
    ledger: dict[str | None, bytes] = field(default_factory=dict)
    rule: str | None = None
    rules_hidden: bool = False
    time: datetime | None = None
    lock: RLock = field(default_factory=RLock)


class MemoryStore:
    """`ports.CheckpointStore` over a shelf, without a limit."""

    def __init__(
        self,
        shelf: MemoryShelf,
        *,
        name: str,
        tier_class: str,
        domain: str | None = None,
        kind: str = "directory",
    ) -> None:
        self.shelf = shelf
        self.name = name
        self.tier_class = tier_class
        self.kind = kind
        self.domain = domain or name

    @property
    def place(self) -> Place:
        return Place(tier=self.name)

    def identity(self) -> Identity | None:
        with self._reached() as shelf:
            return shelf.identity

    def claim(self, ledger: str, *, now: datetime) -> Identity:
        with self._reached() as shelf:
            shelf.identity = claimed(
                shelf.identity,
                Identity(id=secrets.token_hex(16), tier_class=self.tier_class, ledger=ledger, created_at=now),
                name=self.name,
                empty=not (shelf.objects or shelf.markers or shelf.foreign),
            )
            return shelf.identity

    def holds(self, record: str) -> bool:
        with self._reached() as shelf:
            return record in shelf.markers

    def put(self, checkpoint: Checkpoint, source: Source, *, now: datetime, progress: Progress) -> Stored:
        manifest = checkpoint.manifest
        written = 0
        with self._reached() as shelf:
            if shelf.identity is None:
                raise Refused(f"the place of {self.name} is no tier yet", advice="lakemark tier init " + self.name)
            there = checkpoint.record.id in shelf.markers
        progress.expect("put", manifest.size_bytes)
        for file in manifest.regular:
            with self._reached() as shelf:
                digest = str(file.digest)
                lies = digest not in shelf.condemned and sound(shelf.objects.get(digest), file, manifest)
                if not (lies and there):
                    data = taken(source, file, manifest)
                    shelf.condemned.pop(digest, None)
                    shelf.objects[digest] = data
                    written += 0 if lies else len(data)
            progress.advance(file.size_bytes)
        with self._reached() as shelf:
            damages = self._damages(manifest)
            if damages:
                raise TargetDamaged(
                    f"{self.name}: {damages[0].path} {damages[0].why} after it was written", advice="Verify it."
                )
            shelf.markers[checkpoint.record.id] = checkpoint
        objects = {str(file.digest): f"objects/{file.digest}" for file in manifest.regular}
        return Stored(
            verified_at=now,
            proof="read_back",
            written_bytes=written,
            objects=objects | {"dir": f"markers/{checkpoint.record.id}"},
        )

    def open(
        self, checkpoint: Checkpoint, file: File, *, start: int = 0, length: int | None = None
    ) -> AbstractContextManager[BinaryIO]:
        with self._reached() as shelf:
            data = shelf.objects.get(str(file.digest))
            if data is None or not (checkpoint.released or checkpoint.record.id in shelf.markers):
                raise NotFound(
                    f"{self.name} does not hold {file.path!r} of {checkpoint.record.id[:12]}",
                    advice="`lakemark show` says which replicas there are.",
                )
            return io.BytesIO(data[start:] if length is None else data[start : start + length])

    def verify(self, checkpoint: Checkpoint, *, progress: Progress) -> tuple[Damage, ...]:
        with self._reached() as shelf:
            if checkpoint.record.id not in shelf.markers:
                return all_missing(checkpoint.manifest)
            progress.advance(checkpoint.manifest.size_bytes)
            return self._damages(checkpoint.manifest)

    def drop(self, checkpoint: Checkpoint, *, now: datetime) -> int:
        with self._reached() as shelf:
            held = shelf.markers.pop(checkpoint.record.id, None)
            if held is None:
                return 0
            used = self._used(())
            condemned = {str(file.digest) for file in held.manifest.regular} - used
            for digest in condemned & shelf.objects.keys():
                shelf.condemned.setdefault(digest, now)
            return sum(len(shelf.objects[digest]) for digest in condemned & shelf.objects.keys())

    def due(self, *, now: datetime, grace: timedelta) -> bool:
        with self._reached() as shelf:
            return any(now - since >= grace for since in shelf.condemned.values())

    def claimed(self) -> Listing:
        return self.records()

    def collect(self, *, now: datetime, grace: timedelta, needed: Iterable[Checkpoint]) -> int:
        with self._reached() as shelf:
            if not shelf.listing_complete:
                return 0
            used = self._used(needed)
            freed = 0
            for digest, since in list(shelf.condemned.items()):
                if digest in used:
                    del shelf.condemned[digest]
                elif now - since >= grace:
                    del shelf.condemned[digest]
                    freed += len(shelf.objects.pop(digest, b""))
            return freed

    def strangers(self) -> tuple[str, ...]:
        return ()

    def records(self) -> Listing:
        with self._reached() as shelf:
            complete = shelf.listing_complete and shelf.identity is not None
            return Listing(records=tuple(sorted(shelf.markers)), complete=complete)

    def load(self, record: str) -> Checkpoint:
        """What the tier itself keeps of a record. Raises NotFound."""
        with self._reached() as shelf:
            found = shelf.markers.get(record)
            if found is None:
                raise NotFound(f"{self.name} does not hold {record[:12]}", advice="See `lakemark ls`.")
            return found

    def free_space_bytes(self) -> int | None:
        return self.usage().free_bytes

    def usage(self) -> TierUsage:
        with self._reached() as shelf:
            used = sum(len(data) for data in shelf.objects.values())
            return TierUsage(used_bytes=used, capacity_bytes=None)

    def expires(self) -> Expiry | None:
        with self._reached() as shelf:
            if shelf.rules_hidden:
                return Expiry(rule="its rules may not be read", known=False)
            return None if shelf.rule is None else Expiry(rule=shelf.rule)

    def clock(self) -> datetime | None:
        with self._reached() as shelf:
            return shelf.time

    def keep_ledger(self, bundle: BinaryIO, *, slot: str | None = None) -> None:
        with self._reached() as shelf:
            bundle.seek(0)
            shelf.ledger[slot] = bundle.read()

    def open_ledger(self, slot: str | None = None) -> BinaryIO:
        with self._reached() as shelf:
            return kept_ledger(shelf.ledger.get(slot), name=self.name)

    def ledger_slots(self) -> tuple[str, ...]:
        with self._reached() as shelf:
            return tuple(sorted(slot for slot in shelf.ledger if slot is not None))

    def _damages(self, manifest: Manifest) -> tuple[Damage, ...]:
        return tuple(
            damage
            for file in manifest.regular
            if (damage := damage_of(self.shelf.objects.get(str(file.digest)), file, manifest)) is not None
        )

    def _used(self, needed: Iterable[Checkpoint]) -> set[str]:
        holding = [*self.shelf.markers.values(), *needed]
        return {str(file.digest) for checkpoint in holding for file in checkpoint.manifest.regular}

    @contextmanager
    def _reached(self) -> Iterator[MemoryShelf]:
        with self.shelf.lock:
            if not self.shelf.reachable:
                raise StoreUnavailable(f"the tier {self.name} does not answer", advice="Try again once it is back.")
            yield self.shelf


def claimed(found: Identity | None, fresh: Identity, *, name: str, empty: bool) -> Identity:
    """The identity a place has after `fresh.ledger` claimed it. Raises Refused."""
    if found is None:
        if not empty:
            raise Refused(f"the place of {name} is not empty, and no tier", advice="Choose an empty place.")
        return fresh
    if (found.ledger, found.tier_class) != (fresh.ledger, fresh.tier_class):
        raise Refused(
            f"the place of {name} is the {found.tier_class} tier {found.id[:8]} of the ledger {found.ledger[:8]}",
            advice="Use another place, or that ledger.",
        )
    return found


def kept_ledger(data: bytes | None, *, name: str) -> BinaryIO:
    """The copy of the ledger in the tier `name`. Raises NotFound."""
    if data is None:
        raise NotFound(f"{name} keeps no copy of the ledger", advice="`lakemark sweep` writes one.")
    return io.BytesIO(data)


def taken(source: Source, file: File, manifest: Manifest) -> bytes:
    """A file's bytes from `source`, compared with the manifest. Raises AnswerDamaged."""
    chunks: list[bytes] = []
    with source(file) as stream:
        checked = VerifiedStream(stream, file, part_size_bytes=manifest.part_size_bytes)
        while chunk := checked.read(STEP_BYTES):
            chunks.append(chunk)
    return b"".join(chunks)


def damage_of(data: bytes | None, file: File, manifest: Manifest) -> Damage | None:
    """None where `data` (None: nothing is there) is what the manifest says."""
    if data is None:
        return Damage(path=file.path, why="is missing", missing=True)
    return None if sound(data, file, manifest) else Damage(path=file.path, why="its bytes are not the manifest's")


def sound(data: bytes | None, file: File, manifest: Manifest) -> bool:
    """Whether `data` is there and has the file's digest."""
    if data is None:
        return False
    try:
        taken(lambda _: io.BytesIO(data), file, manifest)
    except Corrupt:
        return False
    return True


def all_missing(manifest: Manifest) -> tuple[Damage, ...]:
    """The damage of a checkpoint that is not there."""
    return tuple(Damage(path=file.path, why="is missing", missing=True) for file in manifest.files)
