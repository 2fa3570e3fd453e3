"""Lightning's Trainer with its own ModelCheckpoint.

    python train.py OUT FINAL

OUT/epoch=E-step=N.ckpt is a checkpoint: one file with everything in it. Lightning keeps no random-number state, so the
module adds it; its CheckpointIO is wrapped so that lakemark hears of each save, and of what is in it.
"""

import sys
from pathlib import Path

import lightning
import numpy as np
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from lakemark.data import paths
from lakemark.trainer import Run
from lakemark.trainer.lightning import LakemarkCheckpointIO


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(16, 1024), nn.Tanh(), nn.Dropout(0.1), nn.Linear(1024, 1024), nn.Linear(1024, 1)
        )

    def training_step(self, batch):
        x, y = batch
        return nn.functional.mse_loss(self.layers(x).squeeze(1), y)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        return [optimizer], [scheduler]

    def on_save_checkpoint(self, checkpoint):
        checkpoint["rng"] = torch.get_rng_state()

    def on_load_checkpoint(self, checkpoint):
        self.rng = checkpoint["rng"]

    def on_train_start(self):
        if hasattr(self, "rng"):
            torch.set_rng_state(self.rng)


def newest(out):
    return max(out.glob("epoch=*.ckpt"), key=lambda path: int(path.stem.rpartition("step=")[2]), default=None)


if __name__ == "__main__":
    out, final = map(Path, sys.argv[1:])
    lightning.seed_everything(7)
    torch.set_num_threads(1)
    run = Run.open("lightning")
    rows = np.load(*paths(run, "train/rows.npz"))
    data = TensorDataset(torch.from_numpy(rows["x"]), torch.from_numpy(rows["y"]))

    model, kept = Model(), LakemarkCheckpointIO(run)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=7,
        deterministic=True,
        default_root_dir=out,
        plugins=[kept],
        callbacks=[ModelCheckpoint(dirpath=out, filename="{epoch}-{step}", save_top_k=-1), kept.callback],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, DataLoader(data, batch_size=64, generator=torch.Generator()), ckpt_path=newest(out))
    np.savez(final, **{name: value.numpy() for name, value in model.state_dict().items()})
