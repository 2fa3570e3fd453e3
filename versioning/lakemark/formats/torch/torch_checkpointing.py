"""torch_checkpointing: `<item>_<rank>.pt` of each rank, `metadata.pkl`, and a folder `tmp_<name>` until it is renamed."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Final

from lakemark.formats.readers.folder import Folder
from lakemark.formats.readers.torch_file import told
from lakemark.formats.roles import EVERYTHING, of_key
from lakemark.formats.rules import numbered, sets
from lakemark.formats.rules.contents import Contents
from lakemark.formats.rules.family import OfFolders, temporary
from lakemark.model.checkpoints.manifest import Role
from lakemark.ports import Found

FRAMEWORK: Final = "torch_checkpointing"
METADATA: Final = "metadata.pkl"
_TEMPORARY: Final = "tmp_"
_BEGUN: Final = re.compile(r"tmp_(?:step|iter|checkpoint|global_step)[-_]\d{1,15}", re.ASCII)
_ITEM: Final = re.compile(r"(?P<item>[A-Za-z][\w.-]*)_(?P<rank>\d{1,7})\.(?:pt|safetensors)", re.ASCII)


class TorchCheckpointing(OfFolders):
    """`checkpoint_writer.py` of torch-checkpointing 0.1, also behind torchtitan's checkpoint manager of that name.

    All ranks write into `tmp_<name>`, rank 0 adds `metadata.pkl` and renames the folder. `other_<rank>.pt` holds whatever has
    no file of its own.
    """

    def claims(self, folder: Folder) -> bool:
        # The folder is made before the ranks write into it.
        if not folder.kinds:
            return _BEGUN.fullmatch(folder.name) is not None
        if "pt" not in folder.suffixes and "safetensors" not in folder.suffixes:
            return False
        if not any(_ITEM.fullmatch(name) for name in folder.files):
            return False
        if folder.has_file(METADATA):
            return True
        # Until `metadata.pkl` is there only `tmp_` and a step behind it say that it is one.
        begun = folder.name.startswith(_TEMPORARY) and numbered.of_folder(_meant(folder.name)) is not None
        return begun and any(_ITEM.fullmatch(name) for name in folder.files)

    def step(self, folder: Folder) -> int | None:
        return numbered.of_folder(_meant(folder.name))

    def judge(self, folder: Folder) -> Found:
        contents = Contents(folder)
        items: dict[str, set[int]] = defaultdict(set)
        for name in folder.files:
            match = _ITEM.fullmatch(name)
            if match:
                items[match["item"]].add(int(match["rank"]))
                contents.roles[name] = of_key(match["item"]) or Role.OTHER
        if folder.name.startswith(_TEMPORARY):
            return temporary(folder.path, FRAMEWORK, self.step(folder), "tmp_ prefix", roles=contents.roles)
        contents.roles[METADATA] = Role.CONFIG
        contents.check()
        # Each rank writes all items: an item of fewer ranks than another is short.
        most = max((len(ranks) for ranks in items.values()), default=0)
        for item, ranks in sorted(items.items()):
            contents.ranks[item] = len(ranks)
            hole = sets.holes(item, ranks)
            if hole or len(ranks) < most:
                contents.problems.append(hole or f"{item} for {len(ranks)} of {most} ranks")
        _look_inside(contents)
        if not contents.has(Role.WEIGHTS):
            contents.problems.append("no weights")
        return contents.found(FRAMEWORK, self.step(folder))


def _meant(name: str) -> str:
    return name.removeprefix(_TEMPORARY)


def _look_inside(contents: Contents) -> None:
    """What the first rank's files without a role of their own say."""
    for name in (name for name, role in contents.roles.items() if role is Role.OTHER and name.endswith("_0.pt")):
        inside = told(contents.folder, [name])
        contents.present |= inside.present
        contents.possible |= inside.possible.intersection(EVERYTHING)
