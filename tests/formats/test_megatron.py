"""Megatron's distributed and legacy checkpoints, the tracker, and the local ones of the resiliency extension."""

import os

import pytest

from lakemark.ports import Verdict
from tests.formats.builders import as_json, save, torch_zip
from tests.formats.library_builders import RECOGNISER, found, megatron, megatron_legacy, only, verdict

TRACKER = "latest_checkpointed_iteration.txt"


def test_torch_dist(tmp_path):
    folder = megatron(tmp_path / "iter_0000500")
    one = only(tmp_path)
    assert (one.framework, one.step, one.verdict) == ("megatron-dist", 500, Verdict.COMPLETE), one.why
    assert {"weights", "optimizer", "scheduler"} <= set(one.present)
    assert one.gaps == ("no rng",)
    for name in (".metadata", "metadata.json", "__1_0.distcp"):
        content = (folder / name).read_bytes()
        (folder / name).unlink()
        assert only(tmp_path).verdict is Verdict.INCOMPLETE, name
        save(folder / name, content[: len(content) // 2])
        assert only(tmp_path).verdict is Verdict.INCOMPLETE, name
        save(folder / name, content)


def test_a_config_that_is_empty_and_a_common_part_that_is_gone(tmp_path):
    folder = megatron(tmp_path / "iter_0000500")
    save(folder / "metadata.json", "")
    assert only(tmp_path).why.startswith("metadata.json empty or cut")
    megatron(tmp_path / "iter_0000500")
    (folder / "common.pt").unlink()
    assert only(tmp_path).why == "no common.pt"


def test_a_save_to_the_same_place_that_broke_off_after_the_common_part(tmp_path):
    folder = megatron(tmp_path / "iter_0000500")
    for name in (".metadata", "__0_0.distcp", "__1_0.distcp", "metadata.json"):
        os.utime(folder / name, (1000, 1000))
    os.utime(folder / "common.pt", (1001, 1001))
    assert only(tmp_path).verdict is Verdict.COMPLETE
    os.utime(folder / "common.pt", (4600, 4600))
    assert only(tmp_path).why == "common.pt newer than metadata.json (overwrite in place?)"


@pytest.mark.parametrize("name", ["iter_0000500", "iter_12345678"])
def test_the_iteration_is_seven_digits_or_more(tmp_path, name):
    megatron(tmp_path / name)
    assert only(tmp_path).step == int(name.removeprefix("iter_"))


def test_newer_ones_have_no_common_part(tmp_path):
    folder = megatron(
        tmp_path / "iter_0000500", common=False, fqns=("model.w", "optimizer.w", "common_state/shard_0_1")
    )
    one = only(tmp_path)
    assert (one.framework, one.verdict) == ("megatron-dist", Verdict.COMPLETE), one.why
    assert {"scheduler", "rng"} <= set(one.possible)
    (folder / "metadata.json").unlink()
    assert "no metadata.json" in only(tmp_path).why


def test_other_formats_have_no_config(tmp_path):
    megatron(tmp_path / "iter_0000500", common=False, config=False)
    assert verdict(tmp_path, "iter_0000500") == ("megatron-dist", 500, "complete")


def test_objects_say_that_a_config_is_to_come(tmp_path):
    """torch_dist alone has them: a copy that was broken off looks like the other formats else."""
    megatron(tmp_path / "iter_0000500", common=False, config=False, fqns=("model.w", "rng_state/shard_0.0_1.1"))
    assert only(tmp_path).why == "no metadata.json"


def test_a_config_that_only_siblings_have(tmp_path):
    megatron(tmp_path / "iter_0000500", common=False)
    megatron(tmp_path / "iter_0001000", common=False, config=False)
    assert "its siblings have one" in found(tmp_path)["iter_0001000"].why


def test_files_that_come_later_or_are_named_elsewhere(tmp_path):
    folder = megatron(tmp_path / "iter_0000500")
    save(folder / "tokenizer/tokenizer_config.json", "{}")
    for rank in range(3):
        save(folder / f"mp_rank_00/train_dataloader_dprank{rank:03d}.pt", torch_zip(("state",)))
    as_json(folder / "integrity.json", {"algorithm": "sha256", "files": {"__0_0.distcp": "00", ".metadata": "00"}})
    one = only(tmp_path)
    assert (one.verdict, one.roles["mp_rank_00/train_dataloader_dprank002.pt"]) == (Verdict.COMPLETE, "dataloader"), (
        one.why
    )
    (folder / "mp_rank_00/train_dataloader_dprank001.pt").unlink()
    assert "train_dataloader_dprank: 1 missing of 3" in only(tmp_path).why
    as_json(folder / "integrity.json", {"algorithm": "sha256", "files": {"__5_0.distcp": "00"}})
    assert "__5_0.distcp missing, integrity.json names it" in only(tmp_path).why
    save(folder / "integrity.json", '{"algorithm": "sha256", "fil')
    assert "integrity.json: JSON empty or cut" in only(tmp_path).why


@pytest.mark.parametrize(
    ("keys", "fqns", "present", "gaps"),
    [
        (("args", "opt_param_scheduler"), ("w", "rng_state/shard_0.1_1.2"), ("weights", "scheduler", "rng"), ("no optimizer",)),
        (("args", "opt_param_scheduler", "rng_state"), ("w",), ("weights", "scheduler", "rng"), ("no optimizer",)),
        (("args", "iteration"), ("w", "chained_0.optimizer.s.w"), ("weights", "optimizer"), ("no scheduler", "no rng")),
    ],
)  # fmt: skip
def test_what_the_common_part_and_the_names_of_objects_say(tmp_path, keys, fqns, present, gaps):
    folder = megatron(tmp_path / "iter_0000500", fqns=fqns)
    save(folder / "common.pt", torch_zip(keys))
    one = only(tmp_path)
    assert (tuple(role for role in one.present if role in (*present, "rng", "scheduler")), one.gaps) == (present, gaps)
    assert one.roles["common.pt"] == ("scheduler" if "scheduler" in present else "trainer")


def test_what_modelopt_saves_after_it(tmp_path):
    folder = megatron(tmp_path / "iter_0000500")
    megatron(folder / "modelopt_state", fqns=("quantizer.amax",))
    assert only(tmp_path).verdict is Verdict.COMPLETE, only(tmp_path).why
    (folder / "modelopt_state/.metadata").unlink()
    assert "no modelopt_state/.metadata" in only(tmp_path).why


def test_a_release_of_something_else(tmp_path):
    as_json(tmp_path / "release/metadata.json", {"version": "1.0"})
    save(tmp_path / "release/app.bin")
    assert found(tmp_path) == {}


def test_optimizers_by_layer_are_numbered_by_data_rank(tmp_path):
    folder = megatron_legacy(tmp_path / "iter_0000500", optimizer=False)
    for rank in (0, 1, 3):
        save(folder / f"mp_rank_0{rank % 2}/layer_wise_optimizer_{rank}.pt", torch_zip(("state",)))
    assert "layer_wise_optimizer: 2 missing of 4" in only(tmp_path).why


def test_the_backend_zarr(tmp_path):
    folder = tmp_path / "iter_0000500"
    save(folder / "common.pt", torch_zip(("args", "opt_param_scheduler")))
    as_json(folder / "metadata.json", {"sharded_backend": "zarr"})
    assert "no */.zarray" in only(tmp_path).why
    array = {"zarr_format": 2, "shape": [4, 8], "chunks": [2, 8], "dtype": "bfloat16", "compressor": None}
    as_json(folder / "model.w/.zarray", array)
    save(folder / "model.w/0.0", bytes(32))
    assert only(tmp_path).why == "model.w: 1 of 2 chunks"
    save(folder / "model.w/1.0", bytes(31))
    assert only(tmp_path).why == "model.w/1.0: cut or damaged"
    save(folder / "model.w/1.0", bytes(32))
    save(folder / "model.w.sync/1.0")
    assert verdict(tmp_path, "iter_0000500") == ("megatron-dist", 500, "complete")
    assert only(tmp_path).gaps == ("no optimizer",)
    as_json(folder / "optimizer.state.exp_avg.w/.zarray", array | {"shape": [2, 8]})
    save(folder / "optimizer.state.exp_avg.w/0.0", bytes(32))
    assert {"weights", "optimizer", "scheduler"} <= set(only(tmp_path).present)
    assert only(tmp_path).roles["optimizer.state.exp_avg.w/0.0"] == "optimizer"


@pytest.mark.parametrize(
    "names",
    [("mp_rank_00",), ("mp_rank_00", "mp_rank_01"), ("mp_rank_00_000", "mp_rank_00_001", "mp_rank_01_000", "mp_rank_01_001"),
     ("mp_rank_00_000_000", "mp_rank_00_000_001")],
)  # fmt: skip
def test_legacy(tmp_path, names):
    folder = megatron_legacy(tmp_path / "iter_0000500", names=names)
    one = only(tmp_path)
    assert (one.framework, one.step, one.verdict, one.resumable) == ("megatron-legacy", 500, Verdict.COMPLETE, True)
    assert one.notes == ("world layout cannot be known from names alone",)
    save(folder / names[-1] / "model_optim_rng.pt", torch_zip()[:-20])
    assert f"{names[-1]}/model_optim_rng.pt: " in only(tmp_path).why


def test_holes_in_legacy_ranks(tmp_path):
    folder = megatron_legacy(
        tmp_path / "iter_0000500", names=[f"mp_rank_0{tp}_00{pp}" for tp in range(2) for pp in range(2)]
    )
    for file in (folder / "mp_rank_01_000").iterdir():
        file.unlink()
    (folder / "mp_rank_01_000").rmdir()
    assert only(tmp_path).why == "mp_rank: 1 of 4 missing"


def test_a_legacy_rank_that_has_not_all_its_files(tmp_path):
    folder = megatron_legacy(tmp_path / "iter_0000500")
    (folder / "mp_rank_01/distrib_optim.pt").unlink()
    assert only(tmp_path).why == "mp_rank_01: no distrib_optim.pt"
    (folder / "mp_rank_01/model_optim_rng.pt").unlink()
    save(folder / "mp_rank_01/distrib_optim.pt", torch_zip(("0",)))
    assert "mp_rank_01: no model_optim_rng.pt" in only(tmp_path).why


def test_the_last_legacy_rank_where_the_arguments_say_how_many(tmp_path):
    split = {"tensor": 2, "pipeline": 1}
    megatron_legacy(tmp_path / "iter_0000500", split=split)
    megatron_legacy(tmp_path / "iter_0001000", names=["mp_rank_00"], split=split)
    assert verdict(tmp_path, "iter_0000500") == ("megatron-legacy", 500, "complete")
    assert found(tmp_path)["iter_0001000"].why == "1 of 2 model ranks, as mp_rank_00/model_optim_rng.pt says"


def test_experts_that_are_split_otherwise(tmp_path):
    """Two tensor ranks, four expert ranks on as many devices: not every tensor rank meets every expert rank."""
    names = [f"mp_rank_{rank % 2:02d}_{rank:03d}" for rank in range(4)]
    sizes = {"tensor_model_parallel_size": 2, "expert_model_parallel_size": 4, "expert_tensor_parallel_size": 1}
    folder = tmp_path / "iter_0000500"
    for name in names:
        save(folder / name / "model_optim_rng.pt", torch_zip(values={"model": {"w": [1.5]}, "args": sizes}))
    assert verdict(tmp_path, "iter_0000500") == ("megatron-legacy", 500, "complete"), only(tmp_path).why
    (folder / names[-1] / "model_optim_rng.pt").unlink()
    (folder / names[-1]).rmdir()
    assert only(tmp_path).why == "3 of 4 model ranks, as mp_rank_00_000/model_optim_rng.pt says"


def test_experts_that_are_split_as_the_rest(tmp_path):
    sizes = {"tensor_model_parallel_size": 2, "expert_model_parallel_size": 2, "expert_tensor_parallel_size": 2}
    for name in ("mp_rank_00_000", "mp_rank_01_001"):
        save(
            tmp_path / f"iter_0000500/{name}/model_optim_rng.pt",
            torch_zip(values={"model": {"w": [1.5]}, "args": sizes}),
        )
    assert "2 of 4 model ranks, as mp_rank_00_000/model_optim_rng.pt says" in only(tmp_path).why


def test_release_names_no_step(tmp_path):
    megatron_legacy(tmp_path / "release", names=["mp_rank_00"], optimizer=False)
    save(tmp_path / TRACKER, "release")
    assert verdict(tmp_path, "release") == ("megatron-legacy", None, "complete")
    assert "optimizer" in found(tmp_path)["release"].possible
    assert verdict(tmp_path, TRACKER) == ("pointer-file", None, "pointer")


def test_the_loader_s_states_alone_are_no_checkpoint(tmp_path):
    save(tmp_path / "loader/iter_0000500/mp_rank_00/train_dataloader_dprank000.pt", torch_zip(("state",)))
    assert "no weights: the loader's state alone" in only(tmp_path).why


@pytest.mark.parametrize(
    ("text", "step"), [("500", 500), ("500\n", 500), ("", None), ("glob", None), ("metadata", None)]
)
def test_the_tracker(tmp_path, text, step):
    megatron(tmp_path / "iter_0000500")
    save(tmp_path / TRACKER, text)
    one = found(tmp_path)[TRACKER]
    assert (one.verdict, one.step, one.target) == (Verdict.POINTER, step, text.strip())
    assert one.why == (f"it says {text.strip()!r}" if text else "it is empty")


def local(root, step, ranks, *, suffix=""):
    for rank in ranks:
        save(root / f"{rank}/iter_{step:07d}_{rank}_local{suffix}.pt", torch_zip(("content",)))


def test_local_checkpoints(tmp_path):
    session = tmp_path / "job-1"
    local(session, 500, range(8, 16))  # the second node's
    one = only(tmp_path)
    assert (one.framework, one.step, one.verdict, len(one.members)) == ("nvrx-local", 500, Verdict.COMPLETE, 8)
    assert one.path == session / "iter_0000500"
    assert RECOGNISER.judge(session / "iter_0000500") == one
    save(session / "8/iter_0000500_9_local.pt", torch_zip(("content",)))  # another rank's, kept here too
    assert (only(tmp_path).verdict, len(only(tmp_path).members)) == (Verdict.COMPLETE, 9)
    save(session / "10/iter_0000500_10_local.pt", torch_zip(("content",))[:-30])
    assert "10/iter_0000500_10_local.pt: truncated zip" in only(tmp_path).why
    (session / "10/iter_0000500_10_local.pt").unlink()
    local(session, 600, range(8, 16))
    assert {one.step: one.verdict.value for one in found(tmp_path).values()} == {500: "incomplete", 600: "complete"}


def test_local_checkpoints_that_are_not_renamed_yet(tmp_path):
    local(tmp_path, 500, [0, 1], suffix=".dirty")
    assert only(tmp_path).verdict is Verdict.TEMPORARY
    local(tmp_path, 500, [0])
    one = only(tmp_path)
    assert (one.verdict, one.unfinished) == (
        Verdict.INCOMPLETE, ("0/iter_0000500_0_local.dirty.pt", "1/iter_0000500_1_local.dirty.pt"),
    )  # fmt: skip


def test_the_last_legacy_rank_is_missed_against_the_step_before(tmp_path):
    for step in (500, 1000):
        megatron_legacy(tmp_path / f"iter_{step:07d}")
    for file in (tmp_path / "iter_0001000/mp_rank_01").iterdir():
        file.unlink()
    (tmp_path / "iter_0001000/mp_rank_01").rmdir()
    assert found(tmp_path)["iter_0001000"].why == "mp_rank for 1 of 2 ranks, as the step before has"


def test_a_model_split_otherwise_that_says_so(tmp_path):
    megatron_legacy(tmp_path / "iter_0000500")
    megatron_legacy(tmp_path / "iter_0001000", names=["mp_rank_00"], split={"tensor": 1, "pipeline": 1})
    assert verdict(tmp_path, "iter_0001000") == ("megatron-legacy", 1000, "complete")


def test_the_common_part_is_somewhere(tmp_path):
    megatron(tmp_path / "iter_0000500", common=False)
    assert only(tmp_path).why == "no common.pt"
