"""Files of `torch.save` that a training script named by step: `model_100.pt`, `ckpt-100.pth`, `optimizer-100.pt` beside it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from lakemark.formats.readers import headers
from lakemark.formats.readers.folder import Folder
from lakemark.formats.readers.torch_file import told
from lakemark.formats.roles import BESIDE_WEIGHTS, EVERYTHING, of_file, of_key
from lakemark.formats.rules import numbered, rolling, sets
from lakemark.formats.rules.family import Loose, OfFiles, found
from lakemark.model.checkpoints.manifest import Role
from lakemark.ports import Found

FRAMEWORK: Final = "torch"
_SUFFIXES: Final = frozenset({"pt", "pth", "ckpt", "tar", "bin"})
_NAMES: Final = (".pt", ".pth", ".ckpt", ".pth.tar", ".bin")
_STEM: Final = re.compile(
    r"(?P<word>[A-Za-z][A-Za-z_]*?)[-_=]?(?:(?:step|iter|iteration)[-_=]?)?\d{1,15}(?:[-_]rank[-_]?\d{1,7})?\..*",
    re.ASCII,
)
_OF_STEP: Final = re.compile(
    r"(?P<word>[A-Za-z][A-Za-z_]*?)[-_](?:step[-_]?)?(?P<step>\d{1,15})[-_]rank[-_]?(?P<rank>\d{1,7})\.(?:pt|pth|bin)"
    r"|(?:meta|metadata|(?:train|trainer|training)_?state|config|args)[-_](?P<of>\d{1,15})\.json",
    re.ASCII,
)
_JSON: Final = ".json"
_OTHERS: Final = (".pt", ".pth", ".bin", _JSON)


class TorchFiles(OfFiles):
    """No framework's: a file, or all files of one step in a folder. Roles are what their keys say, else what their names do."""

    def loose(self, folder: Folder) -> Iterator[Loose]:
        if folder.suffixes.isdisjoint(_SUFFIXES):
            return
        steps: dict[int, list[str]] = defaultdict(list)
        first, trained = folder.depth == 0, partial(rolling.trained, folder)
        for name, step in numbered.of_files(folder.files, folder.name, first=first, trained=trained).items():
            steps[step].append(name)
        # `model_100_rank_1.pt` ends with no step, so the strict rule passes it over: it is added to the step that it names.
        others = _of_ranks(folder, steps)
        # A step with a file of another kind, such as `.npz`, is left to the families after this one.
        rows = [(step, mine) for step, mine in sorted(steps.items()) if all(name.endswith(_NAMES) for name in mine)]
        # What is said in JSON may come with some steps only.
        counts = [sum(not name.endswith(_JSON) for name in others[step]) for step, _ in rows]
        kinds = [sets.kinds(mine) for _, mine in rows]
        for at, (step, mine) in enumerate(rows):
            names = [*mine, *others[step]]
            short = sets.fewer("files of ranks", counts, at) or sets.lacking(kinds, at)
            yield Loose(
                path=folder.path / names[0],
                names=tuple(names),
                judge=partial(_judge, folder, names, step, short=short),
                step=step,
                members=tuple(folder.path / name for name in names) if len(names) > 1 else (),
            )


def _of_ranks(folder: Folder, steps: Collection[int]) -> dict[int, list[str]]:
    """What belongs to one of the steps and does not end with its number: files of ranks, and what is said of it in JSON."""
    found: dict[int, list[str]] = defaultdict(list)
    for name in folder.files if steps else ():
        match = _OF_STEP.fullmatch(name) if name.endswith(_OTHERS) else None
        step = int(match["step"] or match["of"]) if match else None
        if step is not None and step in steps:
            found[step].append(name)
    return found


def _lacking(names: Sequence[str], short: str | None) -> list[str]:
    """short: what it lacks against the step before."""
    ranks: dict[str, set[int]] = defaultdict(set)
    for name in names:
        match = _OF_STEP.fullmatch(name)
        if match and match["rank"]:
            ranks[match["word"]].add(int(match["rank"]))
    lacking = [hole for word, seen in ranks.items() if (hole := sets.holes(f"{word} of rank", seen))]
    return lacking or ([short] if short else [])


def _judge(folder: Folder, names: Sequence[str], step: int, *, short: str | None) -> Found:
    problems = headers.problems(folder, list(names)) + _lacking(names, short)
    # `optimizer-100.pt` alone: its model is still being written, or gone.
    if all(of_file(name) in BESIDE_WEIGHTS for name in names):
        problems.append("no weights")
    if len(names) == 1:
        problems = [one.removeprefix(f"{names[0]}: ") for one in problems]
    roles: dict[str, str] = {}
    present: set[str] = set()
    possible: set[str] = set()
    for name in names:
        if name.endswith(_JSON):
            roles[name] = Role.TRAINER
            continue
        match = _STEM.fullmatch(name)
        role = of_key(match["word"]) if match else None
        inside = told(folder, [name])
        present |= inside.present
        # `model_100.pt` by itself may hold all; beside `optimizer_100.pt` the name is meant so.
        if role is not None and len(names) > 1:
            roles[name] = role
        elif not inside.present:
            possible.update(EVERYTHING)
        else:
            possible |= inside.possible
    whole = found(
        folder.path / names[0],
        FRAMEWORK,
        step,
        problems,
        roles=roles,
        present=sorted(present),
        possible=sorted(possible),
        members=tuple(folder.path / name for name in names) if len(names) > 1 else (),
    )
    return replace(whole, unlisted=True)
