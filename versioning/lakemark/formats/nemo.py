"""NeMo: folders with `weights/` and `context/`, `.nemo` archives, and files that say that a sibling is not done."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Final

from lakemark.formats import headers, megatron, numbered
from lakemark.formats.contents import Contents
from lakemark.formats.family import Loose, found, marker
from lakemark.formats.folder import Folder
from lakemark.formats.lightning import UNFINISHED
from lakemark.model.checkpoint import Role
from lakemark.ports import Found

FRAMEWORK: Final = "nemo2"
ARCHIVE: Final = "nemo-archive"
MARKER: Final = "nemo-marker"
_NAME: Final = re.compile(r".+-step=\d{1,15}(?:-.*)?|.+-last", re.ASCII | re.DOTALL)
_LOOSE: Final = (UNFINISHED, ".nemo")


class Nemo:
    """`nemo/lightning/pytorch/callbacks/model_checkpoint.py` and `nemo/lightning/io` of NeMo 2, `save_restore_connector` of 1.

    `{name}--{val_loss}-step={step}-consumed_samples={n}[-last]/` holds `weights/` (Megatron-core's torch_dist) and, written
    after it, `context/`. An empty file `<name>-unfinished` beside it is made before and removed after the save. A `.nemo`
    is a tar of `model_config.yaml` and the weights; NeMo 1's `.ckpt` are Lightning's.
    """

    def claims(self, folder: Folder) -> bool:
        if not folder.has_folder("weights"):
            return False
        if folder.has_folder("context"):
            return True
        return _NAME.fullmatch(folder.name) is not None and folder.sub("weights").has_file(".metadata")

    def step(self, folder: Folder) -> int | None:
        return numbered.of_tag(folder.name)

    def judge(self, folder: Folder) -> Found:
        contents = Contents(folder)
        for name in contents.files:
            if name.startswith("context/"):
                contents.roles[name] = Role.CONFIG
        if not _has_context(folder):
            others = list(_done_beside(folder))
            if folder.has_folder("context") or not others or any(map(_has_context, others)):
                contents.problems.append("no context (written after the weights)")
            contents.notes.append("no context, nor with those beside it: always_save_context may be off")
        megatron.add(contents, "weights")
        contents.check()
        if folder.name + UNFINISHED in _beside(folder):
            contents.problems.append(f"{folder.name}{UNFINISHED} lies beside it")
        return contents.found(FRAMEWORK, self.step(folder))

    def loose(self, folder: Folder) -> Iterator[Loose]:
        for name in [name for name in folder.files if name.endswith(_LOOSE)]:
            if name.endswith(UNFINISHED) and _marks(folder, name):
                yield Loose(path=folder.path / name, names=(name,), judge=partial(_marker, folder, name))
            elif name.endswith(_LOOSE[1]):
                judge = partial(_archive, folder, name)
                step = numbered.of_tag(name.removesuffix(".nemo"))
                yield Loose(path=folder.path / name, names=(name,), judge=judge, step=step)


def _has_context(folder: Folder) -> bool:
    return folder.has_folder("context") and bool(folder.sub("context").files)


def _done_beside(folder: Folder) -> Iterator[Folder]:
    """Other saves of the run that nothing marks, but the last, which may have a context where none of the others has."""
    parent = folder.parent
    names = (name for name in parent.folders if name != folder.name and _NAME.fullmatch(name))
    usual = (name for name in names if not name.endswith("-last") and not parent.has_file(name + UNFINISHED))
    return (one for name in usual if (one := Folder(f"{parent.at}/{name}")).has_folder("weights"))


def _beside(folder: Folder) -> set[str]:
    return {folder.name + UNFINISHED} if folder.parent.is_file(folder.name + UNFINISHED) else set()


def _marks(folder: Folder, name: str) -> bool:
    sibling = name.removesuffix(UNFINISHED)
    return bool(sibling) and (
        _NAME.fullmatch(sibling) is not None or sibling in folder.kinds or f"{sibling}.ckpt" in folder.kinds
    )


def _marker(folder: Folder, name: str) -> Found:
    return marker(folder.path / name, MARKER, "its sibling is NOT complete")


def _archive(folder: Folder, name: str) -> Found:
    why = headers.broken(folder, name)
    step = numbered.of_tag(name.removesuffix(".nemo"))
    problems = [why] if why else []
    return found(folder.path / name, ARCHIVE, step, problems, present=[Role.WEIGHTS, Role.CONFIG])
