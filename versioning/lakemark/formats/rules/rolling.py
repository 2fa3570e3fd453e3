"""Files that the next save is written over, by their names: `last.ckpt`, `latest.pt`, `ckpt.pt`. Their headers say their step."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from lakemark.formats.readers.folder import Folder
from lakemark.formats.readers.torch_file import read, told
from lakemark.formats.readers.torch_numbers import integers
from lakemark.model.checkpoints.manifest import Role
from lakemark.ports import Found, Verdict

NAMES: Final = re.compile(
    r"(?:(?:latest|last|best|newest|current)(?:[-_][\w-]*)?|checkpoint|ckpt|snapshot|model[-_](?:last|latest|best))"
    r"\.(?:pt|pth|ckpt|bin|pth\.tar)",
    re.ASCII | re.IGNORECASE,
)
# What trainers call it; the first that is there. An epoch only where there is nothing finer.
_STEPS: Final = ("global_step", "step", "iter_num", "iteration", "iter", "num_updates", "updates", "num_steps", "epoch")
_OUTER: Final = frozenset({"extra_state", "trainer_state", "train_state", "trainer", "state", "meta", "progress"})
_FIRST: Final = re.compile(r"(?:.*[-_])?(?:last|latest|newest|current)", re.ASCII | re.IGNORECASE)


def step_inside(folder: Folder, name: str) -> int | None:
    """The step that a file of `torch.save` says of itself; None where it says none."""
    found = read(folder, name)
    if found is None:
        return None
    # An optimizer counts steps of each tensor under the same word: only the trainer's own counters are meant.
    own = {*found.top, *(key for outer, inner in found.nested.items() if outer in _OUTER for key in inner)}
    said = integers(folder, name, _STEPS)
    return next((said[key] for key in _STEPS if key in own and said.get(key, -1) >= 0), None)


def is_state(folder: Folder, name: str) -> bool:
    """Whether a file of such a name is a trainer's state: weights and optimizer. It need not say its step."""
    return NAMES.fullmatch(name) is not None and trained(folder, name)


def trained(folder: Folder, name: str) -> bool:
    """Whether a file of any name has the keys of weights and of an optimizer, as only a trainer writes them together."""
    return {Role.WEIGHTS.value, Role.OPTIMIZER.value} <= told(folder, [name]).present


def only_ones(found: Sequence[Found], steps: Iterable[int | None]) -> list[Found]:
    """With the step of those that are the only save of it; of others it is not told: they are copies.

    steps: of the saves that are named by them. Of two at one step the one that is called the last is taken.
    """
    taken = {*steps, *(one.step for one in found if not one.rolling)}
    kept: dict[Path, int] = {}
    for one in sorted(found, key=lambda one: (not _FIRST.match(one.path.name), str(one.path))):
        if one.rolling and one.verdict is Verdict.COMPLETE and one.step is not None and one.step not in taken:
            taken.add(one.step)
            kept[one.path] = one.step
    return [one if not one.rolling or one.path in kept else replace(one, step=None, also=one.step) for one in found]
