"""DVC tiers: what they heal, what they spare, what they refuse, and writers beside a collector."""

import hashlib
import io
import json
import os
import signal
import threading
from contextlib import nullcontext, suppress
from dataclasses import replace
from datetime import timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from lakemark.adapters.disk.directory_objects import DirectoryBlobs
from lakemark.adapters.disk.objects import Names
from lakemark.adapters.dvc import layout as dvc_layout
from lakemark.adapters.dvc.claims import Claims, Used
from lakemark.adapters.dvc.collect import Collector
from lakemark.adapters.dvc.removals import WAIT_SECONDS, Going, Patience
from lakemark.adapters.dvc.store import DvcStore
from lakemark.contract.store import StoreUnderCheck, source
from lakemark.errors import Corrupt, NoRoom, NotFound, Refused, StoreUnavailable
from lakemark.ports import Quiet
from tests.adapters.blobs_stepped import Hours
from tests.contract.store_places import NOW, digests, flip
from tests.support.power_loss import disk

QUIET = Quiet()
CONTENTS = {"weights.bin": b"w" * 3000, "a b/é": b"accent", "bin/run": b"#!", "twin": b"w" * 3000, "empty": b""}
HOUR = timedelta(hours=1)


def store_over(blobs, **how):
    store = DvcStore(blobs, name="cold", tier_class="cold", **how)
    store.claim("ledger", now=NOW)
    return store


def store_at(place, **how):
    return store_over(DirectoryBlobs(place), **how)


@pytest.fixture
def root(tmp_path):
    return tmp_path / "cold"


@pytest.fixture
def cold(root):
    return store_at(root)


def checkpoint_of(contents=CONTENTS, step=1):
    return StoreUnderCheck(store=None, digests=digests, now=NOW, run="run").checkpoint(contents, step=step)


def put(store, contents=CONTENTS, *, step=1, now=NOW):
    checkpoint = checkpoint_of(contents, step)
    stored = store.put(checkpoint, source(contents), now=now, progress=QUIET)
    return replace(checkpoint, objects=stored.objects)


def sound(store, checkpoint):
    return store.verify(checkpoint, progress=QUIET) == ()


def object_path(root, checkpoint, path):
    digest = next(file.digest for file in checkpoint.manifest.files if file.path == path)
    return root / dvc_layout.object_key(checkpoint.objects[digest])


def dir_bytes(*checkpoints):
    """Of their directory objects."""
    return sum(len(dvc_layout.dir_bytes(one.manifest, one.objects)) for one in checkpoints)


def files_of(root):
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and path.name != ".lock")


def test_the_layout_is_dvcs(cold, root):
    checkpoint = put(cold)
    listed = json.loads((root / dvc_layout.object_key(checkpoint.objects["dir"])).read_bytes())
    assert [row["relpath"] for row in listed] == sorted(CONTENTS)
    assert {row["relpath"]: row["md5"] for row in listed}["empty"] == "d41d8cd98f00b204e9800998ecf8427e"
    assert len([name for name in files_of(root) if name.startswith("files/md5/")]) == 5
    for name in files_of(root):
        if name.startswith("files/") and not name.endswith(".dir"):
            assert (root / name).stat().st_mode & 0o777 == 0o444


def test_directory_objects_are_ordered_by_the_paths_text():
    contents = {"x/b": b"1", "x.b": b"2", "x-": b"3"}
    checkpoint = checkpoint_of(contents)
    objects = {str(file.digest): "0" * 32 for file in checkpoint.manifest.regular}
    rows = json.loads(dvc_layout.dir_bytes(checkpoint.manifest, objects))
    assert [row["relpath"] for row in rows] == ["x-", "x.b", "x/b"]


def test_object_names_and_keys():
    name = "0123456789abcdef0123456789abcdef"
    assert dvc_layout.object_key(name) == "files/md5/01/23456789abcdef0123456789abcdef"
    for one in (name, name + ".dir"):
        assert dvc_layout.object_name(dvc_layout.object_key(one)) == one
    for key in (
        "files/md5/01/23",
        "files/md5/0123456789abcdef0123456789abcdef",
        "lakemark/tmp/x",
        f"files/md5/{name}.x",
    ):
        assert dvc_layout.object_name(key) is None


@pytest.mark.parametrize("victim", ["object", "dir", "claim"])
@pytest.mark.parametrize("how", ["flipped", "shortened", "lengthened", "gone"])
def test_damage_is_named_and_healed(cold, root, victim, how):
    checkpoint = put(cold)
    places = {
        "object": object_path(root, checkpoint, "weights.bin"),
        "dir": root / dvc_layout.object_key(checkpoint.objects["dir"]),
        "claim": root / dvc_layout.claim_key(checkpoint.record.id),
    }
    place = places[victim]
    place.chmod(0o644)
    data = place.read_bytes()
    if how == "gone":
        place.unlink()
    else:
        place.write_bytes({"flipped": b"?" + data[1:], "shortened": data[:-1], "lengthened": data + b" "}[how])
    other = store_at(root)
    if not (victim == "claim" and how == "lengthened"):
        named = {damage.path for damage in other.verify(checkpoint, progress=QUIET)}
        expected = {"object": {"weights.bin", "twin"}}.get(victim, {str(place.relative_to(root))})
        assert named == expected
        assert all(damage.missing == (how == "gone") for damage in other.verify(checkpoint, progress=QUIET))
    again = other.put(checkpoint, source(CONTENTS), now=NOW, progress=QUIET)
    assert again.objects == checkpoint.objects
    assert sound(other, checkpoint)


def test_an_object_left_damaged_by_somebody_else_is_written_over(cold, root):
    checkpoint = put(cold)
    cold.drop(checkpoint, now=NOW)
    bare = replace(checkpoint, objects={})
    place = object_path(root, checkpoint, "bin/run")
    flip(place)
    for name in files_of(root):
        if name.startswith("lakemark/condemned/"):
            (root / name).unlink()
    stored = store_at(root).put(bare, source(CONTENTS), now=NOW, progress=QUIET)
    assert stored.written_bytes == 2
    assert place.read_bytes() == b"#!"


def test_object_names_that_lie_are_found_before_anything_is_overwritten(cold, root):
    victim = put(cold, {"other": b"precious"})
    name = next(value for key, value in victim.objects.items() if key != "dir")
    checkpoint = checkpoint_of({"mine": b"mine!"})
    objects = {str(checkpoint.manifest.regular[0].digest): name}
    objects["dir"] = dvc_layout.dir_name(dvc_layout.dir_bytes(checkpoint.manifest, objects))
    lying = replace(checkpoint, objects=objects)
    with pytest.raises(Corrupt, match="kept under the name"):
        cold.put(lying, source({"mine": b"mine!"}), now=NOW, progress=QUIET)
    assert sound(cold, victim)
    assert not cold.holds(checkpoint.record.id)


class Forgetful(DirectoryBlobs):
    """Does what it is told, and then answers as if somebody else had been first: a lost answer, sent again."""

    def create(self, key, data):
        super().create(key, data)
        return False

    def write(self, key, stream, size_bytes, *, overwrite):
        super().write(key, stream, size_bytes, overwrite=overwrite)
        return False


def test_a_lost_answer_is_settled_by_reading(root):
    store = DvcStore(Forgetful(root), name="cold", tier_class="cold")
    identity = store.claim("ledger", now=NOW)
    assert store.identity() == identity
    checkpoint = put(store)
    assert sound(store_at(root), checkpoint)


class Rotten(DirectoryBlobs):
    """Keeps other bytes than it was given."""

    def write(self, key, stream, size_bytes, *, overwrite):
        done = super().write(key, stream, size_bytes, overwrite=overwrite)
        if size_bytes == 2:
            flip(Path(self.where) / key)
        return done


def test_bytes_that_rot_at_once_are_never_recorded(root):
    store = DvcStore(Rotten(root), name="cold", tier_class="cold")
    store.claim("ledger", now=NOW)
    with pytest.raises(Corrupt, match="right after it was written"):
        put(store)
    assert store.records().records == ()
    assert not store.holds(checkpoint_of().record.id)


class Unreadable(DirectoryBlobs):
    """One object can't be read, the rest can; or the whole store is away."""

    away = False
    bad = None

    def get(self, key):
        if self.away:
            raise StoreUnavailable("away", advice="Wait.")
        return super().get(key)

    def open(self, key, *, start=0, length=None):
        if self.away or (self.bad and self.bad in key):
            raise StoreUnavailable("times out", advice="Wait.")
        return super().open(key, start=start, length=length)


def test_one_unreadable_object_is_damage_and_a_store_away_is_not(root):
    blobs = Unreadable(root)
    store = store_over(blobs)
    checkpoint = put(store)
    blobs.bad = object_path(root, checkpoint, "bin/run").name
    (damage,) = store.verify(checkpoint, progress=QUIET)
    assert (damage.path, damage.missing) == ("bin/run", False)
    blobs.away = True
    with pytest.raises(StoreUnavailable):
        store.verify(checkpoint, progress=QUIET)


def test_a_lost_ledger_can_be_read_back(cold, root):
    checkpoint = put(cold)
    assert store_at(root).load(checkpoint.record.id) == checkpoint
    with pytest.raises(NotFound):
        cold.load("0" * 64)


def test_identity_that_changes_under_us_is_refused(cold, root):
    checkpoint = put(cold)
    path = root / "lakemark-tier.json"
    text = path.read_text()
    path.write_text(text.replace(cold.identity().id, "f" * 32))
    deeds = (
        lambda: put(cold, step=2),
        lambda: cold.drop(checkpoint, now=NOW),
        lambda: cold.collect(now=NOW + 1000 * HOUR, grace=HOUR, needed=[]),
    )
    for deed in deeds:
        with pytest.raises(Refused, match="was the tier"):
            deed()
    path.unlink()
    for deed in deeds:
        with pytest.raises(Refused, match="not mounted"):
            deed()
    path.write_text("{}")
    with pytest.raises(Corrupt):
        cold.identity()
    path.write_text(text)
    assert sound(cold, checkpoint)


# Removal


class Short(DirectoryBlobs):
    """Listings of one prefix break off."""

    prefix = None

    def list(self, prefix, *, limit=None):
        names = super().list(prefix, limit=limit)
        return Names({}, complete=False) if prefix == self.prefix else names

    def each(self, prefix):
        for number, found in enumerate(super().each(prefix)):
            if prefix == self.prefix and number:
                raise StoreUnavailable("it breaks off", advice="Wait.")
            yield found


@pytest.mark.parametrize(
    "prefix",
    [dvc_layout.RECORDS, dvc_layout.PARTS, dvc_layout.DROPPED, dvc_layout.OBJECTS, dvc_layout.CONDEMNED],
)
def test_nothing_is_deleted_on_an_incomplete_listing(root, prefix):
    blobs = Short(root)
    store = store_over(blobs)
    kept, gone = put(store, step=1), put(store, {"alone": b"alone"}, step=2)
    store.drop(gone, now=NOW)
    before = files_of(root)
    blobs.prefix = prefix
    if prefix == dvc_layout.RECORDS:
        assert not store.records().complete
    with pytest.raises(StoreUnavailable) if prefix == dvc_layout.OBJECTS else nullcontext():
        assert store.collect(now=NOW + 1000 * HOUR, grace=HOUR, needed=[]) == 0
    assert [name for name in before if name.startswith("files/")] == [
        name for name in files_of(root) if name.startswith("files/")
    ]
    blobs.prefix = None
    assert store.collect(now=NOW + 1000 * HOUR, grace=HOUR, needed=[]) == 5 + dir_bytes(gone)
    assert sound(store, kept)


@pytest.mark.parametrize("prefix", [dvc_layout.DROPPED, dvc_layout.CONDEMNED])
def test_a_listing_that_breaks_off_says_nothing_of_what_is_due(root, prefix):
    blobs = Short(root)
    store = store_over(blobs)
    store.drop(put(store), now=NOW)
    blobs.prefix = prefix
    assert not store.due(now=NOW + 2 * HOUR, grace=HOUR)
    blobs.prefix = None
    assert store.due(now=NOW + 2 * HOUR, grace=HOUR)


class Denying(DirectoryBlobs):
    """Says of some keys that they are not there, as a 404 of anything on the way does; listings are right."""

    denied = ()

    def get(self, key):
        return None if key in self.denied else super().get(key)

    def size(self, key):
        return None if key in self.denied else super().size(key)

    def open(self, key, **how):
        if key in self.denied:
            raise NotFound(key, advice="Look elsewhere.")
        return super().open(key, **how)

    def absent(self, key):
        return all(found != key for found, _ in self.each(""))


def test_what_is_listed_and_not_to_be_had_stops_every_deletion(root):
    """A directory object of somebody's that reading says is gone: what is in it may be used, and is due already."""
    blobs = Denying(root)
    store = store_over(blobs)
    theirs, ours = put(store, {"shared": b"shared"}, step=1), put(store, {"shared": b"shared", "b": b"b"}, step=2)
    (root / dvc_layout.claim_key(theirs.record.id)).unlink()
    store.drop(ours, now=NOW)
    blobs.denied = (dvc_layout.object_key(theirs.objects["dir"]),)
    with pytest.raises(StoreUnavailable):
        store.collect(now=NOW + 2 * HOUR, grace=HOUR, needed=[])
    assert object_path(root, theirs, "shared").exists()
    blobs.denied = ()
    store.collect(now=NOW + 2 * HOUR, grace=HOUR, needed=[])
    assert object_path(root, theirs, "shared").exists()
    assert not object_path(root, ours, "b").exists()


def test_a_claim_whose_directory_object_is_listed_is_not_forgotten(root):
    blobs = Denying(root)
    store = store_over(blobs)
    kept = put(store)
    blobs.denied = (dvc_layout.object_key(kept.objects["dir"]),)
    for hours in (2, 4, 6):
        store.collect(now=NOW + hours * HOUR, grace=HOUR, needed=[])
    assert (root / dvc_layout.claim_key(kept.record.id)).exists()
    blobs.denied = ()
    assert sound(store, kept)


def test_a_copy_of_the_ledger_that_is_listed_is_not_said_to_be_missing(root):
    blobs = Denying(root)
    store = store_over(blobs)
    with pytest.raises(NotFound):
        store.open_ledger()
    store.keep_ledger(io.BytesIO(b"a bundle"))
    blobs.denied = (dvc_layout.LEDGER,)
    with pytest.raises(StoreUnavailable):
        store.open_ledger()


def test_an_empty_place_says_of_nothing_that_it_is_gone(root, tmp_path):
    """A mount point whose disk is away is an empty directory, or none."""
    blobs = DirectoryBlobs(root)
    store_over(blobs)
    assert blobs.absent("files/x")
    assert not blobs.absent("lakemark-tier.json")
    root.rename(tmp_path / "away")
    for make in (False, True):
        if make:
            root.mkdir()
        with pytest.raises(StoreUnavailable, match="mounted"):
            blobs.absent("files/x")


def test_an_unreadable_claim_stops_every_deletion(cold, root):
    gone = put(cold, {"alone": b"alone"})
    cold.drop(gone, now=NOW)
    (root / "lakemark/records").mkdir(exist_ok=True)
    (root / "lakemark/records" / f"{'a' * 64}.json").write_text("{")
    with pytest.raises(Corrupt):
        cold.collect(now=NOW + 1000 * HOUR, grace=HOUR, needed=[])
    assert object_path(root, gone, "alone").exists()


def test_orphans_of_dead_writers_go_after_the_grace(cold, root):
    kept = put(cold)
    orphan = root / dvc_layout.object_key("0" * 32)
    orphan.parent.mkdir(parents=True)
    orphan.write_bytes(b"orphan")
    assert cold.collect(now=NOW, grace=HOUR, needed=[]) == 0
    assert cold.collect(now=NOW + HOUR / 2, grace=HOUR, needed=[]) == 0
    assert cold.collect(now=NOW + HOUR, grace=HOUR, needed=[]) == 6
    assert not orphan.exists()
    assert sound(cold, kept)


def test_what_somebody_pushed_into_the_place_is_spared(cold, root):
    rows = [{"md5": "1" * 32, "relpath": "theirs"}]
    data = json.dumps(rows, sort_keys=True).encode()
    cold.blobs.create(dvc_layout.object_key(dvc_layout.dir_name(data)), data)
    cold.blobs.create(dvc_layout.object_key("1" * 32), b"theirs")
    for days in range(3):
        cold.collect(now=NOW + timedelta(days=days), grace=HOUR, needed=[])
    assert cold.blobs.get(dvc_layout.object_key("1" * 32)) == b"theirs"


def test_a_parts_objects_are_in_use(cold):
    cold.blobs.create(dvc_layout.object_key("1" * 32), b"part")
    cold.blobs.create(f"{dvc_layout.PARTS}aaaaaaaa-7-p0.json", json.dumps({"objects": {"d": "1" * 32}}).encode())
    for days in range(3):
        cold.collect(now=NOW + timedelta(days=days), grace=HOUR, needed=[])
    assert cold.blobs.get(dvc_layout.object_key("1" * 32)) == b"part"


def test_claims_of_puts_that_never_ended_are_forgotten_after_the_grace(cold, root):
    checkpoint = put(cold)
    (root / dvc_layout.object_key(checkpoint.objects["dir"])).unlink()
    assert cold.records().records == ()
    assert cold.records().complete
    cold.collect(now=NOW + HOUR / 2, grace=HOUR, needed=[])
    assert (root / dvc_layout.claim_key(checkpoint.record.id)).exists()
    for hours in (1, 2, 3):
        cold.collect(now=NOW + hours * HOUR, grace=HOUR, needed=[])
    assert files_of(root) == ["lakemark-tier.json"]


class Counting(DirectoryBlobs):
    """Keeps count of what is read."""

    def __init__(self, root):
        super().__init__(root)
        self.read = []

    def size(self, key):
        self.read.append(key)
        return super().size(key)

    def each(self, prefix):
        self.read.append(prefix)
        return super().each(prefix)

    def get(self, key):
        self.read.append(key)
        return super().get(key)


def test_a_claim_is_read_once_for_all_drops_and_passes(root):
    blobs = Counting(root)
    store = store_over(blobs)
    kept = [put(store, {"shared": b"shared", "own": bytes([step])}, step=step) for step in range(1, 7)]
    store.drop(kept[0], now=NOW)
    store.collect(now=NOW, grace=HOUR, needed=kept[1:])
    blobs.read.clear()
    store.drop(kept[1], now=NOW)
    assert store.collect(now=NOW + 2 * HOUR, grace=HOUR, needed=kept[2:]) == 2 + dir_bytes(*kept[:2])
    claims = [key for key in blobs.read if key.startswith(dvc_layout.RECORDS) and key.endswith(".json")]
    assert set(claims) <= {dvc_layout.claim_key(kept[1].record.id)}
    assert all(sound(store, checkpoint) for checkpoint in kept[2:])


def test_a_claim_that_came_later_is_seen_by_the_next_pass(root):
    store, other = store_at(root), store_at(root)
    first = put(store, {"shared": b"shared", "own": b"1"}, step=1)
    store.collect(now=NOW, grace=HOUR, needed=[])
    second = put(other, {"shared": b"shared", "own": b"2"}, step=2)
    store.drop(first, now=NOW)
    assert store.collect(now=NOW + 2 * HOUR, grace=HOUR, needed=[]) == 1 + dir_bytes(first)
    assert sound(other, second)


def test_what_is_due_is_known_without_reading_again(root):
    blobs = Counting(root)
    store = store_over(blobs)
    checkpoint = put(store)
    assert not store.due(now=NOW, grace=HOUR)
    store.drop(checkpoint, now=NOW + HOUR / 2)
    blobs.read.clear()
    assert not store.due(now=NOW + HOUR / 2, grace=HOUR)
    assert blobs.read == []
    assert not store.due(now=NOW + 1.4 * HOUR, grace=HOUR)
    assert store.due(now=NOW + 1.5 * HOUR, grace=HOUR)
    assert store.collect(now=NOW + 1.5 * HOUR, grace=HOUR, needed=[]) > 0
    assert not store.due(now=NOW + 9 * HOUR, grace=HOUR)


def test_a_removal_that_a_crash_broke_off_is_due_at_once(cold):
    checkpoint = put(cold)
    cold.drop(checkpoint, now=NOW)
    name = next(value for key, value in checkpoint.objects.items() if key != "dir")
    cold.blobs.replace(dvc_layout.mark_key(name), dvc_layout.Mark(condemned_at=NOW, going=True).to_bytes())
    assert cold.due(now=NOW, grace=HOUR)


def test_what_made_a_writer_wait_is_looked_for_though_nothing_was_due(root):
    cold = waiting_store(root)
    checkpoint = put(cold)
    cold.blobs.delete(dvc_layout.claim_key(checkpoint.record.id))
    assert not cold.due(now=NOW, grace=HOUR)
    for name in (checkpoint.objects["dir"], "0" * 32):
        cold.blobs.create(dvc_layout.going_key(name, "1" * 16), b"")
    put(cold)
    assert cold.due(now=NOW, grace=HOUR)


@given(st.sets(st.binary(min_size=16, max_size=16)), st.sets(st.binary(min_size=16, max_size=16)))
def test_nothing_that_is_used_is_ever_taken_for_unused(names, others):
    used = Used()
    for name in names:
        assert name.hex() not in used
        used.add([name.hex(), "no object's name"])
        assert name.hex() in used
    assert all(name.hex() in used for name in names)
    assert {name for name in others if name.hex() in used} == names & others


def waiting_store(root, hours=None):
    """Where time passes by waiting alone."""
    return store_at(root, patience=(hours or Hours()).patience())


@pytest.mark.parametrize("of_an_earlier_version", [True, False])
def test_an_object_that_is_being_removed_makes_its_writer_wait_for_a_minute(root, of_an_earlier_version):
    hours = Hours()
    cold = waiting_store(root, hours)
    checkpoint = put(cold)
    cold.drop(checkpoint, now=NOW)
    name = next(value for key, value in checkpoint.objects.items() if key != "dir")
    if of_an_earlier_version:
        cold.blobs.create(dvc_layout.mark_key(name), dvc_layout.Mark(condemned_at=NOW, going=True).to_bytes())
    else:
        cold.blobs.create(dvc_layout.going_key(name, "1" * 16), b"")
    assert sound(cold, put(cold))
    assert hours.seconds > WAIT_SECONDS
    assert not [found for found in files_of(root) if found.startswith("lakemark/condemned/")]


def test_a_writer_waits_no_longer_than_the_removal_lasts(root):
    hours = Hours()
    cold = waiting_store(root, hours)
    checkpoint = put(cold)
    cold.drop(checkpoint, now=NOW)
    name = next(value for key, value in checkpoint.objects.items() if key != "dir")
    note = dvc_layout.going_key(name, "1" * 16)
    cold.blobs.create(note, b"")

    def sleep(seconds):
        hours.sleep(seconds)
        cold.blobs.delete(dvc_layout.object_key(name))
        cold.blobs.delete(note)

    other = DvcStore(DirectoryBlobs(root), name="cold", tier_class="cold", patience=hours.patience(sleep))
    assert sound(other, put(other))
    assert hours.seconds < WAIT_SECONDS


@pytest.mark.parametrize("clock", ["runs", "is set forward"])
def test_a_removal_that_took_too_long_begins_anew(root, clock):
    hours = Hours()

    class Slow(DirectoryBlobs):
        looked = 0

        def size(self, key):
            if key.startswith(dvc_layout.CONDEMNED):
                self.looked += 1
                if self.looked == 1 and clock == "runs":
                    hours.sleep(WAIT_SECONDS)
                elif self.looked == 1:
                    hours.wall_jumps = 3600.0
            return super().size(key)

    blobs = Slow(root)
    cold = DvcStore(blobs, name="cold", tier_class="cold", patience=hours.patience())
    cold.claim("ledger", now=NOW)
    cold.drop(put(cold), now=NOW)
    assert cold.collect(now=NOW + 2 * HOUR, grace=HOUR, needed=[]) > 0
    assert blobs.looked > 3
    assert files_of(root) == ["lakemark-tier.json"]


def test_a_process_stopped_right_at_a_removal_is_seen(root):
    """Between the last look at the clock and the system call: no clock sees that, the lock does."""
    cold = waiting_store(root)
    cold.blobs.create("files/x", b"x")
    child = os.fork()
    if child == 0:
        cold.blobs.delete("files/x", unless_late=lambda: os.kill(os.getpid(), signal.SIGSTOP))
        os._exit(0)
    try:
        os.waitpid(child, os.WUNTRACED)
        with pytest.raises(StoreUnavailable, match="stopped half-way"):
            cold.blobs.require_no_removal()
        assert cold.blobs.get("files/x") == b"x"
        os.kill(child, signal.SIGCONT)
        os.waitpid(child, 0)
        cold.blobs.require_no_removal()
        assert cold.blobs.get("files/x") is None
    finally:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def test_a_condemned_object_that_is_needed_again_is_written_anew(cold, root):
    checkpoint = put(cold)
    for name in checkpoint.objects.values():
        cold.blobs.create(dvc_layout.mark_key(name), dvc_layout.Mark(condemned_at=NOW).to_bytes())
    stored = put_anew(cold, checkpoint)
    assert stored.written_bytes == 3000 + len(b"accent") + len(b"#!")
    assert not [name for name in files_of(root) if name.startswith("lakemark/condemned/")]


def put_anew(store, checkpoint):
    """Without the claim there is nothing to verify first."""
    store.blobs.delete(dvc_layout.claim_key(checkpoint.record.id))
    return store.put(checkpoint, source(CONTENTS), now=NOW, progress=QUIET)


def test_what_was_dropped_and_is_needed_again_is_read_in_full_and_not_written(cold, root):
    checkpoint = put(cold)
    cold.drop(checkpoint, now=NOW)
    place = object_path(root, checkpoint, "bin/run")
    flip(place)
    stored = cold.put(checkpoint, source(CONTENTS), now=NOW + HOUR / 2, progress=QUIET)
    assert stored.written_bytes == len(b"#!")
    assert cold.collect(now=NOW + 2 * HOUR, grace=HOUR, needed=[]) == 0
    assert sound(cold, checkpoint)
    assert not [name for name in files_of(root) if name.startswith(dvc_layout.DROPPED)]


def test_a_drop_asks_little_however_much_there_is(root):
    blobs = Counting(root)
    store = store_over(blobs)
    kept = [put(store, {f"{number}": bytes([step, number]) for number in range(8)}, step=step) for step in range(6)]
    for one in kept[:2]:
        blobs.read.clear()
        before = files_of(root)
        store.drop(one, now=NOW)
        assert set(blobs.read) == {"lakemark-tier.json", dvc_layout.claim_key(one.record.id)}
        note = dvc_layout.drop_key(one.record.id, NOW)
        assert set(files_of(root)) ^ set(before) == {note, dvc_layout.claim_key(one.record.id)}


def test_drops_are_noted_in_order_of_time():
    instants = [
        NOW,
        NOW + timedelta(microseconds=1),
        NOW.astimezone(timezone(2 * HOUR)) + HOUR,
        NOW + timedelta(days=400),
    ]
    keys = [dvc_layout.drop_key("f" * 64, at) for at in instants]
    assert keys == sorted(keys)
    assert [dvc_layout.dropped_at(key) for key in keys] == instants
    assert {dvc_layout.dropped_record(key) for key in keys} == {"f" * 64}
    for stranger in ("yesterday-" + "f" * 64 + ".json", "zz", keys[0] + "x", keys[0].removesuffix(".json")):
        assert dvc_layout.dropped_at(dvc_layout.DROPPED + stranger.removeprefix(dvc_layout.DROPPED)) is None


def test_a_pass_does_so_much_and_leaves_the_later_drops_to_the_next(cold, root):
    kept = [put(cold, {"own": bytes([step]) * 50}, step=step) for step in range(4)]
    for hours, one in enumerate(kept):
        cold.drop(one, now=NOW + hours * HOUR)
    claims, late = Claims(cold.blobs), NOW + 9 * HOUR
    freed = Collector(cold.blobs, claims, going=Going(cold.blobs, Patience()), most=3).run(
        now=late, grace=HOUR, needed=()
    )
    assert freed == 100 + dir_bytes(*kept[:2])
    assert cold.due(now=late, grace=HOUR)
    assert len([name for name in files_of(root) if name.startswith(dvc_layout.DROPPED)]) == 2
    assert Collector(cold.blobs, claims, going=Going(cold.blobs, Patience()), most=3).run(
        now=late, grace=HOUR, needed=()
    ) == 100 + dir_bytes(*kept[2:])
    assert files_of(root) == ["lakemark-tier.json"]


def test_an_unreadable_note_of_a_drop_stops_every_deletion(cold, root):
    gone = put(cold, {"alone": b"alone"})
    cold.drop(gone, now=NOW)
    note = root / dvc_layout.drop_key("a" * 64, NOW)
    note.write_text("{")
    with pytest.raises(Corrupt) as raised:
        cold.collect(now=NOW + 1000 * HOUR, grace=HOUR, needed=[])
    assert "until you have removed it" in raised.value.advice
    assert object_path(root, gone, "alone").exists()
    assert sound(cold, put(cold))
    note.unlink()
    assert cold.collect(now=NOW + 1000 * HOUR, grace=HOUR, needed=[]) > 0


def test_what_is_needed_and_lost_its_claim_keeps_the_note_of_its_drop(cold, root):
    """Else its directory object would be nobody's, and stay for good once it is needed no more."""
    checkpoint = put(cold)
    cold.drop(checkpoint, now=NOW)
    assert cold.collect(now=NOW + 2 * HOUR, grace=HOUR, needed=[checkpoint]) == 0
    assert cold.collect(now=NOW + 2 * HOUR, grace=HOUR, needed=[]) > 3000
    assert files_of(root) == ["lakemark-tier.json"]


def test_a_record_whose_claim_got_lost_is_read_and_dropped_all_the_same(cold, root):
    checkpoint = put(cold)
    (root / dvc_layout.claim_key(checkpoint.record.id)).unlink()
    other = store_at(root)
    (file,) = (file for file in checkpoint.manifest.regular if file.path == "bin/run")
    with other.open(checkpoint, file) as stream:
        assert stream.read() == b"#!"
    assert other.drop(checkpoint, now=NOW) > 0
    assert other.drop(checkpoint, now=NOW + HOUR) == 0
    with pytest.raises(NotFound):
        other.open(checkpoint, file)
    assert other.collect(now=NOW + HOUR, grace=HOUR, needed=[]) > 3000
    assert files_of(root) == ["lakemark-tier.json"]


def test_a_reader_that_began_before_the_drop_may_end(cold, root):
    checkpoint = put(cold)
    reader = store_at(root)
    one, *rest = checkpoint.manifest.regular
    reader.open(checkpoint, one).close()
    cold.drop(checkpoint, now=NOW)
    assert not reader.holds(checkpoint.record.id)
    for file in rest:
        with reader.open(checkpoint, file) as stream:
            assert stream.read() == CONTENTS[file.path]
    cold.collect(now=NOW + HOUR, grace=HOUR, needed=[])
    with pytest.raises(NotFound):
        reader.open(checkpoint, one)


def test_a_shared_place_is_identified_and_never_deleted_from(root):
    root.mkdir()
    (root / "theirs").write_text("theirs")
    with pytest.raises(Refused, match="not empty"):
        store_at(root)
    shared = store_at(root, shared=True)
    checkpoint = put(shared)
    shared.drop(checkpoint, now=NOW)
    assert not shared.holds(checkpoint.record.id)
    assert shared.collect(now=NOW + 1000 * HOUR, grace=HOUR, needed=[]) == 0
    assert object_path(root, checkpoint, "weights.bin").exists()
    assert (root / "theirs").read_text() == "theirs"


class Interrupted(DirectoryBlobs):
    """removing: called once, with the key, after the first object was removed."""

    removing = None

    def delete(self, key, **how):
        super().delete(key, **how)
        if self.removing and key.startswith(dvc_layout.OBJECTS):
            meanwhile, self.removing = self.removing, None
            meanwhile(key)


@pytest.mark.parametrize("faster", [True, False])
def test_a_collector_that_others_overtake_removes_nothing_they_gave_back(root, faster):
    """faster: another pass removed meanwhile what the writer then writes anew."""
    blobs, patience = Interrupted(root), Hours().patience()
    store = store_over(blobs, patience=patience)
    other, writer = (store_at(root, patience=patience) for _ in range(2))
    later, written = NOW + 2 * HOUR, []
    files = {"one": b"one", "two": b"two", "three": b"three"}
    store.drop(put(store, files), now=NOW)

    def meanwhile(removed):
        md5s = {name: hashlib.md5(content, usedforsecurity=False).hexdigest() for name, content in files.items()}
        wanted = {name: files[name] for name, md5 in md5s.items() if dvc_layout.object_key(md5) != removed}
        if faster:
            other.collect(now=later, grace=HOUR, needed=[])
        written.append(put(writer, wanted, step=2, now=later))

    blobs.removing = meanwhile
    store.collect(now=later, grace=HOUR, needed=[])
    assert sound(writer, written[0])


def test_a_drop_that_died_keeps_no_twin_waiting(cold, root):
    first = put(cold)
    cold.blobs.create(
        dvc_layout.drop_key(first.record.id, NOW), dvc_layout.drop_bytes(first.record.id, first.objects, NOW)
    )
    assert sound(cold, put(cold, step=2))
    assert cold.collect(now=NOW + HOUR, grace=HOUR, needed=[]) == 0
    assert cold.holds(first.record.id)
    assert not [name for name in files_of(root) if name.startswith(dvc_layout.DROPPED)]


def test_writers_beside_a_collector_lose_nothing(root):
    """With no grace at all, so that only the order of claims and marks protects the writers."""
    store_at(root)
    stop, errors, rounds = threading.Event(), [], []

    def collect():
        collector, hours = store_at(root), 0
        while not stop.is_set():
            hours += 1
            collector.collect(now=NOW + hours * HOUR, grace=timedelta(), needed=[])

    def write(number):
        store = store_at(root)
        contents = {"shared": b"s" * 500, "own": bytes([number]) * 300}
        try:
            for _ in range(12):
                checkpoint = _put_in_the_end(store, contents, number)
                assert sound(store, checkpoint)
                assert sound(store, checkpoint)
                store.drop(checkpoint, now=NOW)
                rounds.append(number)
        except Exception as error:  # noqa: BLE001 - shown below
            errors.append(error)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    collector = threading.Thread(target=collect)
    for thread in (*writers, collector):
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    collector.join()
    assert errors == []
    assert len(rounds) == 36


def _put_in_the_end(store, contents, step):
    while True:
        try:
            # In the collector's future: it takes no claim for a dead writer's.
            return put(store, contents, step=step, now=NOW + timedelta(days=10_000))
        except StoreUnavailable:
            continue


def test_many_put_the_same_checkpoint_at_once(root):
    store_at(root)
    done = []
    threads = [threading.Thread(target=lambda: done.append(put(store_at(root)))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 6
    assert sound(store_at(root), done[0])
    assert list((root / "lakemark/tmp").glob("[!.]*")) == []


def test_a_killed_writers_temporary_is_removed_and_a_living_ones_kept(cold, root):
    living = cold.blobs._bench.begin()
    dead = root / "lakemark" / "tmp" / "dead"
    dead.mkdir()
    (dead / "new").write_text("half")
    cold.collect(now=NOW, grace=HOUR, needed=[])
    assert list((root / "lakemark" / "tmp").glob("[!.]*")) == [living]
    cold.blobs._bench.end(living.name)


def test_what_was_acknowledged_survives_power_loss(require_root, require_command, tmp_path):
    with disk(tmp_path, "ext4", require_command) as ext4:
        store = store_at(ext4.path / "cold")
        contents = {f"shard-{number}": bytes([number]) * 200_000 for number in range(8)}
        checkpoint = put(store, contents)
        ext4.cut()
        ext4.revive()
        assert sound(store, checkpoint)
        assert store.records().records == (checkpoint.record.id,)
        store.drop(checkpoint, now=NOW)
        ext4.cut()
        ext4.revive()
        assert not store.holds(checkpoint.record.id)


def test_room_is_looked_for_once_for_many_puts(root):
    blobs = Counting(root)
    store = store_over(blobs, capacity_bytes=10_000)
    blobs.read.clear()
    for step in range(5):
        put(store, {"own": bytes([step]) * 20}, step=step)
    assert blobs.read.count(dvc_layout.OBJECTS) == 1
    put(store, {"own": b"x" * 90}, step=5)
    assert blobs.read.count(dvc_layout.OBJECTS) == 2
    put(store, {"own": b"y" * 9000}, step=6)
    with pytest.raises(NoRoom):
        put(store, {"own": b"z" * 900}, step=7)


def test_what_is_beyond_its_capacity_is_refused_and_leaves_nothing(root):
    small = store_at(root, capacity_bytes=3100)
    first = put(small)
    assert put(small, step=2).objects == first.objects  # shares every object: needs no room
    before = sorted(root.rglob("*"))
    with pytest.raises(NoRoom, match="capacity"):
        put(small, {"more": b"m" * 200}, step=3)
    assert sorted(root.rglob("*")) == before
    put(store_at(root, capacity_bytes=4000), {"more": b"m" * 200}, step=3)
    assert store_at(root, capacity_bytes=4000).usage().capacity_bytes == 4000
