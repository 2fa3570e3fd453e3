"""Checkpoints whose files lie in several folders, and single files of such: what `inspect` shows is committed whole."""

import pytest

from lakemark.errors import Incomplete
from lakemark.formats import recogniser
from lakemark.ports import Verdict
from lakemark.services.back.resume import resume
from lakemark.services.saves.commit import Commit, commit
from tests.formats.builders import dcp, save, torch_zip
from tests.services.on_disk import RUN

KEYS = ("model", "optimizer", "lr_scheduler", "rng_state")


def local(root, step, ranks=(0, 1)):
    """NVRx's local checkpoints: a folder per rank."""
    for rank in ranks:
        save(root / f"{rank}/iter_{step:07d}_{rank}_local.pt", torch_zip(KEYS, payload=bytes([rank, step % 251] * 99)))


def contents(root):
    found = (path for path in root.rglob("*") if path.is_file() and ".lakemark-aside" not in path.parts)
    return {str(path.relative_to(root)): path.read_bytes() for path in found}


@pytest.mark.parametrize("ranks", [(0,), (0, 1), tuple(range(8, 16))], ids=["one", "two", "the second node's"])
@pytest.mark.parametrize("how", ["sweep", "commit"])
def test_what_inspect_shows_is_committed_whole_and_comes_back_where_it_lay(yard, ranks, how):
    yard.open()
    session = yard.out / "job-1"
    for step in (500, 600):
        local(session, step, ranks)
    (five, six) = [one for one in recogniser().find(yard.out) if one.verdict is Verdict.COMPLETE]
    for one in (five, six) if how == "commit" else ():
        commit(yard.site(), Commit(path=one.path, run=RUN, step=one.step))
    yard.sweep()
    records = {found.record.step: found.record for found in yard.state().records.values()}
    assert sorted(records) == [500, 600]
    assert records[600].files == len(ranks)
    before = contents(session)
    for rank in ranks:
        (session / f"{rank}/iter_0000600_{rank}_local.pt").unlink()
        (session / f"{rank}/iter_0000600_{rank}_local.pt").write_bytes(b"another")
    (session / f"{ranks[0]}/iter_0000600_{ranks[0]}_local.pt").unlink()
    done = resume(yard.site(), RUN, to=yard.out, job="7")
    assert (done.found.record.step, done.path) == (600, session / "iter_0000600")
    assert contents(session) == before
    again = resume(yard.site(), RUN, to=yard.out, job="7")
    assert (again.changed, again.moved_aside) == (False, ())
    assert yard.sweep().committed == []


def test_one_rank_s_file_is_not_taken_for_the_checkpoint(yard):
    """Committed as this step, it would keep the others out for ever."""
    yard.open()
    local(yard.out / "job-1", 500)
    with pytest.raises(Incomplete, match="one of 2 files of") as raised:
        commit(yard.site(), Commit(path=yard.out / "job-1/1/iter_0000500_1_local.pt", run=RUN, step=500))
    assert str(yard.out / "job-1/iter_0000500") in raised.value.advice
    yard.sweep()
    assert [found.record.files for found in yard.state().records.values()] == [2]


@pytest.mark.parametrize("shard", [0, 1, 2])
def test_whichever_shard_is_named_all_are_taken(yard, shard):
    yard.open()
    names = [f"checkpoint_1_500-shard{number}.pt" for number in range(3)]
    for name in names:
        save(yard.out / name, torch_zip(KEYS))
    assert commit(yard.site(), Commit(path=yard.out / names[shard], run=RUN, step=500)).record.files == 3


@pytest.mark.parametrize(
    "name", ["checkpoint_1_500-shard0.pt", "checkpoint_4000-model_part-0-shard0.pt", "checkpoint_1_500-shard1.pt"]
)
def test_a_shard_that_lies_there_alone_is_not_accepted(yard, name):
    yard.open()
    save(yard.out / name, torch_zip(KEYS))
    with pytest.raises(Incomplete):
        commit(yard.site(), Commit(path=yard.out / name, run=RUN, step=500))
    assert yard.sweep().committed == []


def titan(root, step, replicas=2):
    """torchtitan with torchft: each replica keeps its loader's state for itself."""
    dcp(root / f"step-{step}", fqns=("model.w", "optimizer.w", "lr_scheduler.last_epoch", "rng.cpu"))
    for replica in range(replicas):
        dcp(root / f"ft-replicat-{replica}/step-{step}", fqns=("dataloader.position",))


def test_what_replicas_keep_for_themselves_is_stored_with_the_step(yard):
    yard.open()
    root = yard.out / "checkpoint"
    titan(root, 10)
    titan(root, 20)
    before = contents(root)
    yard.sweep()
    records = {found.record.step: found.record for found in yard.state().records.values()}
    assert sorted(records) == [10, 20]
    assert records[20].files == 6
    assert "dataloader" in records[20].roles
    assert yard.sweep().incomplete == []
    for name in ("step-20/.metadata", "ft-replicat-1/step-20/__0_0.distcp"):
        (root / name).unlink()
    done = resume(yard.site(), RUN, to=yard.out, job="7")
    assert done.path == root / "step-20"
    assert contents(root) == before
    assert yard.sweep().committed == []


def test_a_replica_that_saves_later_completes_its_step(yard):
    yard.open()
    root = yard.out / "checkpoint"
    titan(root, 10, replicas=1)
    yard.sweep()
    dcp(root / "ft-replicat-1/step-10", fqns=("dataloader.position",))
    yard.sweep()
    newest = max(yard.state().records.values(), key=lambda found: found.sequence).record
    assert (newest.files, newest.supersedes is not None) == (6, True)
