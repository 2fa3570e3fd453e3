"""TensorFlow (`python/checkpoint/checkpoint_management.py`): the text `checkpoint`."""

from __future__ import annotations

from collections.abc import Iterator

from lakemark.formats.pointers.rule import Beside, Rule, here, text
from lakemark.formats.readers import tf_state
from lakemark.ports import Placed, Pointer


def _decide(placed: Placed, beside: Beside) -> Iterator[Pointer]:
    lies = here(placed, beside)
    old = lies.get("checkpoint")
    # TensorFlow may try to remove what it is told is kept: only what is really there is named.
    present = {name.removesuffix(".index") for name, one in lies.items() if name.endswith(".index") and not one.aside}
    said = tf_state.repaired(old.text if old else "", placed.path, present | {placed.path.name})
    yield text(placed, "checkpoint", said, "TensorFlow loads the checkpoint it names")


TENSORFLOW = Rule(
    framework="TensorFlow",
    names="`checkpoint`",
    set_to="the newest, and of the kept ones those that are there and not later",
    without="`latest_checkpoint` finds none: training starts anew",
    decide=_decide,
)
