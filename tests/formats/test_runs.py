"""Folders of jobs whose names are numbers: what lies in them are the steps, they are none themselves."""

import pytest

from lakemark.formats.readers.folder import Folder
from tests.formats.builders import as_json, dcp, safetensors, save, torch_zip
from tests.formats.library_builders import RECOGNISER, accelerate, deepspeed, found, hf_trainer, megatron

KEPT = ("state_dict", "optimizer_states", "global_step")


def hugging_face(job):
    """With the best model, as `save_model` leaves it beside the checkpoints."""
    hf_trainer(job / "checkpoint-500")
    save(job / "model.safetensors", safetensors())
    as_json(job / "config.json", {})
    return {"checkpoint-500": 500}


def shards_beside(job):
    save(job / "model.safetensors", safetensors())
    accelerate(job / "checkpoints/checkpoint_3")
    return {"checkpoints/checkpoint_3": 3}


def lightning(job):
    names = {"epoch=0-step=8.ckpt": 8, "epoch=1-step=16-val_loss=1.41.ckpt": 16, "last.ckpt": None}
    for name in names:
        save(job / name, torch_zip(values=dict.fromkeys(KEPT, 16)))
    return names


def lightning_in_folders(job):
    folder = job / "epoch=0-step=8.ckpt"
    dcp(folder, fqns=("state_dict.w",))
    save(folder / "meta.pt", torch_zip(("loops",)))
    return {folder.name: 8}


def fairseq(job):
    names = {"checkpoint_1_500.pt": 500, "checkpoint_last.pt": None}
    for name in names:
        save(job / name, torch_zip(("model", "last_optimizer_state")))
    return names


def composer(job):
    save(job / "ep0-ba100-rank0.pt", torch_zip(("state", "rng")))
    dcp(job / "ep0-ba200")
    return {"ep0-ba100-rank0.pt": 100, "ep0-ba200": 200}


def nemo(job):
    name = "gpt--val_loss=2.35-step=500-consumed_samples=4000.0"
    megatron(job / name / "weights")
    save(job / name / "context/io.json", "{}")
    return {name: 500}


def universal(job):
    deepspeed(job / "global_step5")
    return {"global_step5": 5}


def a_script_s(job):
    for step in (1000, 2000):
        save(job / f"model_{step}.pt", torch_zip(("model", "optimizer")))
    return {"model_1000.pt": 1000, "model_2000.pt": 2000}


def a_script_s_first(job):
    save(job / "model_1000.pt", torch_zip(("model", "optimizer")))
    return {"model_1000.pt": 1000}


MADE = (
    hugging_face, shards_beside, lightning, lightning_in_folders, fairseq, composer, nemo, universal, a_script_s,
    a_script_s_first,
)  # fmt: skip


@pytest.mark.parametrize("make", MADE)
@pytest.mark.parametrize("job", ["0", "12", "multirun/2026-11-29/12-00-00/1"])
def test_a_job_s_number_is_no_step(tmp_path, make, job):
    wanted = make(tmp_path / job)
    assert {name: one.step for name, one in found(tmp_path).items()} == {
        f"{job}/{name}": step for name, step in wanted.items()
    }
    whole = RECOGNISER.judge(tmp_path / job)
    assert (whole.framework, whole.step) == ("generic", None)


@pytest.mark.parametrize("make", [hugging_face, lightning, fairseq, composer])
@pytest.mark.parametrize("job", ["step-1", "iter_3"])
def test_nor_is_a_word_with_a_number_where_other_steps_are_in_it(tmp_path, make, job):
    wanted = make(tmp_path / job)
    assert set(found(tmp_path)) == {f"{job}/{name}" for name in wanted}


@pytest.mark.parametrize(
    "names",
    [
        ("model_0.pt", "model_1.pt"),
        ("model_8.pt", "model_9.pt", "model_10.pt"),  # of another node
        ("model_8.pt",),
        ("model_100.pt", "optimizer_100.pt"),
        ("rank_0/model.pt", "rank_1/model.pt"),
        ("0/model.pt", "1/model.pt"),
        ("step=100.ckpt",),
    ],
)
def test_parts_of_a_step_are_no_run(tmp_path, names):
    for name in names:
        save(tmp_path / "step_100" / name, torch_zip())
    assert {name: one.step for name, one in found(tmp_path).items()} == {"step_100": 100}
    if "/" not in names[0]:
        (tmp_path / "step_100").rename(tmp_path / "100")
        assert {name: one.step for name, one in found(tmp_path).items()} == {"100": 100}


def test_a_path_of_one_name_lies_where_the_process_is(tmp_path, monkeypatch):
    deepspeed(tmp_path / "global_step5")
    save(tmp_path / "latest", "global_step9")
    monkeypatch.chdir(tmp_path)
    assert RECOGNISER.judge(tmp_path / "global_step5").notes == ("latest says 'global_step9'",)
    (one,) = [one for one in RECOGNISER.find(tmp_path.relative_to(tmp_path)) if one.step == 5]
    assert one.notes == ("latest says 'global_step9'",)
    assert RECOGNISER.judge((tmp_path / "global_step5").relative_to(tmp_path)).notes == one.notes
    assert [Folder(at).parent.at for at in ("/a", "/", "a/b/", "a")] == ["/", "/", "a", "."]
