"""Megatron-LM and Megatron-core: `iter_<7 digits>/` or `release/`, and a tracker file beside them."""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache, partial
from math import lcm
from typing import Final

from lakemark.formats.readers import torch_file, zarr
from lakemark.formats.readers.folder import Folder, Unreadable
from lakemark.formats.readers.torch_numbers import integers
from lakemark.formats.rules import numbered, sets
from lakemark.formats.rules.contents import Contents
from lakemark.formats.rules.copies import copied_ns
from lakemark.formats.rules.family import Loose, pointer
from lakemark.formats.rules.unfinished import left_over
from lakemark.formats.torch import sharded
from lakemark.formats.torch.lightning import UNFINISHED
from lakemark.model.checkpoints.manifest import Role
from lakemark.ports import Found

DISTRIBUTED: Final = "megatron-dist"
LEGACY: Final = "megatron-legacy"
TRACKER: Final = "latest_checkpointed_iteration.txt"
CONFIG: Final = "metadata.json"
COMMON: Final = "common.pt"
INTEGRITY: Final = "integrity.json"
RELEASE: Final = "release"
_STARTED: Final = (".metadata", ".metadata.tmp", COMMON)
# Padded to seven digits: beyond ten million iterations there are more.
_NAME: Final = re.compile(r"iter_(\d{7,15})", re.ASCII)
# NeMo's folders, which hold Megatron-core's as `weights/`.
_OF_OTHERS: Final = re.compile(r".+-step=\d.*", re.ASCII | re.DOTALL)
_RANK: Final = re.compile(r"mp_rank_(?P<tp>\d{2,4})(?:_(?P<second>\d{3,4}))?(?:_(?P<third>\d{3,4}))?", re.ASCII)
_MODEL: Final = re.compile(r"mp_rank_[\d_]+/(?:model_optim_rng|model_rng)\.pt", re.ASCII)
_OPTIMIZER: Final = re.compile(r"mp_rank_[\d_]+/(?:distrib_optim|optim|layer_wise_optimizer_\d+)\.pt", re.ASCII)
_LAYER_WISE: Final = re.compile(r"mp_rank_[\d_]+/layer_wise_optimizer_(\d{1,7})\.pt", re.ASCII)
_RNG: Final = re.compile(r"rng_state/shard_[\d.]+_[\d.]+\.pt", re.ASCII)
_DATALOADER: Final = re.compile(r"(?:mp_rank_[\d_]+/)?train_dataloader_dprank(?P<rank>\d{3,7})\.pt", re.ASCII)
_SPLIT: Final = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "expert_model_parallel_size")
_SPLIT_OF_EXPERTS: Final = "expert_tensor_parallel_size"
# The sizes it bounds come from a file: a hostile one must not be counted to.
_MOST_RANKS: Final = 1 << 16
_OBJECT: Final = "/shard_"
"""In the name of what is no tensor, in the DCP files of torch_dist alone."""
_ARRAY: Final = zarr.METADATA[0]
_LONGEST_BYTES: Final = 64 * 2**20


class Megatron:
    """`megatron/training/checkpointing.py` and `core/dist_checkpointing` of Megatron-LM 2020 to 2026-08.

    torch_dist: DCP files, `common.pt` (up to core 0.16; later a part of the DCP files), then `.metadata`, then
    `metadata.json`; torch_dcp and fsdp_dtensor: DCP files alone; zarr: folders and `metadata.json`. legacy: a folder
    `mp_rank_<tp>[_<pp>][_<ep>]` per model rank. The tracker `latest_checkpointed_iteration.txt` is written last and not
    atomically; the tokenizer's files come after it. Energon's loader states may have a folder of their own. NeMo 1 gives
    such folders names of its own, and a file `<name>-unfinished` beside one that is not done.
    """

    def claims(self, folder: Folder) -> bool:
        named = _NAME.fullmatch(folder.name) is not None or folder.name == RELEASE
        # legacy: the folders of ranks are made first, so even empty ones say what this is.
        if named and any(_RANK.fullmatch(name) for name in folder.folders):
            return True
        if folder.has_file(CONFIG) and (folder.has_file(".metadata") or folder.has_file(COMMON)):
            return not left_over(folder.name)
        # zarr: folders of arrays, and this config. A folder called `release` may have a metadata.json of anything.
        if named and folder.has_file(CONFIG) and folder.name != RELEASE:
            return True
        return named and any(name in _STARTED or name.endswith(".distcp") for name in folder.files)

    def step(self, folder: Folder) -> int | None:
        match = _NAME.fullmatch(folder.name)
        return int(match[1]) if match else numbered.of_tag(folder.name)

    def judge(self, folder: Folder) -> Found:
        contents = Contents(folder)
        # Energon's loader keeps `mp_rank_*` in a distributed checkpoint as well.
        legacy = any(_RANK.fullmatch(name) for name in folder.folders) and not folder.has_file(".metadata")
        if legacy:
            _add_legacy(contents)
        else:
            add(contents)
        contents.check()
        # NeMo 1. The parent is not listed for it: a run may have thousands of steps.
        if folder.parent.is_file(folder.name + UNFINISHED):
            contents.problems.append(f"{folder.name}{UNFINISHED} lies beside it")
        return contents.found(LEGACY if legacy else DISTRIBUTED, self.step(folder))

    def loose(self, folder: Folder) -> Iterator[Loose]:
        if folder.has_file(TRACKER):
            yield Loose(path=folder.path / TRACKER, names=(TRACKER,), judge=partial(_tracker, folder))


def add(contents: Contents, inside: str = "") -> None:
    """Judges a distributed checkpoint: the folder itself, or the folder `inside` of another framework's checkpoint."""
    prefix = f"{inside}/" if inside else ""
    names = {name.removeprefix(prefix) for name in contents.files if name.startswith(prefix)}
    backend = _config(contents, prefix, names)
    if backend == "zarr":
        _add_arrays(contents, prefix, names)
    else:
        metadata = sharded.add(contents, inside)
        _check_config(contents, prefix, names, listed=frozenset(metadata.names if metadata else ()))
        # A lost `common.pt` would else pass for one of the layout since 2026, which has none.
        if backend == "torch_dist" and metadata and not _has_common(names, metadata.names):
            contents.problems.append(f"no {prefix}{COMMON}")
    if COMMON in names:
        _add_common(contents, f"{prefix}{COMMON}")
        contents.problems.extend(_rewritten(contents.folder, prefix, names))
    contents.roles.update({f"{prefix}{name}": Role.DATALOADER for name in names if _DATALOADER.fullmatch(name)})
    contents.roles.update({f"{prefix}{name}": Role.CONFIG for name in names if _is_config(name)})
    contents.roles.update({f"{prefix}{name}": Role.TRAINER for name in names if name == "train_state.pt"})
    contents.roles.update({f"{prefix}{name}": Role.RNG for name in names if _RNG.fullmatch(name)})
    _add_other_parts(contents, inside)
    # Then they lie where no name tells of them.
    if COMMON not in names or backend == "zarr":
        contents.possible.update((Role.SCHEDULER, Role.RNG))
    _check_loaders(contents, names)
    if INTEGRITY in names:
        _check_integrity(contents, prefix, names)


def _add_arrays(contents: Contents, prefix: str, names: set[str]) -> None:
    """A folder each. Their chunks are not compressed, and those of zeros are stored as well."""
    inside: dict[str, list[str]] = defaultdict(list)
    for name in names:
        inside[name.partition("/")[0]].append(name)
    arrays = [at for at in sorted(inside) if f"{at}/{_ARRAY}" in names]
    if not arrays:
        contents.problems.append(f"no {prefix}*/{_ARRAY}")
    for at in arrays:
        files = sorted(f"{prefix}{name}" for name in inside[at])
        # An array's name is its key in the state: `optimizer.state.exp_avg.…`.
        contents.roles.update(dict.fromkeys(files, Role.OPTIMIZER if at.startswith("optimizer") else Role.WEIGHTS))
        metadata = f"{prefix}{at}/{_ARRAY}"
        chunks = [name for name in files if name != metadata]
        contents.problems.extend(zarr.problems(contents.folder, metadata, chunks, full=True))


def _add_common(contents: Contents, name: str) -> None:
    """What is in it besides arguments and counters: the schedule, in old ones the random numbers' state."""
    said = torch_file.read(contents.folder, name)
    inside = torch_file.roles(said).present
    contents.roles[name] = Role.SCHEDULER if said is None or Role.SCHEDULER in inside else Role.TRAINER
    # It has the words of the weights and the optimizer as well, but only of their arguments.
    contents.present.update(inside & {Role.SCHEDULER, Role.RNG})
    if said is None or not said.whole:
        contents.possible.update((Role.SCHEDULER, Role.RNG))


def _rewritten(folder: Folder, prefix: str, names: set[str]) -> Iterator[str]:
    """A save to the same place begins with the common part and leaves the old config until its end."""
    try:
        written = {name: folder.stat(f"{prefix}{name}") for name in names}
    except Unreadable:
        return  # said of the file itself
    if CONFIG in written:
        # A copy that keeps no times writes the one long after the other.
        apart_ns = copied_ns(sum(one.st_size for one in written.values()))
        if written[COMMON].st_mtime_ns > written[CONFIG].st_mtime_ns + apart_ns:
            yield f"{prefix}{COMMON} newer than {CONFIG} (overwrite in place?)"


def _add_other_parts(contents: Contents, inside: str) -> None:
    """Checkpoints in it that are saved after it, such as ModelOpt's."""
    folder = Folder(f"{contents.folder.at}/{inside}") if inside else contents.folder
    for part in folder.folders:
        if "distcp" in folder.sub(part).suffixes:
            sharded.add(contents, f"{inside}/{part}".lstrip("/"), role=Role.OTHER)


def _is_config(name: str) -> bool:
    return name == CONFIG or name.startswith("tokenizer/") or name.endswith((".yaml", ".yml"))


def _config(contents: Contents, prefix: str, names: set[str]) -> str:
    """The backend that `metadata.json` names; empty where it says nothing."""
    if CONFIG not in names:
        return ""
    try:
        said = json.loads(contents.folder.text(f"{prefix}{CONFIG}", longest_bytes=_LONGEST_BYTES))
    except (Unreadable, ValueError, RecursionError):
        contents.problems.append(f"{prefix}{CONFIG} empty or cut")
        return ""
    backend = said.get("sharded_backend") if isinstance(said, dict) else None
    return backend if isinstance(backend, str) else ""


def _check_config(contents: Contents, prefix: str, names: set[str], *, listed: frozenset[str]) -> None:
    """`metadata.json` comes after `.metadata` in torch_dist; the other two formats have none, and no common part."""
    if CONFIG not in names and (COMMON in names or any(_OBJECT in name for name in listed)):
        contents.problems.append(f"no {prefix}{CONFIG}")
    elif CONFIG not in names and _siblings_have_config(contents.folder, prefix):
        contents.problems.append(f"no {prefix}{CONFIG}, and its siblings have one")


def _has_common(names: set[str], listed: Collection[str]) -> bool:
    """What is no tensor: a file of its own, or since 2026 a part of the DCP data."""
    return COMMON in names or any(name.startswith("common_state") for name in listed)


def _siblings_have_config(folder: Folder, prefix: str) -> bool:
    """prefix: in another framework's checkpoint, whose folders have other names."""
    parent = folder.parent
    try:
        changed_ns = os.lstat(parent.at).st_mtime_ns
    except OSError:
        return False
    # A save that was cut before `metadata.json` looks as torch_dcp's and fsdp_dtensor's do, which have none: the run tells.
    siblings = (name for name in _newest(parent.at, changed_ns, _OF_OTHERS if prefix else _NAME) if name != folder.name)
    return any(Folder(f"{parent.at}/{name}").is_file(f"{prefix}{CONFIG}") for name in siblings)


@lru_cache(maxsize=16)
def _newest(at: str, changed_ns: int, like: re.Pattern[str]) -> tuple[str, ...]:  # noqa: ARG001 - names until it changes
    """The last steps in a folder: not listed again for each of them."""
    # The highest, as numbers are padded; a run writes one format, so a few are enough.
    return tuple(name for name in Folder(at).folders if like.fullmatch(name))[-4:]


def _check_integrity(contents: Contents, prefix: str, names: set[str]) -> None:
    contents.roles[f"{prefix}{INTEGRITY}"] = Role.CONFIG
    try:
        said = json.loads(contents.folder.text(f"{prefix}{INTEGRITY}", longest_bytes=_LONGEST_BYTES))
    except (Unreadable, ValueError, RecursionError):
        return  # said with the headers
    files = said.get("files") if isinstance(said, dict) else None
    listed = [name for name in files if isinstance(name, str)] if isinstance(files, dict) else []
    # Names alone: a look reads headers; every byte is read and hashed by the commit.
    contents.problems.extend(f"{prefix}{name} missing, {INTEGRITY} names it" for name in listed if name not in names)


def _check_loaders(contents: Contents, names: set[str]) -> None:
    ranks = {int(match["rank"]) for name in names if (match := _DATALOADER.fullmatch(name))}
    if ranks:
        contents.ranks["train_dataloader_dprank"] = len(ranks)
        hole = sets.holes("train_dataloader_dprank", ranks)
        if hole:
            contents.problems.append(hole)


def _add_legacy(contents: Contents) -> None:
    names = contents.files
    for name in names:
        if _MODEL.fullmatch(name):
            contents.roles[name] = Role.WEIGHTS
        elif _OPTIMIZER.fullmatch(name):
            contents.roles[name] = Role.OPTIMIZER
        elif _DATALOADER.fullmatch(name):
            contents.roles[name] = Role.DATALOADER
    _check_loaders(contents, set(names))
    layers = {int(match[1]) for name in names if (match := _LAYER_WISE.fullmatch(name))}
    hole = sets.holes("layer_wise_optimizer", layers)
    contents.problems.extend([hole] if hole else [])
    models = sorted(name.partition("/")[0] for name in names if _MODEL.fullmatch(name))
    if not models:
        lone = contents.has(Role.DATALOADER)
        contents.problems.append("no weights: the loader's state alone" if lone else "no model_optim_rng.pt")
        return
    # `model_optim_rng.pt` holds them, as its name says of the first.
    contents.present.update((Role.RNG, Role.SCHEDULER))
    if not contents.has(Role.OPTIMIZER):
        contents.possible.add(Role.OPTIMIZER)
    folders = sorted(name for name in contents.folder.folders if _RANK.fullmatch(name))
    contents.ranks["mp_rank"] = len(models)
    # Every rank's file has the same arguments.
    first = next(name for name in names if _MODEL.fullmatch(name))
    said = integers(contents.folder, first, (*_SPLIT, _SPLIT_OF_EXPERTS))
    # Where experts are split over other ranks than the rest is, the grid of names has holes that are right.
    contents.problems.extend([] if said.get(_SPLIT_OF_EXPERTS) not in (None, said.get(_SPLIT[0])) else _grid(models))
    contents.problems.extend(_split(said, len(models), first) if _SPLIT[0] in said else [])
    contents.problems.extend(_uneven(names, folders, models))
    contents.ranks_told = _SPLIT[0] in said
    contents.notes.append("world layout cannot be known from names alone")


def _grid(models: Sequence[str]) -> list[str]:
    """Holes in tensor × pipeline × expert ranks."""
    ranks = [tuple(int(one) for one in match.groups() if one) for name in models if (match := _RANK.fullmatch(name))]
    # Pipeline and expert ranks are in the names of all or of none.
    if len({len(one) for one in ranks}) > 1:
        return ["mp_rank: folders of different kinds"]
    count = 1
    for axis in range(len(ranks[0])):
        seen = {one[axis] for one in ranks}
        hole = sets.holes("mp_rank", seen)
        if hole:
            return [hole]
        count *= len(seen)
    return [f"mp_rank: {count - len(ranks)} of {count} missing"] if count > len(ranks) else []


def _uneven(names: Sequence[str], folders: Sequence[str], models: Sequence[str]) -> list[str]:
    """Every model rank writes the same files; a folder with its optimizer alone is one that is being written."""
    inside: dict[str, set[str]] = defaultdict(set)
    for name in names:
        if _MODEL.fullmatch(name) or name.endswith("/distrib_optim.pt"):
            folder, _, file = name.partition("/")
            inside[folder].add(file)
    # What one rank has, each has: the optimizer's file is written by all of them or none.
    wanted = set().union(*inside.values()) if inside else set()
    problems = [
        f"{folder}: no {', '.join(sorted(wanted - inside[folder]))}" for folder in folders if wanted - inside[folder]
    ]
    return problems if len(models) > 1 or len(folders) > len(models) else []


def _split(said: dict[str, int], have: int, file: str) -> list[str]:
    """Experts may be split otherwise than the rest: then not every tensor rank meets every expert rank."""
    tensor, pipeline, expert = (max(said.get(name, 1), 1) for name in _SPLIT)
    inner = max(said.get(_SPLIT_OF_EXPERTS, tensor), 1)
    # After so many ranks the pairs of tensor and expert rank come again.
    ranks = lcm(tensor, inner * expert)
    met = {(rank % tensor, rank // inner % expert) for rank in range(min(ranks, _MOST_RANKS))}
    wanted = pipeline * len(met)
    return [f"{have} of {wanted} model ranks, as {file} says"] if wanted > have else []


def _tracker(folder: Folder) -> Found:
    try:
        target = folder.text(TRACKER, longest_bytes=4096).strip()
    except (Unreadable, OSError) as error:
        return pointer(folder.path / TRACKER, "", why=str(error))
    # `release`, or what is left of one that was cut while it was overwritten, says no iteration.
    step = int(target) if re.fullmatch(r"[0-9]{1,15}", target) else None
    return pointer(folder.path / TRACKER, target, step=step)
