"""Ray Train 2 (`v2/_internal/execution/checkpoint/checkpoint_manager.py`): the newest result in its snapshot."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from lakemark.formats.pointers.rule import Beside, Neighbour, Rule, here, text
from lakemark.formats.torch.ray import SNAPSHOT
from lakemark.ports import Placed, Pointer

_RESULTS: Final = "checkpoint_results"
_INDICES: Final = "checkpoint_report_indices"
_LATEST: Final = "latest_checkpoint_result"
_NAME: Final = "checkpoint_dir_name"
# Before version 2 a folder is numbered, and nothing lists it.
_DATED: Final = re.compile(r"checkpoint_\d{4}-\d\d-\d\d_.+", re.ASCII)


def _decide(placed: Placed, beside: Beside) -> Iterator[Pointer]:
    """Of a snapshot that lists the checkpoint. One can't be made: it holds what was reported with each."""
    lies = here(placed, beside)
    old = lies.get(SNAPSHOT)
    state = _read(old.text) if old is not None else None
    if state is None:
        return
    results, mine = state[_RESULTS], placed.path.name
    at = _place(results, mine)
    if at is None or (state[_LATEST] == results[at] and old is not None and not old.aside):
        return
    # Ray refuses a snapshot that names a folder that is gone, and removes by this list.
    kept = [number for number in range(at + 1) if number == at or _is_there(lies.get(results[number][_NAME]))]
    made = {**state, _RESULTS: [results[number] for number in kept], _LATEST: results[at]}
    indices = state.get(_INDICES)
    if isinstance(indices, list) and len(indices) == len(results):
        made[_INDICES] = [indices[number] for number in kept]
    yield text(placed, SNAPSHOT, json.dumps(made, separators=(",", ":")), "Ray Train goes on from the newest it lists")


def _cannot(placed: Placed, beside: Beside) -> Iterator[str]:
    old = here(placed, beside).get(SNAPSHOT)
    state = _read(old.text) if old is not None else None
    if _DATED.fullmatch(placed.path.name) and (state is None or _place(state[_RESULTS], placed.path.name) is None):
        yield (
            f"{placed.path.parent / SNAPSHOT} does not list {placed.path.name}, and can't be made: Ray Train starts anew "
            "unless the script is given the checkpoint's path"
        )


def _place(results: Sequence[Mapping[str, Any]], name: str) -> int | None:
    return next((number for number, one in enumerate(results) if one[_NAME] == name), None)


def _is_there(one: Neighbour | None) -> bool:
    return one is not None and not one.aside


def _read(said: str) -> dict[str, Any] | None:
    """None where it is no such snapshot."""
    try:
        state = json.loads(said)
        named = [*(one[_NAME] for one in state[_RESULTS]), state[_LATEST][_NAME]]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return state if all(isinstance(name, str) for name in named) else None


RAY = Rule(
    framework="Ray Train",
    names=f"`{SNAPSHOT}`",
    set_to="its newest result, without the later ones; none is made, as it holds what was reported",
    without="it starts anew; it refuses one that names what is not there",
    decide=_decide,
    cannot=_cannot,
)
