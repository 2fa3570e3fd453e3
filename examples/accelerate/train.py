"""A plain loop with Hugging Face Accelerate.

    python train.py OUT FINAL

OUT/checkpoint_I/ is the I-th checkpoint: weights, optimizer, schedule, random-number state and the sampler's. I counts
saves, not steps, so the loop registers its own step to be saved with the rest, and says it to lakemark.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from lakemark.data import paths
from lakemark.trainer import Run
from lakemark.trainer.accelerate import save_state

STEPS, EVERY = 28, 4


class Progress:
    step = 0

    def state_dict(self):
        return {"step": self.step}

    def load_state_dict(self, state):
        self.step = state["step"]


if __name__ == "__main__":
    out, final = map(Path, sys.argv[1:])
    torch.set_num_threads(1)
    set_seed(7)
    run = Run.open("accelerate")
    rows = np.load(*paths(run, "train/rows.npz"))
    data = TensorDataset(torch.from_numpy(rows["x"]), torch.from_numpy(rows["y"]))

    accelerator = Accelerator(cpu=True)
    model = nn.Sequential(nn.Linear(16, 1024), nn.Tanh(), nn.Dropout(0.1), nn.Linear(1024, 1024), nn.Linear(1024, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.98)
    batches = DataLoader(data, batch_size=32, generator=torch.Generator())
    model, optimizer, scheduler, batches = accelerator.prepare(model, optimizer, scheduler, batches)
    progress = Progress()
    accelerator.register_for_checkpointing(progress)

    saves = sorted(out.glob("checkpoint_*"), key=lambda path: int(path.name.removeprefix("checkpoint_")))
    if saves:
        accelerator.load_state(str(saves[-1]))

    while progress.step < STEPS:
        for x, y in accelerator.skip_first_batches(batches, progress.step % len(batches)):
            loss = nn.functional.mse_loss(model(x).squeeze(1), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            scheduler.step()
            progress.step += 1
            if progress.step % EVERY == 0:
                path = out / f"checkpoint_{progress.step // EVERY - 1}"
                save_state(accelerator, run, str(path), step=progress.step, metrics={"loss": loss.item()})
            if progress.step == STEPS:
                break
    np.savez(final, **{name: value.numpy() for name, value in accelerator.unwrap_model(model).state_dict().items()})
