"""A training script's folder of a step in which each part is a PyTorch DCP checkpoint: `step-5/model/`, `step-5/optim/`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from lakemark.formats.readers import dcp_metadata
from lakemark.formats.readers.folder import Folder, Unreadable
from lakemark.formats.readers.pickle_stream import Unfit
from lakemark.formats.roles import of_key
from lakemark.formats.rules import numbered
from lakemark.formats.rules.contents import Contents
from lakemark.formats.rules.family import OfFolders
from lakemark.formats.torch import sharded
from lakemark.formats.torch.dcp import FRAMEWORK
from lakemark.model.checkpoints.manifest import Role
from lakemark.ports import Found

# `step-5/actor/model/` is as deep as such scripts go; further down other things than parts would be looked through.
_DEEPEST: Final = 2
_MOST_LOOKED_AT: Final = 32
_OF_A_MODEL: Final = frozenset({Role.WEIGHTS, Role.OTHER, Role.TRAINER})


class DcpParts(OfFolders):
    """No framework's own: `dcp.save` once for the model and once for the optimizer, files of `torch.save` beside them.

    Nothing says that another part was to come but a folder that was made for it, and the step before.
    """

    def claims(self, folder: Folder) -> bool:
        if not folder.folders or numbered.of_folder(folder.name) is None or "distcp" in folder.suffixes:
            return False
        # By names alone up to here; the folders in it are listed last, as this is asked of every folder with a number.
        return not numbered.is_run(folder.name, folder.folders, folder.files) and next(_parts(folder), None) is not None

    def step(self, folder: Folder) -> int | None:
        return numbered.of_folder(folder.name)

    def judge(self, folder: Folder) -> Found:
        contents = Contents(folder)
        # Somebody makes the folder, then DCP writes into it: empty, its part is still to come.
        for inside in (name for name in folder.folders if not folder.sub(name).kinds):
            contents.problems.append(f"{inside} is empty")
        for inside in _parts(folder):
            sharded.add(contents, inside, role=_role(folder, inside))
        sharded.look_beside(contents)
        contents.check()
        return contents.found(FRAMEWORK, self.step(folder))


def _parts(folder: Folder) -> Iterator[str]:
    """The folders in it, not far down, that hold files of DCP. None where one in it is a step itself: then it is a run."""
    found: list[str] = []
    pending = [("", folder, 1)]
    while pending:
        prefix, outer, depth = pending.pop()
        # Then it is a run that happens to be named by a number.
        if any(numbered.holds_checkpoints(name) for name in outer.folders):
            return
        for name in islice(outer.folders, _MOST_LOOKED_AT):
            inner = outer.sub(name)
            if (
                "distcp" in inner.suffixes
                or dcp_metadata.NAME in inner.kinds
                or f"{dcp_metadata.NAME}.tmp" in inner.kinds
            ):
                found.append(f"{prefix}{name}")
            elif depth < _DEEPEST:
                pending.append((f"{prefix}{name}/", inner, depth + 1))
    yield from sorted(found)


def _role(folder: Folder, inside: str) -> Role | None:
    """What the folder's name says; of one that says that it is a model, only where nothing but weights is named in it."""
    said = of_key(inside.rpartition("/")[2])
    if said is not Role.WEIGHTS:
        return said
    try:
        present = dcp_metadata.read(Folder(f"{folder.at}/{inside}")).present
    except (Unreadable, Unfit, OSError):
        return said
    # Scripts put everything into `model/`: then `.metadata` says of each file what it is.
    return said if present <= _OF_A_MODEL else None
