"""What the ports of a tier guarantee, as checks. See `hot` for what a hot store adds, `blobs` for what lies below a DVC tier.

`CHECKS` with `probe` work on a store in use: on runs and blobs of their own, which they remove. What they condemn stays
until the grace has passed, a few kilobytes. The others want a place of their own.
"""

from __future__ import annotations

import io
import secrets
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from lakemark.contract import Check, raises, require
from lakemark.errors import Corrupt, NotFound, Refused
from lakemark.model.checkpoints.manifest import File, FileType, Manifest
from lakemark.model.checkpoints.record import record_for
from lakemark.ports import Checkpoint, CheckpointStore, Quiet, Replicas, Source, Stored

PART_SIZE_BYTES: Final = 1000
LEDGER: Final = "the-ledger-of-the-checks"
GRACE: Final = timedelta(hours=72)
_READERS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreUnderCheck:
    """A store to check, and how to see it from elsewhere.

    store: claimed, and writable. again: opens the same place as another process would. elsewhere: a store, not claimed,
    in another, empty place. foreign: a store, not claimed, where something else lies already. corrupt: changes a byte of
    a file's stored copy; None where that can't be done. digests: (bytes, part size) -> a file's digest and parts.
    """

    store: CheckpointStore
    digests: Callable[[bytes, int], tuple[str, tuple[str, ...]]]
    again: Callable[[], CheckpointStore] | None = None
    elsewhere: Callable[[], CheckpointStore] | None = None
    foreign: Callable[[], CheckpointStore] | None = None
    corrupt: Callable[[Checkpoint, str], None] | None = None
    now: datetime = datetime(2026, 11, 26, 12, tzinfo=UTC)
    ledger: str = LEDGER
    run: str = field(default_factory=lambda: f"probe-{secrets.token_hex(6)}")

    def checkpoint(self, contents: Mapping[str, bytes], *, step: int = 1) -> Checkpoint:
        """These files, with a link and an empty directory beside them; those under `bin/` executable."""
        files = [
            File(path="link", type=FileType.SYMLINK, target=min(contents)),
            File(path="void/deep", type=FileType.DIRECTORY),
        ]
        for path, content in contents.items():
            digest, parts = self.digests(content, PART_SIZE_BYTES)
            runs = path.startswith("bin/")
            files.append(File(path=path, size_bytes=len(content), digest=digest, parts=parts, executable=runs))
        manifest = Manifest(files=tuple(files), part_size_bytes=PART_SIZE_BYTES)
        record = record_for(manifest, run=self.run, timeline=1, step=step, saved_at=self.now, node="node-a")
        return Checkpoint(record=record, manifest=manifest)

    def put(self, checkpoint: Checkpoint, contents: Mapping[str, bytes]) -> tuple[Checkpoint, Stored]:
        stored = self.store.put(checkpoint, source(contents), now=self.now, progress=Quiet())
        return replace(checkpoint, objects=stored.objects), stored

    def drop(self, *checkpoints: Checkpoint) -> None:
        for checkpoint in checkpoints:
            self.store.drop(checkpoint, now=self.now)

    def sound(self, checkpoint: Checkpoint) -> bool:
        return not self.store.verify(checkpoint, progress=Quiet())


def source(contents: Mapping[str, bytes]) -> Source:
    """Opens files of `contents`."""
    return lambda file: io.BytesIO(contents[file.path])


def contents_of() -> dict[str, bytes]:
    """Files no store has seen before, of the shapes that go wrong."""
    unique = secrets.token_bytes(16)
    return {
        "weights.bin": unique * 320,
        "deep/er/optimizer.bin": (unique * 63)[:PART_SIZE_BYTES],
        "bin/run": b"#!/bin/sh\n" + unique,
        "empty": b"",
        "näme with space": unique * 157,
        "twin": unique * 320,
    }


def _stores_whole(shelf: StoreUnderCheck) -> None:
    contents = contents_of()
    checkpoint = shelf.checkpoint(contents)
    require(not shelf.store.holds(checkpoint.record.id), "it holds what was never put")
    kept, stored = shelf.put(checkpoint, contents)
    try:
        require(shelf.store.holds(kept.record.id), "it does not hold what was put")
        require(stored.verified_at == shelf.now, f"verified_at is {stored.verified_at}, not the time handed in")
        require(stored.written_bytes > 0, "it says that it wrote nothing")
        require_bytes(shelf.store, kept, contents)
        require(shelf.sound(kept), "verify finds damage right after put")
        listing = shelf.store.records()
        require(listing.complete, "its listing did not end complete")
        require(kept.record.id in listing.records, "its listing lacks what was put")
        require(kept.record.id in shelf.store.claimed().records, "its listing of claims lacks what was put")
    finally:
        shelf.drop(kept)


def _is_there_for_others(shelf: StoreUnderCheck) -> None:
    if shelf.again is None:
        return
    contents = contents_of()
    kept, _ = shelf.put(shelf.checkpoint(contents), contents)
    other = shelf.again()
    try:
        require(other.identity() == shelf.store.identity(), "another process reads another identity")
        require(other.holds(kept.record.id), "another process does not find what was put")
        require_bytes(other, kept, contents)
        other.drop(kept, now=shelf.now)
        require(not shelf.store.holds(kept.record.id), "it still holds what another process dropped")
    finally:
        shelf.drop(kept)


def _puts_once(shelf: StoreUnderCheck) -> None:
    contents = contents_of()
    kept, first = shelf.put(shelf.checkpoint(contents), contents)
    try:
        _, second = shelf.put(kept, contents)
        require(second.written_bytes == 0, f"the second put wrote {second.written_bytes} bytes")
        require(second.objects == first.objects, "the second put names other objects")
    finally:
        shelf.drop(kept)


def _refuses_wrong_bytes(shelf: StoreUnderCheck) -> None:
    contents = contents_of()
    checkpoint = shelf.checkpoint(contents)
    weights = contents["weights.bin"]
    wrongs = {"other": contents | {"weights.bin": weights[:-1] + bytes([weights[-1] ^ 1])}}
    wrongs["short"] = contents | {"näme with space": contents["näme with space"][:-1]}
    wrongs["long"] = contents | {"empty": b"more"}
    try:
        for name, wrong in wrongs.items():
            raises(lambda wrong=wrong: shelf.put(checkpoint, wrong), Corrupt, f"putting {name} bytes")  # type: ignore[misc]
            require(not shelf.store.holds(checkpoint.record.id), f"it holds the checkpoint after a put of {name} bytes")
            require(checkpoint.record.id not in shelf.store.records().records, f"it lists it after {name} bytes")
        kept, _ = shelf.put(checkpoint, contents)
        require_bytes(shelf.store, kept, contents)
    finally:
        shelf.drop(checkpoint)


def _finds_damage(shelf: StoreUnderCheck) -> None:
    if shelf.corrupt is None:
        return
    contents = contents_of()
    kept, _ = shelf.put(shelf.checkpoint(contents), contents)
    try:
        shelf.corrupt(kept, "näme with space")
        found = [damage.path for damage in shelf.store.verify(kept, progress=Quiet())]
        require(found == ["näme with space"], f"after one byte of a file changed, verify names {found}")
        _, stored = shelf.put(kept, contents)
        require(stored.written_bytes > 0, "putting it again did not write the damaged file")
        require(shelf.sound(kept), "putting it again did not heal it")
        require_bytes(shelf.store, kept, contents)
    finally:
        shelf.drop(kept)


def _drops(shelf: StoreUnderCheck) -> None:
    contents = contents_of()
    kept, _ = shelf.put(shelf.checkpoint(contents), contents)
    shelf.drop(kept)
    require(not shelf.store.holds(kept.record.id), "it still holds what was dropped")
    for listing in (shelf.store.records(), shelf.store.claimed()):
        require(kept.record.id not in listing.records, "it still lists what was dropped")
    file = kept.manifest.regular[0]
    raises(lambda: shelf.store.open(kept, file).__enter__(), NotFound, "opening a file of what was dropped")
    require(not shelf.sound(kept), "verify finds nothing wrong with what was dropped")
    if shelf.store.place.node is None:
        with shelf.store.open(replace(kept, released=True), file) as stream:
            require(
                stream.read() == contents[file.path], "what was dropped and not collected can't be read as released"
            )
    require(shelf.store.drop(kept, now=shelf.now) == 0, "dropping it again freed something")


def _shares_safely(shelf: StoreUnderCheck) -> None:
    contents = contents_of()
    one, _ = shelf.put(shelf.checkpoint(contents, step=1), contents)
    same, stored = shelf.put(shelf.checkpoint(contents, step=2), contents)
    other_contents = {"again": contents["weights.bin"], "own": secrets.token_bytes(50)}
    other, _ = shelf.put(shelf.checkpoint(other_contents, step=3), other_contents)
    try:
        shelf.drop(one)
        require(shelf.sound(same), "dropping one checkpoint damaged another with the same contents")
        require(shelf.sound(other), "dropping one checkpoint damaged another that shares a file")
        shelf.drop(same)
        require(shelf.sound(other), "dropping the second damaged a third that shares a file")
        again, _ = shelf.put(replace(same, objects=stored.objects), contents)
        require(shelf.sound(again), "a checkpoint put again after its drop is not sound")
        require_bytes(shelf.store, again, contents)
    finally:
        shelf.drop(one, same, other)


def _collects_after_grace(shelf: StoreUnderCheck) -> None:
    contents = contents_of()
    kept, _ = shelf.put(shelf.checkpoint(contents, step=1), contents)
    shared = {"again": contents["weights.bin"]}
    other, _ = shelf.put(shelf.checkpoint(shared, step=2), shared)
    shelf.drop(kept)
    store = shelf.store
    require(
        not store.due(now=shelf.now + GRACE - timedelta(seconds=1), grace=GRACE),
        "it is due before the grace has passed",
    )
    early = store.collect(now=shelf.now + GRACE - timedelta(seconds=1), grace=GRACE, needed=[other])
    require(early == 0, f"it freed {early} bytes before the grace had passed")
    late = shelf.now + GRACE + timedelta(seconds=1)
    require(
        store.due(now=late, grace=GRACE) or store.tier_class == "hot", "nothing is due although the grace has passed"
    )
    freed = store.collect(now=late, grace=GRACE, needed=[other])
    require(freed or store.tier_class == "hot", "it freed nothing although the grace has passed")
    require(not store.due(now=late, grace=GRACE), "something is due right after it was collected")
    require(shelf.sound(other), "collecting took a file that another checkpoint has")
    again, _ = shelf.put(kept, contents)
    require_bytes(store, again, contents)
    shelf.drop(again)
    back, _ = shelf.put(again, contents)
    store.collect(now=shelf.now + 3 * GRACE, grace=GRACE, needed=[other])
    require(shelf.sound(back), "collecting took what had been condemned and was put again")
    shelf.drop(back, other)


def _spares_what_is_needed(shelf: StoreUnderCheck) -> None:
    contents = contents_of()
    kept, _ = shelf.put(shelf.checkpoint(contents, step=1), contents)
    shelf.drop(kept)
    for days in (4, 8, 12):
        freed = shelf.store.collect(now=shelf.now + timedelta(days=days), grace=GRACE, needed=[kept])
        require(freed == 0, f"it freed {freed} bytes of what is needed")
    again, stored = shelf.put(kept, contents)
    require(shelf.sound(again), "what was needed did not survive")
    require(stored.verified_at == shelf.now, "it was not verified anew")
    shelf.drop(again)


def _knows_its_owner(shelf: StoreUnderCheck) -> None:
    identity = shelf.store.identity()
    if identity is None:
        require(holds=False, seen="a claimed store has no identity")
        return
    require(identity.tier_class == shelf.store.tier_class, f"its identity is of class {identity.tier_class}")
    again = shelf.store.claim(identity.ledger, now=shelf.now + timedelta(days=1))
    require(again == identity, "claiming it again made another identity")
    raises(lambda: shelf.store.claim("another-ledger", now=shelf.now), Refused, "claiming it for another ledger")
    require(shelf.store.identity() == identity, "another ledger's claim changed its identity")


def _refuses_places_not_its_own(shelf: StoreUnderCheck) -> None:
    contents = contents_of()
    checkpoint = shelf.checkpoint(contents)
    if shelf.elsewhere is not None:
        other = shelf.elsewhere()
        require(other.identity() is None, "a place never claimed has an identity")
        require(not other.records().complete, "the listing of a place without identity says it is complete")
        put = _putting(other, checkpoint, contents, now=shelf.now)
        raises(put, Refused, "putting into a place without identity")
        require(not other.holds(checkpoint.record.id), "it holds the checkpoint after a refused put")
        require(other.claim(shelf.ledger, now=shelf.now).ledger == shelf.ledger, "an empty place can't be claimed")
    if shelf.foreign is not None:
        stranger = shelf.foreign()
        raises(lambda: stranger.claim(shelf.ledger, now=shelf.now), Refused, "claiming a place with other files")
        require(stranger.identity() is None, "a refused claim left an identity behind")


def _serves_many_readers(shelf: StoreUnderCheck) -> None:
    contents = contents_of()
    kept, _ = shelf.put(shelf.checkpoint(contents), contents)
    try:
        with ThreadPoolExecutor(_READERS) as pool:
            readings = [pool.submit(require_bytes, shelf.store, kept, contents) for _ in range(2 * _READERS)]
            for reading in readings:
                reading.result()
    finally:
        shelf.drop(kept)


def _reads_from_the_middle(shelf: StoreUnderCheck) -> None:
    contents = contents_of()
    kept, _ = shelf.put(shelf.checkpoint(contents), contents)
    try:
        for file in kept.manifest.regular:
            whole = contents[file.path]
            for start, length in ((0, 1), (PART_SIZE_BYTES, PART_SIZE_BYTES), (len(whole) - 1, 1), (7, 4 * len(whole))):
                if not 0 <= start < len(whole):
                    continue
                with shelf.store.open(kept, file, start=start, length=length) as stream:
                    seen = stream.read(length)
                expected = whole[start : start + length]
                require(seen == expected, f"{length} bytes of {file.path} from {start} are not those that were put")
            if whole:
                with shelf.store.open(kept, file, start=1) as stream:
                    require(stream.read() == whole[1:], f"{file.path} from its second byte on is not what was put")
    finally:
        shelf.drop(kept)


def _says_how_full(shelf: StoreUnderCheck) -> None:
    usage = shelf.store.usage()
    for name in ("used_bytes", "capacity_bytes", "free_bytes"):
        number = getattr(usage, name)
        require(number is None or number >= 0, f"{name} is {number}")
    share = usage.file_system_free_share
    require(share is None or 0 <= share <= 1, f"file_system_free_share is {share}")


def _lasts(shelf: StoreUnderCheck) -> None:
    expiry = shelf.store.expires()
    if expiry is not None:
        said = f"its own rule {expiry.rule} removes objects after some time"
        unknown = f"whether it removes objects after some time can't be read ({expiry.rule}): allow it, or say `expires: never`"
        require(holds=False, seen=said if expiry.known else unknown)


def _has_its_own(shelf: StoreUnderCheck) -> None:
    found = shelf.store.strangers()
    require(
        not found, f"{len(found)} name(s) among its own are no work of lakemark, the first {found[:1]}: move them away"
    )


def _tells_its_time(shelf: StoreUnderCheck) -> None:
    time = shelf.store.clock()
    require(time is None or time.utcoffset() is not None, f"its time, {time}, has no offset")


def _keeps_the_ledger(shelf: StoreUnderCheck) -> None:
    for bundle in (secrets.token_bytes(5000), secrets.token_bytes(50)):
        shelf.store.keep_ledger(io.BytesIO(bundle))
        with (shelf.again or (lambda: shelf.store))().open_ledger() as copy:
            require(copy.read() == bundle, "the copy of the ledger is not what was handed in last")
    shelf.store.keep_ledger(io.BytesIO(b"of a monday"), slot="monday")
    again = (shelf.again or (lambda: shelf.store))()
    require("monday" in again.ledger_slots(), f"the copies beside it are {again.ledger_slots()}")
    with again.open_ledger("monday") as older, again.open_ledger() as newest:
        require((older.read(), newest.read()) == (b"of a monday", bundle), "one copy of the ledger replaced another")


CHECKS: Final = (
    Check("whole", "What was put is there whole, listed, readable and verified.", _stores_whole),
    Check("others", "What was put is there for other processes, and what was dropped is not.", _is_there_for_others),
    Check("once", "Putting what is there already writes nothing.", _puts_once),
    Check("wrong", "Bytes that are not the manifest's are Corrupt and leave nothing to see.", _refuses_wrong_bytes),
    Check("damage", "verify names every damaged path; putting again heals it.", _finds_damage, probe=False),
    Check("drop", "A dropped checkpoint is absent at once; dropping it again does nothing.", _drops),
    Check("shared", "Dropping a checkpoint leaves others that share its files whole.", _shares_safely),
    Check("collect", "Condemned bytes go after the grace, unless used again.", _collects_after_grace, probe=False),
    Check("needed", "Nothing that is needed is collected.", _spares_what_is_needed, probe=False),
    Check("owner", "A place belongs to one ledger, for good.", _knows_its_owner),
    Check("foreign", "A place without identity, or with others' files, is Refused.", _refuses_places_not_its_own),
    Check("readers", "Any number of readers get the stored bytes at once.", _serves_many_readers),
    Check("ranges", "A file is read from any byte on, as far as asked.", _reads_from_the_middle),
    Check("usage", "How full it is makes sense.", _says_how_full),
    Check("lasting", "Nothing removes what lies there but whoever put it there.", _lasts),
    Check("names", "Where its own names lie, nothing else does.", _has_its_own),
    Check("clock", "Where it tells a time of its own, it is an instant.", _tells_its_time),
    Check("ledger", "It keeps the newest copy of the ledger.", _keeps_the_ledger, probe=False),
)


def _putting(
    store: CheckpointStore, checkpoint: Checkpoint, contents: Mapping[str, bytes], *, now: datetime
) -> Callable[[], object]:
    return lambda: store.put(checkpoint, source(contents), now=now, progress=Quiet())


def require_bytes(store: Replicas, checkpoint: Checkpoint, contents: Mapping[str, bytes]) -> None:
    """Broken unless every regular file is read as `contents` has it."""
    for file in checkpoint.manifest.regular:
        with store.open(checkpoint, file) as stream:
            require(stream.read() == contents[file.path], f"{file.path} is read with other bytes than were put")
