"""What a step lacks and only the steps beside it tell; and what is no step at all."""

import pytest

from lakemark.ports import Verdict
from tests.formats.builders import as_json, dcp, safetensors, save, torch_zip
from tests.formats.library_builders import RECOGNISER, accelerate, deepspeed, found, hf_trainer, only, verdict


def script(folder, *names):
    for name in names:
        save(folder / name, safetensors() if name.endswith("safetensors") else torch_zip(("weight",)))


def said(root, name):
    """By the search, and by a look at it alone: they agree."""
    one = found(root)[name]
    assert RECOGNISER.judge(root / name) == one
    return one.verdict.value, one.why


@pytest.mark.parametrize("model", ["model.pt", "model.safetensors", "weights/model.bin"])
def test_a_script_that_ended_between_two_files(tmp_path, model):
    for step in (100, 200, 300):
        script(tmp_path / f"step-{step}", model, *(("optimizer.pt", "rng_0.pt") if step < 300 else ()))
    assert said(tmp_path, "step-200")[0] == "complete"
    assert said(tmp_path, "step-300") == ("incomplete", "no optimizer.pt, which the step before has")
    script(tmp_path / "step-300", "optimizer.pt")
    assert said(tmp_path, "step-300") == ("incomplete", "no rng_#.pt, which the step before has")
    script(tmp_path / "step-300", "rng_0.pt")
    assert said(tmp_path, "step-300")[0] == "complete"


def test_what_a_dcp_checkpoint_has_beside_it(tmp_path):
    for step in (100, 200):
        dcp(tmp_path / f"step-{step}")
    script(tmp_path / "step-100", "rng_0.pt")
    assert said(tmp_path, "step-200") == ("incomplete", "no rng_#.pt, which the step before has")


def test_steps_of_other_names_are_another_s(tmp_path):
    for step in (100, 200):
        hf_trainer(tmp_path / f"checkpoint-{step}")
        script(tmp_path / f"step-{step}", "model.safetensors")
        assert said(tmp_path, f"step-{step}") == ("complete", "whole; weights only: not resumable")


def test_saves_of_two_kinds(tmp_path):
    """Weights at every step, all at every second: the first is in doubt until another is like it, and was left behind."""
    for step in range(6):
        script(tmp_path / f"step-{step}", "model.pt", *(() if step % 2 else ("optimizer.pt",)))
        assert (said(tmp_path, f"step-{step}")[0] == "complete") == (step != 1)
        assert (said(tmp_path, "step-1")[0] == "complete") == (step > 3) if step else True


def test_one_in_the_making_is_nothing_to_go_by(tmp_path):
    for step in (100, 200, 300, 400):
        script(tmp_path / f"step-{step}", "model.pt", *(() if step > 200 else ("optimizer.pt",)))
    assert said(tmp_path, "step-300")[0] == "incomplete"
    script(tmp_path / "step-500", "model.pt")
    assert said(tmp_path, "step-300")[0] == "complete"


def test_files_that_say_nothing_of_the_state_are_not_missed(tmp_path):
    script(tmp_path / "step-100", "model.pt", "best.pt", "samples.npz", "merged/model.safetensors")
    script(tmp_path / "step-200", "model.pt")
    assert said(tmp_path, "step-200")[0] == "complete"


def test_files_of_one_step_in_one_folder(tmp_path):
    script(tmp_path, "model-100.pt", "optimizer-100.pt", "best-100.pt", "model-200.pt")
    assert verdict(tmp_path, "model-200.pt") == ("torch", 200, "incomplete")
    assert RECOGNISER.judge(tmp_path / "model-200.pt").why == "no optimizer-#.pt, which the step before has"
    script(tmp_path, "model-300.pt", "model-400.pt")
    assert verdict(tmp_path, "model-200.pt") == ("torch", 200, "complete")


@pytest.mark.parametrize("name", ["optimizer.pt", "rng_state.pth", "optim/optimizer.bin", "scheduler_0.pt"])
def test_no_weights(tmp_path, name):
    """What is left of a step that somebody is removing."""
    script(tmp_path / "step-100", name)
    as_json(tmp_path / "step-100/config.json", {})
    assert found(tmp_path)["step-100"].verdict is Verdict.INCOMPLETE
    script(tmp_path, "optimizer-200.pt")
    assert RECOGNISER.judge(tmp_path / "optimizer-200.pt").why == "no weights"


def test_a_configuration_alone(tmp_path):
    """What is written before the weights."""
    as_json(tmp_path / "step-100/config.json", {})
    assert verdict(tmp_path, "step-100") == ("generic", 100, "incomplete")
    save(tmp_path / "step-100/weights.txt")
    assert verdict(tmp_path, "step-100") == ("generic", 100, "complete")


def test_olmo_s_mark_alone(tmp_path):
    as_json(tmp_path / "step8/.metadata.json", {"ephemeral": False})
    assert verdict(tmp_path, "step8") == ("olmo-core", 8, "incomplete")


@pytest.mark.parametrize("left", ["optimizer.bin", "scheduler.bin", "dl_state_dict.bin", "custom_checkpoint_0.pkl"])
@pytest.mark.parametrize("name", ["checkpoint_2", "step_6"])
def test_what_is_left_of_a_save_of_accelerate(tmp_path, name, left):
    folder = accelerate(tmp_path / "checkpoints" / name)
    for one in [one for one in folder.iterdir() if one.name != left]:
        one.unlink()
    assert verdict(tmp_path, f"checkpoints/{name}")[::2] == ("accelerate", "incomplete")
    script(folder, "weights.bin")
    assert verdict(tmp_path, f"checkpoints/{name}")[::2] == ("generic", "complete")


def test_the_trainer_s_other_node_has_random_states_alone(tmp_path):
    save(tmp_path / "a/checkpoint-10/rng_state_8.pth", torch_zip(("cpu",)))
    assert verdict(tmp_path, "a/checkpoint-10") == ("hf-trainer", 10, "incomplete")


@pytest.mark.parametrize(("world", "ranks"), [(1, 1), (2, 2)])
def test_the_trainer_s_random_states_come_with_the_optimizer(tmp_path, world, ranks):
    folder = hf_trainer(tmp_path / "checkpoint-5", ranks=ranks, world=world)
    assert only(tmp_path).verdict is Verdict.COMPLETE
    kept = {one.name: one.read_bytes() for one in folder.glob("rng_state*")}
    for name in kept:
        (folder / name).unlink()
    assert only(tmp_path).why == f"no rng_state of {world} ranks"
    for name, content in kept.items():
        save(folder / name, content)
    for name in ("optimizer.pt", "scheduler.pt"):
        (folder / name).unlink()
    assert only(tmp_path).why == "no optimizer and no scheduler, and the rng is there"


def test_a_trainer_that_goes_on_with_fewer_ranks_and_says_so(tmp_path):
    hf_trainer(tmp_path / "checkpoint-5", ranks=4, world=4)
    hf_trainer(tmp_path / "checkpoint-10", ranks=2, world=2)
    assert said(tmp_path, "checkpoint-10")[0] == "complete"
    hf_trainer(tmp_path / "checkpoint-10", ranks=2)
    assert said(tmp_path, "checkpoint-10") == ("incomplete", "rng_state for 2 of 4 ranks, as the step before has")


def composer(folder, batch, ranks):
    for rank in range(ranks):
        save(folder / f"ep0-ba{batch}-rank{rank}.pt", torch_zip(values={"state": {"model": 1}, "rng": []}))


def test_the_last_rank_of_composer(tmp_path):
    for batch, ranks in ((200, 4), (1000, 3)):
        composer(tmp_path, batch, ranks)
    (tmp_path / "latest-rank2.pt").symlink_to("ep0-ba1000-rank2.pt")
    assert verdict(tmp_path, "ep0-ba1000") == ("composer", 1000, "incomplete")
    assert RECOGNISER.judge(tmp_path / "ep0-ba1000").why == "3 of 4 ranks, as the step before has"
    assert verdict(tmp_path, "latest-rank2.pt") == ("alias", 1000, "pointer")
    assert RECOGNISER.judge(tmp_path / "latest-rank2.pt").step == 1000
    composer(tmp_path, 2000, 3)
    assert [one.verdict for one in RECOGNISER.find(tmp_path) if one.framework == "composer"] == [Verdict.COMPLETE] * 3


def test_a_run_of_fairseq_that_goes_on_with_fewer_shards(tmp_path):
    for updates, count in ((500, 4), (1000, 3), (1500, 3)):
        for shard in range(count):
            save(tmp_path / f"checkpoint_1_{updates}-shard{shard}.pt", torch_zip(("model", "last_optimizer_state")))
    assert [one.verdict for one in RECOGNISER.find(tmp_path)] == [Verdict.COMPLETE] * 3


@pytest.mark.parametrize("key", ["dataloader.position", "rng.cpu", "lr_scheduler.last_epoch"])
def test_a_replica_s_own_state_is_no_checkpoint(tmp_path, key):
    """torchft's, in torchtitan's folder of checkpoints."""
    dcp(tmp_path / "checkpoint/step-10", fqns=("w", "optimizer.w"))
    dcp(tmp_path / "checkpoint/ft-replicat-0/step-10", fqns=(key,))
    assert verdict(tmp_path, "checkpoint/step-10")[2] == "complete"
    assert verdict(tmp_path, "checkpoint/ft-replicat-0/step-10")[2] == "marker"
    dcp(tmp_path / "checkpoint/ft-replicat-0/step-10", fqns=("w", "optimizer.w"))
    assert verdict(tmp_path, "checkpoint/ft-replicat-0/step-10")[2] == "marker"
    dcp(tmp_path / "checkpoint/optimizers/step-10", fqns=("optimizer.w",))
    assert verdict(tmp_path, "checkpoint/optimizers/step-10")[2] == "complete"


@pytest.mark.parametrize("names", [("a.png", "b.JPG"), ("results.csv",), ("run.log", "plots/loss.svg"), ("out.jsonl",)])
def test_pictures_tables_and_logs_are_no_step(tmp_path, names):
    for name in names:
        save(tmp_path / "step_100" / name)
    assert found(tmp_path) == {}
    save(tmp_path / "step_100/what.txt")
    assert verdict(tmp_path, "step_100") == ("generic", 100, "complete")


def test_what_lies_beside_the_data_of_dcp_has_roles(tmp_path):
    dcp(tmp_path / "step-100", fqns=("model.w", "optim.w"))
    script(tmp_path / "step-100", "scheduler.pt", "rng_0.pt")
    save(tmp_path / "step-100/train/rank0.pt", torch_zip(("global_step", "dataloader")))  # OLMo, before its core
    one = only(tmp_path)
    assert (one.framework, one.step, one.verdict, one.resumable) == ("dcp", 100, Verdict.COMPLETE, True), one.why
    assert one.present == ("weights", "optimizer", "scheduler", "rng", "dataloader", "trainer")
    assert (one.roles["scheduler.pt"], one.roles["rng_0.pt"]) == ("scheduler", "rng")


def test_a_save_of_accelerate_with_a_scheduler_has_an_optimizer(tmp_path):
    folder = accelerate(tmp_path / "step_6")
    (folder / "optimizer.bin").unlink()
    assert only(tmp_path).why == "no optimizer, and the scheduler is there"


@pytest.mark.parametrize("name", ["optimizer.bin", "model.safetensors", "dl_state_dict.bin", "random_states_0.pkl"])
def test_a_save_of_accelerate_that_was_being_removed(tmp_path, name):
    """`total_limit` removes the oldest before it saves, in the order in which its files are listed."""
    for at in (1, 2):
        accelerate(tmp_path / f"checkpoint_{at}")
    assert said(tmp_path, "checkpoint_1")[0] == "complete"
    for one in ("scheduler.bin", name):
        (tmp_path / "checkpoint_1" / one).unlink(missing_ok=True)
    assert said(tmp_path, "checkpoint_1")[0] == "incomplete"
    assert said(tmp_path, "checkpoint_2")[0] == "complete"


@pytest.mark.parametrize("name", ["scheduler.bin", "dl_state_dict.bin", "random_states_0.pkl"])
@pytest.mark.parametrize("temporary", [".{}.Ab3xYz", "{}.6Eb3aF12", "{}_.gstmp", "{}.9f8a7b6c.partial"])
def test_a_copy_that_is_under_way(tmp_path, name, temporary):
    """rsync, the command lines of AWS and of Google Cloud, rclone."""
    folder = accelerate(tmp_path / "step_6")
    (folder / name).rename(folder / temporary.format(name))
    one = only(tmp_path)
    assert (one.framework, one.verdict, one.unfinished) == ("accelerate", Verdict.INCOMPLETE, (temporary.format(name),))


def test_what_macos_keeps_beside_files(tmp_path):
    hf_trainer(tmp_path / "checkpoint-5")
    save(tmp_path / "epoch=0-step=8.ckpt", torch_zip(("state_dict",)))
    before = found(tmp_path)
    for file in [one for one in tmp_path.rglob("*") if one.is_file()]:
        save(file.with_name(f"._{file.name}"), b"\0\5\x16\7")
    assert found(tmp_path) == before
    assert [one.verdict for one in before.values()] == [Verdict.COMPLETE] * 2


def test_a_save_of_diffusers_that_has_only_begun(tmp_path):
    save(tmp_path / "checkpoint-500/unet/diffusion_pytorch_model.safetensors", safetensors())
    assert verdict(tmp_path, "checkpoint-500") == ("accelerate", 500, "incomplete")
    accelerate(tmp_path / "checkpoint-500")
    assert verdict(tmp_path, "checkpoint-500") == ("accelerate", 500, "complete")


@pytest.mark.parametrize("name", ["checkpoints/checkpoint_0", "step_5", "checkpoint-500"])
def test_a_save_of_accelerate_with_deepspeed_that_ended_early(tmp_path, name):
    """In the order in which its files are written; the random states come last."""
    folder = tmp_path / name
    deepspeed(folder / "pytorch_model", dp=2, stage=2)
    assert verdict(tmp_path, name)[::2] == ("accelerate", "incomplete")
    save(folder / "latest", "pytorch_model")
    save(folder / "zero_to_fp32.py", "")
    assert only(tmp_path).why == "no random_states_N.pkl (written last)"
    for file in ("scheduler.bin", "random_states_0.pkl"):
        script(folder, file)
    assert only(tmp_path).why == "random_states for 1 of 2 ranks"
    script(folder, "random_states_1.pkl")
    assert only(tmp_path).verdict is Verdict.COMPLETE


def test_shards_of_fsdp_come_with_an_optimizer(tmp_path):
    folder = hf_trainer(tmp_path / "checkpoint-5", model_only=True)
    assert only(tmp_path).verdict is Verdict.COMPLETE
    dcp(folder / "pytorch_model_fsdp_0", fqns=("model.w",))
    assert only(tmp_path).why == "no optimizer and no scheduler, and the shards of FSDP are there"


def test_an_index_of_vectors_is_no_table_of_tensorflow(tmp_path):
    folder = hf_trainer(tmp_path / "checkpoint-5")
    save(folder / "faiss.index", b"IxF2 and the vectors")
    assert only(tmp_path).verdict is Verdict.COMPLETE
    save(folder / "faiss.data-00000-of-00001", b"x")
    assert only(tmp_path).why == "faiss.index: cut (no table footer)"


@pytest.mark.parametrize("name", ["checkpoint-step-100", "ckpt_step100", "checkpoint_iter_0000100"])
def test_two_words_before_the_number(tmp_path, name):
    script(tmp_path / name, "model.pt")
    assert verdict(tmp_path, name) == ("generic", 100, "complete")


@pytest.mark.parametrize("ranks", [1, 3])
def test_composer_s_links_that_became_copies(tmp_path, ranks):
    composer(tmp_path, 100, ranks)
    for rank in range(ranks):
        save(tmp_path / f"latest-rank{rank}.pt", (tmp_path / f"ep0-ba100-rank{rank}.pt").read_bytes())
    step, copy = RECOGNISER.find(tmp_path)
    assert (copy.path.name, copy.framework, copy.step) == ("latest-rank0.pt", "composer", None)
    assert (copy.verdict, copy.present, len(copy.paths)) == (Verdict.COMPLETE, step.present, ranks)
    save(tmp_path / "latest-rank0.pt", (tmp_path / "latest-rank0.pt").read_bytes()[:-9])
    assert RECOGNISER.judge(tmp_path / "latest-rank0.pt").verdict is Verdict.INCOMPLETE


def test_versions_of_a_model_that_is_served(tmp_path):
    for version in (1, 2):
        script(tmp_path / f"models/resnet/{version}", "model.pt")
    assert [one.step for one in found(tmp_path).values()] == [1, 2]
    save(tmp_path / "models/resnet/config.pbtxt", 'platform: "pytorch_libtorch"')
    assert found(tmp_path) == {}


@pytest.mark.parametrize("name", ["tmp_{}", "temp-{}", "tmp.{}"])
@pytest.mark.parametrize("file", ["model_100.pt", "ckpt-100.pth", "epoch=1-step=100.ckpt", "checkpoint_1_100.pt"])
def test_whole_files_before_they_are_renamed(tmp_path, name, file):
    save(tmp_path / name.format(file), torch_zip(("model", "pytorch-lightning_version")))
    assert verdict(tmp_path, name.format(file)) == ("generic", 100, "temporary")
    assert RECOGNISER.judge(tmp_path / name.format(file)).verdict is Verdict.TEMPORARY


@pytest.mark.parametrize("name", [".model_100.pt", ".epoch=1-step=100.ckpt", "model_tmp_100.pt", "_tmp_model_100.pt"])
def test_nor_are_these_checkpoints(tmp_path, name):
    save(tmp_path / name, torch_zip(("model", "pytorch-lightning_version")))
    assert found(tmp_path) == {}
