"""NVIDIA Resiliency Extension's local checkpoints: a file per rank and iteration on each node's own disk."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from lakemark.formats.readers import headers
from lakemark.formats.readers.folder import Folder
from lakemark.formats.rules.family import Loose, OfFiles, found, temporary
from lakemark.model.checkpoints.manifest import Role
from lakemark.ports import Found

FRAMEWORK: Final = "nvrx-local"
_FILE: Final = re.compile(r"iter_(?P<step>\d{7})_(?P<rank>\d{1,7})_local(?P<dirty>\.dirty)?\.pt", re.ASCII)
_DIGITS: Final = re.compile(r"\d{1,7}", re.ASCII)


class NvrxLocal(OfFiles):
    """`checkpointing/local/ckpt_managers/local_manager.py` of nvidia-resiliency-ext 0.1 to 0.5.

    `<root>/<session>/<rank>/iter_<7 digits>_<rank>_local.pt`, written as `….dirty.pt` and renamed; with replication a rank's
    folder holds other ranks' files too. Together they are one checkpoint, named `<session>/iter_<7 digits>`: whole here
    where every rank's folder has its own rank's file. A node sees its own ranks only.
    """

    def loose(self, folder: Folder) -> Iterator[Loose]:
        ranks = [name for name in folder.folders if _DIGITS.fullmatch(name)]
        if not ranks:
            return
        saved: dict[str, dict[str, list[str]]] = defaultdict(dict)
        for rank in ranks:
            for name in folder.sub(rank).files:
                match = _FILE.fullmatch(name)
                if match:
                    saved[match["step"]].setdefault(rank, []).append(name)
        # The ranks of this node: those whose folders have a file of any step.
        mine = sorted({rank for one in saved.values() for rank in one}, key=int)
        for step, files in sorted(saved.items()):
            path = folder.path / f"iter_{step}"
            members = tuple(folder.path / rank / name for rank in sorted(files, key=int) for name in files[rank])
            judge = partial(_judge, path, folder, files, ranks=mine)
            # No name in this folder; it keeps other families from one of that name.
            yield Loose(path=path, names=(f"iter_{step}",), judge=judge, step=int(step), members=members)


def _judge(path: Path, folder: Folder, files: dict[str, list[str]], *, ranks: list[str]) -> Found:
    step = int(path.name.removeprefix("iter_"))
    names = [f"{rank}/{name}" for rank in sorted(files, key=int) for name in files[rank]]
    dirty = [name for name in names if name.endswith(".dirty.pt")]
    members = tuple(folder.path / name for name in names)
    # Nothing of it was renamed: it is only begun.
    if len(dirty) == len(names):
        return replace(temporary(path, FRAMEWORK, step, f"{dirty[0]} was not renamed yet"), members=members)
    # Files of other ranks are copies: they make up for no file of the folder's own rank.
    own = {rank for rank in ranks if f"iter_{step:07d}_{int(rank)}_local.pt" in files.get(rank, ())}
    lacking = [rank for rank in ranks if rank not in own]
    problems = [f"{name} was not renamed yet" for name in dirty]
    if lacking:
        problems.append(f"{len(own)} of {len(ranks)} ranks' files (none of rank {lacking[0]})")
    problems += headers.problems(folder, [name for name in names if name not in dirty])
    return found(
        path,
        FRAMEWORK,
        step,
        problems,
        present=[Role.WEIGHTS],
        possible=[Role.OPTIMIZER, Role.SCHEDULER, Role.RNG],
        members=members,
        ranks={"rank": len(own)},
        unfinished=dirty,
    )
