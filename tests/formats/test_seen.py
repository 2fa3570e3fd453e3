"""Judging saves one by one: what they lie in is listed once, and anew when something in it changed."""

import os

import pytest

from lakemark.formats import recogniser
from lakemark.formats.find.families import BUILT_IN
from lakemark.formats.find.generic import GenericFamily
from lakemark.formats.find.recogniser import FrameworkRecogniser
from lakemark.formats.readers.folder import Folder
from lakemark.formats.torch.dcp import Dcp
from lakemark.formats.torch.lightning import Lightning
from lakemark.formats.torch.nvrx import NvrxLocal
from tests.formats.builders import dcp, save, torch_zip


class Counting:
    """A family, and how often it was asked."""

    def __init__(self, family):
        self.family, self.listed, self.claimed = family, 0, 0

    def claims(self, folder):
        self.claimed += 1
        return self.family.claims(folder)

    def step(self, folder):
        return self.family.step(folder)

    def judge(self, folder):
        return self.family.judge(folder)

    def loose(self, folder):
        self.listed += 1
        return self.family.loose(folder)


def counting(family):
    counted = Counting(family)
    return counted, FrameworkRecogniser((counted,), last=GenericFamily())


def older(path):
    """So that what comes now is not of the same tick of the file system's clock."""
    os.utime(path, ns=(1, 1))


def test_files_of_one_folder_are_listed_once(tmp_path):
    for step in range(50):
        save(tmp_path / f"epoch=0-step={step}.ckpt", torch_zip())
    older(tmp_path)
    family, judging = counting(Lightning())
    found = {one.path: one for one in judging.find(tmp_path)}
    family.listed = 0
    assert {path: judging.judge(path) for path in found} == found
    assert family.listed == 1
    save(tmp_path / "epoch=0-step=50.ckpt", torch_zip())
    assert judging.judge(tmp_path / "epoch=0-step=50.ckpt").step == 50
    save(tmp_path / "epoch=0-step=50-unfinished")
    assert "lies beside it" in judging.judge(tmp_path / "epoch=0-step=50.ckpt").why
    assert family.listed == 3


def test_a_path_that_was_no_checkpoint_is_looked_at_anew(tmp_path):
    save(tmp_path / "model.ckpt", b"")
    save(tmp_path / "epoch=0-step=1.ckpt", torch_zip())
    older(tmp_path)
    family, judging = counting(Lightning())
    judging.judge(tmp_path / "epoch=0-step=1.ckpt")
    assert judging.judge(tmp_path / "model.ckpt").framework == "generic"
    assert family.listed == 2


def test_a_file_in_a_folder_that_was_looked_into(tmp_path):
    for rank in (0, 1):
        save(tmp_path / f"{rank}/iter_0000500_{rank}_local.pt", torch_zip())
        older(tmp_path / f"{rank}")
    older(tmp_path)
    _, judging = counting(NvrxLocal())
    assert judging.judge(tmp_path / "iter_0000500").verdict.value == "complete"
    (tmp_path / "1/iter_0000500_1_local.pt").rename(tmp_path / "1/iter_0000500_1_local.dirty.pt")
    assert judging.judge(tmp_path / "iter_0000500").verdict.value == "incomplete"


def test_of_folders_only_the_nearest_are_asked(tmp_path):
    for step in range(40):
        dcp(tmp_path / f"step-{step}", fqns=("w",))
    family, judging = counting(Dcp())
    for step in range(40):
        assert judging.judge(tmp_path / f"step-{step}").verdict.value == "complete"
    assert family.claimed <= 3 * 40


@pytest.mark.parametrize("gone", [(3,), (2,), (2, 3), (1, 2, 3)])
def test_judged_alone_as_found(tmp_path, gone):
    """Sets of ranks are compared with the step before, and with the one after it."""
    for step in (1, 2, 3):
        for rank in range(4):
            save(tmp_path / f"checkpoint-{step}/rng_state_{rank}.pth", torch_zip())
        save(tmp_path / f"checkpoint-{step}/trainer_state.json", f'{{"global_step": {step}}}')
        save(tmp_path / f"checkpoint-{step}/pytorch_model.bin", torch_zip())
    for step in gone:
        (tmp_path / f"checkpoint-{step}/rng_state_3.pth").unlink()
    (tmp_path / "checkpoint-20.bak").mkdir()
    judging = recogniser()
    found = [one for one in judging.find(tmp_path) if one.framework == "hf-trainer"]
    assert len(found) == 3
    assert [judging.judge(one.path) for one in found] == found


def test_every_family_tells_a_step_of_any_folder(tmp_path):
    """The nearest is looked for by names alone."""
    for name in ("x", "12", "step-3", "checkpoint_000001", "epoch=1-step=2.ckpt", "iter_0000500"):
        (tmp_path / name).mkdir()
        for family in (*BUILT_IN, GenericFamily()):
            assert family.step(Folder.of(tmp_path / name)) is None or family.step(Folder.of(tmp_path / name)) >= 0
