"""Lightning's Trainer and its ways to write a checkpoint, with ours around or inside them."""

import subprocess
import sys
import threading

import lightning
import pytest
import torch
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins.io import AsyncCheckpointIO

from lakemark.trainer.lightning import LakemarkCheckpointIO
from tests.frameworks.spool import announced, opened

# lightning/pytorch/utilities/_pytree.py, with torch 2.15
pytestmark = pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning")


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, _):
        loss = (self.layer(batch) - 9).square().mean()
        self.log("loss", loss)
        self.log("text_free", 3.5)
        return loss

    def validation_step(self, batch, _):
        self.log("val_loss", self.layer(batch).square().mean())

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.001)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


def fit(out, io, *callbacks, max_steps=6, **saving):
    torch.manual_seed(1)
    rows = torch.utils.data.DataLoader(torch.ones(16, 4), batch_size=2)
    kept = ModelCheckpoint(dirpath=out, filename="{step}", **({"every_n_train_steps": 2, "save_top_k": -1} | saving))
    trainer = lightning.Trainer(
        max_steps=max_steps, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
        log_every_n_steps=1, plugins=[io], callbacks=[*callbacks, kept], val_check_interval=2,
    )  # fmt: skip
    trainer.fit(Model(), rows, rows)
    io.teardown()
    return trainer


def paths(run):
    return [(one.step, one.path.name) for one in announced(run)]


ORDERS = {
    "alone": lambda run: (io := LakemarkCheckpointIO(run), io),
    "around": lambda run: (io := LakemarkCheckpointIO(run, AsyncCheckpointIO()), io),
    "around what has its own": lambda run: (
        io := LakemarkCheckpointIO(run, AsyncCheckpointIO(AsyncCheckpointIO(TorchCheckpointIO()))),
        io,
    ),
    "inside": lambda run: (io := LakemarkCheckpointIO(run), AsyncCheckpointIO(io)),
}


@pytest.mark.parametrize("order", ORDERS)
def test_each_file_is_announced_once_it_is_whole(tmp_path, order):
    run = opened(tmp_path / "home")
    ours, io = ORDERS[order](run)
    fit(tmp_path / "out", io, ours.callback)
    found = announced(run)
    assert [(one.step, one.path) for one in found] == [(n, tmp_path / f"out/step={n}.ckpt") for n in (2, 4, 6)]
    for one in found:
        assert 0 < one.saved_seconds < 60
        assert torch.load(one.path, weights_only=False)["global_step"] == one.step
        assert one.present == ("optimizer", "scheduler", "weights")
        assert one.metrics["text_free"] == 3.5
        assert one.metrics["loss"] > 0
    assert len({one.metrics["loss"] for one in found}) == 3
    assert (one.roles, one.world) == ({}, None)


@pytest.mark.parametrize("order", ["around", "inside"])
def test_not_before_the_thread_has_written_it(tmp_path, order):
    written = threading.Event()

    class Slow(TorchCheckpointIO):
        def save_checkpoint(self, *args, **kwargs):
            assert written.wait(60)
            super().save_checkpoint(*args, **kwargs)

    run = opened(tmp_path / "home")
    ours = LakemarkCheckpointIO(run, AsyncCheckpointIO(Slow()) if order == "around" else Slow())
    io = ours if order == "around" else AsyncCheckpointIO(ours)
    io.save_checkpoint({"global_step": 3, "state_dict": {}}, str(tmp_path / "a.ckpt"))
    assert announced(run) == []
    written.set()
    io.teardown()
    assert paths(run) == [(3, "a.ckpt")]
    assert announced(run)[0].present == ("weights",)


def test_copies_are_no_steps_of_their_own(tmp_path):
    run = opened(tmp_path / "home")
    trainer = fit(tmp_path / "out", LakemarkCheckpointIO(run), save_last=True)
    assert (tmp_path / "out/last.ckpt").exists()
    trainer.save_checkpoint(tmp_path / "out/final.ckpt")
    assert paths(run) == [(2, "step=2.ckpt"), (4, "step=4.ckpt"), (6, "step=6.ckpt")]


def test_links_are_no_steps_of_their_own(tmp_path):
    run = opened(tmp_path / "home")
    fit(tmp_path / "out", LakemarkCheckpointIO(run), save_last="link")
    assert (tmp_path / "out/last.ckpt").is_symlink()
    assert paths(run) == [(2, "step=2.ckpt"), (4, "step=4.ckpt"), (6, "step=6.ckpt")]


def test_a_last_that_is_the_only_file_of_its_step(tmp_path):
    run = opened(tmp_path / "home")
    fit(tmp_path / "out", LakemarkCheckpointIO(run), save_last=True, save_top_k=0)
    assert paths(run) == [(2, "last.ckpt"), (4, "last.ckpt"), (6, "last.ckpt")]


def test_the_watched_metric_is_known_without_the_callback(tmp_path):
    run = opened(tmp_path / "home")
    watched = {"monitor": "val_loss", "save_top_k": 3, "every_n_train_steps": None}
    trainer = fit(tmp_path / "out", LakemarkCheckpointIO(run), **watched)
    found = announced(run)
    assert found
    assert all(one.metrics.keys() == {"val_loss"} for one in found)
    assert found[-1].metrics["val_loss"] == pytest.approx(float(trainer.checkpoint_callback.current_score))


def test_only_weights(tmp_path):
    run = opened(tmp_path / "home")
    fit(tmp_path / "out", LakemarkCheckpointIO(run), save_weights_only=True, max_steps=2)
    assert announced(run)[0].present == ("weights",)


def test_what_was_not_written_is_not_announced(tmp_path):
    class Full(TorchCheckpointIO):
        def save_checkpoint(self, *_, **__):
            raise OSError("No space left on device")

    run = opened(tmp_path / "home")
    with pytest.raises(OSError, match="No space"):
        fit(tmp_path / "out", LakemarkCheckpointIO(run, Full()))
    assert announced(run) == []


def test_old_ones_are_removed_and_it_is_read_as_before(tmp_path):
    run = opened(tmp_path / "home")
    io = LakemarkCheckpointIO(run)
    fit(tmp_path / "out", io, save_top_k=1, monitor="loss")
    (left,) = (tmp_path / "out").iterdir()
    assert io.load_checkpoint(left, weights_only=False)["global_step"] in (2, 4, 6)


def test_weights_that_a_launcher_hands_over_are_no_checkpoint(tmp_path, capsys):
    run = opened(tmp_path / "home")
    LakemarkCheckpointIO(run).save_checkpoint({"layer.weight": torch.ones(2)}, tmp_path / "x")
    assert announced(run) == []
    assert capsys.readouterr().err == ""


def test_the_loop_never_notices(tmp_path, capsys):
    run = opened(tmp_path / "home")
    (tmp_path / "file").write_text("")
    run._spool = str(tmp_path / "file/spool")
    ours = LakemarkCheckpointIO(run)
    assert fit(tmp_path / "out", ours, ours.callback).global_step == 6
    assert capsys.readouterr().err.count("lakemark: ") == 1


def test_nothing_of_ours_is_in_the_checkpoint(tmp_path):
    ours = LakemarkCheckpointIO(opened(tmp_path / "home"))
    fit(tmp_path / "out", ours, ours.callback, max_steps=2)
    kept = torch.load(tmp_path / "out/step=2.ckpt", weights_only=False)
    assert [name for name in kept["callbacks"] if "akemark" in name or "Metrics" in name] == []


def test_the_other_package():
    code = """
import pytorch_lightning as pl
from lakemark.trainer.lightning import LakemarkCheckpointIO
io = LakemarkCheckpointIO(None)
pl.Trainer(accelerator="cpu", logger=False, plugins=[io], callbacks=[io.callback])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
