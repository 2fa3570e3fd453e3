"""A small real training job for the demo and the acceptance pipeline: an MLP in numpy, restartable bit for bit.

It does what any trainer does: reads batches of the data version it was told, saves a directory every so many steps, rotates
its own old ones, and goes on from what `run.resume` names. What it saves is whole: weights, momentum, learning-rate
schedule, random-number state and the loader's position.

    python -m lakemark.sandbox.story.train --run demo --out out --steps 300 --every 50 --keep 6
"""

from __future__ import annotations

import argparse
import io
import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lakemark.data import paths
from lakemark.trainer import Run

Array = NDArray[np.float64]

INPUTS: Final = 16
HIDDEN: Final = 32
BATCH: Final = 64
MOMENTUM: Final = 0.9
PEAK_RATE: Final = 0.05
WARM_UP: Final = 20
ROLES: Final = {
    "weights.npz": "weights",
    "optimizer.npz": "optimizer",
    "scheduler.json": "scheduler",
    "rng.json": "rng",
    "loader.json": "dataloader",
    "config.json": "config",
}


@dataclass(slots=True, kw_only=True)
class Data:
    """x: (rows, INPUTS); y: (rows,), the targets."""

    x: Array
    y: Array


@dataclass(slots=True, kw_only=True)
class State:
    """Everything training needs to go on. `order`: the epoch's shuffled row numbers; `position`: the next one of them."""

    step: int
    weights: dict[str, Array]
    velocity: dict[str, Array]
    rng: np.random.Generator
    order: list[int]
    position: int

    @classmethod
    def fresh(cls, seed: int) -> State:
        rng = np.random.Generator(np.random.PCG64(seed))
        weights = {
            "w1": rng.normal(0, 0.3, (INPUTS, HIDDEN)),
            "b1": np.zeros(HIDDEN),
            "w2": rng.normal(0, 0.3, HIDDEN),
            "b2": np.zeros(1),
        }
        velocity = {name: np.zeros_like(value) for name, value in weights.items()}
        return cls(step=0, weights=weights, velocity=velocity, rng=rng, order=[], position=0)


def load_data(source: Run | str) -> Data:
    """Every `train/*.npz` of a data version, in order of path; made-up numbers where it has none."""
    found: Sequence[Path | io.BytesIO] = paths(source, "train/*.npz") or [io.BytesIO(make_part(0))]
    parts = [np.load(part, allow_pickle=False) for part in found]
    return Data(x=np.concatenate([part["x"] for part in parts]), y=np.concatenate([part["y"] for part in parts]))


def load_made_up() -> Data:
    """For a run without data versions."""
    part = np.load(io.BytesIO(make_part(0)), allow_pickle=False)
    return Data(x=part["x"], y=part["y"])


def make_part(seed: int, *, rows: int = 512, shift: float = 0.0) -> bytes:
    """One part of the data as .npz bytes: a noisy non-linear target of INPUTS inputs."""
    rng = np.random.Generator(np.random.PCG64(seed))
    x = rng.normal(shift, 1, (rows, INPUTS))
    y = np.sin(x[:, 0]) + 0.5 * x[:, 1] * x[:, 2] + rng.normal(0, 0.1, rows)
    buffer = io.BytesIO()
    np.savez(buffer, x=x, y=y)
    return buffer.getvalue()


def rate(step: int) -> float:
    """The learning rate at `step`: linear warm-up, then the inverse square root."""
    risen: float = min((step + 1) / WARM_UP, (WARM_UP / (step + 1)) ** 0.5)
    return PEAK_RATE * risen


def train_step(state: State, data: Data) -> float:
    """One batch of gradient descent with momentum; answers the batch's loss."""
    rows = next_batch(state, len(data.y))
    x, y, w = data.x[rows], data.y[rows], state.weights
    hidden = np.tanh(x @ w["w1"] + w["b1"])
    error = hidden @ w["w2"] + w["b2"][0] - y
    back = np.outer(error, w["w2"]) * (1 - hidden**2)
    gradients = {
        "w1": x.T @ back / BATCH,
        "b1": back.mean(axis=0),
        "w2": hidden.T @ error / BATCH,
        "b2": np.array([error.mean()]),
    }
    for name, gradient in gradients.items():
        state.velocity[name] = MOMENTUM * state.velocity[name] - rate(state.step) * gradient
        w[name] += state.velocity[name]
    state.step += 1
    return float((error**2).mean())


def next_batch(state: State, rows: int) -> list[int]:
    """Row numbers; a new shuffled epoch begins where the last one ends, or where the data has other rows now."""
    # The order is over row numbers: with other data it means nothing.
    if len(state.order) != rows or state.position + BATCH > rows:
        state.order, state.position = state.rng.permutation(rows).tolist(), 0
    batch = state.order[state.position : state.position + BATCH]
    state.position += BATCH
    return batch


def save(state: State, path: Path, *, seed: int) -> None:
    """Writes the checkpoint under a temporary name and renames it: others see it whole or not at all."""
    temporary = path.with_name(f".{path.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    np.savez(temporary / "weights.npz", allow_pickle=False, **state.weights)
    np.savez(temporary / "optimizer.npz", allow_pickle=False, **state.velocity)
    write_json(temporary / "scheduler.json", {"step": state.step, "next_rate": rate(state.step)})
    write_json(temporary / "rng.json", dict(state.rng.bit_generator.state))
    write_json(temporary / "loader.json", {"order": state.order, "position": state.position})
    write_json(temporary / "config.json", {"inputs": INPUTS, "hidden": HIDDEN, "batch": BATCH, "seed": seed})
    # The last step of a save: lakemark's sweep may look at any moment.
    temporary.rename(path)


def restore(path: Path) -> State:
    """The state `save` wrote."""
    weights = dict(np.load(path / "weights.npz", allow_pickle=False))
    velocity = dict(np.load(path / "optimizer.npz", allow_pickle=False))
    rng = np.random.Generator(np.random.PCG64())
    # Bit for bit: the demo compares weights of two runs by their digests.
    rng.bit_generator.state = json.loads((path / "rng.json").read_text())
    loader = json.loads((path / "loader.json").read_text())
    step = json.loads((path / "scheduler.json").read_text())["step"]
    return State(
        step=step, weights=weights, velocity=velocity, rng=rng, order=loader["order"], position=loader["position"]
    )


def newest(out: Path) -> Path | None:
    """The checkpoint of the greatest step in the trainer's own directory."""
    found = [path for path in out.glob("step-*") if path.name.removeprefix("step-").isdigit()]
    return max(found, key=lambda path: int(path.name.removeprefix("step-")), default=None)


def rotate(out: Path, keep: int) -> None:
    """Deletes all but the `keep` newest, as trainers do."""
    found = sorted(out.glob("step-*"), key=lambda path: int(path.name.removeprefix("step-")))
    for path in found[: max(0, len(found) - keep)]:
        shutil.rmtree(path)


def write_json(path: Path, value: object) -> None:
    """As one line."""
    path.write_text(json.dumps(value))


def advance(clock: Path, minutes: float) -> None:
    """Moves the simulated clock, so that a few seconds of training span days."""
    now = datetime.fromisoformat(clock.read_text().strip())
    temporary = clock.with_name(f"{clock.name}.tmp")
    temporary.write_text((now + timedelta(minutes=minutes)).astimezone(UTC).isoformat())
    # Services read the clock at any moment.
    temporary.rename(clock)


def main() -> int:
    """Trains up to `--steps`, from `run.resume` where there is one, else from its own newest save, else afresh."""
    asked = _parser().parse_args()
    run = Run.open(asked.run) if asked.run else None
    uri = (run.data_uri() if run.data else None) if run else asked.data
    data = load_data(run or uri) if uri else load_made_up()
    resume = run.resume if run and asked.resume else None
    begin = Path(resume["path"]) if resume else newest(asked.out)
    state = restore(begin) if begin is not None else State.fresh(asked.seed)
    asked.out.mkdir(parents=True, exist_ok=True)
    loss = float("nan")
    while state.step < asked.steps:
        loss = train_step(state, data)
        if asked.clock is not None:
            advance(asked.clock, asked.minutes_per_step)
        if state.step % asked.every == 0:
            path = asked.out / f"step-{state.step}"
            save(state, path, seed=asked.seed)
            # Before the rotation: what that removes was announced.
            if run:
                run.saved(path, step=state.step, metrics={"loss": loss}, roles=ROLES)
            rotate(asked.out, asked.keep)
    sys.stdout.write(json.dumps({"step": state.step, "loss": loss, "data": uri}) + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    of = parser.add_mutually_exclusive_group(required=True)
    of.add_argument("--run", help="a run opened by `lakemark run open`")
    of.add_argument("--data", help="lakefs://repository/commit/: train on it, announce nothing")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, required=True, help="train up to this step")
    parser.add_argument("--every", type=int, default=50, help="save each so many steps")
    parser.add_argument("--keep", type=int, default=6, help="own directories left after rotation")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--resume", action="store_true", help="go on from what the run file names")
    parser.add_argument("--clock", type=Path, help="a simulated clock's file, moved while training")
    parser.add_argument("--minutes-per-step", type=float, default=0.0)
    return parser


if __name__ == "__main__":
    sys.exit(main())
