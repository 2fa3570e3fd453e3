"""What each trainer adapter costs the trainer's thread at a save, against the framework's own save in the same run.

    python benchmarks/bench_trainer.py [--saves 300] [--mib 8] [--dir DIR]

Needs the frameworks; one that is not installed is said and left out. The adapter's share is what the call took on the
trainer's thread without what the framework itself did in it, as elapsed time and as processor time: on a busy machine only the
latter is the adapter's. To reach: at most 5 ms for each save.
"""

# ruff: noqa: ANN401 - the frameworks' own signatures

import argparse
import contextlib
import io
import json
import logging
import os
import shutil
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lakemark.trainer import Run
from lakemark.trainer.loop import saving

METRICS = {"loss": 1.5, "val_loss": 1.9, "learning_rate": 1e-4, "tokens": 10**9}


class Clock:
    """(elapsed, processor) seconds of ours and of the framework, a pair each for every save."""

    def __init__(self) -> None:
        self.ours: list[tuple[float, float]] = []
        self.own: list[tuple[float, float]] = []

    @contextlib.contextmanager
    def within(
        self, into: list[tuple[float, float]], *, less: list[tuple[float, float]] | None = None
    ) -> Iterator[None]:
        """Adds what the block took, less the last of `less`."""
        wall, cpu = time.perf_counter(), time.thread_time()
        yield
        took = (time.perf_counter() - wall, time.thread_time() - cpu)
        minus = less[-1] if less else (0.0, 0.0)
        into.append((took[0] - minus[0], took[1] - minus[1]))


def opened(home: Path) -> Run:
    (home / "runs").mkdir(parents=True)
    refs = [
        {
            "kind": "lakefs",
            "repository": "data",
            "branch": "main",
            "commit": "a" * 64,
            "uri": f"lakefs://data/{'a' * 64}/",
        }
    ]
    run_file = {"run": "r", "timeline": 1, "attempt": "t", "spool": str(home / "spool"), "data": refs, "resume": None}
    (home / "runs/r.json").write_text(json.dumps(run_file))
    return Run.open("r", environ={"LAKEMARK_HOME": str(home)})


def layer(mib: int) -> Any:
    import torch

    return torch.nn.Linear(1024, mib * 2**20 // 4096, bias=False)


def loop(place: Path, run: Run, saves: int, mib: int) -> Clock:
    clock, block = Clock(), os.urandom(mib * 2**20)
    for step in range(saves):
        with (
            clock.within(clock.ours, less=clock.own),
            saving(run, place / "step", step=step, metrics=METRICS, roles={"step": "weights"}),
            clock.within(clock.own),
        ):
            (place / "step").write_bytes(block)
    return clock


def hf(place: Path, run: Run, saves: int, mib: int) -> Clock:
    import torch
    from transformers import Trainer, TrainingArguments

    from lakemark.trainer.hf import LakemarkCallback

    clock = Clock()

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer(mib)

        def forward(self, x: Any, labels: Any = None) -> dict[str, Any]:  # noqa: ARG002
            return {"loss": self.layer(x).square().mean()}

    class Timed(LakemarkCallback):
        def on_save(self, *args: Any, **kwargs: Any) -> None:
            with clock.within(clock.ours):
                super().on_save(*args, **kwargs)

    class TimedTrainer(Trainer):
        def _save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
            with clock.within(clock.own):
                super()._save_checkpoint(*args, **kwargs)

    rows = [{"x": torch.ones(1024), "labels": 0}] * 8
    args = TrainingArguments(
        str(place), max_steps=saves, save_steps=1, save_total_limit=2, logging_steps=1, report_to="none", use_cpu=True,
        disable_tqdm=True, optim="sgd",
    )  # fmt: skip
    TimedTrainer(Model(), args, train_dataset=rows, callbacks=[Timed(run)]).train()
    return clock


def lightning(place: Path, run: Run, saves: int, mib: int) -> Clock:
    import lightning
    import torch
    from lightning.fabric.plugins import TorchCheckpointIO
    from lightning.pytorch.callbacks import ModelCheckpoint

    from lakemark.trainer.lightning import LakemarkCheckpointIO

    clock = Clock()

    class Own(TorchCheckpointIO):
        def save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
            with clock.within(clock.own):
                super().save_checkpoint(*args, **kwargs)

    class Timed(LakemarkCheckpointIO):
        def save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
            with clock.within(clock.ours, less=clock.own):
                super().save_checkpoint(*args, **kwargs)

    class Model(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer(mib)

        def training_step(self, batch: Any, _: int) -> Any:
            loss = self.layer(batch).square().mean()
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters())

    kept = Timed(run, Own())
    callbacks = [kept.callback, ModelCheckpoint(place, filename="{step}", every_n_train_steps=1)]
    trainer = lightning.Trainer(
        max_steps=saves, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
        plugins=[kept], callbacks=callbacks,
    )  # fmt: skip
    trainer.fit(Model(), torch.utils.data.DataLoader(torch.ones(8, 1024)))
    return clock


def dcp(place: Path, run: Run, saves: int, mib: int) -> Clock:
    import torch
    from torch.distributed import checkpoint

    from lakemark.trainer.dcp import LakemarkWriter

    clock = Clock()
    weights = layer(mib).state_dict() | {f"block.{n}": torch.ones(1) for n in range(500)}
    state = {"model": weights, "lr_scheduler": {"last": 1}}

    inner: list[tuple[float, float]] = []

    class Own(checkpoint.FileSystemWriter):
        def finish(self, *args: Any, **kwargs: Any) -> None:
            with clock.within(inner):
                super().finish(*args, **kwargs)

    class Timed(LakemarkWriter):
        def finish(self, *args: Any, **kwargs: Any) -> None:
            with clock.within(clock.ours, less=inner):
                super().finish(*args, **kwargs)

    for step in range(saves):
        writer = Timed(run, Own(place / f"step-{step % 2}"), step=step, metrics=METRICS)
        with clock.within(clock.own, less=clock.ours):
            checkpoint.save(state, storage_writer=writer)
    return clock


def accelerate(place: Path, run: Run, saves: int, mib: int) -> Clock:
    import torch
    from accelerate import Accelerator

    from lakemark.trainer.accelerate import save_state

    clock = Clock()

    class Own(Accelerator):
        def save_state(self, *args: Any, **kwargs: Any) -> Any:
            with clock.within(clock.own):
                return super().save_state(*args, **kwargs)

    accelerator = Own(cpu=True)
    model = layer(mib)
    accelerator.prepare(model, torch.optim.SGD(model.parameters()))
    for step in range(saves):
        with clock.within(clock.ours, less=clock.own):
            save_state(accelerator, run, place / f"step-{step % 2}", step=step, metrics=METRICS)
    return clock


CASES: dict[str, tuple[str | None, Callable[[Path, Run, int, int], Clock]]] = {
    "plain loop": (None, loop),
    "DCP": ("torch", dcp),
    "Accelerate": ("accelerate", accelerate),
    "HF Trainer": ("transformers", hf),
    "Lightning": ("lightning", lightning),
}


def report(name: str, clock: Clock, spooled: int) -> None:
    wall, cpu = ([pair[n] * 1e3 for pair in clock.ours[1:]] for n in (0, 1))  # the first save makes the spool
    own = statistics.median(pair[0] * 1e3 for pair in clock.own[1:])
    columns = "   ".join(
        f"{statistics.median(of):5.2f}  p99 {sorted(of)[int(len(of) * 0.99)]:6.2f}" for of in (wall, cpu)
    )
    ratio = statistics.median(wall) / own
    print(f"{name:12} {columns}   own save {own:7.1f}  ({ratio:6.2%})   {len(clock.ours)} saves, {spooled} announced")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--saves", type=int, default=300)
    parser.add_argument("--mib", type=int, default=8)
    parser.add_argument("--dir", type=Path, default=None)
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TQDM_DISABLE": "1"}
    load = f"load {os.getloadavg()[0]:.1f}"
    print(f"{given.saves} saves of {given.mib} MiB, {load}; ms elapsed, then ms of processor time; to reach: 5 ms")
    for name, (package, case) in CASES.items():
        if package and find_spec(package) is None:
            print(f"{name:12} {package} is not installed")
            continue
        place = Path(tempfile.mkdtemp(dir=given.dir))
        try:
            run = opened(place / "home")
            (place / "out").mkdir()
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
                clock = case(place / "out", run, given.saves, given.mib)
            if "lakemark: " in said.getvalue():
                raise SystemExit(said.getvalue())
            report(name, clock, len(list((place / "home/spool").glob("*.json"))))
        finally:
            shutil.rmtree(place)


if __name__ == "__main__":
    main()
