"""A folder that was saved to twice with another number of shards: its index decides, and what it does not name is told of."""

import json

import pytest

from lakemark.ports import Verdict
from tests.formats.builders import safetensors, save, torch_zip
from tests.formats.library_builders import hf_trainer, only


def shards(folder, count, *, indexed, stem="model", ending="safetensors"):
    names = [f"{stem}-{at:05d}-of-{count:05d}.{ending}" for at in range(1, count + 1)]
    for at, name in enumerate(names):
        save(folder / name, safetensors((f"w{at}",)) if ending == "safetensors" else torch_zip())
    if indexed:
        save(
            folder / f"{stem}.{ending}.index.json",
            json.dumps({"weight_map": {f"w{at}": name for at, name in enumerate(names)}}),
        )
    return names


def trainer(root):
    return hf_trainer(root / "checkpoint-5", weights=False)


def export(root):
    save(root / "step-5/config.json", "{}")
    return root / "step-5"


def own(root):
    save(root / "step-5/optim.pt", torch_zip(("state", "param_groups")))
    return root / "step-5"


@pytest.mark.parametrize("ending", ["safetensors", "bin"])
@pytest.mark.parametrize("make", [trainer, export, own])
def test_the_index_decides(tmp_path, make, ending):
    stem = "model" if ending == "safetensors" else "pytorch_model"
    folder = make(tmp_path)
    save(folder / f"{stem}-00003-of-00003.{ending}", safetensors() if ending == "safetensors" else torch_zip())
    mine = shards(folder, 2, indexed=True, stem=stem, ending=ending)
    one = only(tmp_path)
    if make is export and ending == "bin":
        return  # an export is known by its safetensors
    assert one.verdict is Verdict.COMPLETE, one.why
    assert any(f"{stem}-00003-of-00003.{ending} is of another save" in note for note in one.notes)
    (folder / mine[1]).unlink()
    assert only(tmp_path).verdict is Verdict.INCOMPLETE


@pytest.mark.parametrize("make", [trainer, own])
def test_without_an_index_nobody_can_tell(tmp_path, make):
    folder = make(tmp_path)
    shards(folder, 2, indexed=False)
    save(folder / "model-00003-of-00003.safetensors", safetensors())
    assert only(tmp_path).verdict is Verdict.INCOMPLETE


def test_a_shard_of_its_own_count_that_is_missing_is_missed(tmp_path):
    folder = trainer(tmp_path)
    names = shards(folder, 3, indexed=True)
    (folder / names[0]).unlink()
    assert only(tmp_path).verdict is Verdict.INCOMPLETE
