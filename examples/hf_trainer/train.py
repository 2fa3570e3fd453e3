"""The Trainer of Hugging Face transformers.

    python train.py OUT FINAL

OUT/checkpoint-N/ is a checkpoint; `trainer_state.json` is written last. The Trainer saves weights, optimizer, schedule and
random-number state by itself, and skips the batches it has seen when it goes on.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn
from transformers import Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from lakemark.data import paths
from lakemark.trainer import Run


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(16, 1024), nn.Tanh(), nn.Dropout(0.1), nn.Linear(1024, 1024), nn.Linear(1024, 1)
        )

    def forward(self, x, labels):
        loss = nn.functional.mse_loss(self.layers(x).squeeze(1), labels)
        return {"loss": loss}


if __name__ == "__main__":
    out, final = map(Path, sys.argv[1:])
    torch.set_num_threads(1)
    run = Run.open("hf_trainer")
    rows = np.load(*paths(run, "train/rows.npz"))
    data = [{"x": x, "labels": y} for x, y in zip(rows["x"], rows["y"], strict=True)]

    arguments = TrainingArguments(
        output_dir=str(out),
        max_steps=28,
        save_steps=4,
        per_device_train_batch_size=32,
        learning_rate=1e-3,
        seed=7,
        use_cpu=True,
        full_determinism=False,
        logging_steps=4,
        report_to="none",
        disable_tqdm=True,
    )
    torch.manual_seed(7)
    trainer = Trainer(model=Model(), args=arguments, train_dataset=data)
    trainer.train(resume_from_checkpoint=get_last_checkpoint(str(out)))
    np.savez(final, **{name: value.numpy() for name, value in trainer.model.state_dict().items()})
