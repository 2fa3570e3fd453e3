"""Checkpoints of the Hugging Face Trainer."""

import pytest

from lakemark.formats.readers import headers
from lakemark.formats.readers.folder import Folder
from lakemark.ports import Verdict
from tests.formats.builders import as_json, dcp, safetensors, save, torch_zip
from tests.formats.library_builders import deepspeed, found, hf_trainer, index_of, only, verdict


def test_whole(tmp_path):
    hf_trainer(tmp_path / "checkpoint-500")
    one = only(tmp_path)
    assert (one.framework, one.step, one.verdict, one.resumable) == ("hf-trainer", 500, Verdict.COMPLETE, True)
    assert one.roles["training_args.bin"] == "config"
    assert one.roles["trainer_state.json"] == "trainer"
    assert one.present == ("weights", "optimizer", "scheduler", "rng", "trainer", "config")


def test_weights_only(tmp_path):
    hf_trainer(tmp_path / "checkpoint-5", model_only=True)
    one = only(tmp_path)
    assert (one.verdict, one.resumable) == (Verdict.COMPLETE, False)
    assert "weights only: not resumable" in one.why


@pytest.mark.parametrize("content", ["", "{", '{"global_step": 5, "log_hist', "[5]"])
def test_a_state_that_is_cut(tmp_path, content):
    save(hf_trainer(tmp_path / "checkpoint-5") / "trainer_state.json", content)
    assert only(tmp_path).verdict is Verdict.INCOMPLETE
    (tmp_path / "checkpoint-5/trainer_state.json").unlink()
    assert "no trainer_state.json" in only(tmp_path).why


def test_a_state_that_says_another_step(tmp_path):
    hf_trainer(tmp_path / "checkpoint-5", step=7)
    one = only(tmp_path)
    assert (one.verdict, one.step, one.notes) == (Verdict.COMPLETE, 5, ("trainer_state.json says step 7",))


def test_a_best_checkpoint_that_lay_elsewhere(tmp_path):
    folder = hf_trainer(tmp_path / "checkpoint-5")
    as_json(folder / "trainer_state.json", {"global_step": 5, "best_model_checkpoint": "/old/out/checkpoint-4"})
    assert "absolute path: '/old/out/checkpoint-4'" in only(tmp_path).notes[0]
    as_json(folder / "trainer_state.json", {"global_step": 5, "best_model_checkpoint": str(tmp_path / "checkpoint-4")})
    assert only(tmp_path).notes == ()


def test_shards_and_their_index(tmp_path):
    folder = hf_trainer(tmp_path / "checkpoint-5", weights=False)
    shards = [f"model-0000{at}-of-00003.safetensors" for at in (1, 2, 3)]
    for shard in shards:
        save(folder / shard, safetensors())
    index_of(folder, shards)
    assert only(tmp_path).verdict is Verdict.COMPLETE
    (folder / shards[1]).unlink()
    assert "model-00002-of-00003.safetensors missing" in only(tmp_path).why
    (folder / "model.safetensors.index.json").unlink()
    assert "1 of 3 missing" in only(tmp_path).why


@pytest.mark.parametrize("name", ["pytorch_model.bin", "adapter_model.safetensors", "adapter_model.bin", "tf_model.h5"])
def test_other_names_of_weights(tmp_path, name):
    folder = hf_trainer(tmp_path / "checkpoint-5", weights=False)
    assert (only(tmp_path).verdict, only(tmp_path).why) == (Verdict.INCOMPLETE, "no weights")
    superblock = b"\x89HDF\r\n\x1a\n\x02\x08\x08\x00" + bytes(16) + (48).to_bytes(8, "little") + bytes(12)
    save(folder / name, {"bin": torch_zip(), "h5": superblock}.get(name.rpartition(".")[2], safetensors()))
    one = only(tmp_path)
    assert (one.verdict, one.roles[name]) == (Verdict.COMPLETE, "weights"), one.why


def test_a_temporary_file_is_left(tmp_path):
    save(hf_trainer(tmp_path / "checkpoint-5") / ".tmpAb3dE_", safetensors())
    one = only(tmp_path)
    assert (one.verdict, one.unfinished) == (Verdict.INCOMPLETE, (".tmpAb3dE_",))


def test_a_temporary_folder(tmp_path):
    hf_trainer(tmp_path / "tmp-checkpoint-5")
    (tmp_path / "tmp-checkpoint-5/trainer_state.json").unlink()
    one = only(tmp_path)
    assert (one.step, one.verdict, one.why) == (5, Verdict.TEMPORARY, "tmp- prefix; no trainer_state.json")
    assert one.roles["optimizer.pt"] == "optimizer"


def test_states_of_several_ranks(tmp_path):
    folder = hf_trainer(tmp_path / "checkpoint-5", ranks=4)
    assert only(tmp_path).ranks == {"rng_state": 4}
    (folder / "rng_state_1.pth").unlink()
    assert "rng_state: 1 missing of 4" in only(tmp_path).why


def test_the_last_rank_is_missed_where_the_arguments_say_how_many(tmp_path):
    folder = hf_trainer(tmp_path / "checkpoint-5", ranks=4, world=4)
    assert only(tmp_path).verdict is Verdict.COMPLETE
    (folder / "rng_state_3.pth").unlink()
    assert only(tmp_path).why == "rng_state for 3 of 4 ranks"


def test_the_first_of_several_ranks_is_never_all(tmp_path):
    folder = hf_trainer(tmp_path / "checkpoint-5", ranks=2)
    (folder / "rng_state_1.pth").unlink()
    assert only(tmp_path).why == "rng_state for 1 of 2 ranks"


def test_the_last_rank_is_missed_against_the_step_before(tmp_path):
    hf_trainer(tmp_path / "checkpoint-5", ranks=4)
    folder = hf_trainer(tmp_path / "checkpoint-10", ranks=4)
    (folder / "rng_state_3.pth").unlink()
    assert verdict(tmp_path, "checkpoint-10") == ("hf-trainer", 10, "incomplete")
    assert verdict(tmp_path, "checkpoint-5") == ("hf-trainer", 5, "complete")


def test_fsdp(tmp_path):
    folder = hf_trainer(tmp_path / "checkpoint-5", ranks=2, weights=False)
    (folder / "optimizer.pt").unlink()
    dcp(folder / "pytorch_model_fsdp_0", ranks=2, fqns=["model.w"])
    dcp(folder / "optimizer_0", ranks=2, fqns=["optimizer.state.w"])
    one = only(tmp_path)
    assert (one.verdict, one.resumable) == (Verdict.COMPLETE, True), one.why
    assert one.roles["optimizer_0/__1_0.distcp"] == "optimizer"
    assert one.roles["pytorch_model_fsdp_0/.metadata"] == "weights"
    (folder / "optimizer_0/__1_0.distcp").write_bytes(b"short")
    assert "optimizer_0/__1_0.distcp 5 < 100" in only(tmp_path).why
    (folder / "optimizer_0/.metadata").unlink()
    assert "no optimizer_0/.metadata" in only(tmp_path).why


def test_deepspeed_inside(tmp_path):
    folder = hf_trainer(tmp_path / "checkpoint-5", ranks=2)
    (folder / "optimizer.pt").unlink()
    (folder / "scheduler.pt").unlink()
    deepspeed(folder / "global_step5")
    save(folder / "latest", "global_step5")
    one = only(tmp_path)
    assert (one.framework, one.verdict, one.resumable) == ("hf-trainer", Verdict.COMPLETE, None), one.why
    assert "scheduler" in one.possible
    assert one.roles["global_step5/zero_pp_rank_1_mp_rank_00_optim_states.pt"] == "optimizer"
    save(folder / "latest", "glob")
    assert "latest says 'glob', not global_step5" in only(tmp_path).why
    save(folder / "latest", "")
    assert "latest is empty" in only(tmp_path).why
    (folder / "latest").unlink()
    assert "no latest beside global_step5" in only(tmp_path).why


def test_more_ranks_of_deepspeed_than_random_states(tmp_path):
    folder = hf_trainer(tmp_path / "checkpoint-5", ranks=2)
    deepspeed(folder / "global_step5", dp=4)
    save(folder / "latest", "global_step5")
    assert only(tmp_path).why == "rng_state for 2 of 4 ranks"


def test_an_optimizer_per_rank_of_xla(tmp_path):
    folder = hf_trainer(tmp_path / "checkpoint-5", ranks=2)
    (folder / "optimizer.pt").unlink()
    for rank in range(2):
        save(folder / f"rank{rank}-of-2-optimizer.pt", torch_zip(("optimizer", "shard_metadata")))
    assert only(tmp_path).resumable is True
    (folder / "rank1-of-2-optimizer.pt").unlink()
    assert "1 of 2 missing" in only(tmp_path).why


def test_files_of_the_user_do_not_matter(tmp_path):
    folder = hf_trainer(tmp_path / "checkpoint-5")
    save(folder / "README.md", "")
    save(folder / "eval/predictions.json", '{"a": 1}\n{"a": 2}\n')
    assert only(tmp_path).verdict is Verdict.COMPLETE


def test_names_that_only_look_alike(tmp_path):
    for name in ("my-checkpoint-5", "checkpoint-5.bak", "checkpoint-5-old"):
        hf_trainer(tmp_path / name, step=5)
    assert {name: one.verdict.value for name, one in found(tmp_path).items()} == {"checkpoint-5.bak": "temporary"}


def test_runs_below_one_root(tmp_path):
    for name in ("exp_2024_v3/a/checkpoint-9", "exp_2024_v3/a/checkpoint-10", "b/run-3/checkpoint-9"):
        hf_trainer(tmp_path / name)
    assert [(name, one.step) for name, one in found(tmp_path).items()] == [
        ("b/run-3/checkpoint-9", 9), ("exp_2024_v3/a/checkpoint-9", 9), ("exp_2024_v3/a/checkpoint-10", 10),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["optimizer.bin", "pytorch_model.bin", "training_args.bin"])
def test_files_of_torch_that_a_dead_machine_never_wrote(tmp_path, name):
    assert headers.broken(Folder.of(save(tmp_path / name, torch_zip()).parent), name) is None
    save(tmp_path / name, bytes(5000))
    assert headers.broken(Folder.of(tmp_path), name) == "it begins with zeros"
    save(tmp_path / "embeddings.bin", bytes(5000))
    assert headers.broken(Folder.of(tmp_path), "embeddings.bin") is None


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.safetensors", "rng_state.pth", "last.ckpt"])
def test_what_git_lfs_leaves_in_place_of_a_file(tmp_path, name):
    text = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'a' * 64}\nsize 1234567890\n"
    save(tmp_path / name, text)
    assert headers.broken(Folder.of(tmp_path), name) == "it is what Git LFS left in its place"


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt"])
def test_the_optimizer_and_its_schedule_are_saved_together(tmp_path, name):
    (hf_trainer(tmp_path / "checkpoint-5") / name).unlink()
    one = only(tmp_path)
    assert (one.verdict, one.why) == (Verdict.INCOMPLETE, one.why)
    assert one.why.startswith(f"no {name.removesuffix('.pt')}, and the ")


def test_what_is_pushed_to_the_hub(tmp_path):
    folder = hf_trainer(tmp_path / "last-checkpoint", step=40)
    one = only(tmp_path)
    assert (one.framework, one.step, one.verdict, one.notes) == ("hf-trainer", 40, Verdict.COMPLETE, ())
    (folder / "trainer_state.json").unlink()
    assert found(tmp_path) == {}
