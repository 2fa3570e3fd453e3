"""fairseq: files `checkpoint_<epoch>_<updates>.pt` in one folder, one per shard where the optimizer is sharded."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Final

from lakemark.formats.readers import headers
from lakemark.formats.readers.folder import Folder
from lakemark.formats.readers.torch_file import told
from lakemark.formats.readers.torch_numbers import integers
from lakemark.formats.rules import sets
from lakemark.formats.rules.family import Loose, OfFiles, found, temporary
from lakemark.model.checkpoints.manifest import Role
from lakemark.ports import Found

FRAMEWORK: Final = "fairseq"
_NAME: Final = re.compile(
    r"(?P<base>checkpoint(?:(?P<epoch>\d{1,9})|_(?P<of>\d{1,9})_(?P<updates>\d{1,15})|_(?P<alone>\d{1,15})(?=-)"
    r"|(?P<copy>_best|_last|\.best_.+?_-?\d+\.\d+)))"
    r"(?P<shard>(?:-(?:model_part-|shard|rank-)\d{1,7})+|-shared)?\.pt(?P<tmp>\.tmp)?",
    re.ASCII,
)
_SHARED: Final = "-shared.pt"
_MAYBE: Final = (".pt", ".pt.tmp")
_SUFFIXES: Final = frozenset({"pt", "tmp"})
_REST: Final = (Role.OPTIMIZER, Role.SCHEDULER, Role.DATALOADER, Role.TRAINER)


class Fairseq(OfFiles):
    """`checkpoint_utils.py` of fairseq 0.8 to 0.12 and of metaseq.

    The first due name is written as `<name>.tmp` and renamed; the others, and always `checkpoint_best.pt` and
    `checkpoint_last.pt`, are byte copies made after it: no step. `checkpoint<epoch>.pt` names no step either; it is
    fairseq's only beside others of its names. `-shard<i>` and `-model_part-<i>` before the suffix, of
    experts `-rank-<i>` and `-shared`: together one checkpoint; metaseq's such names say no epoch.
    """

    def loose(self, folder: Folder) -> Iterator[Loose]:
        if folder.suffixes.isdisjoint(_SUFFIXES):
            return
        likely = (name for name in folder.files if name.startswith("checkpoint") and name.endswith(_MAYBE))
        matches = [match for name in likely if (match := _NAME.fullmatch(name))]
        # `checkpoint<n>.pt` alone is anybody's name.
        if not any(match["of"] or match["copy"] or match["shard"] for match in matches):
            return
        shards: dict[str, list[str]] = defaultdict(list)
        for match in matches:
            name = match[0]
            if match["tmp"]:
                yield Loose(path=folder.path / name, names=(name,), judge=partial(_temporary, folder, name))
            else:
                shards[match["base"]].append(name)
        # By updates: each is compared with the one that was saved before it.
        bases = sorted(shards, key=lambda one: (_step(one) is None, _step(one) or 0, one))
        counts = [len(shards[base]) for base in bases]
        for at, base in enumerate(bases):
            names = tuple(sorted(shards[base], key=_numbers))
            yield _loose(folder, base, names, short=sets.fewer("shards", counts, at))


def _step(base: str) -> int | None:
    # The pattern knows metaseq's names, which say no epoch, only with a shard behind them.
    match = _NAME.fullmatch(f"{base}-shared.pt")
    updates = (match["updates"] or match["alone"]) if match else None
    return int(updates) if updates else None


def _numbers(name: str) -> tuple[list[int], str]:
    match = _NAME.fullmatch(name)
    # By number, as text `-shard10` comes before `-shard2`.
    return [int(one) for one in re.findall(r"\d+", match["shard"] or "")] if match else [], name


def _loose(folder: Folder, base: str, names: tuple[str, ...], *, short: str | None) -> Loose:
    path = folder.path / names[0]
    # One shard, or the shared part of experts, is never a checkpoint by itself: it keeps its members, so that holes are told.
    alone = len(names) == 1 and not _numbers(names[0])[0] and not names[0].endswith(_SHARED)
    members = () if alone else tuple(folder.path / name for name in names)
    return Loose(
        path=path,
        names=names,
        judge=partial(_judge, folder, names, step=_step(base), members=members, short=short),
        step=_step(base),
        members=members,
    )


def _judge(
    folder: Folder, names: tuple[str, ...], *, step: int | None, members: tuple[object, ...], short: str | None
) -> Found:
    problems = headers.problems(folder, list(names))
    if not members:
        problems = [one.removeprefix(f"{names[0]}: ") for one in problems]
    else:
        problems += [*_holes(names), *([short] if short else [])]
    inside = told(folder, names[:1])
    rolls = step is None and not members
    judged = found(
        folder.path / names[0],
        FRAMEWORK,
        # In the last row of its `optimizer_history`.
        integers(folder, names[0], ("num_updates",)).get("num_updates") if rolls else step,
        problems,
        present=[Role.WEIGHTS, *inside.present],
        possible=_REST if inside.possible or Role.OPTIMIZER in inside.present else (),
        said="whole; all in one file" if not members else f"whole; {len(names)} shards",
        members=tuple(folder.path / name for name in names) if members else (),
        ranks={"shard": len(names)} if members else {},
    )
    return replace(judged, rolling=rolls)


def _holes(names: tuple[str, ...]) -> list[str]:
    """Holes in the grid of model parts × shards, or in either alone."""
    numbers = [tuple(_numbers(name)[0]) for name in names if not name.endswith(_SHARED)]
    if not numbers:
        return [f"{_SHARED} alone"]
    # `-model_part-<i>-shard<j>` has two numbers, `-shard<j>` one.
    widths = {len(one) for one in numbers}
    if len(widths) > 1:
        return ["shards of different kinds"]
    count = 1
    problems = []
    for axis in range(widths.pop()):
        seen = {one[axis] for one in numbers}
        count *= len(seen)
        problems.append(sets.holes("shard", seen))
    if count == 1:
        return [f"shard {numbers[0][0]} alone: shards come in several"]
    # Every number occurs on each axis, and yet a cell of the grid may be empty.
    said = [problem for problem in problems if problem]
    return said or ([f"{count - len(numbers)} of {count} shards missing"] if count > len(numbers) else [])


def _temporary(folder: Folder, name: str) -> Found:
    why = headers.broken(folder, name) or "its name says that it was not renamed yet"
    step = _step(name.removesuffix(".pt.tmp"))
    return temporary(folder.path / name, FRAMEWORK, step, why)
