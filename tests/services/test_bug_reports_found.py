"""What people reported of other tools' discovery, commits and lineage, each with real folders on a real disk."""

import io
import os
import random
import shutil
import zipfile
from dataclasses import replace

import pytest

from lakemark.errors import Conflict, Incomplete, NotFound
from lakemark.model.back.rollback_plan import Flags
from lakemark.model.runs.timeline import latest, lineage
from lakemark.model.tiers.retention import RetentionPolicy
from lakemark.model.values.names import is_run, original, run_for
from lakemark.ports import Policies, Verdict
from lakemark.services.back.restore import restore
from lakemark.services.back.resume import resume
from lakemark.services.back.rollback_request import Wish, plan
from lakemark.services.tiers.kept import why_kept
from tests.formats.builders import ROLES, dcp, safetensors, save, torch_zip
from tests.services.framework_bench import tree
from tests.services.on_disk import RUN, age, hf, now, plain

MODEL = Flags(model_only=True, while_running=True)


def committed(swept):
    return [done.record.step for done in swept.committed]


def kept(yard, last):
    """The steps that stay where the last so many are kept."""
    policies = Policies(retention={"default": RetentionPolicy(keep_last=last)}, min_keep=1)
    found = why_kept(policies, yard.state(), now=now())
    return sorted(yard.state().records[identity].record.step for identity, one in found.items() if one.reasons)


# P01: the newest was chosen by comparing names as text


def test_the_newest_is_the_greatest_number(yard):
    yard.open()
    for step in random.Random(1).sample([900, 1000, 9000, 10000], 4):
        dcp(yard.out / f"step_{step}")
    assert committed(yard.sweep()) == [900, 1000, 9000, 10000]
    assert latest(yard.state()).record.step == 10000
    assert [found.record.step for found in lineage(yard.state())] == [10000, 9000, 1000, 900]
    assert [found.step for found in yard.site().recogniser.find(yard.out)] == [900, 1000, 9000, 10000]
    assert kept(yard, 2) == [9000, 10000]
    back = Wish(run=RUN, record=yard.at(9000).record.id, reason="x", requester="ana@node-a", flags=MODEL)
    given_up = plan(yard.site(), back).gives_up
    assert (given_up.records, given_up.steps) == ((yard.at(10000).record.id,), 1000)


@pytest.mark.parametrize(("case", "steps"), [("flax/legacy_msgpack", [900, 1000]), ("hf_trainer/plain", [5, 10])])
def test_so_in_folders_that_frameworks_left(yard, case, steps):
    yard.open()
    yard.unpack(case)
    assert committed(yard.sweep()) == steps
    assert latest(yard.state()).record.step == steps[-1]
    assert kept(yard, 1) == steps[-1:]


# P02: a save killed half-way was resumed from, with a file of one role missing


@pytest.mark.parametrize(
    ("name", "says"), [("rng_state.pth", "rng"), ("scheduler.pt", "scheduler"), ("optimizer.pt", "optimizer")]
)
def test_a_step_that_lacks_a_role_every_earlier_one_has_is_not_committed(yard, name, says):
    yard.open()
    for step in (10, 20):
        hf(yard.out, step)
    path = hf(yard.out, 30, without=(name,))
    for _ in range(2):
        swept = yard.sweep()
        (listed,) = swept.incomplete
        assert listed[0] == path
        assert says in listed[1]
    assert yard.steps() == [10, 20]
    assert latest(yard.state()).record.step == 20
    with pytest.raises(Incomplete, match=says):
        yard.commit(path, 30)
    resume(yard.site(), RUN, to=yard.out)
    assert not path.exists()  # moved aside, for it is later than what is resumed
    assert (yard.out / ".lakemark-aside").exists()


def test_so_for_the_dataloader_of_a_sharded_save(yard):
    yard.open()
    for step in (10, 20):
        dcp(yard.out / f"step-{step}", ranks=2)
    dcp(yard.out / "step-30", ranks=2, fqns=[name for name in ROLES if not name.startswith("dataloader")])
    swept = yard.sweep()
    assert committed(swept) == [10, 20]
    ((path, why),) = swept.incomplete
    assert (path.name, "lost dataloader, which every earlier step has" in why) == ("step-30", True)


def test_the_last_save_of_a_run_may_be_weights_alone(yard):
    yard.open()
    dcp(yard.out / "step-10")
    dcp(yard.out / "step-20", fqns=["model.w"])
    swept = yard.sweep()
    assert committed(swept) == [10, 20]
    assert yard.at(20).record.resumable is False
    assert any("weights only" in said for said in swept.said)
    assert resume(yard.site(), RUN, to=yard.out).found.record.step == 10


def test_a_zip_that_does_not_end_is_never_committed(yard):
    yard.open()
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        archive.writestr("archive/data.pkl", b"x" * 1000)
    save(yard.out / "model-10.pt", whole.getvalue()[:-30])
    swept = yard.sweep()
    assert swept.committed == []
    found = yard.site().recogniser.judge(yard.out / "model-10.pt")
    assert found.verdict is Verdict.INCOMPLETE


# P04: a failed save left whole shards, empty ones and `.tmp` files under the names of the last checkpoint


def test_a_mix_of_whole_and_empty_shards_is_no_checkpoint(yard):
    yard.open()
    hf(yard.out, 10)
    yard.sweep()
    path = hf(yard.out, 20, without=("model.safetensors",))
    for shard in range(1, 9):
        name = f"model-{shard:05}-of-00008.safetensors"
        save(path / (f"{name}.tmp" if shard == 3 else name), b"" if shard in (5, 7) else safetensors())
    before = yard.in_hot()
    ((where, why),) = yard.sweep().incomplete
    assert where == path
    assert all(f"0000{shard}-of-00008" in why for shard in (3, 5, 7)), why
    assert yard.in_hot() == before
    assert latest(yard.state()).record.step == 10


# P05: a restarted job saved the same step into a half-written directory


def test_files_of_two_saves_in_one_directory_are_suspect(yard):
    yard.open()
    plain(yard.out, 9)
    yard.sweep()
    path = yard.out / "step-10"
    save(path / "ckpt-loss=0.123.pt", torch_zip())
    age(path, hours=1)
    save(path / "ckpt-loss=0.119.pt", torch_zip(payload=b"n" * 256))
    save(path / "optim.pt", torch_zip(payload=b"o" * 256))
    swept = yard.sweep()
    assert swept.committed == []
    ((where, why),) = swept.incomplete
    assert where == path
    assert why.startswith("suspect: 'ckpt-loss=0.123.pt'")
    made = yard.commit(path, 10)  # a person looked at it
    assert any("0.123" in note for note in made.notes)
    assert yard.sweep().incomplete == []


def test_saving_a_step_again_never_overwrites_the_first(yard):
    yard.open()
    plain(yard.out, 9)
    path = plain(yard.out, 10)
    yard.sweep()
    first = yard.at(10).record
    shutil.rmtree(path)
    plain(yard.out, 10, model="again", optim="again")
    yard.sweep()
    second = yard.at(10).record
    assert second.id != first.id
    assert {first.id, second.id} <= yard.in_hot()
    assert second.timeline == 2
    with pytest.raises(Conflict):
        yard.commit(plain(yard.home / "third", 10, model="third"), 10)


def test_old_files_of_heavy_roles_are_told_from_copied_configuration(yard):
    yard.open()
    hf(yard.out, 10)
    yard.sweep()
    path = hf(yard.out, 20)
    age(path / "config.json", days=30)
    age(path / "training_args.bin", seconds=1)
    assert committed(yard.sweep()) == [20]
    path = hf(yard.out, 30)
    age(path / "optimizer.pt", days=30)
    ((where, why),) = yard.sweep().incomplete
    assert (where, "optimizer.pt" in why) == (path, True)
    os.utime(path / "optimizer.pt")
    assert committed(yard.sweep()) == [30]


# P07: names that a data server refuses


@pytest.mark.parametrize("name", ["gpt--val_loss=2.10-step=1000", "exp/7b.v2", "exp=7b.v2", "Llama:7B"])
def test_any_run_name_is_mapped_and_back(yard, name):
    mapped = run_for(name)
    assert is_run(mapped)
    assert original(mapped) == name
    yard.open(mapped)
    plain(yard.out, 1)
    assert [done.record.run for done in yard.sweep().committed] == [mapped]


def test_two_names_are_never_one():
    names = ["a.b", "a=b", "a/b", "a:b", "a-b", "x-612e62", "A.B"]
    assert len({run_for(name) for name in names}) == len(names)


# P17: the number was taken from digits in a parent folder


def test_only_the_directory_s_own_name_says_its_step(yard):
    yard.open()
    project = yard.out / "exp_2024_v3" / "checkpoints"
    for index in (9, 10):
        save(project / f"checkpoint_{index}" / "model.safetensors", safetensors(size=index))
        save(project / f"checkpoint_{index}" / "optimizer.bin", torch_zip(("state",)))
        save(project / f"checkpoint_{index}" / "scheduler.bin", torch_zip(("last_epoch",)))
        save(project / f"checkpoint_{index}" / "random_states_0.pkl", torch_zip(("step",)))
    dcp(yard.out / "exp_2024_v3" / "dcp" / "step-9")
    dcp(yard.out / "exp_2024_v3" / "dcp" / "step-10")
    dcp(project / "step-final")
    before = tree(project / "step-final")
    swept = yard.sweep()
    assert committed(swept) == [9, 9, 10, 10]
    assert swept.incomplete == [(project / "step-final", "step unknown")]
    assert tree(project / "step-final") == before
    assert 2024 not in yard.steps()
    found = {one.path.name: one for one in yard.site().recogniser.find(yard.out)}
    assert {found[f"checkpoint_{index}"].framework for index in (9, 10)} == {"accelerate"}


# P18: half-written and staging directories were counted


def test_only_whole_steps_count_and_abandoned_ones_are_listed_apart(yard):
    yard.open()
    root = yard.out / "checkpoint"
    dcp(root / "step-10")
    dcp(root / "step-20")
    (root / "step-20" / ".metadata").unlink()
    dcp(root / "step-30")
    save(root / "tmp_step-50" / "model_0.pt", torch_zip())
    save(root / "ft-replicat-0" / "step-10" / "__0_0.distcp", b"x" * 100)
    save(root / "my notes" / "readme.txt", b"mine")
    for name in ("step-20", "tmp_step-50", "ft-replicat-0"):
        age(root / name, days=3)
    dcp(root / "step-40")
    (root / "step-40" / ".metadata").unlink()
    before = sorted(str(path) for path in yard.out.rglob("*"))
    swept = yard.sweep()
    assert committed(swept) == [10, 30]
    assert [path.name for path, _ in swept.incomplete if path.name == "step-40"] == ["step-40"]
    assert "tmp_step-50" in {path.name for path, _ in swept.incomplete}  # no newer step is whole yet
    assert root / "ft-replicat-0" / "step-10" in {one.path for one in swept.abandoned}
    assert not [one for one in (*swept.incomplete, *swept.abandoned) if "my notes" in str(one)]
    assert "step-20" in {one.path.name for one in swept.abandoned}
    assert not {"step-10", "step-30"} & {one.path.name for one in swept.abandoned if one.path.parent == root}
    assert sorted(str(path) for path in yard.out.rglob("*")) == before  # nothing of it was touched
    assert yard.steps() == kept(yard, 2) == [10, 30]


# P22: what does not exist was restored as nothing, and training began anew


def test_restoring_what_is_not_committed_fails_and_leaves_the_target_alone(yard):
    yard.open()
    dcp(yard.out / "step-10")
    dcp(yard.out / "step-20")
    (yard.out / "step-20" / ".metadata").unlink()
    yard.sweep()
    for record in ("0" * 64, "f" * 12):
        with pytest.raises(NotFound):
            restore(yard.site(), RUN, record, to=yard.home / "restored")
    assert not (yard.home / "restored").exists()
    assert yard.steps() == [10]


# P29: two lineages of one run both have step 15


@pytest.mark.parametrize("how", ["resumed", "unasked"])
def test_two_lineages_have_the_same_step_and_both_are_kept(yard, how):
    """The folder holds the other branch's step 15; a trainer may go on from step 10 without a word, and overwrite it."""
    yard.open(job="1")
    for step in (5, 10, 15):
        plain(yard.out, step)
    yard.sweep()
    first = yard.at(15).record
    if how == "resumed":
        approval = replace(yard.site().policies.approval, required=False)
        site = yard.site(policies=replace(yard.site().policies, approval=approval))
        resume(site, RUN, to=yard.out, record=yard.at(10).record.id, job="2")
        assert not (yard.out / "step-15").exists()
    else:
        shutil.rmtree(yard.out / "step-15")
    plain(yard.out, 15, model="other", optim="other")
    yard.sweep()
    second = yard.at(15).record
    assert (first.timeline, second.timeline) == (1, 2)
    assert (first.parent, second.parent) == (yard.at(10).record.id,) * 2
    # What nobody decided is believed once it has gone on.
    assert latest(yard.state()).record.id == (second if how == "resumed" else first).id
    for record, content in ((first, "weights 15"), (second, "other")):
        restore(yard.site(), RUN, record.id, to=yard.home / record.id)
        assert (yard.home / record.id / "model.bin").read_text() == content
