"""fairseq's files."""

import pytest

from lakemark.ports import Verdict
from tests.formats.builders import save, torch_zip
from tests.formats.library_builders import RECOGNISER, found, only, verdict

KEYS = ("args", "cfg", "model", "optimizer_history", "extra_state", "last_optimizer_state")


def test_names(tmp_path):
    names = {
        "checkpoint_2_1000.pt": 1000, "checkpoint2.pt": None, "checkpoint_best.pt": None, "checkpoint_last.pt": None,
        "checkpoint.best_loss_3.0011.pt": None, "checkpoint.best_bleu_-1.50.pt": None,
    }  # fmt: skip
    for name in names:
        save(tmp_path / name, torch_zip(KEYS))
    save(tmp_path / "checkpoint_3_1500.pt.tmp", torch_zip(KEYS)[:50])
    save(tmp_path / "dict.en.txt", "a 1")
    assert {name: (one.framework, one.step) for name, one in found(tmp_path).items() if not name.endswith("tmp")} == {
        name: ("fairseq", step) for name, step in names.items()
    }
    one = found(tmp_path)["checkpoint_3_1500.pt.tmp"]
    assert (one.verdict, one.step) == (Verdict.TEMPORARY, 1500)
    assert "truncated zip" in one.why


def test_an_epoch_s_name_alone_is_nobody_s_in_particular(tmp_path):
    save(tmp_path / "checkpoint2.pt", torch_zip(KEYS))
    assert only(tmp_path).framework != "fairseq"


def shards(folder, updates, count):
    for shard in range(count):
        save(folder / f"checkpoint_1_{updates}-shard{shard}.pt", torch_zip(KEYS))


def test_shards_are_one_checkpoint(tmp_path):
    shards(tmp_path, 500, 12)
    one = only(tmp_path)
    assert (one.step, one.verdict, len(one.members), one.ranks) == (500, Verdict.COMPLETE, 12, {"shard": 12})
    assert one.members[-1].name == "checkpoint_1_500-shard11.pt"
    assert RECOGNISER.judge(tmp_path / "checkpoint_1_500-shard7.pt") == one
    (tmp_path / "checkpoint_1_500-shard7.pt").unlink()
    assert "shard: 7 missing of 12" in only(tmp_path).why


def test_the_last_shard_is_missed_against_the_step_before(tmp_path):
    shards(tmp_path, 500, 4)
    shards(tmp_path, 1000, 3)
    verdicts = {one.step: one.verdict.value for one in found(tmp_path).values()}
    assert verdicts == {500: "complete", 1000: "incomplete"}


@pytest.mark.parametrize("bad", [b"", torch_zip(KEYS)[:-30]])
def test_one_bad_shard(tmp_path, bad):
    shards(tmp_path, 500, 3)
    save(tmp_path / "checkpoint_1_500-shard1.pt", bad)
    assert "checkpoint_1_500-shard1.pt: " in only(tmp_path).why


def test_a_grid_of_parts_and_shards(tmp_path):
    for part in range(2):
        for shard in range(3):
            save(tmp_path / f"checkpoint_1_500-model_part-{part}-shard{shard}.pt", torch_zip(KEYS))
    assert (only(tmp_path).verdict, len(only(tmp_path).members)) == (Verdict.COMPLETE, 6)
    (tmp_path / "checkpoint_1_500-model_part-1-shard2.pt").unlink()
    assert "1 of 6 shards missing" in only(tmp_path).why


def test_a_cut_file(tmp_path):
    save(tmp_path / "checkpoint_1_500.pt", torch_zip(KEYS)[:-1])
    assert verdict(tmp_path, "checkpoint_1_500.pt") == ("fairseq", 500, "incomplete")


def test_metaseq_s_names_say_no_epoch(tmp_path):
    for part in range(2):
        for shard in range(2):
            save(tmp_path / f"checkpoint_4000-model_part-{part}-shard{shard}.pt", torch_zip(("model",)))
    one = only(tmp_path)
    assert (one.framework, one.step, one.verdict, len(one.members)) == ("fairseq", 4000, Verdict.COMPLETE, 4)
    (tmp_path / "checkpoint_4000-model_part-1-shard0.pt").unlink()
    assert only(tmp_path).why == "1 of 4 shards missing"


def test_experts(tmp_path):
    for rank in range(3):
        save(tmp_path / f"checkpoint_1_500-rank-{rank}.pt", torch_zip(("model",)))
    save(tmp_path / "checkpoint_1_500-shared.pt", torch_zip(("model",)))
    one = only(tmp_path)
    assert (one.framework, one.step, one.verdict, len(one.members)) == ("fairseq", 500, Verdict.COMPLETE, 4)
    (tmp_path / "checkpoint_1_500-rank-1.pt").unlink()
    assert only(tmp_path).why == "shard: 1 missing of 3"
