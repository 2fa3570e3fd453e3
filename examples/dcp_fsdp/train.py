"""FSDP on two CPU ranks, saved with `torch.distributed.checkpoint`.

    python train.py OUT FINAL

OUT/step-N/ is a checkpoint: each rank writes its own `__R_0.distcp`, rank 0 `.metadata` when all are done.
"""

import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.optim.lr_scheduler import LambdaLR

from lakemark.data import paths
from lakemark.trainer import Run

RANKS, STEPS, EVERY, BATCH = 2, 28, 4, 32


def state_of(model, optimizer, scheduler, rank, step):
    weights, moments = get_state_dict(model, optimizer)
    return {
        "model": weights,
        "optim": moments,
        "lr_scheduler": scheduler.state_dict(),
        "rng": {f"rank{rank}": torch.get_rng_state()},
        "train_state": {"step": step},
    }


def newest(out):
    steps = [int(path.parent.name.removeprefix("step-")) for path in out.glob("step-*/.metadata")]
    return max(steps, default=0)


def train(rank, run, out, final, meeting):
    torch.manual_seed(7 + rank)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(mode=True)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=RANKS)

    rows = np.load(*paths(run, "train/rows.npz"))
    x, y = torch.from_numpy(rows["x"]), torch.from_numpy(rows["y"])
    model = nn.Sequential(nn.Linear(16, 1024), nn.Tanh(), nn.Dropout(0.1), nn.Linear(1024, 1024), nn.Linear(1024, 1))
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = LambdaLR(optimizer, lambda step: 1 / (1 + step / 20))

    step = newest(out)
    if step:
        state = state_of(model, optimizer, scheduler, rank, step)
        dcp.load(state, checkpoint_id=out / f"step-{step}")
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"])
        scheduler.load_state_dict(state["lr_scheduler"])
        torch.set_rng_state(state["rng"][f"rank{rank}"])

    while step < STEPS:
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(step))
        mine = order[: RANKS * BATCH][rank::RANKS]
        loss = nn.functional.mse_loss(model(x[mine]).squeeze(1), y[mine])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        step += 1
        if step % EVERY == 0:
            dcp.save(state_of(model, optimizer, scheduler, rank, step), checkpoint_id=out / f"step-{step}")

    weights = {name: value.full_tensor().numpy() for name, value in model.state_dict().items()}
    if rank == 0:
        np.savez(final, **weights)
    dist.destroy_process_group()


if __name__ == "__main__":
    out, final = map(Path, sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(train, args=(Run.open("dcp_fsdp"), out, final, f"{folder}/meeting"), nprocs=RANKS)
