"""ByteCheckpoint: `global_step_<N>/` with a DCP folder for the model, one for the optimizer, and extra states by rank."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from lakemark.formats.readers.folder import Folder
from lakemark.formats.readers.torch_file import told
from lakemark.formats.rules import numbered, sets
from lakemark.formats.rules.contents import Contents
from lakemark.formats.rules.family import OfFolders
from lakemark.formats.rules.unfinished import left_over
from lakemark.formats.torch import sharded
from lakemark.model.checkpoints.manifest import Role
from lakemark.ports import Found

FRAMEWORK: Final = "bytecheckpoint"
_MODEL: Final = "model"
_PARTS: Final = {_MODEL: Role.WEIGHTS, "optimizer": Role.OPTIMIZER}
_EXTRA: Final = "extra_state"
_NAME: Final = re.compile(r"global_step_\d{1,15}", re.ASCII)
_STATE: Final = re.compile(r"extra_state/extra_state_rank_?(\d{1,7})\.pt", re.ASCII)
_LOADER: Final = re.compile(r"(?:loader|loader_ckpt|dataloader)/.+", re.ASCII | re.DOTALL)


class ByteCheckpoint(OfFolders):
    """`bytecheckpoint/checkpointer` of 2025: FSDP, Megatron and veScale savers share it.

    Each part is written like DCP, `.metadata` renamed last in it, or, from the second save on, before the data: what it says
    is then what the first one said. All folders are made first; each rank that writes data also writes an extra state.
    """

    def claims(self, folder: Folder) -> bool:
        kinds = folder.kinds
        # All folders are made first: of a save that has just begun an extra state may be all there is.
        if _EXTRA in kinds and _NAME.fullmatch(folder.name) and _has_states(folder):
            return True
        if _MODEL not in kinds or not folder.has_folder(_MODEL):
            return False
        # `model/` with DCP files alone is also how scripts save; the name or a second part makes it ByteCheckpoint's.
        if "optimizer" not in kinds and _EXTRA not in kinds and not _NAME.fullmatch(folder.name):
            return False
        parts = [folder.sub(name) for name in _PARTS if folder.has_folder(name)]
        return not left_over(folder.name) and any("distcp" in part.suffixes for part in parts)

    def step(self, folder: Folder) -> int | None:
        return numbered.of_folder(folder.name)

    def judge(self, folder: Folder) -> Found:
        contents = Contents(folder)
        for name, role in _PARTS.items():
            if folder.has_folder(name):
                sharded.add(contents, name, role=role)
        if not folder.has_folder(_MODEL):
            contents.problems.append(f"no {_MODEL}")
        states = {int(match[1]): name for name in contents.files if (match := _STATE.fullmatch(name))}
        contents.roles.update(dict.fromkeys(states.values(), Role.TRAINER))
        contents.roles.update({name: Role.DATALOADER for name in contents.files if _LOADER.fullmatch(name)})
        contents.check()
        if states:
            contents.ranks[_EXTRA] = len(states)
            contents.problems.extend(_lacking(folder, states))
            # Every rank's extra state has the same keys: one is opened.
            first = states[min(states)]
            contents.present |= told(folder, [first]).present
            contents.possible.update((Role.SCHEDULER, Role.RNG, Role.DATALOADER))
        elif folder.has_folder(_EXTRA):
            contents.problems.append(f"no file in {_EXTRA}")
        return contents.found(FRAMEWORK, self.step(folder))


def _has_states(folder: Folder) -> bool:
    return any(_STATE.fullmatch(f"{_EXTRA}/{name}") for name in folder.sub(_EXTRA).files)


def _lacking(folder: Folder, states: Collection[int]) -> list[str]:
    """Ranks without an extra state: up to the last that has one, or that has data of the model."""
    # The last rank's missing state leaves no hole in the numbers, but its data of the model are there.
    data = {int(match[1]) for name in folder.sub(_MODEL).files if (match := sharded.DATA.fullmatch(name))}
    lacking = sorted(data.difference(states))
    hole = sets.holes("extra_state_rank", states)
    if hole or not lacking:
        return [hole] if hole else []
    return [f"no extra state of rank {lacking[0]}" + (f" and {len(lacking) - 1} more" if lacking[1:] else "")]
