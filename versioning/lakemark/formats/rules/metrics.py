"""Metrics that frameworks write of a step themselves, in texts and names. Nothing is unpickled for them."""

from __future__ import annotations

import math
import re
from typing import Any, Final

_NAMED: Final = re.compile(
    r"(?:^|-)(?P<name>[A-Za-z][\w./@ ]{0,79})=(?P<value>-?\d{1,15}(?:\.\d{1,15})?(?:e[-+]?\d{1,3})?)(?=-|$)", re.ASCII
)
_COUNTERS: Final = frozenset({"epoch", "step", "global_step", "consumed_samples"})
# `eval_runtime` and such are no quality of a model; nobody selects by them.
_TIMINGS: Final = ("_runtime", "_per_second", "_time")
# They are kept in the ledger's entry.
_MOST: Final = 50


def of_history(history: Any, step: int | None) -> dict[str, float]:  # noqa: ANN401 - JSON that somebody else wrote
    """Of Hugging Face's `log_history`, what it logged at that very step: `loss`, and whatever an evaluation gave."""
    found: dict[str, float] = {}
    for row in history if isinstance(history, list) else ():
        if isinstance(row, dict) and row.get("step") == step and step is not None:
            for name, value in row.items():
                # Rows of one step come apart, one of training and one of each evaluation: a later row's value wins.
                if name == "loss" or (name.startswith("eval_") and not name.endswith(_TIMINGS)):
                    found |= _finite(name, value)
    return dict(list(found.items())[:_MOST])


def of_name(stem: str) -> dict[str, float]:
    """Of a name as Lightning's templates make it, `epoch=0-step=8-val_loss=1.41`: rounded, as it stands there."""
    pairs = ((match["name"], float(match["value"])) for match in _NAMED.finditer(stem))
    return {name: value for name, value in pairs if name not in _COUNTERS and math.isfinite(value)}


def of_mapping(said: Any) -> dict[str, float]:  # noqa: ANN401 - JSON that somebody else wrote
    """Of a mapping of names to values, as Orbax keeps it beside a step."""
    found: dict[str, float] = {}
    for name, value in said.items() if isinstance(said, dict) else ():
        found |= _finite(str(name), value)
    return dict(list(found.items())[:_MOST])


def _finite(name: str, value: object) -> dict[str, float]:
    # NaN and infinity are no JSON, and true is an int to Python.
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return {name: float(value)} if number and math.isfinite(value) else {}  # type: ignore[arg-type]
