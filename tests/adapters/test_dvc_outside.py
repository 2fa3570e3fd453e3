"""What others put into a tier: names, claims and kinds of files that are none of ours lead nowhere and stop nothing else."""

import json
import os
from contextlib import nullcontext
from dataclasses import replace

import pytest

from lakemark.adapters.dvc import layout as dvc_layout
from lakemark.contract import Broken, store
from lakemark.contract.store import StoreUnderCheck, source
from lakemark.errors import Corrupt, Refused
from tests.adapters.test_dvc import CONTENTS, HOUR, NOW, QUIET, checkpoint_of, object_path, put, sound, store_at
from tests.contract.store_places import digests

OTHER = {"other": b"o" * 50}
FAR = 1000 * HOUR


@pytest.fixture
def root(tmp_path):
    return tmp_path / "tiers" / "cold"


@pytest.fixture
def cold(root):
    return store_at(root)


def claim_of(root, checkpoint):
    return root / dvc_layout.claim_key(checkpoint.record.id)


def rewrite(path, change):
    value = json.loads(path.read_bytes())
    change(value)
    path.chmod(0o644)
    path.write_text(json.dumps(value))


def leading_out(value):
    value["objects"]["dir"] = "x/../../../../victim.txt"


def thinned(value):
    value["objects"].pop(next(key for key in value["objects"] if key != "dir"))


def without_directory(value):
    del value["objects"]["dir"]


def with_another_directory(value):
    value["objects"]["dir"] = "0" * 32 + ".dir"


def with_a_name_of_a_file(value):
    value["objects"] |= {key: "../" + name for key, name in value["objects"].items()}


def without_record(value):
    del value["record"]


@pytest.mark.parametrize(
    "how", [leading_out, thinned, without_directory, with_another_directory, with_a_name_of_a_file, without_record]
)
def test_a_claim_that_was_changed_is_damage_and_leads_nowhere(cold, root, tmp_path, how):
    victim = tmp_path / "victim.txt"
    victim.write_text("mine")
    kept, gone = put(cold), put(cold, OTHER, step=2)
    rewrite(claim_of(root, kept), how)
    other = store_at(root)
    damage = other.verify(kept, progress=QUIET)
    assert dvc_layout.claim_key(kept.record.id) in {one.path for one in damage}
    assert not other.holds(kept.record.id)
    cold.drop(gone, now=NOW)
    # Whose directory object is whose is not looked at for each of a hundred thousand claims: its members stay either way.
    with nullcontext() if how is with_another_directory else pytest.raises(Corrupt, match="can't be read"):
        store_at(root).collect(now=NOW + FAR, grace=HOUR, needed=[])
    assert victim.read_text() == "mine"
    again = other.put(kept, source(CONTENTS), now=NOW, progress=QUIET)
    assert again.objects == kept.objects
    assert sound(store_at(root), kept)
    assert store_at(root).collect(now=NOW + FAR, grace=HOUR, needed=[kept]) > 0 or how is with_another_directory
    assert not object_path(root, gone, "other").exists()


def test_another_record_s_claim_is_damage(cold, root):
    one, two = put(cold), put(cold, OTHER, step=2)
    swapped = claim_of(root, two).read_bytes()
    claim_of(root, one).unlink()
    claim_of(root, one).write_bytes(swapped)
    other = store_at(root)
    assert [one_.path for one_ in other.verify(one, progress=QUIET)] == [dvc_layout.claim_key(one.record.id)]
    assert sound(other, two)
    with other.open(one, one.manifest.regular[0]) as stream:
        assert stream.read() == CONTENTS[one.manifest.regular[0].path]
    assert other.drop(one, now=NOW) > 0
    assert not claim_of(root, one).exists()


def test_what_the_ledger_knows_in_part_is_no_reason_to_fail(cold, root):
    kept = put(cold)
    claim_of(root, kept).unlink()
    thin = dict(list(kept.objects.items())[:1]) | {"dir": kept.objects["dir"]}
    assert store_at(root).verify(replace(kept, objects=thin), progress=QUIET)


def test_strangers_among_the_names_are_passed_over_and_told(cold, root):
    gone, kept = put(cold, OTHER), put(cold, step=2)
    strangers = [
        "lakemark/condemned/zz",
        "lakemark/condemned/" + "a" * 32 + "-zz",
        "lakemark/dropped/zz",
        "lakemark/dropped/20261126T120000000000Z-zz.json",
        "lakemark/records/zz.json",
        "lakemark/parts/zz",
    ]
    for name in strangers:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("what is this")
    cold.drop(gone, now=NOW)
    assert sorted(strangers) == list(cold.strangers())
    assert cold.due(now=NOW + FAR, grace=HOUR)
    assert cold.collect(now=NOW + FAR, grace=HOUR, needed=[kept]) > 0
    assert not cold.holds(gone.record.id)
    assert cold.claimed().records == cold.records().records == (kept.record.id,)
    assert sound(cold, put(cold, OTHER))
    assert all((root / name).exists() for name in strangers)
    check = next(check for check in store.CHECKS if check.name == "names")
    with pytest.raises(Broken, match="6 name"):
        check.run(StoreUnderCheck(store=cold, digests=digests, now=NOW))


def test_a_mark_that_can_t_be_read_gives_its_object_a_whole_grace_anew(cold, root):
    name = "0" * 32
    orphan = root / dvc_layout.object_key(name)
    orphan.parent.mkdir(parents=True)
    orphan.write_bytes(b"orphan")
    cold.collect(now=NOW, grace=HOUR, needed=[])
    mark = root / dvc_layout.mark_key(name)
    mark.chmod(0o644)
    mark.write_text("?")
    assert cold.collect(now=NOW + HOUR, grace=HOUR, needed=[]) == 0
    assert cold.collect(now=NOW + HOUR, grace=HOUR, needed=[]) == 0
    assert cold.collect(now=NOW + 2 * HOUR, grace=HOUR, needed=[]) == 6


def replace_by(path, kind, elsewhere):
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        elsewhere.write_bytes(b"secret of the host")
        path.symlink_to(elsewhere)
    elif kind == "directory":
        path.mkdir()
    else:
        elsewhere.write_bytes(CONTENTS["weights.bin"])
        path.symlink_to(elsewhere)


@pytest.mark.parametrize("kind", ["pipe", "link", "link to the same bytes", "directory"])
def test_only_regular_files_are_opened(cold, root, tmp_path, kind):
    kept = put(cold)
    replace_by(object_path(root, kept, "weights.bin"), kind, tmp_path / "elsewhere")
    other = store_at(root)
    damage = other.verify(kept, progress=QUIET)
    assert {one.path for one in damage} == {"weights.bin", "twin"}
    assert all("no regular file" in one.why or "bytes instead of" in one.why for one in damage)
    file = next(file for file in kept.manifest.regular if file.path == "twin")
    with pytest.raises(Corrupt, match="no regular file"):
        other.open(kept, file)
    if kind == "directory":
        with pytest.raises(Refused, match="is a directory") as refused:
            put(other)
        assert "Move it out of the tier, `mv " in refused.value.advice
        object_path(root, kept, "weights.bin").rmdir()
    put(other)
    assert sound(other, kept)


@pytest.mark.parametrize("kind", ["pipe", "link", "directory"])
@pytest.mark.parametrize("name", ["claim", "dir"])
def test_of_the_tier_s_own_files_too(cold, root, tmp_path, kind, name):
    kept = put(cold)
    place = claim_of(root, kept) if name == "claim" else root / dvc_layout.object_key(kept.objects["dir"])
    replace_by(place, kind, tmp_path / "elsewhere")
    damage = store_at(root).verify(kept, progress=QUIET)
    assert [one.path for one in damage] == [str(place.relative_to(root))]


@pytest.mark.parametrize("folder", ["files", "files/md5", "lakemark", "lakemark/records"])
def test_no_link_in_a_tier_is_followed(cold, root, tmp_path, folder):
    kept, outside = put(cold), tmp_path / "outside"
    (root / folder).rename(outside)
    (root / folder).symlink_to(outside)
    before = sorted(path for path in outside.rglob("*") if path.is_file())
    other = store_at(root)
    for work in (
        lambda: put(other, OTHER, step=2),
        lambda: other.collect(now=NOW + FAR, grace=HOUR, needed=[]),
        other.records,
    ):
        with pytest.raises(Refused, match="which is a link"):
            work()
    assert sorted(path for path in outside.rglob("*") if path.is_file()) == before
    (root / folder).unlink()
    outside.rename(root / folder)
    assert sound(store_at(root), kept)


def test_a_root_reached_by_a_link_is_the_configuration_s_business(cold, root, tmp_path):
    kept = put(cold)
    (tmp_path / "link").symlink_to(root)
    assert sound(store_at(tmp_path / "link"), kept)


@pytest.mark.parametrize("key", ["../x", "a/../../x", "/etc/passwd", "a//b", "./a", "", "a/\0"])
def test_a_name_that_leads_out_is_refused_by_the_place_itself(cold, key):
    for work in (cold.blobs.get, cold.blobs.size, cold.blobs.delete, lambda key: cold.blobs.create(key, b"")):
        with pytest.raises(Refused, match="no name below"):
            work(key)


def test_a_root_that_is_made_is_closed_to_others(tmp_path):
    os.umask(old := os.umask(0))
    for access, mode in (("owner", 0o700), ("group", 0o750), ("all", 0o755)):
        place = tmp_path / "deep" / access
        blobs = type(store_at(tmp_path / "x").blobs)(place, access=access)
        blobs.prepare()
        assert place.stat().st_mode & 0o777 == mode
        place.chmod(0o711)
        blobs.prepare()
        assert place.stat().st_mode & 0o777 == 0o711
    assert old == os.umask(old)


def test_a_checkpoint_s_own_modes_do_not_leave_its_tier_open(root):
    cold = store_at(root)
    put(cold)
    assert root.stat().st_mode & 0o777 == 0o700
    assert (
        object_path(root, replace(checkpoint_of(), objects=put(cold).objects), "twin").stat().st_mode & 0o777 == 0o444
    )
