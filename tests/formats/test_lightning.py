"""Lightning's files and folders."""

import pytest

from lakemark.ports import Verdict
from tests.formats.builders import dcp, save, torch_zip
from tests.formats.library_builders import RECOGNISER, deepspeed, found, only, verdict

KEYS = ("epoch", "global_step", "state_dict", "loops", "callbacks", "optimizer_states", "lr_schedulers")
NAMED = {
    "epoch=1-step=16.ckpt": 16, "epoch=1-step=16-v1.ckpt": 16, "epoch=0-step=8-val_loss=1.41.ckpt": 8, "step=7.ckpt": 7,
    "run-epoch01-step000016-0.234.ckpt": 16, "megatron_gpt--val_loss=2.35-step=500-consumed_samples=4000.0.ckpt": 500,
    "x--val_loss=2.1-step=1000-consumed_samples=8000.0-last.ckpt": 1000, "last.ckpt": None, "last-v3.ckpt": None,
    "best.ckpt": None, "step=12-val_loss=-1.5e-05.ckpt": 12, "global_step=9-x=1.ckpt": 9,
}  # fmt: skip


@pytest.mark.parametrize("name", NAMED)
def test_names(tmp_path, name):
    save(tmp_path / "lightning_logs/version_0/checkpoints" / name, torch_zip(KEYS))
    one = only(tmp_path)
    assert (one.framework, one.step, one.verdict) == ("lightning", NAMED[name], Verdict.COMPLETE)


@pytest.mark.parametrize("name", ["sd-v1-4.ckpt", "model.ckpt", "resnet.ckpt", "a=b.ckpt.txt", "stepper.ckpt"])
def test_names_that_are_not_lightning_s(tmp_path, name):
    save(tmp_path / name, torch_zip())
    assert [one.framework for one in found(tmp_path).values() if one.framework == "lightning"] == []


def test_a_name_without_a_step_the_file_says_it(tmp_path):
    for name in ("epoch=3-val_loss=1.41.ckpt", "last.ckpt"):
        save(tmp_path / name, torch_zip(values={"epoch": 3, "global_step": 32, "state_dict": {"w": [1.5]}}))
    assert {name: one.step for name, one in found(tmp_path).items()} == {
        "epoch=3-val_loss=1.41.ckpt": 32,
        "last.ckpt": None,
    }


def test_a_metric_s_name_with_a_slash(tmp_path):
    for name in ("epoch=0-step=8-val/loss=1.41.ckpt", "epoch=0-val/loss=1.41.ckpt"):
        save(tmp_path / name, torch_zip(("state_dict",)))
    assert {name: one.step for name, one in found(tmp_path).items()} == {
        "epoch=0-step=8-val/loss=1.41.ckpt": 8, "epoch=0-val/loss=1.41.ckpt": None,
    }  # fmt: skip


def test_roles_by_keys(tmp_path):
    save(tmp_path / "step=1.ckpt", torch_zip(KEYS))
    save(tmp_path / "step=2.ckpt", torch_zip(("epoch", "global_step", "state_dict")))
    whole, weights = found(tmp_path).values()
    assert (whole.present, whole.resumable, whole.gaps) == (
        ("weights", "optimizer", "scheduler", "trainer"),
        False,
        ("no rng",),
    )
    assert weights.present == ("weights", "trainer")


def test_half_a_file_under_its_final_name(tmp_path):
    content = torch_zip(KEYS)
    for length in range(0, len(content), 31):
        save(tmp_path / "epoch=0-step=8.ckpt", content[:length])
        assert only(tmp_path).verdict is Verdict.INCOMPLETE or length < 4, length  # not even the start of a zip


def test_links_and_copies(tmp_path):
    save(tmp_path / "epoch=0-step=8.ckpt", torch_zip(KEYS))
    (tmp_path / "last.ckpt").symlink_to("epoch=0-step=8.ckpt")
    (tmp_path / "last-v1.ckpt").symlink_to("last-v1.ckpt")
    assert verdict(tmp_path, "last.ckpt") == ("alias", 8, "pointer")
    assert verdict(tmp_path, "last-v1.ckpt") == ("alias", None, "pointer")
    assert found(tmp_path)["last.ckpt"].target == "epoch=0-step=8.ckpt"


def sharded(folder, **more):
    dcp(folder, fqns=["state_dict.w", "optimizer_0.state.w"], **more)
    save(folder / "meta.pt", torch_zip(("epoch", "global_step", "loops", "lr_schedulers")))
    return folder


def test_a_folder_of_fsdp(tmp_path):
    folder = sharded(tmp_path / "epoch=0-step=8.ckpt", ranks=2)
    one = only(tmp_path)
    assert (one.framework, one.step, one.verdict) == ("lightning", 8, Verdict.COMPLETE), one.why
    assert {"weights", "optimizer", "scheduler"} <= set(one.present)
    assert one.gaps == ("no rng",)
    (folder / "meta.pt").unlink()
    assert "no meta.pt (written last)" in only(tmp_path).why
    (folder / ".metadata").unlink()
    assert only(tmp_path).verdict is Verdict.INCOMPLETE


def test_a_folder_of_fabric_has_any_name(tmp_path):
    sharded(tmp_path / "out/step-00040")
    assert verdict(tmp_path, "out/step-00040") == ("lightning", 40, "complete")


def test_a_folder_of_deepspeed(tmp_path):
    folder = tmp_path / "epoch=0-step=8.ckpt"
    deepspeed(folder / "checkpoint")
    save(folder / "latest", "checkpoint")
    save(folder / "zero_to_fp32.py", "")
    one = only(tmp_path)
    assert (one.framework, one.step, one.verdict) == ("lightning", 8, Verdict.COMPLETE), one.why
    (folder / "checkpoint/zero_pp_rank_0_mp_rank_00_optim_states.pt").unlink()
    assert only(tmp_path).verdict is Verdict.INCOMPLETE


def test_a_folder_of_xla(tmp_path):
    folder = tmp_path / "epoch=0-step=8.ckpt"
    for rank in range(4):
        save(folder / f"checkpoint_rank-{rank:08d}-of-{4:08d}.pth", torch_zip(("model", "optimizer_0")))
    assert verdict(tmp_path, folder.name) == ("lightning", 8, "complete")
    assert {"optimizer", "scheduler", "rng"} == set(only(tmp_path).possible)
    (folder / "checkpoint_rank-00000003-of-00000004.pth").unlink()
    assert "1 of 4 missing" in only(tmp_path).why


def test_a_folder_that_is_empty(tmp_path):
    (tmp_path / "epoch=0-step=8.ckpt").mkdir()
    assert verdict(tmp_path, "epoch=0-step=8.ckpt") == ("lightning", 8, "incomplete")


def test_nemo_s_averaged_weights_belong_to_it(tmp_path):
    save(tmp_path / "m-step=5.ckpt", torch_zip(KEYS))
    save(tmp_path / "m-step=5-EMA.ckpt", torch_zip(("state_dict",)))
    one = only(tmp_path)
    assert [path.name for path in one.paths] == ["m-step=5.ckpt", "m-step=5-EMA.ckpt"]
    assert RECOGNISER.judge(tmp_path / "m-step=5-EMA.ckpt").path == one.path
    save(tmp_path / "m-step=5-EMA.ckpt", torch_zip(("state_dict",))[:-9])
    assert "m-step=5-EMA.ckpt: " in only(tmp_path).why


def test_nemo_s_mark_beside_it(tmp_path):
    save(tmp_path / "m-step=5.ckpt", torch_zip(KEYS))
    save(tmp_path / "m-step=5-unfinished", b"")
    assert verdict(tmp_path, "m-step=5.ckpt") == ("lightning", 5, "incomplete")
    assert verdict(tmp_path, "m-step=5-unfinished") == ("nemo-marker", None, "marker")


@pytest.mark.parametrize("target", ["last.ckpt", "epoch=1-step=16.ckpt", "/gone/epoch=1-step=16.ckpt"])
def test_a_last_that_is_all_that_is_left(tmp_path, target):
    (tmp_path / "last.ckpt").symlink_to(target)
    (tmp_path / "latest").symlink_to("run-7")
    assert verdict(tmp_path, "last.ckpt") == ("alias", None, "pointer")
    assert list(found(tmp_path)) == ["last.ckpt"]


def lightning(**more):
    """As `dump_checkpoint` writes it."""
    said = {
        "epoch": 1,
        "global_step": 16,
        "pytorch-lightning_version": "2.6.6",
        "state_dict": {"w": [1.5]},
        "loops": {},
    }
    return torch_zip(values={**said, "optimizer_states": [], "lr_schedulers": [], **more})


@pytest.mark.parametrize(
    "name", ["model.ckpt", "000-0.073.ckpt", "ckpt_01_99.ckpt", "best_model.ckpt", "model-v1.ckpt"]
)
def test_a_name_of_a_user_s_template(tmp_path, name):
    save(tmp_path / name, lightning())
    one = only(tmp_path)
    assert (one.framework, one.step, one.verdict) == ("lightning", 16, Verdict.COMPLETE)
    assert one.present == ("weights", "optimizer", "scheduler", "trainer")
    save(tmp_path / name, lightning()[:-40])
    one = only(tmp_path)
    assert (one.framework, one.verdict) == ("lightning", Verdict.INCOMPLETE)
