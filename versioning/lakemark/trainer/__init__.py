"""What training code imports. Standard library only, and nothing else of lakemark.

from lakemark.trainer import Run

run = Run.open("llama-7b")
dataset = load(run.data_uri())
state = run.resume
run.saved(path, step=step, metrics={"val_loss": 1.9})
"""

from __future__ import annotations

from lakemark.trainer.run import Ranks, Run, RunNotOpened

__all__ = ["Ranks", "Run", "RunNotOpened"]
