"""What people reported of other tools' copies between tiers."""

import shutil

import pytest

from lakemark.adapters.disk.directory_objects import DirectoryBlobs
from lakemark.adapters.dvc.store import DvcStore
from lakemark.adapters.git.pointer import Remote
from lakemark.errors import LakemarkError, StoreUnavailable
from lakemark.model.ledger.run import Place
from lakemark.model.tiers.retention import RetentionPolicy
from lakemark.ports import Policies
from lakemark.services.back.restore import restore
from lakemark.services.back.resume import resume
from lakemark.services.node.sweep import sweep
from lakemark.services.tiers.kept import why_kept
from lakemark.services.tiers.replicate import replicate
from lakemark.services.tiers.verify import verify
from tests.services.framework_bench import tree
from tests.services.on_disk import RUN, Yard, hf, now


class Failing(DirectoryBlobs):
    """Answers 500 to the write of object number `at`, counted from one; 0: to none."""

    at = 0
    writes = 0

    def write(self, key, stream, size_bytes, *, overwrite):
        self.writes += 1
        if self.writes == self.at:
            raise StoreUnavailable("500 internal error", advice="Try again.")
        return super().write(key, stream, size_bytes, overwrite=overwrite)


# P06: the listing object was sent before, and although, member files were missing


def test_nothing_says_that_a_copy_is_whole_before_all_of_it_is_there(yard):
    yard.open()
    hf(yard.out, 10)
    yard.sweep()
    record = yard.at(10).record
    warm = yard.home / "site" / "warm"
    blobs = Failing(warm)
    site = yard.site(tiers={**yard.site().tiers, "warm": DvcStore(blobs, name="warm", tier_class="warm")})
    objects = len({file.digest for file in yard.manifest(10).regular})
    for at in range(1, objects + 1):
        blobs.at, blobs.writes = at, 0
        with pytest.raises(LakemarkError):
            replicate(site, RUN, record.id, to="warm")
        assert list(warm.rglob("*.dir")) == []
        assert Place(tier="warm") not in yard.at(10).replicas
        assert not site.tiers["warm"].records().records
        for rotten in warm.rglob("files/md5/*/*") if at == objects else ():  # what is there is not taken on trust
            rotten.chmod(0o644)
            rotten.write_bytes(b"rot")
        if at < objects:
            shutil.rmtree(warm / "files", ignore_errors=True)
    blobs.at = 0
    replicate(site, RUN, record.id, to="warm")
    (listing,) = warm.rglob("*.dir")
    assert Place(tier="warm") in yard.at(10).replicas
    assert verify(site, [yard.at(10)], tier="warm").damaged == []
    victim = next(path for path in (warm / "files").rglob("*") if path.is_file() and path != listing)
    victim.unlink()
    (look,) = verify(site, [yard.at(10)], tier="warm").damaged
    assert [damage.missing for damage in look.damages] == [True]
    replicate(site, RUN, record.id, to="warm")
    assert victim.exists()
    shutil.rmtree(yard.home / "site" / "hot" / RUN)
    done = restore(site, RUN, record.id, to=yard.home / "restored")
    assert done.restored.files_by_place == {"warm": len(yard.manifest(10).regular)}


# P03: what was whole by a rename was taken for unfinished in a bucket, where a marker file says so, and cleaned up


@pytest.fixture(params=["directory", "s3"])
def tiered(request, tmp_path):
    """A yard whose warm tier is of this kind."""
    if request.param == "directory":
        return Yard(tmp_path)
    server = request.getfixturevalue("seaweedfs")
    remote = Remote(name="warm", url=f"s3://{server.bucket}/not-looked-at", endpoint=server.endpoint)
    return Yard(tmp_path, s3=(server.blobs(tmp_path / "uploads"), remote))


@pytest.mark.xdist_group("seaweedfs")
def test_whether_it_is_whole_is_decided_once_and_travels_with_the_copy(tiered):
    tiered.open()
    tiered.unpack("orbax/default")
    for marker in list(tiered.out.rglob("commit_success.txt")):
        marker.unlink()
    swept = tiered.sweep()
    assert [done.record.step for done in swept.committed] == [100, 200]
    site = tiered.site()
    for step in (100, 200):
        replicate(site, RUN, tiered.at(step).record.id, to="warm")
    judged, whole = tiered.manifest(100), tree(tiered.out / "100")
    shutil.rmtree(tiered.out)
    shutil.rmtree(tiered.home / "site" / "hot" / RUN)
    keep_both = {"default": RetentionPolicy(keep_last=2)}
    assert all(one.reasons for one in why_kept(Policies(retention=keep_both), tiered.state(), now=now()).values())
    sweep(site)
    assert tiered.steps() == [100, 200]
    assert (tiered.manifest(100).framework, tiered.manifest(100)) == ("orbax", judged)
    done = restore(site, RUN, tiered.at(100).record.id, to=tiered.home / "restored")
    assert set(done.restored.files_by_place) == {"warm"}
    assert tree(done.restored.path) == whole
    assert set(site.tiers["warm"].records().records) == {tiered.at(step).record.id for step in (100, 200)}


# P23: random-number state that was not there, or not of all ranks, went unsaid


def test_a_resume_without_all_of_the_state_is_said_and_has_to_be_accepted(yard):
    yard.open()
    yard.unpack("hf_trainer/only_model")
    yard.sweep()
    assert yard.at(10).record.gaps == ("no optimizer", "no scheduler", "no rng")
    with pytest.raises(LakemarkError, match="weights only") as said:
        resume(yard.site(), RUN, to=yard.home / "elsewhere", record=yard.at(10).record.id)
    assert said.value.exit_code == 7
    assert not (yard.home / "elsewhere").exists()
    done = restore(yard.site(), RUN, yard.at(10).record.id, to=yard.home / "restored")
    assert done.roles.missing == ("optimizer", "scheduler", "rng")


def test_a_framework_that_saves_no_random_numbers_is_no_full_resume_unsaid(yard):
    yard.open()
    yard.unpack("torchtitan/keep2")
    yard.sweep()
    record = yard.at(max(yard.steps())).record
    assert restore(yard.site(), RUN, record.id, to=yard.home / "restored").roles.missing == ("rng",)
    with pytest.raises(LakemarkError, match="is not all there: no rng"):
        resume(yard.site(), RUN, to=yard.home / "elsewhere", record=record.id)
    assert not (yard.home / "elsewhere").exists()
    resumed = resume(yard.site(), RUN, to=yard.home / "elsewhere", record=record.id, without=("rng",))
    assert resumed.found.record.id == record.id


def test_fewer_files_of_random_numbers_than_ranks_are_no_whole_save(yard):
    yard.open()
    yard.unpack("hf_trainer/two_ranks")
    (yard.out / "checkpoint-10" / "rng_state_1.pth").unlink()
    swept = yard.sweep()
    assert [done.record.step for done in swept.committed] == [5]
    ((path, why),) = swept.incomplete
    assert (path.name, "1 of 2" in why) == ("checkpoint-10", True), why
