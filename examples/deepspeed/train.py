"""DeepSpeed with ZeRO stage 1, one CPU rank.

    python train.py OUT FINAL

OUT/global_stepN/ is a checkpoint, OUT/latest names the newest: `load_checkpoint` goes where it points.
"""

import os
import sys
import tempfile
from pathlib import Path

os.environ |= {"DS_ACCELERATOR": "cpu", "GLOO_SOCKET_IFNAME": "lo", "LOCAL_RANK": "0"}

import deepspeed
import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from lakemark.data import paths
from lakemark.trainer import Run

STEPS, EVERY, BATCH = 28, 4, 32
CONFIG = {
    "train_batch_size": BATCH,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10}},
    "zero_optimization": {"stage": 1},
}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(16, 1024), nn.Tanh(), nn.Dropout(0.1), nn.Linear(1024, 1024), nn.Linear(1024, 1)
        )

    def forward(self, x, y):
        return nn.functional.mse_loss(self.layers(x).squeeze(1), y)


def train(out, final, meeting):
    torch.manual_seed(7)
    torch.set_num_threads(1)
    run = Run.open("deepspeed")
    rows = np.load(*paths(run, "train/rows.npz"))
    x, y = torch.from_numpy(rows["x"]), torch.from_numpy(rows["y"])

    # Its shared memory between ranks has to be compiled first, and is of no use to one.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=0, world_size=1)
    engine, *_ = deepspeed.initialize(model=Model(), config=CONFIG)
    path, client = engine.load_checkpoint(out)
    if path is not None:
        torch.set_rng_state(client["rng"])

    while engine.global_steps < STEPS:
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(engine.global_steps))[:BATCH]
        engine.backward(engine(x[order], y[order]))
        engine.step()
        if engine.global_steps % EVERY == 0:
            engine.save_checkpoint(out, client_state={"rng": torch.get_rng_state()})
    np.savez(final, **{name: value.numpy() for name, value in engine.module.state_dict().items()})
    dist.destroy_process_group()


if __name__ == "__main__":
    out, final = map(Path, sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        train(out, final, f"{folder}/meeting")
