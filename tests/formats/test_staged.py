"""Folders in which something is written until it is renamed: nothing in them is a save, in any family."""

import pytest

from lakemark import formats
from lakemark.formats.rules import staged
from lakemark.ports import Verdict
from tests.formats.builders import dcp, safetensors, save, torch_zip
from tests.formats.library_builders import deepspeed, hf_trainer

RECOGNISER = formats.recogniser()

NAMES = {
    "tmp-checkpoint-x7": None, "tmp-checkpoint-75": 75, "75.orbax-checkpoint-tmp": 75, "default.orbax-checkpoint-tmp-1712": None,
    "checkpoint_75.tmp-1712": 75, "checkpoint_tmp": None, "tmp_step-75": 75, "step75-tmp": 75,
    "ckpt-75_temp": 75, f"model_temp_{'0f' * 16}": None, ".~tmp~": None, ".rsync-partial": None,
}  # fmt: skip
FAMILIES = {
    "deepspeed": lambda at: deepspeed(at / "global_step75"),
    "hf-trainer": lambda at: hf_trainer(at / "checkpoint-75"),
    "dcp": lambda at: dcp(at / "step-75"),
    "generic": lambda at: save(at / "step-75/model.pt", torch_zip()),
    "safetensors": lambda at: save(at / "step-75/model.safetensors", safetensors()),
    "file": lambda at: save(at / "model-75.pt", torch_zip()),
    "lightning": lambda at: save(at / "epoch=1-step=75.ckpt", torch_zip(("state_dict", "pytorch-lightning_version"))),
}


def saves(root):
    return [one for one in RECOGNISER.find(root) if one.verdict in (Verdict.COMPLETE, Verdict.INCOMPLETE)]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", NAMES)
def test_nothing_in_one_is_a_save_and_it_is_told_of(tmp_path, name, family):
    FAMILIES[family](tmp_path / name)
    FAMILIES[family](tmp_path)
    assert len(saves(tmp_path)) == 1
    (one,) = (one for one in RECOGNISER.find(tmp_path) if one.verdict is Verdict.TEMPORARY)
    assert (one.path, one.step) == (tmp_path / name, NAMES[name])


@pytest.mark.parametrize("family", FAMILIES)
def test_nor_where_somebody_names_it_or_looks_only_there(tmp_path, family):
    FAMILIES[family](tmp_path / "tmp-checkpoint-x7/deeper")
    assert saves(tmp_path / "tmp-checkpoint-x7/deeper") == []
    (inside,) = (tmp_path / "tmp-checkpoint-x7/deeper").iterdir()
    one = RECOGNISER.judge(inside)
    assert (one.verdict, one.why) == (Verdict.TEMPORARY, staged.why("tmp-checkpoint-x7"))


def test_a_folder_of_one_that_looks_like_a_checkpoint_itself_is_none(tmp_path):
    dcp(tmp_path / "tmp-checkpoint-x7")
    (one,) = RECOGNISER.find(tmp_path)
    assert (one.verdict, one.step) == (Verdict.TEMPORARY, None)
    assert "transformers" in one.why
    assert RECOGNISER.judge(one.path).verdict is Verdict.TEMPORARY


@pytest.mark.parametrize("name", ["temp-0.7", "tmp", "tmp_models", "temp", "attempt_5", "my_temp", "model_temp_75"])
def test_other_names_with_such_a_word_shield_nothing(tmp_path, name):
    save(tmp_path / name / "step-75/model.pt", torch_zip())
    assert [one.path for one in saves(tmp_path)] == [tmp_path / name / "step-75"]


def test_each_form_has_a_name_here_and_a_source():
    assert all(any(form.name.fullmatch(name) for name in NAMES) for form in staged.FORMS)
    assert all(form.source and staged.form_of(name) for form in staged.FORMS for name in NAMES)
