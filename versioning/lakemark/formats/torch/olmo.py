"""OLMo-core: `step<N>/` with `model_and_optim/` (DCP), `train/rank<r>.pt`, and `.metadata.json` as the last word."""

from __future__ import annotations

import re
from typing import Final

from lakemark.formats.readers.folder import Folder
from lakemark.formats.readers.torch_file import told
from lakemark.formats.rules import numbered, sets
from lakemark.formats.rules.contents import Contents
from lakemark.formats.rules.family import OfFolders, temporary
from lakemark.formats.rules.unfinished import left_over
from lakemark.formats.torch import sharded
from lakemark.model.checkpoints.manifest import Role
from lakemark.ports import Found

FRAMEWORK: Final = "olmo-core"
_STATE: Final = "model_and_optim"
_MARKER: Final = ".metadata.json"
_TEMPORARY: Final = "-tmp"
_RANK: Final = re.compile(r"train/rank(\d{1,7})\.pt", re.ASCII)
_CONFIG: Final = frozenset({"config.json", "data_paths.txt", _MARKER})
_BEGUN: Final = re.compile(r"step\d{1,15}-tmp", re.ASCII)
_STEP: Final = re.compile(r"step\d{1,15}", re.ASCII)
# What `.metadata.json` is called until it is renamed.
_HALF: Final = re.compile(r"tmp[a-z0-9_]{8}", re.ASCII)


class OlmoCore(OfFolders):
    """`olmo_core/train/checkpoint.py` of 1.0 to 3.0.

    On a disk it is all written in `step<N>-tmp/` and renamed, then `.metadata.json` follows through a temporary file, then
    `config.json` and `data_paths.txt`. An asynchronous save writes its state under the final name. `dir_is_checkpoint`
    wants `train/rank0.pt`, `model_and_optim/.metadata` and `.metadata.json`. The schedule is a function of the step: there is
    no state of it, and none is missed.
    """

    def claims(self, folder: Folder) -> bool:
        if _BEGUN.fullmatch(folder.name):
            return True
        kinds = folder.kinds
        if _STATE in kinds and folder.has_folder(_STATE):
            # `-tmp` is OLMo's own; other words for leftovers are somebody's who put it aside.
            return folder.name.endswith(_TEMPORARY) or not left_over(folder.name)
        # The marker without the state: what removes a checkpoint, or a copy, was cut.
        if _MARKER in kinds and _STEP.fullmatch(folder.name):
            return True
        # An asynchronous save may have written `train/` alone so far; a `train/` inside another DCP checkpoint is not OLMo's.
        if "train" not in kinds or ".metadata" in kinds or "distcp" in folder.suffixes:
            return False
        if numbered.of_folder(folder.name.removesuffix(_TEMPORARY)) is None:
            return False
        return folder.has_folder("train") and any(
            _RANK.fullmatch(f"train/{name}") for name in folder.sub("train").files
        )

    def step(self, folder: Folder) -> int | None:
        return numbered.of_folder(folder.name.removesuffix(_TEMPORARY))

    def judge(self, folder: Folder) -> Found:
        contents = Contents(folder)
        ranks = {int(match[1]): name for name in contents.files if (match := _RANK.fullmatch(name))}
        contents.roles.update(dict.fromkeys(ranks.values(), Role.TRAINER))
        contents.roles.update({name: Role.CONFIG for name in contents.files if name in _CONFIG})
        if folder.name.endswith(_TEMPORARY):
            return temporary(folder.path, FRAMEWORK, self.step(folder), "-tmp suffix", roles=contents.roles)
        sharded.add(contents, _STATE)
        contents.check()
        contents.unfinished.extend(name for name in contents.files if _HALF.fullmatch(name))
        if not folder.has_file(_MARKER):
            contents.problems.append(f"no {_MARKER}")
        if 0 not in ranks:
            contents.problems.append("no train/rank0.pt")
        elif hole := sets.holes("train/rank", ranks):
            contents.problems.append(hole)
        if ranks:
            contents.ranks["rank"] = len(ranks)
            # Ranks' files have the same keys: one is opened.
            contents.present |= told(folder, [ranks[min(ranks)]]).present
            contents.possible.update((Role.RNG, Role.DATALOADER, Role.SCHEDULER))
        return contents.found(FRAMEWORK, self.step(folder))
