"""Folders of a step in which each part is a DCP checkpoint of its own, and what ranks write without joining it."""

import pytest

from lakemark.ports import Verdict
from tests.formats.builders import dcp, safetensors, save, torch_zip
from tests.formats.library_builders import found, only, verdict


def parts(folder, *, optimizer="optim"):
    """As a script does that saves its model and its optimizer apart."""
    dcp(folder / "model", ranks=2, fqns=("layers.0.weight", "layers.0.bias"))
    dcp(folder / optimizer, ranks=2, fqns=("state.layers.0.weight.exp_avg", "param_groups.lr"))
    save(folder / "meta.pt", torch_zip(("step", "scheduler")))
    return folder


def test_whole(tmp_path):
    parts(tmp_path / "step-5")
    one = only(tmp_path)
    assert (one.framework, one.step, one.verdict, one.why) == ("dcp", 5, Verdict.COMPLETE, "whole; no rng")
    assert one.roles["model/__1_0.distcp"] == "weights"
    assert one.roles["optim/.metadata"] == "optimizer"
    assert one.present == ("weights", "optimizer", "scheduler", "trainer")


@pytest.mark.parametrize("name", ["model/__1_0.distcp", "optim/__0_0.distcp", "model/.metadata", "optim/.metadata"])
def test_every_lost_or_cut_file_is_seen(tmp_path, name):
    file = parts(tmp_path / "step-5") / name
    whole = file.read_bytes()
    file.write_bytes(whole[:-30])
    assert only(tmp_path).verdict is Verdict.INCOMPLETE
    file.unlink()
    one = only(tmp_path)
    assert one.verdict is Verdict.INCOMPLETE
    assert name in one.why


def test_a_part_that_was_only_begun(tmp_path):
    dcp(tmp_path / "step-5/model", fqns=("w",))
    assert only(tmp_path).verdict is Verdict.COMPLETE
    (tmp_path / "step-5/optim").mkdir()
    assert only(tmp_path).why == "optim is empty"


def test_one_part_that_holds_all_says_so_itself(tmp_path):
    dcp(tmp_path / "step-5/model", ranks=2)
    assert only(tmp_path).resumable is True


def test_parts_lie_deeper(tmp_path):
    dcp(tmp_path / "step_10/policy/weights", fqns=("w",))
    dcp(tmp_path / "step_10/policy/optimizer", fqns=("w",))
    one = only(tmp_path)
    assert (one.step, one.present) == (10, ("weights", "optimizer"))
    (tmp_path / "step_10/policy/optimizer/__0_0.distcp").unlink()
    assert only(tmp_path).verdict is Verdict.INCOMPLETE


def test_a_part_that_was_not_begun_is_missed_against_a_step_beside(tmp_path):
    for step in (5, 10, 15):
        parts(tmp_path / f"step-{step}")
    for step in (5, 15):
        for file in (tmp_path / f"step-{step}/optim").iterdir():
            file.unlink()
        (tmp_path / f"step-{step}/optim").rmdir()
    assert found(tmp_path)["step-5"].why == "parts: 1 of 2, as the step after has"
    assert verdict(tmp_path, "step-10") == ("dcp", 10, "complete")
    assert found(tmp_path)["step-15"].why == "parts for 1 of 2 ranks, as the step before has"


def test_a_run_of_steps_is_no_step(tmp_path):
    for step in (5, 10):
        dcp(tmp_path / f"1/step-{step}")
    assert list(found(tmp_path)) == ["1/step-5", "1/step-10"]


def test_ranks_without_collectives_are_missed_against_the_step_before(tmp_path):
    for step in (5, 10):
        dcp(tmp_path / f"step-{step}", ranks=1)
        (tmp_path / f"step-{step}/.metadata").rename(tmp_path / f"step-{step}/__0.metadata")
        dcp(tmp_path / "other", ranks=1)
        for name in ("__0_0.distcp", ".metadata"):
            other = "__1.metadata" if name == ".metadata" else "__1_0.distcp"
            content = (tmp_path / "other" / name).read_bytes().replace(b"__0_0.distcp", b"__1_0.distcp")
            save(tmp_path / f"step-{step}" / other, content)
    assert verdict(tmp_path, "step-10") == ("dcp", 10, "complete")
    for name in ("__1.metadata", "__1_0.distcp"):
        (tmp_path / "step-10" / name).unlink()
    assert verdict(tmp_path, "step-10") == ("dcp", 10, "incomplete")


def unjoined(folder, ranks=2, shards=2):
    """`HuggingFaceStorageWriter(save_distributed=True)` without consolidation: no index, and rank 2 has none of shard 2."""
    for rank in range(1, ranks + 1):
        for shard in range(1, shards + 1):
            if (rank, shard) != (2, 2):
                save(folder / f"shard-{rank:05d}-model-{shard:05d}-of-{shards:05d}.safetensors", safetensors())
    return folder


def test_shards_that_nobody_joined(tmp_path):
    folder = unjoined(tmp_path / "step-5", ranks=3)
    one = only(tmp_path)
    assert (one.framework, one.step, one.verdict) == ("safetensors", 5, Verdict.COMPLETE), one.why
    for shard in (1, 2):
        (folder / f"shard-{2:05d}-model-{shard:05d}-of-00002.safetensors").unlink(missing_ok=True)
    assert only(tmp_path).why == "shard: 2 missing of 3"


def test_a_shard_of_which_no_rank_has_a_part(tmp_path):
    folder = unjoined(tmp_path / "step-5", ranks=1)
    (folder / "shard-00001-model-00002-of-00002.safetensors").unlink()
    assert "1 of 2 missing" in only(tmp_path).why


def test_the_last_rank_s_shards_are_missed_against_the_step_before(tmp_path):
    unjoined(tmp_path / "step-5", ranks=3)
    unjoined(tmp_path / "step-10", ranks=2)
    assert found(tmp_path)["step-10"].why == "shards for 2 of 3 ranks, as the step before has"
