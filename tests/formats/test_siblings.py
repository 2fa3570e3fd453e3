"""What one process saves of a step into several folders, whose names differ in a role alone, is one save."""

import shutil

import pytest

from lakemark import formats
from lakemark.ports import Verdict
from tests.formats.builders import dcp, save, torch_zip
from tests.formats.library_builders import deepspeed, hf_trainer

RECOGNISER = formats.recogniser()


def rows(root):
    found = [one for one in RECOGNISER.find(root) if one.verdict in (Verdict.COMPLETE, Verdict.INCOMPLETE)]
    return {str(one.path.relative_to(root)): one.verdict.value for one in found}


def both(root, steps=(20, 40), roles=("_actor", "_critic"), make=deepspeed, name="global_step{}"):
    for role in roles:
        for step in steps:
            make(root / role / name.format(step))


@pytest.mark.parametrize(
    "roles", [("_actor", "_critic"), ("actor", "critic", "ref"), ("ckpt-generator", "ckpt-discriminator")]
)
def test_both_are_one(tmp_path, roles):
    both(tmp_path, roles=roles)
    assert rows(tmp_path) == {"global_step20": "complete", "global_step40": "complete"}
    one = RECOGNISER.judge(tmp_path / "global_step20")
    assert [str(path.relative_to(tmp_path)) for path in one.members] == [
        f"{role}/global_step20" for role in sorted(roles)
    ]
    assert (one.framework, one.step) == ("deepspeed", 20)
    assert one.roles[f"{roles[0]}/global_step20/mp_rank_00_model_states.pt"] == "weights"


@pytest.mark.parametrize(
    ("make", "name"),
    [(dcp, "step-{}"), (hf_trainer, "checkpoint-{}"), (lambda at: save(at / "model.pt", torch_zip()), "step-{}")],
)
def test_in_any_family(tmp_path, make, name):
    both(tmp_path, make=make, name=name)
    assert rows(tmp_path) == {name.format(step): "complete" for step in (20, 40)}


def test_half_a_step_waits_for_the_other(tmp_path):
    both(tmp_path)
    deepspeed(tmp_path / "_actor/global_step60")
    assert rows(tmp_path)["global_step60"] == "incomplete"
    assert RECOGNISER.judge(tmp_path / "global_step60").why == "no _critic/global_step60"
    deepspeed(tmp_path / "_critic/global_step60").joinpath("mp_rank_00_model_states.pt").write_bytes(b"PK")
    assert "_critic/global_step60: " in RECOGNISER.judge(tmp_path / "global_step60").why
    assert rows(tmp_path)["global_step60"] == "incomplete"
    shutil.rmtree(tmp_path / "_actor/global_step20")
    assert rows(tmp_path)["global_step20"] == "incomplete", "rotated halfway"


def test_a_part_says_of_what(tmp_path):
    both(tmp_path)
    one = RECOGNISER.judge(tmp_path / "_actor/global_step20")
    assert (one.path, one.part_of) == (tmp_path / "_actor/global_step20", tmp_path / "global_step20")
    assert RECOGNISER.judge(deepspeed(tmp_path / "other/global_step20")).part_of is None


def test_one_lacks_what_the_whole_lacks(tmp_path):
    both(tmp_path)
    for step in (20, 40):
        for path in (tmp_path / f"_critic/global_step{step}").glob("*optim_states.pt"):
            path.unlink()
    one = RECOGNISER.judge(tmp_path / "global_step20")
    assert "optimizer" not in one.present


@pytest.mark.parametrize(
    ("roles", "steps"),
    [
        (("run_a", "run_b"), (20, 40)),  # no roles
        (("teacher", "student"), (20,)),  # one after the other, as likely as not
        (("_actor", "critic"), (20, 40)),  # not alike but for the role
    ],
)
def test_others_are_saves_of_their_own(tmp_path, roles, steps):
    both(tmp_path, roles=roles, steps=steps)
    assert rows(tmp_path) == {f"{role}/global_step{step}": "complete" for role in roles for step in steps}


def test_folders_of_two_families_are_none(tmp_path):
    both(tmp_path, roles=("_actor",), name="step-{}", make=dcp)
    both(tmp_path, roles=("_critic",), name="step-{}", make=lambda at: save(at / "model.pt", torch_zip()))
    assert set(rows(tmp_path)) == {f"{role}/step-{step}" for role in ("_actor", "_critic") for step in (20, 40)}
