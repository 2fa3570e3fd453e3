"""Lightning: one file `epoch=0-step=8-val_loss=1.41.ckpt` with everything, or a folder of such a name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Final

from lakemark.formats.readers import headers
from lakemark.formats.readers.folder import Folder, Unreadable
from lakemark.formats.readers.torch_file import told
from lakemark.formats.readers.torch_numbers import integers
from lakemark.formats.rules import numbered, sets
from lakemark.formats.rules.contents import Contents
from lakemark.formats.rules.family import Loose, found
from lakemark.formats.rules.metrics import of_name
from lakemark.formats.rules.unfinished import before_renaming, left_over
from lakemark.formats.torch import deepspeed, sharded
from lakemark.model.checkpoints.manifest import Role
from lakemark.ports import Found

FRAMEWORK: Final = "lightning"
META: Final = "meta.pt"
UNFINISHED: Final = "-unfinished"
_AVERAGED: Final = "-EMA"
_SUFFIX: Final = ".ckpt"
_STEP: Final = re.compile(r"(?:^|.*[-_.])(?:global_)?step=?(?P<step>\d{1,15})(?:[-_].*)?\.ckpt", re.ASCII | re.DOTALL)
_NAMED: Final = re.compile(
    r".*(?:^|[-_.,])[\w.@ -]{1,80}=-?[\d.]+(?:e[-+]?\d+)?(?:[-_.].*)?\.ckpt"  # epoch=0-val_loss=1.41
    r"|.*(?:^|[-_])(?:epoch|step)[-_]?\d{1,15}(?:[-_.].*)?\.ckpt"
    r"|(?:last|best|final)(?:-v\d+)?\.ckpt|.+-last(?:-v\d+)?\.ckpt|hpc_ckpt_\d+\.ckpt|on_exception\.ckpt",
    re.ASCII | re.DOTALL,
)
_COPY: Final = re.compile(
    r"(?:last|best|final)(?:-v\d+)?\.ckpt|.+-last(?:-v\d+)?\.ckpt|on_exception\.ckpt", re.ASCII | re.DOTALL
)
_XLA: Final = re.compile(r"checkpoint_rank-\d+-of-\d+\.pth", re.ASCII)
_VERSION: Final = b"pytorch-lightning_version"
# `data.pkl` is the first member of torch's zip and begins with the first keys of the dict.
_BEGINNING_BYTES: Final = 4096
_IN_ONE: Final = (Role.WEIGHTS, Role.OPTIMIZER, Role.SCHEDULER, Role.RNG, Role.DATALOADER, Role.TRAINER)


class Lightning:
    """`ModelCheckpoint` of lightning 1.6 to 2.6, and NeMo 1's.

    A file is a zip of `torch.save`, renamed where the temporary folder is on the same file system and copied where it is
    not: then half of it may lie under the final name. FSDP and model-parallel strategies write a folder with DCP files and
    `meta.pt` last, DeepSpeed's a folder with the tag `checkpoint`, XLA's one with `checkpoint_rank-<r>-of-<w>.pth`.
    A file whose name a user's template made is known by how it begins. `last.ckpt` is a copy or a link. A metric's name with
    `/` makes folders. NeMo's `<name>-unfinished` beside it says that it is not done, and `<name>-EMA.ckpt` belongs to it.
    """

    def claims(self, folder: Folder) -> bool:
        # FSDP's folder, whatever a user's template called it: `meta.pt` beside DCP files is nobody else's.
        if folder.has_file(META) and (
            folder.has_file(".metadata") or any(name.endswith(".distcp") for name in folder.files)
        ):
            return not left_over(folder.name)
        return folder.name.endswith(_SUFFIX) and (
            _STEP.fullmatch(folder.name) is not None
            or _NAMED.fullmatch(folder.name) is not None
            or folder.has_file(META)
            or folder.has_file(".metadata")
            or folder.has_file("zero_to_fp32.py")
            or any(_XLA.fullmatch(name) or name.endswith(".distcp") for name in folder.files)
        )

    def step(self, folder: Folder) -> int | None:
        step = _step(folder.name)
        return step if step is not None else numbered.of_tag(folder.name.removesuffix(_SUFFIX))

    def judge(self, folder: Folder) -> Found:
        contents = Contents(folder)
        # DeepSpeed's strategy calls the tag `checkpoint`; `latest` beside it is a part of this checkpoint, and no run's pointer.
        states = [name for name in folder.folders if deepspeed.holds_states(folder.sub(name))]
        ranks = [name for name in folder.files if _XLA.fullmatch(name)]
        for inside in states:
            deepspeed.add_tag(contents, inside)
        if ranks:
            contents.roles.update(dict.fromkeys(ranks, Role.WEIGHTS))
            # XLA keeps everything of a rank in its file.
            contents.possible.update((Role.OPTIMIZER, Role.SCHEDULER, Role.RNG))
            contents.problems.extend(sets.short_of(ranks))
        elif not states:
            _sharded(contents)
        contents.check()
        judged = contents.found(FRAMEWORK, self.step(folder))
        return replace(judged, metrics=of_name(folder.name.removesuffix(_SUFFIX)))

    def loose(self, folder: Folder) -> Iterator[Loose]:
        for name in folder.files if "ckpt" in folder.suffixes else ():
            if not name.endswith(_SUFFIX) or before_renaming(name):
                continue
            if not (_STEP.fullmatch(name) or _NAMED.fullmatch(name) or _says_so(folder, name)):
                continue
            stem = name.removesuffix(_SUFFIX)
            # Of NeMo's averaged weights only those without the others are a checkpoint of their own.
            if stem.endswith(_AVERAGED) and folder.has_file(stem.removesuffix(_AVERAGED) + _SUFFIX):
                continue
            names = [name, *(one for one in (f"{stem}{_AVERAGED}{_SUFFIX}",) if folder.has_file(one))]
            members = tuple(folder.path / one for one in names) if len(names) > 1 else ()
            judge = partial(_file, folder, tuple(names))
            yield Loose(path=folder.path / name, names=tuple(names), judge=judge, step=_step(name), members=members)


def _says_so(folder: Folder, name: str) -> bool:
    """Whether a file of a user's own name begins as `dump_checkpoint` lets it: epoch, global_step, Lightning's version."""
    try:
        with folder.open(name) as stream:
            return _VERSION in stream.read(_BEGINNING_BYTES)
    except (Unreadable, OSError):
        return False


def _step(name: str) -> int | None:
    match = _STEP.fullmatch(name)
    return int(match["step"]) if match else None


_IN_PARENT: Final = re.compile(r"(?:.*[-_])?step=(?P<step>\d{1,15})-[^=]*", re.ASCII | re.DOTALL)


def _step_inside(folder: Folder, name: str) -> int | None:
    """A name that says no step: its other half where a metric's name has a `/`, else what the file itself says."""
    half = _IN_PARENT.fullmatch(folder.name)
    # `epoch=0-step=8-val/loss=1.41.ckpt`: the folder has the step, the file the rest of a metric's name.
    if half and "step" not in name:
        return int(half["step"])
    return integers(folder, name, ("global_step",)).get("global_step")


def _sharded(contents: Contents) -> None:
    sharded.add(contents)
    if META in contents.files:
        contents.roles[META] = Role.TRAINER
        contents.look_into([META])
    else:
        contents.problems.append(f"no {META} (written last)")


def _file(folder: Folder, names: tuple[str, ...]) -> Found:
    problems = headers.problems(folder, list(names))
    problems = [one.removeprefix(f"{names[0]}: ") for one in problems]
    mark = names[0].removesuffix(_SUFFIX) + UNFINISHED
    # Made before and removed after the save; the file itself may look whole before it is.
    if folder.has_file(mark):
        problems.append(f"{mark} lies beside it")
    inside = told(folder, names[:1])
    step = _step(names[0])
    rolls = step is None and _COPY.fullmatch(names[0]) is not None
    judged = found(
        folder.path / names[0],
        FRAMEWORK,
        step if step is not None else _step_inside(folder, names[0]),
        problems,
        # Where the keys can't be read: Lightning writes no checkpoint without a state_dict.
        present=sorted(inside.present) or [Role.WEIGHTS],
        possible=sorted(inside.possible) if inside.present else _IN_ONE,
        said="whole; all in one file",
        members=tuple(folder.path / name for name in names) if len(names) > 1 else (),
    )
    return replace(judged, metrics=of_name(names[0].removesuffix(_SUFFIX)), rolling=rolls)
