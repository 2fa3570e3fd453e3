"""Files of `torch.save` that a training script named by step: `model_100.pt`, `ckpt-100.pth`, `optimizer-100.pt` beside it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from lakemark.formats import headers, numbered
from lakemark.formats.family import Loose, OfFiles, found
from lakemark.formats.folder import Folder
from lakemark.formats.roles import EVERYTHING, of_key
from lakemark.formats.torch_file import told
from lakemark.ports import Found

FRAMEWORK: Final = "torch"
_SUFFIXES: Final = frozenset({"pt", "pth", "ckpt", "tar", "bin"})
_NAMES: Final = (".pt", ".pth", ".ckpt", ".pth.tar", ".bin")
_STEM: Final = re.compile(
    r"(?P<word>[A-Za-z][A-Za-z_]*?)[-_=]?(?:(?:step|iter|iteration)[-_=]?)?\d{1,15}\..*", re.ASCII
)


class TorchFiles(OfFiles):
    """No framework's: a file, or all files of one step in a folder. Roles are what their keys say, else what their names do."""

    def loose(self, folder: Folder) -> Iterator[Loose]:
        if folder.suffixes.isdisjoint(_SUFFIXES):
            return
        steps: dict[int, list[str]] = defaultdict(list)
        for name, step in numbered.of_files(folder.files, folder.name, first=folder.depth == 0).items():
            steps[step].append(name)
        for step, names in sorted(steps.items()):
            if all(name.endswith(_NAMES) for name in names):
                yield Loose(
                    path=folder.path / names[0],
                    names=tuple(names),
                    judge=partial(_judge, folder, names, step),
                    step=step,
                    members=tuple(folder.path / name for name in names) if len(names) > 1 else (),
                )


def _judge(folder: Folder, names: Sequence[str], step: int) -> Found:
    problems = headers.problems(folder, list(names))
    if len(names) == 1:
        problems = [one.removeprefix(f"{names[0]}: ") for one in problems]
    roles: dict[str, str] = {}
    present: set[str] = set()
    possible: set[str] = set()
    for name in names:
        match = _STEM.fullmatch(name)
        role = of_key(match["word"]) if match else None
        inside = told(folder, [name])
        present |= inside.present
        if role is not None and len(names) > 1:
            roles[name] = role
        elif not inside.present:
            possible.update(EVERYTHING)
        else:
            possible |= inside.possible
    return found(
        folder.path / names[0],
        FRAMEWORK,
        step,
        problems,
        roles=roles,
        present=sorted(present),
        possible=sorted(possible),
        members=tuple(folder.path / name for name in names) if len(names) > 1 else (),
    )
