"""The examples: one training script for each framework, and what has to be true of its checkpoints."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
ALL_ROLES: Final = ("weights", "optimizer", "scheduler", "rng")


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One of `examples/NAME/train.py`.

    needs: the framework's package. saves: how its saves are named in OUT, to tell when there are enough of them.
    half_made: how the framework names a save that it is still making, where it does.
    framework, roles: what each record must say.
    tolerance: the greatest difference of a weight to the uninterrupted run's, 0.0 for none; why: the reason for another.
    """

    name: str
    needs: str
    saves: str
    framework: str
    roles: Sequence[str] = ALL_ROLES
    half_made: str | None = None
    tolerance: float = 0.0
    why: str = ""

    @property
    def script(self) -> Path:
        return HERE / self.name / "train.py"

    @property
    def installed(self) -> bool:
        return importlib.util.find_spec(self.needs) is not None


EXAMPLES: Final = {
    example.name: example
    for example in (
        Example(name="dcp_fsdp", needs="torch", saves=r"step-\d+", framework="dcp"),
        Example(name="hf_trainer", needs="transformers", saves=r"checkpoint-\d+", framework="hf-trainer"),
        Example(name="lightning", needs="lightning", saves=r"epoch=.*\.ckpt", framework="lightning"),
        Example(name="accelerate", needs="accelerate", saves=r"checkpoint_\d+", framework="accelerate"),
        Example(name="deepspeed", needs="deepspeed", saves=r"global_step\d+", framework="deepspeed"),
        Example(
            name="orbax",
            needs="orbax",
            saves=r"\d+",
            framework="orbax",
            half_made=r".*\.orbax-checkpoint-tmp",
            roles=("weights", "optimizer", "rng"),  # the schedule goes by the optimizer's count
        ),
        Example(name="keras", needs="keras", saves=r"model-\d+\.keras", framework="keras"),
    )
}
