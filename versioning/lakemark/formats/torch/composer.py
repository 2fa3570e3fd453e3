"""Composer: files `ep<e>-ba<b>-rank<r>.pt`, or a DCP folder `ep<e>-ba<b>/` where the model is sharded."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from typing import Final

from lakemark.formats.readers import headers
from lakemark.formats.readers.folder import Folder, Unreadable
from lakemark.formats.readers.torch_file import told
from lakemark.formats.rules import sets
from lakemark.formats.rules.contents import Contents
from lakemark.formats.rules.family import Loose, found, pointer
from lakemark.formats.torch import sharded
from lakemark.model.checkpoints.manifest import Role
from lakemark.ports import Found

FRAMEWORK: Final = "composer"
SHARDED: Final = "composer-fsdp"
_FILE: Final = re.compile(r"(?P<base>(?:ep\d{1,9}-)?ba(?P<step>\d{1,15}))(?:-rank(?P<rank>\d{1,7}))?\.pt", re.ASCII)
_FOLDER: Final = re.compile(r"(?:ep\d{1,9}-)?ba(\d{1,15})", re.ASCII)
_REMOTE_POINTER: Final = re.compile(r"latest-rank\d{1,7}\.pt\.symlink", re.ASCII)
_COPY: Final = re.compile(r"latest-rank(\d{1,7})\.pt", re.ASCII)
_REST: Final = (Role.OPTIMIZER, Role.SCHEDULER, Role.RNG, Role.DATALOADER, Role.TRAINER)
_LONGEST_POINTER_BYTES: Final = 4096


class Composer:
    """`composer/callbacks/checkpoint_saver.py` and `composer/checkpoint` of 0.12 to 0.32.

    Default names, with or without rank and epoch. A file holds `state` (model, optimizers, schedulers, dataset_state, …) and
    `rng`. Old sharded saves have one for each rank: together they are one checkpoint, spoken of by what their names share.
    `latest-rank<r>.pt` is a link to the file, or to the folder, and a copy where somebody copied what it names; for object
    stores a text file `latest-rank<r>.pt.symlink` that names it.
    """

    def claims(self, folder: Folder) -> bool:
        if _FOLDER.fullmatch(folder.name) is None:
            return False
        return "distcp" in folder.suffixes or folder.has_file(".metadata")

    def step(self, folder: Folder) -> int | None:
        match = _FOLDER.fullmatch(folder.name)
        return int(match[1]) if match else None

    def judge(self, folder: Folder) -> Found:
        contents = Contents(folder)
        sharded.add(contents)
        contents.check()
        return contents.found(SHARDED, self.step(folder))

    def loose(self, folder: Folder) -> Iterator[Loose]:
        if "pt" in folder.suffixes:
            ranks: dict[tuple[str, int], dict[int, str]] = defaultdict(dict)
            for name in folder.files:
                # The pattern is not tried on each of the many names of a strange folder.
                match = _FILE.fullmatch(name) if name.startswith(("ep", "ba")) else None
                if match:
                    ranks[match["base"], int(match["step"])][int(match["rank"] or 0)] = name
            rows = sorted(ranks.items(), key=lambda row: (row[0][1], row[0][0]))
            # How many ranks there are nothing says but the steps beside it.
            counts = [len(names) for _, names in rows]
            for at, ((base, step), names) in enumerate(rows):
                short = sets.fewer("ranks", counts, at)
                # One rank in every step: the run saves one file, and each is spoken of by its own name.
                yield _loose(folder, base, step, names, alone=max(counts) == 1, short=short)
            # Only files: a link is told of as a pointer. A copy is a whole checkpoint, whose step its name does not say.
            copies = {int(match[1]): match[0] for name in folder.files if (match := _COPY.fullmatch(name))}
            if copies:
                yield _loose(folder, copies[min(copies)], None, copies, alone=len(copies) == 1, short=None)
        if "symlink" in folder.suffixes:
            for name in (name for name in folder.files if _REMOTE_POINTER.fullmatch(name)):
                yield Loose(path=folder.path / name, names=(name,), judge=partial(_pointer, folder, name))


def _loose(
    folder: Folder, base: str, step: int | None, ranks: dict[int, str], *, alone: bool, short: str | None
) -> Loose:
    names = tuple(ranks[rank] for rank in sorted(ranks))
    path = folder.path / (names[0] if alone else base)
    return Loose(
        path=path,
        names=names,
        judge=partial(_judge, folder, path.name, step=step, ranks=dict(ranks), alone=alone, short=short),
        step=step,
        members=() if alone else tuple(folder.path / name for name in names),
    )


def _judge(
    folder: Folder, name: str, *, step: int | None, ranks: dict[int, str], alone: bool, short: str | None
) -> Found:
    names = [ranks[rank] for rank in sorted(ranks)]
    problems = headers.problems(folder, names)
    hole = sets.holes("rank", ranks) or short
    if alone:
        problems = [one.removeprefix(f"{names[0]}: ") for one in problems]
        # A single file of another rank than the first is what is left of several.
        hole = None if min(ranks) == 0 else f"rank {min(ranks)} only"
    inside = told(folder, names[:1])
    return found(
        folder.path / name,
        FRAMEWORK,
        step,
        [*problems, *([hole] if hole else [])],
        # Under `state` the model comes first and is long: what comes after it may not have been read.
        present=[Role.WEIGHTS, *inside.present],
        possible=_REST if inside.possible or not inside.present else sorted(inside.possible),
        said="whole; all in one file" if alone else f"whole; {len(names)} ranks",
        members=() if alone else tuple(folder.path / one for one in names),
        ranks={"rank": len(ranks)},
    )


def _pointer(folder: Folder, name: str) -> Found:
    try:
        target = folder.text(name, longest_bytes=_LONGEST_POINTER_BYTES).strip()
    except (Unreadable, OSError) as error:
        return pointer(folder.path / name, "", why=str(error))
    return pointer(folder.path / name, target)
