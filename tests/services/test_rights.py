"""Rights come back as they were saved, and on the way nobody reads who could not before."""

import os
import stat

import pytest

from lakemark.model.checkpoints.manifest import File, Manifest
from lakemark.ports import Checkpoint
from lakemark.services.back.restore import restore
from lakemark.services.saves.commit import Commit, commit
from lakemark.services.tiers.replicate import replicate
from tests.services.on_disk import RUN, plain


def rights(path):
    """Of all that is there and no link, by relative path."""
    return {
        str(one.relative_to(path)): f"{stat.S_IMODE(one.lstat().st_mode):03o}"
        for one in (path, *path.rglob("*"))
        if not one.is_symlink()
    }


@pytest.fixture
def private(yard):
    """A save that only its owner may read, with an executable, an empty directory and a file for a group."""
    yard.open()
    path = plain(yard.out, 1, model="weights", optim="moments", shared="for the group")
    (path / "deep" / "empty").mkdir(parents=True)
    (path / "deep" / "run.sh").write_text("#!/bin/sh\n")
    (path / "link").symlink_to("model.bin")
    for name, mode in {
        "model.bin": 0o600,
        "optim.bin": 0o400,
        "shared.bin": 0o640,
        "deep/run.sh": 0o700,
        "deep/empty": 0o750,
        "deep": 0o711,
        ".": 0o700,
    }.items():
        (path / name).chmod(mode)
    return path


@pytest.mark.parametrize("landing", ["link", "copy"])
@pytest.mark.parametrize("tier", ["hot", "warm"])
def test_they_come_back_as_they_were_saved(yard, private, tmp_path, landing, tier):
    site = yard.site()
    site.hot._landing = landing
    before = rights(private)
    record = commit(site, Commit(path=private, run=RUN, step=1)).record.id
    assert rights(private) == before
    replicate(site, RUN, record, to="warm")
    back = restore(site, RUN, record, to=tmp_path / "back", tier=tier).restored.path
    assert rights(back) == before


@pytest.mark.parametrize("landing", ["link", "copy"])
def test_in_hot_nobody_reads_who_could_not_before(yard, private, landing):
    site = yard.site()
    site.hot._landing = landing
    before = rights(private)
    record = commit(site, Commit(path=private, run=RUN, step=1)).record.id
    require_as_private(site, record, before)
    site.hot.unshare(record, progress=site.progress)
    require_as_private(site, record, before)
    replicate(site, RUN, record, to="warm")
    site.hot.drop(site.hot.load(record), now=site.now())
    warm, objects = site.store("warm"), site.ledger.objects(RUN, record, "warm")
    mine = Checkpoint(record=yard.at(1).record, manifest=yard.manifest(1), objects=objects)
    site.hot.put(mine, lambda file: warm.open(mine, file), now=site.now(), progress=site.progress)
    require_as_private(site, record, before)


def require_as_private(site, record, before):
    for path, mode in rights(site.hot.path(site.hot.load(record).record)).items():
        assert int(mode, 8) & ~0o700 & ~int(before[path], 8) == 0, (path, mode)


def test_a_restorer_s_own_umask_counts_too(yard, tmp_path):
    yard.open()
    path = plain(yard.out, 1)
    for one in path.iterdir():
        one.chmod(0o666)
    path.chmod(0o777)
    record = yard.commit(path, 1).record.id
    before = os.umask(0o027)
    try:
        back = restore(yard.site(), RUN, record, to=tmp_path / "back").restored.path
    finally:
        os.umask(before)
    assert rights(back) == {".": "750", "model.bin": "640", "optim.bin": "640"}


def test_rights_are_no_content_and_old_manifests_have_none():
    plainly = Manifest(files=(File(path="a", size_bytes=1, digest="1" * 64),))
    narrow = Manifest(files=(File(path="a", size_bytes=1, digest="1" * 64, mode=0o600),), folders={".": 0o700})
    assert plainly.content == narrow.content
    assert plainly == narrow
    assert Manifest.from_json(narrow.as_json()).as_json() == narrow.as_json()
    assert "mode" not in str(plainly.as_json())
    assert "folders" not in plainly.as_json()


def test_rights_of_paths_that_are_none_of_its_own_are_dropped():
    told = Manifest(files=(File(path="a/b", size_bytes=1, digest="1" * 64),)).as_json()
    read = Manifest.from_json(told | {"folders": {"..": "777", "a": "700", "a/b": "777", "/etc": "777", ".": "711"}})
    assert read.folders == {"a": 0o700, ".": 0o711}
