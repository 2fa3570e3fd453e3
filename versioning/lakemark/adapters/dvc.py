"""Warm and cold tiers: DVC's object layout over a store of blobs, so that `git clone` and `dvc pull` need none of our code.

DVC's own code is not used: it neither fsyncs nor verifies. See `dvc_layout` for the names.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import BinaryIO

from lakemark.adapters import dvc_layout as layout
from lakemark.adapters import tier_file
from lakemark.adapters.blobs import Blobs
from lakemark.adapters.digests import Verified, drain
from lakemark.adapters.dvc_claims import WORKERS, Claims, Remembered
from lakemark.adapters.dvc_collect import Collector, is_going, oldest
from lakemark.adapters.dvc_going import Going, Patience
from lakemark.adapters.dvc_layout import Claim
from lakemark.adapters.dvc_read import MISSING, ObjectReader
from lakemark.adapters.dvc_room import Room
from lakemark.adapters.pool import Buffers, run_all
from lakemark.errors import Corrupt, NotFound, StoreUnavailable, quoted
from lakemark.model.checkpoint import File
from lakemark.model.ledger import Place
from lakemark.ports.store import Checkpoint, Damage, Identity, Listing, Source, Stored, Usage
from lakemark.ports.work import Progress, Quiet


class DvcStore:
    """Implements `ports.CheckpointStore` for tiers of class warm or cold.

    domain: a domain of its own where None. shared: the place holds others' objects too: it is identified, never deleted from.
    capacity_bytes: what its objects may take up in all; more is NoRoom.
    """

    def __init__(
        self,
        blobs: Blobs,
        *,
        name: str,
        tier_class: str,
        domain: str | None = None,
        shared: bool = False,
        capacity_bytes: int | None = None,
        patience: Patience | None = None,
    ) -> None:
        self.blobs = blobs
        self.name = name
        self.tier_class = tier_class
        self.kind = blobs.kind
        self.domain = domain or name
        self.place = Place(tier=name)
        self._shared = shared
        self._capacity = capacity_bytes
        self._room = Room(blobs, capacity_bytes, name=name)
        self._first: Identity | None = None
        self._claims = Claims(blobs)
        self._going = Going(blobs, patience or Patience())
        self._objects = Remembered()
        self._oldest: datetime | None = None

    # Identity

    def identity(self) -> Identity | None:
        data = self.blobs.get(tier_file.NAME)
        return None if data is None else tier_file.from_bytes(data, where=self.blobs.where)

    def claim(self, ledger: str, *, now: datetime) -> Identity:
        self.blobs.prepare()
        found = self.identity()
        if found is None:
            strangers = {} if self._shared else self.blobs.list("", limit=1).sizes
            for key in strangers:
                raise tier_file.refuse_foreign(self.blobs.where, found=key)
            new = tier_file.new_identity(self.tier_class, ledger, now=now)
            self.blobs.create(tier_file.NAME, tier_file.to_bytes(new))
            found = self.identity() or new
        tier_file.require_owner(found, ledger, tier_class=self.tier_class, where=self.blobs.where)
        self._first = found
        return found

    # Copies

    def holds(self, checkpoint: Checkpoint) -> bool:
        objects = self._claimed(checkpoint.record.id)
        keys = () if objects is None else (layout.claim_key(checkpoint.record.id), layout.object_key(objects["dir"]))
        return bool(keys) and all(self.blobs.size(key) is not None for key in keys)

    def put(self, checkpoint: Checkpoint, source: Source, *, now: datetime, progress: Progress) -> Stored:
        self._first = tier_file.require_same(self.identity(), self._first, where=self.blobs.where)
        objects = (self._claimed(checkpoint.record.id) or {}) if self.holds(checkpoint) else {}
        written: Mapping[str, File] = {}
        if not objects or self._marks(objects.values()) or self.verify(checkpoint, progress=progress):
            objects, written = self._put(checkpoint, source, now=now, progress=progress)
        self._require_claimed(checkpoint.record.id, objects)
        return Stored(
            verified_at=now,
            proof="read_back",
            written_bytes=sum(file.size_bytes for file in written.values()),
            objects=objects,
        )

    def open(self, checkpoint: Checkpoint, file: File, *, start: int = 0, length: int | None = None) -> BinaryIO:
        objects = self._claimed(checkpoint.record.id) or self._unclaimed(checkpoint) or {}
        name = objects.get(str(file.digest)) if self._has_dir(objects) else None
        if name is None:
            raise NotFound(
                f"{self.name} does not hold {quoted(file.path)} of {checkpoint.record.id[:12]}",
                advice="`lakemark show` says which replicas there are.",
            )
        return self.blobs.open(layout.object_key(name), start=start, length=length)

    def verify(self, checkpoint: Checkpoint, *, progress: Progress) -> tuple[Damage, ...]:
        claimed = self._claimed(checkpoint.record.id, fresh=True)
        objects = claimed or checkpoint.objects
        if "dir" not in objects:
            return tuple(Damage(path=file.path, why="is missing", missing=True) for file in checkpoint.manifest.files)
        damage = list(self._dir_damage(checkpoint, objects))
        if claimed is None:
            key = layout.claim_key(checkpoint.record.id)
            damage.append(Damage(path=key, why="the tier's own record is missing", missing=True))
        files = layout.distinct(checkpoint, objects)
        bad = self._bad(files, checkpoint.manifest.part_size_bytes, progress)
        for file in checkpoint.manifest.regular:
            why = bad.get(objects[str(file.digest)])
            if why is not None:
                damage.append(Damage(path=file.path, why=why, missing=why == MISSING))
        return tuple(damage)

    # Removal and listing

    def drop(self, checkpoint: Checkpoint, *, now: datetime) -> int:
        """Notes its objects and forgets its claim. Who else uses them is looked at by `collect`, for all drops at once."""
        self._first = tier_file.require_same(self.identity(), self._first, where=self.blobs.where)
        record = checkpoint.record.id
        objects = self._claimed(record, fresh=True) or self._unclaimed(checkpoint)
        self._objects.put(record, None)
        if objects is None:
            return 0
        if not self._shared:
            self.blobs.create(layout.drop_key(record, now), layout.drop_bytes(record, objects, now))
        self.blobs.delete(layout.claim_key(record))
        return 0 if self._shared else sum(file.size_bytes for file in layout.distinct(checkpoint, objects).values())

    def due(self, *, now: datetime, grace: timedelta) -> bool:
        if self._shared:
            return False
        if self._oldest is None or self._oldest <= now - grace:
            self._oldest = oldest(self.blobs, now=now)
        return self._oldest is not None and self._oldest <= now - grace

    def collect(self, *, now: datetime, grace: timedelta, needed: Iterable[Checkpoint]) -> int:
        self._first = tier_file.require_same(self.identity(), self._first, where=self.blobs.where)
        self.blobs.tidy()
        if self._shared:
            return 0
        self._oldest = None
        return Collector(self.blobs, self._claims, going=self._going).run(now=now, grace=grace, needed=needed)

    def claimed(self) -> Listing:
        if self.identity() is None:
            return Listing(records=(), complete=False)
        claims = self.blobs.list(layout.RECORDS)
        return Listing(records=tuple(layout.claimed_record(key) for key in claims.sizes), complete=claims.complete)

    def records(self) -> Listing:
        """Of records whose directory object is there."""
        claims = self.claimed()
        if not claims.complete:
            return Listing(records=(), complete=False)
        dirs = {key for key, _ in self.blobs.each(layout.OBJECTS) if key.endswith(layout.DIR)}

        def is_whole(record: str) -> tuple[str, bool]:
            return record, layout.object_key((self._claimed(record) or {}).get("dir", "")) in dirs

        seen = run_all((partial(is_whole, record) for record in claims.records), workers=WORKERS)
        return Listing(records=tuple(sorted(record for record, whole in seen if whole)), complete=True)

    def load(self, record: str) -> Checkpoint:
        """The record and manifest that the tier itself keeps: what a lost ledger is rebuilt from. Raises NotFound."""
        key = layout.claim_key(record)
        data = self.blobs.get(key)
        if data is None:
            raise NotFound(f"{self.name} does not hold {record[:12]}", advice="See `lakemark ls`.")
        return Claim.from_bytes(data, key=key).checkpoint

    def usage(self) -> Usage:
        space = self.blobs.space()
        return Usage(
            used_bytes=sum(size_bytes for _, size_bytes in self.blobs.each(layout.OBJECTS)),
            capacity_bytes=self._capacity or space.capacity_bytes,
            free_bytes=space.free_bytes,
            file_system_free_share=space.file_system_free_share,
        )

    def expires(self) -> str | None:
        return self.blobs.expiring_rule()

    def clock(self) -> datetime | None:
        return self.blobs.clock(tier_file.NAME)

    def keep_ledger(self, bundle: BinaryIO) -> None:
        self._first = tier_file.require_same(self.identity(), self._first, where=self.blobs.where)
        size_bytes = bundle.seek(0, os.SEEK_END)
        bundle.seek(0)
        self.blobs.write(layout.LEDGER, bundle, size_bytes, overwrite=True)

    def open_ledger(self) -> BinaryIO:
        return self.blobs.open(layout.LEDGER)

    # Inside

    def _put(
        self, checkpoint: Checkpoint, source: Source, *, now: datetime, progress: Progress
    ) -> tuple[Mapping[str, str], Mapping[str, File]]:
        """Object names of everything, and what was written."""
        objects = self._known(checkpoint)
        trusted = objects is not None
        if objects is None:
            objects = self._named(checkpoint, source, progress)
        self._room.require({name: file.size_bytes for name, file in layout.distinct(checkpoint, objects).items()})
        claim = Claim(
            record=checkpoint.record, manifest=checkpoint.manifest, objects=objects, claimed_at=now
        ).to_bytes()
        self.blobs.replace(layout.claim_key(checkpoint.record.id), claim)
        self._objects.put(checkpoint.record.id, objects)
        if self._wait_out([*objects.values()]):
            # What was waited for may have been the removal of this very claim, left by an earlier try.
            self.blobs.replace(layout.claim_key(checkpoint.record.id), claim)
        written = self._sink(checkpoint, objects, source, (trusted, progress))
        self._require_sound(checkpoint, written, progress)
        self._require_claimed(checkpoint.record.id, objects)  # else the directory object would be nobody's
        self._write_dir(checkpoint, objects)
        return objects, written

    def _require_claimed(self, record: str, objects: Mapping[str, str]) -> None:
        """Nothing is safe once the claim went: by a drop, or a pass that takes its writer for dead and notes the directory."""
        if self._marks([objects["dir"]]) or self.blobs.size(layout.claim_key(record)) is None:
            raise StoreUnavailable(
                f"the claim of {record[:12]} was removed from {self.name} while it was written, or is being removed",
                advice="Try again: it is claimed and read back anew.",
            )

    def _bad(
        self, files: Mapping[str, File], part_size: int, progress: Progress, *, workers: int = WORKERS
    ) -> dict[str, str]:
        """Reads objects whole; object name -> what is wrong. A store that is down raises instead."""
        reader = ObjectReader(self.blobs, part_size, still_up=self.identity, workers=workers)
        return reader.bad(files, progress)

    def _claimed(self, record: str, *, fresh: bool = False) -> Mapping[str, str] | None:
        """Object names from the tier's own record; they never change for an id, so one look lasts unless `fresh`."""
        known = None if fresh else self._objects.get(record)
        if known is None:
            key = layout.claim_key(record)
            data = self.blobs.get(key)
            known = None if data is None else Claim.from_bytes(data, key=key).objects
            self._objects.put(record, known)
        return known

    def _unclaimed(self, checkpoint: Checkpoint) -> Mapping[str, str] | None:
        """Object names of a record that nobody dropped and whose claim got lost: damage, but its bytes are there."""
        if not self._has_dir(checkpoint.objects):
            return None
        drops = self.blobs.list(layout.DROPPED).require_all(self.name)
        if any(layout.dropped_record(key) == checkpoint.record.id for key in drops):
            return None
        self._objects.put(checkpoint.record.id, checkpoint.objects)
        return checkpoint.objects

    def _has_dir(self, objects: Mapping[str, str]) -> bool:
        return "dir" in objects and self.blobs.size(layout.object_key(objects["dir"])) is not None

    def _known(self, checkpoint: Checkpoint) -> Mapping[str, str] | None:
        """Names of all objects, from the tier or the ledger; None where some are not known."""
        for objects in (self._claimed(checkpoint.record.id) or {}, checkpoint.objects):
            if "dir" in objects and all(str(file.digest) in objects for file in checkpoint.manifest.regular):
                right = layout.dir_name(layout.dir_bytes(checkpoint.manifest, objects))
                if objects["dir"] == right:
                    return objects
        return None

    def _named(self, checkpoint: Checkpoint, source: Source, progress: Progress) -> Mapping[str, str]:
        """Reads every file once for its md5, comparing it with the manifest."""
        once = {str(file.digest): file for file in checkpoint.manifest.regular}
        progress.expect("md5", sum(file.size_bytes for file in once.values()))
        buffers = Buffers(WORKERS, 2**20)
        objects: dict[str, str] = {}

        def name(file: File) -> tuple[File, str]:
            return file, _md5(checkpoint, file, source, buffers)

        for file, md5 in run_all((partial(name, file) for file in once.values()), workers=WORKERS):
            objects[str(file.digest)] = md5
            progress.advance(file.size_bytes)
        objects["dir"] = layout.dir_name(layout.dir_bytes(checkpoint.manifest, objects))
        return objects

    def _sink(
        self,
        checkpoint: Checkpoint,
        objects: Mapping[str, str],
        source: Source,
        how: tuple[bool, Progress],
    ) -> dict[str, File]:
        """Makes every object be there with the right bytes; answers those that were written."""
        trusted, progress = how
        files = layout.distinct(checkpoint, objects)
        condemned = self._uncondemn([*files, objects["dir"]])
        progress.expect("copy", sum(file.size_bytes for file in files.values()))
        written: dict[str, File] = {}

        def ensure(name: str, file: File) -> tuple[str, bool]:
            key = layout.object_key(name)
            there = self.blobs.size(key) is not None
            part_size = checkpoint.manifest.part_size_bytes
            if there and name not in condemned and not self._bad({name: file}, part_size, Quiet(), workers=1):
                return name, False
            md5 = hashlib.md5(usedforsecurity=False)
            with source(file) as stream:
                checked = Verified(
                    stream, file, part_size_bytes=part_size, also=[(md5, name)] if trusted or there else []
                )
                self.blobs.write(key, checked, file.size_bytes, overwrite=there)
            return name, True

        wide = {name for name, file in files.items() if self.blobs.takes_all_workers(file.size_bytes)}
        narrow = [partial(ensure, name, file) for name, file in files.items() if name not in wide]
        for name, new in run_all(narrow, workers=WORKERS):
            written |= {name: files[name]} if new else {}
            progress.advance(files[name].size_bytes)
        for name in wide:
            written |= {name: files[name]} if ensure(name, files[name])[1] else {}
            progress.advance(files[name].size_bytes)
        return written

    def _require_sound(self, checkpoint: Checkpoint, written: Mapping[str, File], progress: Progress) -> None:
        """Reads back what was written."""
        bad = self._bad(written, checkpoint.manifest.part_size_bytes, progress)
        for name, why in bad.items():
            raise Corrupt(
                f"{quoted(written[name].path)} {why} in {self.name} right after it was written",
                advice="The store does not keep what it is given: look at it before you go on.",
            )

    def _marks(self, names: Iterable[str]) -> dict[str, tuple[str, bool]]:
        """Key -> object and whether it is a pass's own note, of those among `names` that are condemned or being removed.

        Counts where it is looked at after the record was claimed.
        """
        wanted = frozenset(names)
        said = layout.marks(self.blobs.list(layout.CONDEMNED).require_all(self.name))
        return {key: seen for key, seen in said.items() if seen[0] in wanted}

    def _wait_out(self, names: Iterable[str]) -> bool:
        """Whether removals of these objects were under way; none is any more, and none begins that does not see the claim."""
        going = [key for key, (_, note) in self._marks(names).items() if note or is_going(self.blobs, key)]
        if going:
            self._oldest = None  # `due` looks again: whoever was removing it may have died
            self._going.wait_out(going)
        return bool(going)

    def _uncondemn(self, names: Iterable[str]) -> frozenset[str]:
        """Takes back condemnations of objects that are needed again; their bytes are then written anew."""
        found = {key: name for key, (name, note) in self._marks(names).items() if not note}
        for key in found:
            self.blobs.delete(key)
        return frozenset(found.values())

    def _write_dir(self, checkpoint: Checkpoint, objects: Mapping[str, str]) -> None:
        data = layout.dir_bytes(checkpoint.manifest, objects)
        key = layout.object_key(objects["dir"])
        if not self.blobs.create(key, data) and self.blobs.get(key) != data:
            self.blobs.replace(key, data)
        if self.blobs.get(key) != data:
            raise Corrupt(
                f"{key} has other bytes in {self.name} right after it was written",
                advice="The store does not keep what it is given: look at it before you go on.",
            )

    def _dir_damage(self, checkpoint: Checkpoint, objects: Mapping[str, str]) -> Iterator[Damage]:
        key = layout.object_key(objects["dir"])
        data = self.blobs.get(key)
        if data is None:
            yield Damage(path=key, why=MISSING, missing=True)
        elif data != layout.dir_bytes(checkpoint.manifest, objects):
            yield Damage(path=key, why="has other bytes")


def _md5(checkpoint: Checkpoint, file: File, source: Source, buffers: Buffers) -> str:
    md5 = hashlib.md5(usedforsecurity=False)
    with source(file) as stream, buffers.take() as buffer:
        part_size = checkpoint.manifest.part_size_bytes
        drain(Verified(stream, file, part_size_bytes=part_size, also=[(md5, None)]), buffer)
    return md5.hexdigest()
