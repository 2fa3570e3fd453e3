"""Saves as trainers lay them out, on a real disk: in folders of their own, in several, and by people's own names."""

import pytest

from lakemark.errors import Incomplete
from lakemark.ports import Approval, Policies
from lakemark.services.back.resume import resume
from lakemark.services.health.saves import problems_of_stepless
from lakemark.services.health.status import AMBER
from lakemark.services.saves.waiting import noted
from lakemark.trainer import Run
from tests.formats.builders import safetensors, save, torch_zip
from tests.formats.library_builders import deepspeed, hf_trainer
from tests.formats.test_strays import shards
from tests.services.on_disk import RUN

WITHOUT = ("optimizer", "scheduler", "rng")


def test_what_a_job_left_in_its_staging_folder_is_no_save_and_goes_aside(yard):
    yard.open()
    deepspeed(yard.out / "global_step50")
    staged = deepspeed(yard.out / "tmp-checkpoint-x7/global_step75").parent
    yard.sweep()
    assert yard.steps() == [50]
    done = resume(yard.site(), RUN, to=yard.out, job="7", without=WITHOUT)
    assert done.found.record.step == 50
    assert not staged.exists()
    assert (yard.out / ".lakemark-aside/7/tmp-checkpoint-x7/global_step75").is_dir()


def test_a_save_that_comes_out_of_its_staging_folder_opens_no_timeline(yard):
    yard.open()
    for step in (50, 75):
        staged = deepspeed(yard.out / f"tmp-checkpoint-x7/global_step{step}").parent
        yard.sweep()
        save(staged / "latest", f"global_step{step}")
        hf_trainer(staged, step=step, ranks=2)
        staged.rename(yard.out / f"checkpoint-{step}")
        yard.sweep()
    assert yard.steps() == [50, 75]
    assert [found.record.framework for found in yard.state().records.values()] == ["hf-trainer"] * 2
    assert list(yard.state().timelines) == [1]


# One process that saves two models


def save_both(out, step):
    for role in ("_actor", "_critic"):
        deepspeed(out / role / f"global_step{step}")
        save(out / role / "latest", f"global_step{step}")


def test_two_models_of_a_step_are_one_record_that_comes_back_whole(yard, tmp_path):
    yard.open()
    for step in (20, 40):
        save_both(yard.out, step)
        yard.sweep()
    assert yard.steps() == [20, 40]
    assert list(yard.state().timelines) == [1]
    assert {path.split("/")[0] for path in yard.paths(40)} == {"_actor", "_critic"}
    policies = Policies(quiet_seconds=0.0, approval=Approval(required=False))
    for to in (tmp_path / "node", yard.out):
        done = resume(yard.site(policies=policies), RUN, to=to, record=yard.at(20).record.id, job="7", without=WITHOUT)
        for role in ("_actor", "_critic"):
            assert sorted(path.name for path in (to / role / "global_step20").iterdir()) == FILES
            assert (to / role / "latest").read_text() == "global_step20"
            assert not (to / role / "global_step40").exists()
        assert done.path == to / "global_step20"
        assert not (to / "latest").exists()
    before = yard.state().sequence
    yard.sweep()
    assert yard.state().sequence == before


FILES = ["mp_rank_00_model_states.pt", *(f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt" for rank in range(2))]


def test_half_a_step_is_never_ready(yard):
    yard.open()
    for step in (20, 40):
        save_both(yard.out, step)
    deepspeed(yard.out / "_actor/global_step60")
    swept = yard.sweep()
    assert yard.steps() == [20, 40]
    assert [why for _, why in swept.incomplete] == ["no _critic/global_step60"]
    deepspeed(yard.out / "_critic/global_step60")
    yard.sweep()
    assert yard.steps() == [20, 40, 60]


def test_the_first_step_that_was_taken_by_half_grows(yard):
    yard.open()
    deepspeed(yard.out / "_actor/global_step20")
    yard.sweep()
    half = yard.at(20).record.id
    deepspeed(yard.out / "_critic/global_step20")
    yard.sweep()
    whole = yard.at(20)
    assert (whole.record.supersedes, whole.stands, whole.conflicts_with) == (half, True, None)
    assert {path.split("/")[0] for path in yard.paths(20)} == {"_actor", "_critic"}
    assert list(yard.state().timelines) == [1]


def test_who_names_a_half_is_told_of_the_whole(yard):
    yard.open()
    save_both(yard.out, 20)
    with pytest.raises(Incomplete, match="is a part of") as caught:
        yard.commit(yard.out / "_actor/global_step20", 20)
    assert f"lakemark commit '{yard.out / 'global_step20'}'" in caught.value.advice
    yard.commit(yard.out / "global_step20", 20)
    assert yard.steps() == [20]


def test_announced_one_after_the_other_they_are_one(yard):
    opened = yard.open()
    for step in (20, 40):
        for role in ("_actor", "_critic"):
            path = deepspeed(yard.out / role / f"global_step{step}")
            announce(yard, opened, path, step)
            yard.sweep()
    assert yard.steps() == [20, 40]
    assert list(yard.state().timelines) == [1]
    assert {path.split("/")[0] for path in yard.paths(40)} == {"_actor", "_critic"}
    assert yard.state().records[yard.at(40).record.id].record.metrics == {"loss": 0.5}
    assert yard.sweep().pending == []


def announce(yard, opened, path, step):
    """As a trainer does: from the run file that was opened."""
    run = Run.open(RUN, environ={"LAKEMARK_RUN_FILE": str(opened.run_file)})
    run.saved(path, step=step, metrics={"loss": 0.5})


# A folder that was saved to twice


def test_a_stray_shard_keeps_no_save_out(yard):
    yard.open()
    for step in (5, 10):
        folder = hf_trainer(yard.out / f"checkpoint-{step}", weights=False)
        save(folder / "model-00003-of-00003.safetensors", safetensors())
        shards(folder, 2, indexed=True)
    yard.commit(yard.out / "checkpoint-5", 5)
    yard.sweep()
    assert yard.steps() == [5, 10]
    notes = [entry.body.get("notes", ()) for entry, _ in yard.site().ledger.entries(RUN) if entry.kind == "committed"]
    assert all(any("is of another save" in note for note in said) for said in notes)


# Loops of people's own


def test_an_optimizer_in_a_file_of_any_name_is_resumed_from(yard, tmp_path):
    yard.open()
    for step in (10, 20):
        save(yard.out / f"step-{step}/model.safetensors", safetensors(size=step))
        save(yard.out / f"step-{step}/adam.pt", torch_zip(("state", "param_groups"), payload=bytes([step]) * 9))
    yard.sweep()
    done = resume(yard.site(), RUN, to=tmp_path / "node", job="7")
    assert done.found.record.step == 20
    assert {"weights", "optimizer"} <= set(done.found.record.roles)
    assert sorted(path.name for path in done.path.iterdir()) == ["adam.pt", "model.safetensors"]


def test_which_file_could_not_be_judged_stands_in_the_record_s_notes(yard):
    yard.open()
    save(yard.out / "step-10/model.safetensors", safetensors())
    save(yard.out / "step-10/blob.npy", b"x")
    yard.sweep()
    (entry,) = [entry for entry, _ in yard.site().ledger.entries(RUN) if entry.kind == "committed"]
    assert any("'blob.npy'" in note for note in entry.body["notes"])


# Saved over in its place


def rolling(path, step, *, key="step"):
    values = {"model": {"w": [1.5]}, "optimizer": {"state": 1}, key: step}
    return save(path, torch_zip(values=values, payload=bytes([step % 251]) * 99))


@pytest.mark.parametrize("name", ["latest.pt", "ckpt.pt", "weights/last.pt"])
def test_each_state_of_a_file_that_is_saved_over_is_a_record_of_the_step_that_it_says(yard, tmp_path, name):
    yard.open()
    saved = {}
    for step in (100, 200, 300):
        saved[step] = rolling(yard.out / name, step).read_bytes()
        yard.sweep()
    assert yard.steps() == [100, 200, 300]
    assert list(yard.state().timelines) == [1]
    assert len(yard.in_hot()) == 3
    policies = Policies(quiet_seconds=0.0, approval=Approval(required=False))
    to = tmp_path / "node"
    done = resume(yard.site(policies=policies), RUN, to=to, record=yard.at(200).record.id, job="7", without=WITHOUT)
    assert done.path == to / name
    assert (to / name).read_bytes() == saved[200]
    before = yard.state().sequence
    yard.sweep()
    assert yard.state().sequence == before


def test_what_is_kept_beside_the_steps_is_no_other_state_of_one(yard):
    yard.open()
    rolling(yard.out / "model_100.pt", 100)
    rolling(yard.out / "latest.pt", 100)
    yard.sweep()
    (yard.out / "model_100.pt").unlink()
    save(
        yard.out / "latest.pt",
        torch_zip(values={"model": {}, "optimizer": {"state": 2}, "step": 100}, payload=b"other"),
    )
    yard.sweep()
    assert yard.steps() == [100]
    assert len(yard.state().records) == 1


def test_the_best_beside_its_step_is_told_of_and_no_problem(yard):
    yard.open()
    rolling(yard.out / "step-100/model.pt", 100)
    values = {"model": {}, "optimizer": {"state": 1}, "step": 100, "best_loss": 0.1}
    save(yard.out / "best.pt", torch_zip(values=values))
    swept = yard.sweep()
    assert yard.steps() == [100]
    assert swept.incomplete == [(yard.out / "best.pt", "it says step 100, of which another save lies there")]
    assert noted(yard.site(), RUN) == ()


def test_who_names_a_file_and_a_step_means_it(yard):
    yard.open()
    plain = save(yard.out / "latest.pt", torch_zip(("model",)))
    yard.sweep()
    assert yard.steps() == []
    yard.commit(plain, 100)
    assert yard.steps() == [100]
    (yard.out / "latest").symlink_to("latest.pt")
    with pytest.raises(Incomplete, match="is pointer") as refused:
        yard.commit(yard.out / "latest", 200)
    assert f"lakemark commit '{plain}' --run {RUN} --step 200" in str(refused.value.advice)
    cut = save(yard.out / "best.pt", torch_zip(("model",))[:-30])
    with pytest.raises(Incomplete, match="is pointer"):
        yard.commit(cut, 200)


@pytest.mark.parametrize("name", ["last.pt", "ckpt.pt"])
def test_the_only_file_of_a_loop_that_says_no_step_is_amber_until_somebody_says_it(yard, name):
    yard.open()
    path = save(yard.out / name, torch_zip(("model", "optimizer")))
    assert yard.sweep().incomplete == [(path, "step unknown")]
    (problem,) = problems_of_stepless(RUN, noted(yard.site(), RUN))
    assert (problem.colour, str(path) in problem.what) == (AMBER, True)
    yard.commit(path, 100)
    assert yard.steps() == [100]
    assert yard.sweep().incomplete == []
    assert noted(yard.site(), RUN) == ()


def test_a_whole_save_of_no_known_step_is_amber(yard):
    yard.open()
    rolling(yard.out / "model_100.pt", 100)
    save(yard.out / "best.ckpt", torch_zip(("state_dict", "optimizer_states")))
    swept = yard.sweep()
    assert [why for _, why in swept.incomplete] == ["step unknown"]
    (problem,) = problems_of_stepless(RUN, noted(yard.site(), RUN))
    assert (problem.colour, str(yard.out / "best.ckpt") in problem.what) == (AMBER, True)
    assert f"--run {RUN} --step N" in problem.next
