"""Loops of people's own: what they commonly write can be resumed from, or it is said which file nobody could judge."""

import io
import zipfile

import pytest

from lakemark import formats
from lakemark.ports import Verdict
from tests.formats.builders import as_json, safetensors, save, torch_zip

RECOGNISER = formats.recogniser()
OPTIMIZER = torch_zip(("state", "param_groups"))
MODEL = torch_zip(values={"layer.weight": [1.5], "layer.bias": [0.5]})
ALL = torch_zip(("model", "optimizer", "scheduler", "rng_state"))


def npz(*names):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names:
            archive.writestr(f"{name}.npy", b"\x93NUMPY" + bytes(64))
    return buffer.getvalue()


def tensors(*names):
    return safetensors(names)


def only(root):
    (one,) = (found for found in RECOGNISER.find(root) if found.verdict is not Verdict.POINTER)
    return one


FOLDERS = {
    "safetensors, optim.pt": {"model.safetensors": tensors("w"), "optim.pt": OPTIMIZER},
    "safetensors, opt.bin": {"model.safetensors": tensors("w"), "opt.bin": OPTIMIZER},
    "safetensors, adam.pth": {"model.safetensors": tensors("w"), "adam.pth": OPTIMIZER},
    "safetensors, optimizer.npz": {"model.safetensors": tensors("w"), "optimizer.npz": npz("exp_avg", "step")},
    "safetensors, state.npz": {"model.safetensors": tensors("w"), "state.npz": npz("optimizer", "step")},
    "safetensors, optim.safetensors": {"model.safetensors": tensors("w"), "optim.safetensors": tensors("exp_avg.w")},
    "safetensors, optimizer.json": {"model.safetensors": tensors("w"), "optimizer.json": b'{"lr": 0.1}'},
    "safetensors, optimizer.dat": {"model.safetensors": tensors("w"), "optimizer.dat": b"x"},
    "safetensors, optimizer.zst": {"model.safetensors": tensors("w"), "optimizer.zst": b"x"},
    "shards, optim.pt": {
        "model-00001-of-00002.safetensors": tensors("a"),
        "model-00002-of-00002.safetensors": tensors("b"),
        "model.safetensors.index.json": b'{"weight_map": {"a": "model-00001-of-00002.safetensors", '
        b'"b": "model-00002-of-00002.safetensors"}}',
        "optim.pt": OPTIMIZER,
    },
    "model.pt, optim.pt": {"model.pt": MODEL, "optim.pt": OPTIMIZER},
    "model.bin, opt.bin": {"model.bin": MODEL, "opt.bin": OPTIMIZER},
    "weights.npz, opt.npz": {"weights.npz": npz("layer0"), "opt.npz": npz("m", "v")},
    "state.npz": {"state.npz": npz("params", "opt_state")},
    "checkpoint.pt": {"checkpoint.pt": ALL},
    "model.json, optimizer.json": {"model.json": b'{"w": [1.5]}', "optimizer.json": b'{"m": [0.5]}'},
}  # fmt: skip


@pytest.mark.parametrize("layout", FOLDERS)
def test_a_folder_holds_a_model_and_an_optimizer(tmp_path, layout):
    for name, content in FOLDERS[layout].items():
        save(tmp_path / "step-7" / name, content)
    one = only(tmp_path)
    assert (one.step, one.verdict, one.resumable is not False, one.gaps) == (7, Verdict.COMPLETE, True, ()), one.why
    assert {"weights", "optimizer"} <= set(one.present)
    assert {"scheduler", "rng"} <= {*one.possible, *one.present}


FILES = {
    "one .pt": {"model_7.pt": ALL},
    "one .npz": {"model-7.npz": npz("params", "opt_state")},
    "two .npz": {"model-7.npz": npz("layer0"), "optimizer-7.npz": npz("m")},
    "safetensors and .pt": {"model-7.safetensors": tensors("w"), "optim-7.pt": OPTIMIZER},
    "safetensors and .bin": {"model-7.safetensors": tensors("w"), "optimizer-7.bin": OPTIMIZER},
}  # fmt: skip


@pytest.mark.parametrize("layout", FILES)
def test_files_of_one_step_do_so_too(tmp_path, layout):
    for name, content in FILES[layout].items():
        save(tmp_path / "checkpoints" / name, content)
    one = only(tmp_path)
    assert (one.step, one.verdict, one.resumable is not False, one.gaps) == (7, Verdict.COMPLETE, True, ()), one.why
    assert {"weights", "optimizer"} <= set(one.present)


UNTOLD = ("training.pt", "extra.bin", "misc.npz", "blob.npy", "stuff.msgpack", "things.pkl", "blob.dat", "adam.state")


@pytest.mark.parametrize("name", UNTOLD)
def test_what_nobody_can_judge_is_named_and_denies_nothing(tmp_path, name):
    content = (
        npz("a", "b")
        if name.endswith("npz")
        else torch_zip(("this", "that"))
        if name.endswith((".pt", ".bin"))
        else b"x"
    )
    save(tmp_path / "step-7/model.safetensors", tensors("w"))
    save(tmp_path / "step-7" / name, content)
    one = only(tmp_path)
    assert (one.verdict, one.resumable, one.gaps) == (Verdict.COMPLETE, None, ())
    assert set(one.possible) == {"optimizer", "scheduler", "rng"}
    if name != "training.pt":
        assert any(f"'{name}'" in note and "optimizer, scheduler, rng" in note for note in one.notes), one.notes


def test_an_export_with_texts_beside_it_is_weights_only_still(tmp_path):
    save(tmp_path / "step-7/model.safetensors", tensors("w"))
    for name in ("config.json", "tokenizer.json", "eval_results.json", "all_results.json"):
        as_json(tmp_path / "step-7" / name, {})
    for name in ("README.md", "merges.txt", "tokenizer.model", "spiece.model", "optimizer.md"):
        save(tmp_path / "step-7" / name)
    save(tmp_path / "step-7/training_args.bin", torch_zip(("lr",)))
    one = only(tmp_path)
    assert (one.framework, one.resumable) == ("safetensors", False)
    assert "weights only" in one.why


def test_a_shard_that_the_index_names_is_missed_in_a_loop_of_one_s_own(tmp_path):
    for name, content in FOLDERS["shards, optim.pt"].items():
        save(tmp_path / "step-7" / name, content)
    (tmp_path / "step-7/model-00002-of-00002.safetensors").unlink()
    assert only(tmp_path).verdict is Verdict.INCOMPLETE


@pytest.mark.parametrize("name", ["model.npz", "optim.pt", "model.safetensors"])
def test_a_directory_that_lies_is_no_end_of_the_search(tmp_path, name):
    save(tmp_path / "step-7/weights.safetensors", tensors("w"))
    content = {"npz": npz("a"), "pt": OPTIMIZER, "safetensors": (2**40).to_bytes(8, "little") + b"{}"}
    save(tmp_path / "step-7" / name, content[name.rpartition(".")[2]][:60])
    assert only(tmp_path).verdict is Verdict.INCOMPLETE
