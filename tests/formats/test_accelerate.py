"""What `Accelerator.save_state` writes."""

import pytest

from lakemark.ports import Verdict
from tests.formats.builders import dcp, safetensors, save, torch_zip
from tests.formats.library_builders import accelerate, deepspeed, found, only, verdict


def test_the_number_of_a_save_is_taken_for_the_step_and_said(tmp_path):
    accelerate(tmp_path / "checkpoints/checkpoint_3")
    one = only(tmp_path)
    assert (one.framework, one.step, one.verdict, one.resumable) == ("accelerate", 3, Verdict.COMPLETE, True)
    assert (one.notes, one.counted) == (("3 counts saves, not steps",), True)
    assert one.roles["dl_state_dict.bin"] == "dataloader"


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("step_3", 3),
        ("checkpoint-500", 500),
        ("epoch_1", None),
        ("best", None),
        ("global_step=7", 7),
        ("e1-step20-x", 20),
    ],
)
def test_names_of_users(tmp_path, name, step):
    accelerate(tmp_path / name)
    assert verdict(tmp_path, name) == ("accelerate", step, "complete")


def test_a_save_without_the_random_states_is_not_done(tmp_path):
    folder = accelerate(tmp_path / "checkpoint_0")
    (folder / "random_states_0.pkl").unlink()
    assert "no random_states_N.pkl (written last)" in only(tmp_path).why


def test_a_save_that_has_only_begun(tmp_path):
    save(tmp_path / "checkpoints/checkpoint_7/model.safetensors", safetensors())
    assert verdict(tmp_path, "checkpoints/checkpoint_7") == ("accelerate", 7, "incomplete")
    save(tmp_path / "checkpoints/checkpoint_8/.tmpqECRZw", safetensors())
    assert verdict(tmp_path, "checkpoints/checkpoint_8") == ("accelerate", 8, "incomplete")


@pytest.mark.parametrize(
    "name", ["model.safetensors", "optimizer.bin", "random_states_0.pkl", "custom_checkpoint_0.pkl"]
)
def test_cut_files(tmp_path, name):
    folder = accelerate(tmp_path / "step_1")
    content = (folder / name).read_bytes()
    for length in (0, len(content) // 2, len(content) - 1):
        save(folder / name, content[:length])
        assert only(tmp_path).verdict is Verdict.INCOMPLETE, length


def test_several_models_and_ranks(tmp_path):
    folder = accelerate(tmp_path / "checkpoint_0", ranks=3, models=2, custom=2)
    assert only(tmp_path).ranks == {"random_states": 3}
    for name in ("model.safetensors", "optimizer.bin", "random_states_1.pkl", "custom_checkpoint_0.pkl"):
        content = (folder / name).read_bytes()
        (folder / name).unlink()
        assert "0 missing" in only(tmp_path).why or "1 missing" in only(tmp_path).why, name
        save(folder / name, content)


@pytest.mark.parametrize("name", ["random_states_1.pkl", "model_1.safetensors", "custom_checkpoint_1.pkl"])
def test_the_last_of_a_set_is_missed_against_the_save_before(tmp_path, name):
    for count in (9, 10):
        accelerate(tmp_path / f"checkpoint_{count}", ranks=2, models=2, custom=2)
    (tmp_path / "checkpoint_10" / name).unlink()
    assert verdict(tmp_path, "checkpoint_10") == ("accelerate", 10, "incomplete")
    assert verdict(tmp_path, "checkpoint_9") == ("accelerate", 9, "complete")
    accelerate(tmp_path / "checkpoint_11", ranks=2, models=2, custom=2)
    (tmp_path / "checkpoint_11" / name).unlink()
    assert verdict(tmp_path, "checkpoint_10") == ("accelerate", 10, "complete")  # the run goes on with fewer
    assert "as the step before has" in found(tmp_path)["checkpoint_10"].notes[1]


@pytest.mark.parametrize("name", ["random_states_1.pkl", "optimizer_1.bin"])
def test_the_same_for_steps(tmp_path, name):
    for step in (9, 10):
        accelerate(tmp_path / f"step_{step}", ranks=2, models=2)
    (tmp_path / "step_10" / name).unlink()
    assert verdict(tmp_path, "step_10") == ("accelerate", 10, "incomplete")


@pytest.mark.parametrize("name", ["checkpoint_7", "final"])
def test_a_model_alone_is_a_save_only_by_its_name(tmp_path, name):
    save(tmp_path / name / "model.safetensors", safetensors())
    assert [one.framework for one in found(tmp_path).values() if one.framework == "accelerate"] == (
        ["accelerate"] if name == "checkpoint_7" else []
    )


def test_the_trainer_s_own_are_not_accelerate_s(tmp_path):
    for name in ("optimizer.bin", "scheduler.pt", "model.safetensors", "trainer_state.json"):
        save(tmp_path / "checkpoint_7" / name, "{}")
    assert [one.framework for one in found(tmp_path).values() if one.framework == "accelerate"] == []


def test_fsdp_in_folders(tmp_path):
    folder = accelerate(tmp_path / "checkpoint_0", ranks=2, models=0)
    for name, fqn in (("pytorch_model_fsdp_0", "model.w"), ("optimizer_0", "optimizer.w")):
        dcp(folder / name, ranks=2, fqns=[fqn])
    save(folder / "scheduler.bin", torch_zip(("last_epoch",)))
    assert only(tmp_path).resumable is True
    (folder / "random_states_1.pkl").unlink()
    assert only(tmp_path).why == "random_states for 1 of 2 ranks"
    (folder / "pytorch_model_fsdp_0/__0_0.distcp").unlink()
    assert "pytorch_model_fsdp_0/__0_0.distcp" in only(tmp_path).why


def test_fsdp_in_files_per_rank(tmp_path):
    folder = accelerate(tmp_path / "checkpoint_0", ranks=3, models=0)
    for rank in range(3):
        save(folder / f"pytorch_model_fsdp_0_rank{rank}.bin", torch_zip())
        save(folder / f"optimizer_0_rank{rank}.bin", torch_zip(("state",)))
    one = only(tmp_path)
    assert (one.verdict, "optimizer" in one.present) == (Verdict.COMPLETE, True), one.why
    (folder / "optimizer_0_rank1.bin").unlink()
    assert "optimizer_0_rank: 1 missing of 3" in only(tmp_path).why


def test_deepspeed_inside(tmp_path):
    folder = accelerate(tmp_path / "step_5", ranks=2, models=0)
    deepspeed(folder / "pytorch_model")
    save(folder / "latest", "pytorch_model")
    one = only(tmp_path)
    assert (one.framework, one.step, one.verdict) == ("accelerate", 5, Verdict.COMPLETE), one.why
    (folder / "pytorch_model/zero_pp_rank_1_mp_rank_00_optim_states.pt").unlink()
    assert "pytorch_model/optim_states for 1 of 2 data ranks" in only(tmp_path).why


def test_diffusers_keeps_its_model_in_a_folder(tmp_path):
    folder = accelerate(tmp_path / "checkpoint-500", models=0)
    save(folder / "optimizer.bin", torch_zip(("state",)))
    save(folder / "unet/diffusion_pytorch_model.safetensors", safetensors())
    assert verdict(tmp_path, "checkpoint-500") == ("accelerate", 500, "complete")
    (folder / "unet/diffusion_pytorch_model.safetensors").unlink()
    assert (only(tmp_path).verdict, only(tmp_path).why) == (Verdict.INCOMPLETE, "no weights")


def test_put_aside_by_somebody(tmp_path):
    accelerate(tmp_path / "step_3.bak")
    accelerate(tmp_path / "tmp_checkpoint_3")
    assert {name: one.verdict.value for name, one in found(tmp_path).items()} == {
        "step_3.bak": "temporary", "tmp_checkpoint_3": "temporary",
    }  # fmt: skip


def test_objects_of_users_come_last(tmp_path):
    accelerate(tmp_path / "checkpoint_4")
    accelerate(tmp_path / "checkpoint_5", custom=0)
    assert found(tmp_path)["checkpoint_5"].why == "no custom_checkpoint, which the step before has"
    accelerate(tmp_path / "checkpoint_6", custom=0)
    assert verdict(tmp_path, "checkpoint_5") == ("accelerate", 5, "complete")  # it registers none any more


@pytest.mark.parametrize("name", ["step_10", "epoch_1"])
def test_fsdp_whose_optimizer_was_not_begun(tmp_path, name):
    dcp(tmp_path / name / "pytorch_model_fsdp_0", ranks=2, fqns=["model.w"])
    one = found(tmp_path)[name]
    assert (one.framework, one.verdict) == ("accelerate", Verdict.INCOMPLETE)
    dcp(tmp_path / name / "optimizer_0", ranks=2, fqns=["optimizer.w"])
    assert only(tmp_path).why == "no random_states_N.pkl (written last)"


def test_a_model_alone_after_a_save_of_all_is_no_whole_save(tmp_path):
    accelerate(tmp_path / "step_5")
    save(tmp_path / "step_10/model.safetensors", safetensors())
    assert found(tmp_path)["step_10"].why == "no random_states, which the step before has"
    save(tmp_path / "step_15/model.safetensors", safetensors())
    assert verdict(tmp_path, "step_10")[2] == "complete"
