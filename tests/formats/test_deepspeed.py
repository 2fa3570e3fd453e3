"""DeepSpeed's tags and the file that names the newest."""

import pytest

from lakemark.ports import Verdict
from tests.formats.builders import save, torch_zip
from tests.formats.library_builders import deepspeed, found, only, verdict


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("prefix", ["", "bf16_", "fp16_"])
def test_stages(tmp_path, stage, prefix):
    deepspeed(tmp_path / "global_step10", stage=stage, prefix=prefix)
    one = only(tmp_path)
    assert (one.framework, one.step, one.verdict) == ("deepspeed", 10, Verdict.COMPLETE), one.why
    assert ("optimizer" in one.present) is (stage > 0)
    assert "optimizer" in (*one.present, *one.possible)


def test_roles_by_the_keys_of_the_first_file(tmp_path):
    folder = deepspeed(tmp_path / "global_step10", stage=0)
    one = only(tmp_path)
    assert {"optimizer", "scheduler", "rng", "dataloader"} == set(one.possible)
    assert (one.resumable, one.ranks) == (None, {})
    save(folder / "mp_rank_00_model_states.pt", torch_zip(("module", "optimizer", "lr_scheduler", "rng_state")))
    assert only(tmp_path).resumable is True


@pytest.mark.parametrize(
    ("tag", "step"),
    [
        ("step=10", 10),
        ("global_step10", 10),
        ("epoch1-step20", 20),
        ("last", None),
        ("100", 100),
        ("step-1-step-2", None),
    ],
)
def test_tags(tmp_path, tag, step):
    deepspeed(tmp_path / tag)
    assert verdict(tmp_path, tag) == ("deepspeed", step, "complete")


def test_every_lost_file_is_seen(tmp_path):
    for stage, mp in ((1, 2), (3, 2)):
        folder = deepspeed(tmp_path / f"{stage}/global_step10", dp=3, mp=mp, stage=stage)
        for file in sorted(folder.iterdir()):
            content = file.read_bytes()
            file.unlink()
            assert only(tmp_path / str(stage)).verdict is Verdict.INCOMPLETE, file.name
            save(file, content)
        assert only(tmp_path / str(stage)).verdict is Verdict.COMPLETE


@pytest.mark.parametrize("stage", [1, 3])
def test_holes_in_the_grid_without_a_word_of_its_size(tmp_path, stage):
    folder = deepspeed(tmp_path / "global_step10", dp=3, mp=2, stage=stage, told=False)
    (folder / "zero_pp_rank_1_mp_rank_00_optim_states.pt").unlink()
    assert only(tmp_path).why == "optim_states: 1 of 6 ranks missing (dp 1, mp 0)"


def test_a_stage_that_needs_optimizer_files(tmp_path):
    deepspeed(tmp_path / "global_step10", stage=2, optimizer=False)
    assert only(tmp_path).why == "no optim_states, and its ZeRO stage is 2"


def test_no_model(tmp_path):
    folder = deepspeed(tmp_path / "global_step10")
    (folder / "mp_rank_00_model_states.pt").unlink()
    assert "no model_states" in only(tmp_path).why


def test_a_folder_that_was_only_made(tmp_path):
    (tmp_path / "a/global_step10").mkdir(parents=True)
    assert verdict(tmp_path, "a/global_step10") == ("deepspeed", 10, "incomplete")


def test_experts(tmp_path):
    folder = deepspeed(tmp_path / "global_step10", stage=1)
    for layer in range(2):
        for expert in range(4):
            save(folder / f"layer_{layer}_expert_{expert}_mp_rank_00_model_states.pt", torch_zip())
    for rank in range(2):
        save(folder / f"expp_rank_{rank}_mp_rank_00_optim_states.pt", torch_zip(("optimizer",)))
    assert only(tmp_path).verdict is Verdict.COMPLETE
    assert only(tmp_path).ranks == {"zero_pp_rank": 2}
    for expert in range(4):
        save(folder / f"layer_3_expert_{expert}_mp_rank_00_model_states.pt", torch_zip())
    assert "expert layers: 2 missing of 4" in only(tmp_path).why
    for expert in range(4):
        (folder / f"layer_3_expert_{expert}_mp_rank_00_model_states.pt").unlink()
    for name, why in (
        ("layer_1_expert_2_mp_rank_00_model_states.pt", "layer 1 experts: 2 missing of 4"),
        ("expp_rank_0_mp_rank_00_optim_states.pt", "expp_rank optim_states: 1 of 2 ranks missing (dp 0, mp 0)"),
    ):
        content = (folder / name).read_bytes()
        (folder / name).unlink()
        assert why in only(tmp_path).why
        save(folder / name, content)


def test_a_pipeline(tmp_path):
    folder = deepspeed(tmp_path / "global_step10", dp=2, mp=2, stage=1)
    for layer in (0, 1, 4, 7):  # layers without parameters have no file
        for rank in range(2):
            save(folder / f"layer_{layer:02d}-model_{rank:02d}-model_states.pt", torch_zip())
    assert only(tmp_path).verdict is Verdict.COMPLETE
    (folder / "layer_04-model_01-model_states.pt").unlink()
    assert "not the same layers" in only(tmp_path).why


def test_states_offloaded_to_nvme(tmp_path):
    folder = deepspeed(tmp_path / "global_step10", stage=3)
    for rank in range(2):
        save(folder / f"offloaded_tensors/rank{rank:02d}/0_optimizer.tensor.swp", b"x" * 100)
    one = only(tmp_path)
    assert (one.verdict, one.roles["offloaded_tensors/rank01/0_optimizer.tensor.swp"]) == (
        Verdict.COMPLETE,
        "optimizer",
    )
    (folder / "offloaded_tensors/rank01/0_optimizer.tensor.swp").unlink()
    assert "offloaded_tensors for 1 of 2 ranks" in only(tmp_path).why


def test_a_universal_checkpoint(tmp_path):
    folder = tmp_path / "global_step10_universal"
    save(folder / "mp_rank_00_model_states.pt", torch_zip(values={"dp_world_size": 4, "module": {"w": [1.5]}}))
    for state in ("fp32", "exp_avg", "exp_avg_sq"):
        save(folder / f"zero/module.w/{state}.pt", torch_zip(("param",)))
    save(folder / "zero/optimizer_state.pt", torch_zip(("param_groups",)))
    save(tmp_path / "latest_universal", "global_step10_universal")
    assert verdict(tmp_path, folder.name) == ("deepspeed", 10, "complete")
    assert {"weights", "optimizer"} <= set(found(tmp_path)[folder.name].present)
    assert verdict(tmp_path, "latest_universal") == ("pointer-file", 10, "pointer")


@pytest.mark.parametrize(
    ("text", "why", "step"),
    [("global_step10", "it says 'global_step10'", 10), ("glob", "it says 'glob'", None), ("", "it is empty", None),
     ("global_step99", "it says 'global_step99'", None), ("step=10\n", "it says 'step=10'", None)],
)  # fmt: skip
def test_pointers_are_said_and_never_trusted(tmp_path, text, why, step):
    deepspeed(tmp_path / "global_step10")
    save(tmp_path / "latest", text)
    one = found(tmp_path)["latest"]
    assert (one.verdict, one.why, one.step, one.target) == (Verdict.POINTER, why, step, text.strip())
    assert verdict(tmp_path, "global_step10") == ("deepspeed", 10, "complete")
    note = found(tmp_path)["global_step10"].notes
    assert note == (() if text == "global_step10" else (f"latest says {text.strip()!r}",))


def test_latest_is_a_common_name(tmp_path):
    save(tmp_path / "latest", "news")
    assert found(tmp_path) == {}


def test_put_aside(tmp_path):
    deepspeed(tmp_path / "global_step10.bak")
    assert verdict(tmp_path, "global_step10.bak") == ("generic", 10, "temporary")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("layer_03-model_00-model_states.pt", "layers for 2 of 3 ranks, as the step before has"),
        ("layer_1_expert_3_mp_rank_00_model_states.pt", "experts for 3 of 4 ranks, as the step before has"),
        ("zero_pp_rank_1_mp_rank_00_optim_states.pt", "optim_states for 1 of 2 ranks, as the step before has"),
    ],
)
def test_what_no_file_says_is_missed_against_the_step_before(tmp_path, name, why):
    for step in (9, 10):
        folder = deepspeed(tmp_path / f"global_step{step}", told=False)
        for layer in (0, 3, 7):
            save(folder / f"layer_{layer:02d}-model_00-model_states.pt", torch_zip())
        for expert in range(4):
            save(folder / f"layer_1_expert_{expert}_mp_rank_00_model_states.pt", torch_zip())
            save(folder / f"layer_0_expert_{expert}_mp_rank_00_model_states.pt", torch_zip())
    assert verdict(tmp_path, "global_step10") == ("deepspeed", 10, "complete")
    (tmp_path / "global_step10" / name).unlink()
    assert found(tmp_path)["global_step10"].why == why.replace("3 of 4", "7 of 8")


def test_a_run_that_goes_on_with_fewer_ranks_and_says_so(tmp_path):
    deepspeed(tmp_path / "global_step9", dp=4)
    deepspeed(tmp_path / "global_step10", dp=2)
    assert verdict(tmp_path, "global_step10") == ("deepspeed", 10, "complete")


@pytest.mark.parametrize("name", ["zero_pp_rank_{}_mp_rank_00_optim_states.pt", "mp_rank_{}_model_states.pt"])
def test_a_name_may_say_any_number(tmp_path, name):
    folder = deepspeed(tmp_path / "global_step10", told=False)
    save(folder / name.format("9" * 40), torch_zip())
    assert "ranks missing" in only(tmp_path).why


def pipeline(folder, *, layers=(0, 1, 4), stage=0):
    """Without tensor parallelism the layers' files name no rank; each stage of the pipeline has a file of its own."""
    deepspeed(folder, dp=2, mp=2, stage=stage)
    for part in range(2):
        said = {"dp_world_size": 2, "mp_world_size": 1, "ds_config": {"zero_optimization": {"stage": stage}}}
        save(folder / f"mp_rank_{part:02d}_model_states.pt", torch_zip(values={"optimizer": {"w": [1.5]}, **said}))
    for layer in layers:
        save(folder / f"layer_{layer:02d}-model_states.pt", torch_zip())
    return folder


def test_a_pipeline_whose_layers_name_no_rank(tmp_path):
    for step in (5, 10, 15):
        pipeline(tmp_path / f"global_step{step}")
    assert {one.verdict for one in found(tmp_path).values()} == {Verdict.COMPLETE}
    (tmp_path / "global_step5/layer_01-model_states.pt").unlink()
    (tmp_path / "global_step15/layer_04-model_states.pt").unlink()
    assert found(tmp_path)["global_step5"].why == "layers: 2 of 3, as the step after has"
    assert verdict(tmp_path, "global_step10") == ("deepspeed", 10, "complete")
    assert found(tmp_path)["global_step15"].why == "layers for 2 of 3 ranks, as the step before has"


def test_the_last_stage_of_a_pipeline(tmp_path):
    for step in (5, 10):
        pipeline(tmp_path / f"global_step{step}")
    (tmp_path / "global_step10/mp_rank_01_model_states.pt").unlink()
    assert found(tmp_path)["global_step10"].why == "model_states for 1 of 2 ranks, as the step before has"


def test_a_stage_that_has_its_optimizer_and_no_model(tmp_path):
    folder = pipeline(tmp_path / "global_step5", stage=1)
    assert only(tmp_path).verdict is Verdict.COMPLETE
    (folder / "mp_rank_01_model_states.pt").unlink()
    assert only(tmp_path).why == "no model_states of model rank 1, and it has optim_states"


def test_the_last_optimizer_of_experts_is_missed_against_the_step_before(tmp_path):
    for step in (5, 10):
        folder = deepspeed(tmp_path / f"global_step{step}", stage=0)
        for rank in range(2):
            save(folder / f"layer_0_expert_{rank}_mp_rank_00_model_states.pt", torch_zip())
            save(folder / f"expp_rank_{rank}_mp_rank_00_optim_states.pt", torch_zip(("optimizer",)))
    assert verdict(tmp_path, "global_step10") == ("deepspeed", 10, "complete")
    (folder / "expp_rank_1_mp_rank_00_optim_states.pt").unlink()
    assert found(tmp_path)["global_step10"].why == "expert optim_states for 1 of 2 ranks, as the step before has"


def universal(folder, *, parameters=("0.weight", "0.bias"), stage=2):
    """As `ds_to_universal.py` leaves it: a parameter without a gradient has its weights alone."""
    deepspeed(folder, dp=2, stage=stage, optimizer=False)
    for parameter in parameters:
        for state in ("fp32", "exp_avg", "exp_avg_sq", "step"):
            save(folder / f"zero/{parameter}/{state}.pt", torch_zip(("param",)))
    save(folder / "zero/frozen/fp32.pt", torch_zip(("param",)))
    save(folder / "zero/optimizer_state.pt", torch_zip(("param_groups",)))
    return folder


@pytest.mark.parametrize("stage", [2, 3])
def test_every_lost_file_of_a_universal_checkpoint_is_seen(tmp_path, stage):
    folder = universal(tmp_path / "global_step10_universal", stage=stage)
    assert only(tmp_path).verdict is Verdict.COMPLETE, only(tmp_path).why
    for file in sorted(folder.rglob("*.pt")):
        if "frozen" in file.parts:
            continue  # nothing else says that there is such a parameter
        content = file.read_bytes()
        file.unlink()
        assert only(tmp_path).verdict is Verdict.INCOMPLETE, file
        file.write_bytes(content)


def test_a_conversion_that_broke_off(tmp_path):
    folder = tmp_path / "global_step10_universal"
    save(folder / "tmp/0.weight/0/fp32.00", torch_zip(("param",)))
    assert verdict(tmp_path, folder.name) == ("deepspeed", 10, "incomplete")
    for state in ("fp32", "exp_avg", "exp_avg_sq"):
        save(folder / f"zero/0.weight/{state}.pt", torch_zip(("param",)))
    assert "no model_states" in only(tmp_path).why


def test_a_universal_checkpoint_is_not_compared_with_those_it_was_made_of(tmp_path):
    pipeline(tmp_path / "global_step5", stage=1)
    universal(tmp_path / "global_step5_universal")
    pipeline(tmp_path / "global_step10", stage=1)
    assert {one.verdict for one in found(tmp_path).values()} == {Verdict.COMPLETE}
    universal(tmp_path / "global_step10_universal", parameters=("0.weight",))
    assert found(tmp_path)["global_step10_universal"].why == "parameters for 2 of 3 ranks, as the step before has"


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_model_rank_without_its_optimizer(tmp_path, stage):
    """Of one data rank nothing else says that the optimizer's last file is still to come."""
    folder = deepspeed(tmp_path / "global_step5", dp=1, mp=2, stage=stage)
    assert only(tmp_path).verdict is Verdict.COMPLETE
    (folder / "zero_pp_rank_0_mp_rank_01_optim_states.pt").unlink()
    assert only(tmp_path).why == "no optim_states of model rank 1, and it has model_states"


def test_weights_in_parts_come_with_an_optimizer(tmp_path):
    folder = deepspeed(tmp_path / "global_step5", dp=3, stage=3, told=False)
    (folder / "zero_pp_rank_2_mp_rank_00_optim_states.pt").unlink()
    assert only(tmp_path).why == "optim_states for 2 of 3 data ranks"
    for file in folder.glob("*optim_states.pt"):
        file.unlink()
    assert only(tmp_path).why == "no optim_states, and its weights are in parts"
