"""Models that were exported into a folder named by its step."""

import pytest

from lakemark.ports import Verdict
from tests.formats.builders import as_json, safetensors, save, torch_zip
from tests.formats.library_builders import found, index_of, only


def export(folder):
    as_json(folder / "config.json", {"model_type": "llama"})
    as_json(folder / "tokenizer.json", {})
    save(folder / "model.safetensors", safetensors())
    return folder


def test_weights_only(tmp_path):
    export(tmp_path / "exports/step-20")
    one = only(tmp_path)
    assert (one.framework, one.step, one.verdict, one.resumable) == ("safetensors", 20, Verdict.COMPLETE, False)
    assert "weights only: not resumable" in one.why


@pytest.mark.parametrize("name", ["llama-7b", "sharded", "final", "v2"])
def test_a_model_that_somebody_keeps_is_no_checkpoint(tmp_path, name):
    export(tmp_path / name)
    assert found(tmp_path) == {}


def test_shards(tmp_path):
    folder = tmp_path / "step-20"
    shards = [f"model-0000{at}-of-00002.safetensors" for at in (1, 2)]
    for shard in shards:
        save(folder / shard, safetensors())
    assert "no model.safetensors.index.json" in only(tmp_path).why
    index_of(folder, shards)
    assert only(tmp_path).verdict is Verdict.COMPLETE
    save(folder / shards[0], safetensors()[:-1])
    assert only(tmp_path).verdict is Verdict.INCOMPLETE


def test_only_begun(tmp_path):
    as_json(tmp_path / "step-20/adapter_config.json", {})
    assert (only(tmp_path).framework, only(tmp_path).verdict) == ("safetensors", Verdict.INCOMPLETE)


@pytest.mark.parametrize("inside", ["", "reward/"])
def test_an_adapter_without_its_configuration(tmp_path, inside):
    save(tmp_path / "step-20/adapter_model.safetensors", safetensors())
    as_json(tmp_path / "step-20/adapter_config.json", {})
    save(tmp_path / f"step-20/{inside}adapter_model.safetensors", safetensors())
    as_json(tmp_path / f"step-20/{inside}adapter_config.json", {})
    assert only(tmp_path).verdict is Verdict.COMPLETE
    (tmp_path / f"step-20/{inside}adapter_config.json").unlink()
    assert only(tmp_path).why == f"no {inside}adapter_config.json (written last)"


def test_with_what_a_trainer_saves_it_is_none(tmp_path):
    save(export(tmp_path / "step-20") / "optimizer.pt", torch_zip(("state",)))
    assert only(tmp_path).framework == "generic"
