"""DVC's name of an object is no identity, and a tier's own record of a checkpoint may be gone, garbled or another's."""

import hashlib
import json
from dataclasses import replace

import pytest

from lakemark.adapters.disk.directory_objects import DirectoryBlobs
from lakemark.adapters.dvc import layout as dvc_layout
from lakemark.adapters.dvc.store import DvcStore
from lakemark.contract.store import source
from lakemark.errors import AnswerDamaged, Corrupt, NameTaken, Refused, TargetDamaged
from tests.adapters.test_dvc import CONTENTS, HOUR, QUIET, checkpoint_of, object_path, put, sound, store_at, store_over
from tests.contract.store_places import NOW, flip
from tests.support.md5_pair import MD5, ONE, OTHER


@pytest.fixture
def root(tmp_path):
    return tmp_path / "cold"


@pytest.fixture
def cold(root):
    return store_at(root)


def test_the_pair_is_one():
    assert ONE != OTHER
    assert {hashlib.md5(one, usedforsecurity=False).hexdigest() for one in (ONE, OTHER)} == {MD5}


def test_two_files_with_one_name_in_one_checkpoint_are_refused_before_a_byte_is_written(cold, root):
    contents = {"a": ONE, "b": OTHER, "c": b"c"}
    with pytest.raises(NameTaken, match=MD5) as told:
        put(cold, contents)
    assert told.value.exit_code == Refused.exit_code
    assert told.value.as_json()["error"]["kind"] == "Refused"
    assert not cold.holds(checkpoint_of(contents).record.id)
    assert cold.claimed().records == ()
    assert not (root / "files").exists()
    put(cold, {"a": ONE, "b": ONE})


def test_two_names_for_one_file_are_no_conflict(cold):
    assert sound(cold, put(cold, {"a": ONE, "b": ONE}))


@pytest.mark.parametrize("known", [False, True], ids=["fresh", "names known"])
def test_another_record_s_file_is_never_written_over(cold, root, known):
    mine = put(cold, {"a": ONE, "same": b"same"}, step=1)
    contents = {"b": OTHER, "same": b"same", "more": b"more"}
    other = checkpoint_of(contents, 2)
    if known:
        elsewhere = store_at(root.with_name("elsewhere"))
        other = replace(other, objects=put(elsewhere, contents, step=2).objects)
    with pytest.raises(NameTaken, match=MD5):
        cold.put(other, source(contents), now=NOW, progress=QUIET)
    assert not cold.holds(other.record.id)
    assert cold.claimed().records == (mine.record.id,)
    assert sound(cold, mine)
    cold.collect(now=NOW + 100 * HOUR, grace=HOUR, needed=[mine])
    cold.collect(now=NOW + 200 * HOUR, grace=HOUR, needed=[mine])
    assert sound(store_at(root), mine)


def test_a_repair_heals_its_own_and_spares_the_other(cold, root):
    mine = put(cold, {"a": ONE}, step=1)
    flip(object_path(root, mine, "a"))
    again = store_at(root).put(mine, source({"a": ONE}), now=NOW, progress=QUIET)
    assert again.written_bytes == len(ONE)
    assert sound(cold, mine)
    with pytest.raises(NameTaken):
        put(store_at(root), {"b": OTHER}, step=2)
    assert object_path(root, mine, "a").read_bytes() == ONE


def test_verify_compares_every_file_not_every_object(cold, root):
    """As a version that took names for identity left it: one object, two files."""
    contents = {"a": ONE, "b": OTHER}
    checkpoint = checkpoint_of(contents)
    objects = {str(file.digest): MD5 for file in checkpoint.manifest.regular}
    objects["dir"] = dvc_layout.dir_name(dvc_layout.dir_bytes(checkpoint.manifest, objects))
    left = replace(checkpoint, objects=objects)
    claim = dvc_layout.Claim(record=left.record, manifest=left.manifest, objects=objects, claimed_at=NOW)
    blobs = DirectoryBlobs(root)
    blobs.replace(dvc_layout.claim_key(left.record.id), claim.to_bytes())
    blobs.replace(dvc_layout.object_key(objects["dir"]), dvc_layout.dir_bytes(left.manifest, objects))
    for kept, lost in ((ONE, "b"), (OTHER, "a")):
        blobs.replace(dvc_layout.object_key(MD5), kept)
        assert {damage.path for damage in store_at(root).verify(left, progress=QUIET)} == {lost}


class Late(DirectoryBlobs):
    """Another writer puts its object, with our name, between our look and our write."""

    other = None

    def write(self, key, stream, size_bytes, *, overwrite):
        if self.other is not None and key == dvc_layout.object_key(MD5):
            other, self.other = self.other, None
            super().replace(key, other)
        return super().write(key, stream, size_bytes, overwrite=overwrite)


def test_the_second_of_two_at_once_is_refused(root):
    blobs = Late(root)
    store = store_over(blobs)
    blobs.other = ONE
    with pytest.raises(NameTaken):
        put(store, {"b": OTHER})
    assert object_path(root, put(store, {"a": ONE}, step=2), "a").read_bytes() == ONE


class Lying(DirectoryBlobs):
    """The first readings of an object give a flipped byte; what lies there is right."""

    lies = 0

    def open(self, key, *, start=0, length=None):
        stream = super().open(key, start=start, length=length)
        if self.lies and key.startswith(dvc_layout.OBJECTS):
            self.lies -= 1
            data = bytearray(stream.read())
            data[0] ^= 1
            stream.close()
            import io

            return io.BytesIO(bytes(data))
        return stream


def test_one_wrong_reading_right_after_writing_is_read_again(root):
    blobs = Lying(root)
    store = store_over(blobs)
    blobs.lies = 1
    assert sound(store, put(store, {"a": b"alone"}))


def test_whose_fault_it_is_is_told_by_the_type(cold, root):
    checkpoint = checkpoint_of()
    wrong = CONTENTS | {"weights.bin": b"W" * 3000}
    with pytest.raises(AnswerDamaged):
        cold.put(checkpoint, source(wrong), now=NOW, progress=QUIET)

    class Failing(DirectoryBlobs):
        def write(self, key, stream, size_bytes, *, overwrite):
            while stream.read(1 << 16):
                pass
            raise Corrupt("fsync: Input/output error", advice="Look at the disk.")

    store = DvcStore(Failing(root), name="cold", tier_class="cold")
    with pytest.raises(TargetDamaged, match="fsync"):
        store.put(checkpoint, source(CONTENTS), now=NOW, progress=QUIET)
    assert sound(cold, put(cold))


# The tier's own record of a checkpoint

CLAIMS = {
    "garbage": lambda _mine, _other: b"\x00\xff garbage",
    "empty": lambda _mine, _other: b"",
    "another's": lambda _mine, other: other,
    "thinned": lambda mine, _other: thinned(mine, "objects"),
    "fewer files": lambda mine, _other: thinned(mine, "files"),
    "no list": lambda _mine, _other: b"[]",
    "a name that leads out": lambda mine, _other: mine.replace(b'"dir":"', b'"dir":"../../'),
}


def thinned(data, what):
    value = json.loads(data)
    if what == "objects":
        value["objects"] = dict(list(value["objects"].items())[1:])
    else:
        value["manifest"]["files"] = value["manifest"]["files"][1:]
    return json.dumps(value).encode()


def claim_of(root, checkpoint):
    return root / dvc_layout.claim_key(checkpoint.record.id)


@pytest.fixture(params=CLAIMS)
def spoiled(request, cold, root):
    """A checkpoint whose claim is not what it was; its bytes are right."""
    mine, other = put(cold, step=1), put(cold, {"other": b"other"}, step=2)
    path = claim_of(root, mine)
    data = CLAIMS[request.param](path.read_bytes(), claim_of(root, other).read_bytes())
    path.chmod(0o644)
    path.write_bytes(data)
    return mine


def test_a_claim_that_says_nothing_right_is_named_and_nothing_else(root, spoiled):
    (damage,) = store_at(root).verify(spoiled, progress=QUIET)
    assert damage.path == dvc_layout.claim_key(spoiled.record.id)
    assert not damage.missing


def test_its_bytes_are_read_by_the_names_the_ledger_knows(root, spoiled):
    store = store_at(root)
    for file in spoiled.manifest.regular:
        with store.open(spoiled, file) as stream:
            assert stream.read() == CONTENTS[file.path]


def test_a_put_writes_it_anew(root, spoiled):
    store = store_at(root)
    assert not store.holds(spoiled.record.id)
    again = store.put(replace(spoiled, objects={}), source(CONTENTS), now=NOW, progress=QUIET)
    assert again.objects == spoiled.objects
    assert sound(store, spoiled)


def test_without_any_name_all_of_it_is_damaged_and_nothing_raises(root, spoiled):
    seen = store_at(root).verify(replace(spoiled, objects={}), progress=QUIET)
    assert {file.path for file in spoiled.manifest.regular} <= {damage.path for damage in seen}


def test_a_drop_goes_by_the_ledger_s_names(root, spoiled):
    store = store_at(root)
    store.drop(spoiled, now=NOW)
    assert not claim_of(root, spoiled).exists()
    store.collect(now=NOW + 100 * HOUR, grace=HOUR, needed=[])
    assert not object_path(root, spoiled, "weights.bin").exists()
