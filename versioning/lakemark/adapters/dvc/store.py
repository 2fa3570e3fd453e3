"""Warm and cold tiers: DVC's object layout over a store of blobs, so that `git clone` and `dvc pull` need none of our code.

DVC's own code is not used: it neither fsyncs nor verifies. See `dvc_layout` for the names.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from itertools import chain
from typing import BinaryIO

from lakemark.adapters.disk import tier_file
from lakemark.adapters.disk.digests import VerifiedStream, drain
from lakemark.adapters.disk.files import as_ours_of_place
from lakemark.adapters.disk.objects import Blobs
from lakemark.adapters.disk.pool import Buffers, run_all
from lakemark.adapters.dvc import layout
from lakemark.adapters.dvc.capacity import Room
from lakemark.adapters.dvc.claims import WORKERS, Claims, Remembered
from lakemark.adapters.dvc.collect import Collector, is_going, oldest
from lakemark.adapters.dvc.layout import Claim
from lakemark.adapters.dvc.read_back import MISSING, READINGS, ObjectFault, ObjectReader
from lakemark.adapters.dvc.removals import Going, Patience
from lakemark.errors import (
    AnswerDamaged,
    Corrupt,
    NameTaken,
    NoRoom,
    NotFound,
    SourceDamaged,
    StoreUnavailable,
    TargetDamaged,
    quoted,
)
from lakemark.model.checkpoints.manifest import File
from lakemark.model.ledger.run import Place
from lakemark.model.values.outside import ledger_slot
from lakemark.ports.store import Checkpoint, Damage, Expiry, Identity, Listing, Source, Stored, TierUsage
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
        try:
            data = self.blobs.get(tier_file.NAME)
        except Corrupt as error:
            if isinstance(error.__cause__, OSError):
                raise as_ours_of_place(error.__cause__, self.blobs.where) from error
            raise
        return None if data is None else tier_file.from_bytes(data, where=self.blobs.where)

    def claim(self, ledger: str, *, now: datetime) -> Identity:
        self.blobs.prepare()
        found = self.identity()
        if found is None:
            strangers = {} if self._shared else self.blobs.list("", limit=1).sizes
            for key in strangers:
                raise tier_file.refuse_foreign(self.blobs.where, found=key)
            new = tier_file.new_identity(self.tier_class, ledger, now=now)
            # Creates, never replaces; then what is there counts: of two sites that claim one place at once, one is the owner.
            self.blobs.create(tier_file.NAME, tier_file.to_bytes(new))
            found = self.identity() or new
        tier_file.require_owner(found, ledger, tier_class=self.tier_class, where=self.blobs.where)
        self._first = found
        return found

    # Copies

    def holds(self, record: str) -> bool:
        objects = self._claimed(record)
        keys = () if objects is None else (layout.claim_key(record), layout.object_key(objects["dir"]))
        return bool(keys) and all(self.blobs.size(key) is not None for key in keys)

    def put(self, checkpoint: Checkpoint, source: Source, *, now: datetime, progress: Progress) -> Stored:
        with _own_fault():
            self._first = tier_file.require_same(self.identity(), self._first, where=self.blobs.where)
            # A replica that is there already counts once all of it was read, and where none of it is condemned or being removed.
            objects = (self._claimed(checkpoint.record.id) or {}) if self.holds(checkpoint.record.id) else {}
            written = 0
            if not objects or self._marks(objects.values()) or self.verify(checkpoint, progress=progress):
                objects, written = self._put(checkpoint, source, now=now, progress=progress)
            self._require_claimed(checkpoint.record.id, objects)
        return Stored(verified_at=now, proof="read_back", written_bytes=written, objects=objects)

    def open(self, checkpoint: Checkpoint, file: File, *, start: int = 0, length: int | None = None) -> BinaryIO:
        objects = self._names(checkpoint) or {}
        name = objects.get(str(file.digest)) if self._has_dir(objects) else None
        if name is None:
            raise NotFound(
                f"{self.name} does not hold {quoted(file.path)} of {checkpoint.record.id[:12]}",
                advice="`lakemark show` says which replicas there are.",
            )
        return self.blobs.open(layout.object_key(name), start=start, length=length)

    def verify(self, checkpoint: Checkpoint, *, progress: Progress) -> tuple[Damage, ...]:
        # Fresh: another process may have dropped it, or its claim may have rotted, since this one looked.
        claimed, wrong = self._claim(checkpoint.record.id, fresh=True)
        objects = claimed or self._of_ledger(checkpoint) or {}
        damage: list[Damage] = []
        if claimed is None:
            why = wrong or "the tier's own record is missing"
            damage.append(Damage(path=layout.claim_key(checkpoint.record.id), why=why, missing=wrong is None))
        if "dir" not in objects:
            gone = (Damage(path=file.path, why=MISSING, missing=True) for file in checkpoint.manifest.files)
            return (*damage, *gone) if wrong else tuple(gone)
        damage.extend(self._dir_damage(checkpoint, objects))
        files = layout.distinct(checkpoint, objects)
        bad = self._bad(files, checkpoint.manifest.part_size_bytes, progress)
        for file in checkpoint.manifest.regular:
            named = str(file.digest) in objects
            fault = bad.get(str(file.digest)) if named else ObjectFault(MISSING)
            if fault is not None:
                damage.append(Damage(path=file.path, why=fault.why, missing=fault.missing, unread=fault.unread))
        return tuple(damage)

    # Removal and listing

    def drop(self, checkpoint: Checkpoint, *, now: datetime) -> int:
        """Notes its objects and forgets its claim. Who else uses them is looked at by `collect`, for all drops at once."""
        self._first = tier_file.require_same(self.identity(), self._first, where=self.blobs.where)
        record = checkpoint.record.id
        objects, wrong = self._claim(record, fresh=True)
        if objects is None:
            # A claim that says nothing right goes too: left behind, it would keep anything from ever being collected.
            objects = checkpoint.objects if wrong else self._unclaimed(checkpoint)
        self._objects.put(record, None)
        if objects is None:
            return 0
        # The note before the claim goes: in between both say so, the other way round for a moment nobody knows of the objects.
        noted = self._shared or self._note_drop(record, objects, now)
        self.blobs.delete(layout.claim_key(record))
        if not noted:
            # The claim was larger: there may be room for the note now. Without one the objects are condemned as orphans are,
            # with a whole grace; the ledger says what was let go.
            self._note_drop(record, objects, now)
        return 0 if self._shared else layout.size_bytes(layout.distinct(checkpoint, objects))

    def _note_drop(self, record: str, objects: Mapping[str, str], now: datetime) -> bool:
        """False where the tier is full: what is to make room in it must not wait for room."""
        try:
            self.blobs.create(layout.drop_key(record, now), layout.drop_bytes(record, objects, now))
        except NoRoom:
            return False
        return True

    def due(self, *, now: datetime, grace: timedelta) -> bool:
        if self._shared:
            return False
        # What is known to be young needs no look: else every sweep would list a remote place.
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
        ids = tuple(record for key in claims.sizes if (record := layout.claimed_record(key)) is not None)
        return Listing(records=ids, complete=claims.complete)

    def strangers(self) -> tuple[str, ...]:
        def of(prefix: str, is_ours: Callable[[str], bool]) -> list[str]:
            return [key for key in self.blobs.list(prefix).sizes if not is_ours(key)]

        return tuple(
            sorted(
                [
                    *of(layout.RECORDS, lambda key: layout.claimed_record(key) is not None),
                    *of(layout.PARTS, layout.is_part),
                    *of(layout.DROPPED, lambda key: layout.dropped_at(key) is not None),
                    *of(layout.CONDEMNED, lambda key: bool(layout.marks([key]))),
                ]
            )
        )

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
        """What the tier itself keeps of it, to rebuild a lost ledger from. Raises NotFound, Corrupt where it is another's."""
        key = layout.claim_key(record)
        data = self.blobs.get(key)
        if data is None:
            raise NotFound(f"{self.name} does not hold {record[:12]}", advice="See `lakemark ls`.")
        return Claim.from_bytes(data, key=key).checkpoint

    def usage(self) -> TierUsage:
        space = self.blobs.space()
        return TierUsage(
            used_bytes=sum(size_bytes for _, size_bytes in self.blobs.each(layout.OBJECTS)),
            capacity_bytes=self._capacity or space.capacity_bytes,
            free_bytes=space.free_bytes,
            file_system_free_share=space.file_system_free_share,
        )

    def free_space_bytes(self) -> int | None:
        return self.blobs.space().free_bytes

    def expires(self) -> Expiry | None:
        return self.blobs.expires()

    def clock(self) -> datetime | None:
        return self.blobs.clock(tier_file.NAME)

    def keep_ledger(self, bundle: BinaryIO, *, slot: str | None = None) -> None:
        self._first = tier_file.require_same(self.identity(), self._first, where=self.blobs.where)
        size_bytes = bundle.seek(0, os.SEEK_END)
        bundle.seek(0)
        self.blobs.write(layout.ledger_key(slot), bundle, size_bytes, overwrite=True)

    def open_ledger(self, slot: str | None = None) -> BinaryIO:
        key = layout.ledger_key(slot)
        try:
            return self.blobs.open(key)
        except NotFound as error:
            # A 404 may be a gateway's; that the site has no copy of its ledger is believed of the place's list alone.
            if self.blobs.absent(key):
                raise
            raise StoreUnavailable(f"{key} is listed in {self.name} and can't be had", advice="Try again.") from error

    def ledger_slots(self) -> tuple[str, ...]:
        names = self.blobs.list(layout.LEDGERS)
        if not names.complete:
            raise StoreUnavailable(f"the listing of {self.name} broke off", advice="Try again.")
        found = (ledger_slot(key.removeprefix(layout.LEDGERS)) for key in names.sizes)
        return tuple(sorted(slot for slot in found if slot is not None))

    # Inside

    def _put(
        self, checkpoint: Checkpoint, source: Source, *, now: datetime, progress: Progress
    ) -> tuple[Mapping[str, str], int]:
        """Object names of everything, and how many bytes were written."""
        objects = self._known(checkpoint)
        trusted = objects is not None
        if objects is None:
            objects = self._named(checkpoint, source, progress)
        layout.require_own_names(checkpoint, objects, where=self.name)
        record, key = checkpoint.record.id, layout.claim_key(checkpoint.record.id)
        self._room.require({name: file.size_bytes for name, file in layout.distinct(checkpoint, objects)})
        claim = Claim(
            record=checkpoint.record, manifest=checkpoint.manifest, objects=objects, claimed_at=now
        ).to_bytes()
        # Found out before the claim is written: only one that is new may be taken back if this fails.
        new = self._found(key) is None and self.blobs.absent(key)
        # Before any byte: from here on a collecting pass counts these objects as used.
        self.blobs.replace(key, claim)
        self._objects.put(record, objects)
        # After it: a pass that looked at claims before saw none, but had noted what it removes.
        if self._wait_out([*objects.values()]):
            # What was waited for may have been the removal of this very claim, left by an earlier try.
            self.blobs.replace(key, claim)
        try:
            written = self._sink(checkpoint, objects, source, (trusted, progress))
            # Read back before the directory object is there: DVC and we take all members for present from then on.
            self._require_sound(checkpoint, written, progress)
            self._require_claimed(record, objects)  # else the directory object would be nobody's
            self._write_dir(checkpoint, objects)
        except NameTaken:
            # It will never be whole here: without its claim, what it alone brought is collected. An older claim stays.
            if new:
                self.drop(replace(checkpoint, objects=objects), now=now)
            raise
        return objects, sum(file.size_bytes for _, file in written)

    def _require_claimed(self, record: str, objects: Mapping[str, str]) -> None:
        """Nothing is safe once the claim went: by a drop, or a pass that takes its writer for dead and notes the directory."""
        if self._marks([objects["dir"]]) or self.blobs.size(layout.claim_key(record)) is None:
            raise StoreUnavailable(
                f"the claim of {record[:12]} was removed from {self.name} while it was written, or is being removed",
                advice="Try again: it is claimed and read back anew.",
            )

    def _found(self, key: str) -> bytes | None:
        """What lies under a name that is written anew if it is not right: what can't be read, a pipe for one, is not."""
        try:
            return self.blobs.get(key)
        except Corrupt:
            return b""

    def _reader(self, part_size: int, *, workers: int = WORKERS) -> ObjectReader:
        return ObjectReader(self.blobs, part_size, still_up=self.identity, workers=workers)

    def _bad(
        self, files: Sequence[tuple[str, File]], part_size: int, progress: Progress, *, workers: int = WORKERS
    ) -> dict[str, ObjectFault]:
        """Reads each file whole, by its object; file digest -> what is wrong. A store that is down raises instead."""
        return self._reader(part_size, workers=workers).bad(files, progress)

    def _claimed(self, record: str, *, fresh: bool = False) -> Mapping[str, str] | None:
        """Object names from the tier's own record of it, where that can be believed."""
        return self._claim(record, fresh=fresh)[0]

    def _claim(self, record: str, *, fresh: bool = False) -> tuple[Mapping[str, str] | None, str | None]:
        """The names in the tier's own record, and what is wrong with it; neither where there is none.

        Names never change for an id, so one look lasts unless `fresh`.
        """
        known = None if fresh else self._objects.get(record)
        if known is not None:
            return known, None
        key, wrong = layout.claim_key(record), None
        self._objects.put(record, None)
        for _ in range(READINGS):
            try:
                data = self.blobs.get(key)
                if data is None:
                    return None, None
                known = Claim.from_bytes(data, key=key).objects
            except Corrupt as error:
                wrong = str(error)
                continue
            self._objects.put(record, known)
            return known, None
        return None, wrong

    def _names(self, checkpoint: Checkpoint) -> Mapping[str, str] | None:
        """By which to read it: the tier's own, else those that the ledger knows, unless the record was dropped unasked."""
        if checkpoint.released:
            return self._of_ledger(checkpoint)
        names, wrong = self._claim(checkpoint.record.id)
        if names is not None:
            return names
        if wrong is None:
            return self._unclaimed(checkpoint)
        return checkpoint.objects if self._has_dir(checkpoint.objects) else None

    def _of_ledger(self, checkpoint: Checkpoint) -> Mapping[str, str] | None:
        """What the ledger knows of its objects; None where that is not all."""
        files = {str(file.digest) for file in checkpoint.manifest.regular}
        return checkpoint.objects if {"dir", *files} <= checkpoint.objects.keys() else None

    def _unclaimed(self, checkpoint: Checkpoint) -> Mapping[str, str] | None:
        """Object names of a record that nobody dropped and whose claim got lost: damage, but its bytes are there."""
        if self._of_ledger(checkpoint) is None or not self._has_dir(checkpoint.objects):
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
        for objects in (self._claimed(checkpoint.record.id), self._of_ledger(checkpoint)):
            if objects is not None:
                # A name says which bytes it stands for: names that do not make this one are another checkpoint's, or damaged.
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
    ) -> list[tuple[str, File]]:
        """Makes every object be there with the right bytes; answers those that were written."""
        trusted, progress = how
        files = layout.distinct(checkpoint, objects)
        condemned = self._uncondemn([*(name for name, _ in files), objects["dir"]])
        progress.expect("copy", layout.size_bytes(files))
        part_size = checkpoint.manifest.part_size_bytes

        def ensure(name: str, file: File) -> tuple[str, File, bool]:
            key = layout.object_key(name)
            there = self.blobs.size(key) is not None
            if there and self._stands(name, file, part_size, condemned=name in condemned, source=source):
                return name, file, False
            md5 = hashlib.md5(usedforsecurity=False)
            with source(file) as stream:
                checked = VerifiedStream(
                    stream, file, part_size_bytes=part_size, also=[(md5, name)] if trusted or there else []
                )
                self.blobs.write(key, checked, file.size_bytes, overwrite=there)
            return name, file, True

        # A large object takes all connections by itself: those come one after another, once the small ones are done.
        wide = [one for one in files if self.blobs.takes_all_workers(one[1].size_bytes)]
        narrow = [partial(ensure, name, file) for name, file in files if (name, file) not in wide]
        written: list[tuple[str, File]] = []
        for name, file, new in chain(run_all(narrow, workers=WORKERS), (ensure(*one) for one in wide)):
            written += [(name, file)] if new else []
            progress.advance(file.size_bytes)
        return written

    def _stands(self, name: str, file: File, part_size: int, *, condemned: bool, source: Source) -> bool:
        """Whether what lies under the file's name may stay and be counted on; False: it is written over.

        Raises NameTaken where it is another file's, whole: that one may be somebody's only copy.
        """
        if not self._bad([(name, file)], part_size, Quiet(), workers=1):
            return not condemned
        try:
            right, md5 = self._reader(part_size, workers=1).name_there(name, file)
        except AnswerDamaged:
            raise
        except (NotFound, Corrupt):
            return False
        if right or md5 != name:
            # Bytes that are not those of their own name are nobody's: they rotted, or one reading of them lied.
            return right and not condemned
        with source(file) as stream:
            # A wrong name is no collision: `Verified` says which of the two it is.
            ours = hashlib.md5(usedforsecurity=False)
            checked = VerifiedStream(stream, file, part_size_bytes=part_size, also=[(ours, name)])
            drain(checked, memoryview(bytearray(2**20)))
        raise layout.name_taken(name, file, where=self.name, by="another file that lies there")

    def _require_sound(self, checkpoint: Checkpoint, written: Sequence[tuple[str, File]], progress: Progress) -> None:
        """Reads back what was written; what reads wrong once more, another way, before the place is blamed."""
        part_size = checkpoint.manifest.part_size_bytes
        bad = self._bad(written, part_size, progress)
        for name, file in written:
            fault = bad.get(str(file.digest))
            right, md5 = self._again(name, file, part_size) if fault is not None else (True, name)
            if right:
                continue
            if md5 == name:
                # Somebody else was first, with other bytes: `write` replaced nothing.
                raise layout.name_taken(name, file, where=self.name, by="another file that came there first")
            raise TargetDamaged(
                f"{quoted(file.path)} {fault.why if fault else ''} in {self.name} right after it was written",
                advice="The store does not keep what it is given: look at it before you go on.",
            )

    def _again(self, name: str, file: File, part_size: int) -> tuple[bool, str | None]:
        try:
            return self._reader(part_size, workers=1).name_there(name, file)
        except (NotFound, Corrupt, OSError):
            return False, None

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
        """From here on the checkpoint is whole. Raises NameTaken where another's has the name, TargetDamaged."""
        data = layout.dir_bytes(checkpoint.manifest, objects)
        key = layout.object_key(objects["dir"])
        # What is there may be an earlier try's, cut short; it is replaced only if it is no whole object of another checkpoint.
        if not self.blobs.create(key, data):
            there = self._found(key)
            if there is not None and there != data and layout.dir_name(there) == objects["dir"]:
                raise NameTaken(f"{key} of {self.name} is another checkpoint's", advice="Keep it in another tier.")
            if there != data:
                self.blobs.replace(key, data)
        # Small, so compared whole: a damaged directory object makes `dvc pull` fail, or bring less.
        if self.blobs.get(key) != data:
            raise TargetDamaged(
                f"{key} has other bytes in {self.name} right after it was written",
                advice="The store does not keep what it is given: look at it before you go on.",
            )

    def _dir_damage(self, checkpoint: Checkpoint, objects: Mapping[str, str]) -> Iterator[Damage]:
        key = layout.object_key(objects["dir"])
        right = layout.dir_bytes(checkpoint.manifest, objects)
        why: str | None = None
        for _ in range(READINGS):
            try:
                data = self.blobs.get(key)
            except Corrupt as error:
                why = f"can't be read: {error}"
                continue
            if data == right:
                return
            why = MISSING if data is None else "has other bytes"
        yield Damage(path=key, why=why or MISSING, missing=why == MISSING)


@contextmanager
def _own_fault() -> Iterator[None]:
    """Whatever is wrong in here with anything but what the source gave is this place's."""
    try:
        yield
    except (AnswerDamaged, SourceDamaged, TargetDamaged):
        raise
    except Corrupt as error:
        raise TargetDamaged(str(error), advice=error.advice) from error


def _md5(checkpoint: Checkpoint, file: File, source: Source, buffers: Buffers) -> str:
    md5 = hashlib.md5(usedforsecurity=False)
    with source(file) as stream, buffers.take() as buffer:
        part_size = checkpoint.manifest.part_size_bytes
        drain(VerifiedStream(stream, file, part_size_bytes=part_size, also=[(md5, None)]), buffer)
    return md5.hexdigest()
