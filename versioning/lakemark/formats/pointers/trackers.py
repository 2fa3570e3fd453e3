"""`latest_checkpointed_iteration.txt`, of Megatron-LM (`training/checkpointing.py`) and of what took it over from there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from lakemark.formats.pointers.rule import Beside, Rule, text
from lakemark.ports import Placed, Pointer

TRACKER: Final = "latest_checkpointed_iteration.txt"
# Seven digits or more; the tracker has the number without zeros.
_ITERATION: Final = re.compile(r"iter_(\d{7,})", re.ASCII)
_GLOBAL_STEP: Final = re.compile(r"global_step_(\d{1,15})", re.ASCII)


def _megatron(placed: Placed, _: Beside) -> Iterator[Pointer]:
    match = _ITERATION.fullmatch(placed.path.name)
    said = str(int(match[1])) if match else placed.path.name
    # Other names are NeMo's, which has no tracker.
    if match or said == "release":
        yield text(placed, TRACKER, said, "Megatron loads the iteration it names")


def _global_step(placed: Placed, _: Beside) -> Iterator[Pointer]:
    """ByteCheckpoint's folders are those of trainers, as verl, that keep Megatron's tracker beside them."""
    match = _GLOBAL_STEP.fullmatch(placed.path.name)
    if match:
        yield text(placed, TRACKER, str(int(match[1])), "its trainer loads the step it names")


MEGATRON = Rule(
    framework="Megatron-LM",
    names=f"`{TRACKER}`",
    set_to="digits, or `release`",
    without="it starts from random weights, and says so in the log",
    decide=_megatron,
)
BYTECHECKPOINT = Rule(
    framework="ByteCheckpoint",
    names=f"`{TRACKER}`",
    set_to="digits",
    without="trainers that go by it (verl) start anew",
    decide=_global_step,
)
