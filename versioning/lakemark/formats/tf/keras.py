"""Keras 3 (keras-team/keras, `saving/saving_lib.py`, `callbacks/model_checkpoint.py`, `callbacks/backup_and_restore.py`).

One file per save, under its final name: `.keras` (a zip of `metadata.json`, `config.json`, `model.weights.h5`) or
`.weights.h5`; weights in shards are `X_<00000>.weights.h5`, and `X.weights.json`, written after each of them. Names are the
user's; a number in one is the epoch. Before Keras 3 a whole model is one HDF5 file, `.h5`. BackupAndRestore overwrites
`latest.weights.h5`, then `training_metadata.json`, and may keep the pair before as `….bkp`.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from lakemark.formats.readers.folder import Folder, Unreadable
from lakemark.formats.readers.headers import broken, problems
from lakemark.formats.rules.copies import copied_ns
from lakemark.formats.rules.family import Loose, OfFiles, found
from lakemark.formats.rules.metrics import of_name
from lakemark.formats.rules.sets import holes
from lakemark.formats.tf import keras_files
from lakemark.model.checkpoints.manifest import Role
from lakemark.ports import Found

FRAMEWORK: Final = "keras"
WEIGHTS: Final = "keras-weights"
# `*+` gives nothing back: a name of many numbers would else be tried in every way.
_EPOCH: Final = re.compile(
    r"(?:.*?(?:[-_.=]|(?<![A-Za-z])(?:e|ep|epoch|ckpt|checkpoint|cp|weights|step|iter)))?(?<!\d\.)(?<!\de-)"
    r"(\d{1,9})(?:[-_.](?:(?:[A-Za-z_]+[-_=]?)?-?\d+\.\d+(?:e[-+]?\d+)?|(?:[A-Za-z_]+=)?-?(?:nan|inf)))*+",
    re.ASCII | re.DOTALL,
)
_OF_TWO: Final = re.compile(r"(?P<head>.*?)(?P<epoch>\d{1,9})[-_.](?P<batch>\d{1,9})", re.ASCII | re.DOTALL)
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d|\d{8}", re.ASCII)
# Without a number only names that people give checkpoints; any `.keras` file may be a finished model.
_USUAL: Final = re.compile(
    r"(?:best|last|latest|model|weights|checkpoint|ckpt|cp)(?:[-_]\w+?)?(?:[-_]\d+\.\d+)?", re.ASCII
)
_OLD: Final = re.compile(r".*(?:weights|checkpoint|ckpt|epoch).*", re.ASCII | re.DOTALL)
# `ShardedH5IOStore` numbers them so.
_SHARD: Final = re.compile(r"(?P<stem>.+)_(?P<number>\d{5})\.weights\.h5", re.ASCII | re.DOTALL)
_SUFFIXES: Final = frozenset({"keras", "h5", "hdf5", "json", "bkp"})
_HDF5: Final = frozenset({"h5", "hdf5"})
_DIGITS: Final = re.compile(r"\d+", re.ASCII)
_LOOKED_INTO: Final = 4
_SINGLE: Final = (".keras", ".h5", ".hdf5")
_BACKUP: Final = "latest.weights.h5"
_TRAINING: Final = "training_metadata.json"
_LONGEST_MAP_BYTES: Final = 16 * 2**20


class Keras(OfFiles):
    """`keras` and `keras-weights`."""

    def loose(self, folder: Folder) -> Iterator[Loose]:
        if folder.suffixes.isdisjoint(_SUFFIXES):
            return
        whole = _whole_models(folder)
        epochs = _epochs_of_two(folder)
        for name in folder.files:
            if name.endswith(".weights.json"):
                yield _sharded(folder, name)
            elif name == _BACKUP and (folder.has_file(_TRAINING) or f"{name}.bkp" in folder.kinds):
                yield _backup(folder)
            elif name.endswith(_SINGLE):
                yield from _single(folder, name, whole, epochs)


def epoch(stem: str) -> int | None:
    """The number that a name says, before any numbers with a point; never a part of a date."""
    # `model-2026-11-29.keras`: the last number of a date looks as an epoch does.
    match = _EPOCH.fullmatch(stem)
    return int(match[1]) if match and not _DATE.search(stem) else None


def _metrics_in(stem: str) -> dict[str, float]:
    """What a name says by name after its epoch, `03-val_loss=0.72`. Of a bare number nobody knows what it measures."""
    match = _EPOCH.fullmatch(stem)
    # What stands before the number is the user's own, and would be taken for a part of the metric's name.
    return of_name(stem[match.end(1) :].lstrip("-_.")) if match and not _DATE.search(stem) else {}


def _by_epoch(one: Found) -> Found:
    return replace(one, counted=one.step is not None)


def _whole_models(folder: Folder) -> set[str]:
    """Names of HDF5 files, numbers aside, of which one of the first holds a whole model; nothing else tells these."""
    looked: dict[str, list[str]] = defaultdict(list)
    for name in folder.files if not folder.suffixes.isdisjoint(_HDF5) else ():
        stem, kind = _kind(name)
        if kind is None and name.endswith((".h5", ".hdf5")) and epoch(stem) is not None:
            looked[_DIGITS.sub("#", name)].append(name)
    # To open every HDF5 file of a folder of data takes long, and names that differ in numbers alone are alike inside.
    few = list(looked.items())[:_LOOKED_INTO]
    return {like for like, names in few if any(keras_files.is_model(folder, name) for name in names[:_LOOKED_INTO])}


def _epochs_of_two(folder: Folder) -> dict[str, int]:
    """Names that end in two numbers -> the first, where it is not always the same: an epoch, and a batch of it."""
    alike: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    for name in (name for name in folder.files if name.endswith(_SINGLE)):
        stem, _ = _kind(name)
        match = _OF_TWO.fullmatch(stem) if not stem.isdigit() and not _DATE.search(stem) else None
        if match:
            alike[match["head"], name.removeprefix(stem)][name] = int(match["epoch"])
    # `weights.05-40.h5` with 05 in every name is no epoch: then the second number is the one that moves on.
    several = [names for names in alike.values() if len(set(names.values())) > 1]
    return {name: number for names in several for name, number in names.items()}


def _single(folder: Folder, name: str, whole: Container[str], epochs: Mapping[str, int]) -> Iterator[Loose]:
    stem, kind = _kind(name)
    if kind is None and _DIGITS.sub("#", name) in whole:
        kind = FRAMEWORK
    shard = _SHARD.fullmatch(name)
    if kind is None:
        return
    if shard:
        # Shards without an index: spoken of once, at the first.
        if not folder.has_file(f"{shard['stem']}.weights.json") and shard["number"] == "00000":
            yield _sharded(folder, f"{shard['stem']}.weights.json")
        return
    # Without an epoch and a usual name it is somebody's finished model.
    step = epochs.get(name, epoch(stem))
    if step is not None or _USUAL.fullmatch(stem):
        judge = partial(_judged, folder, name, kind, step)
        yield Loose(path=folder.path / name, names=(name,), step=step, judge=judge)


def _kind(name: str) -> tuple[str, str | None]:
    """The name without its suffix, and the framework; None where it is some other HDF5 file."""
    for suffix, kind in ((".keras", FRAMEWORK), (".weights.h5", WEIGHTS)):
        if name.endswith(suffix):
            return name.removesuffix(suffix), kind
    stem = name.rpartition(".")[0]
    return stem, WEIGHTS if _OLD.fullmatch(stem) and epoch(stem) is not None else None


def _judged(folder: Folder, name: str, kind: str, step: int | None) -> Found:
    why = broken(folder, name)
    whole = kind == FRAMEWORK
    roles, odd = keras_files.roles_in(folder, name) if why is None else (keras_files.ASSUMED[whole], None)
    wrong = [text for text in (why, odd) if text]
    judged = found(
        folder.path / name,
        kind,
        step,
        wrong,
        roles={name: "weights"},
        present=sorted(roles.present),
        possible=sorted(roles.possible),
    )
    return replace(_by_epoch(judged), metrics=_metrics_in(_kind(name)[0]))


def _sharded(folder: Folder, index: str) -> Loose:
    stem = index.removesuffix(".weights.json")
    shards = [name for name in folder.files if (match := _SHARD.fullmatch(name)) and match["stem"] == stem]
    names = (*([index] if folder.has_file(index) else []), *shards)
    step = epoch(stem)
    judge = partial(_judged_shards, folder, index, shards, step)
    members = tuple(folder.path / name for name in names)
    return Loose(path=folder.path / index, names=names, members=members, step=step, judge=judge)


def _judged_shards(folder: Folder, index: str, shards: Sequence[str], step: int | None) -> Found:
    wrong, weights = problems(folder, list(shards)), {}
    try:
        value: Any = json.loads(folder.text(index, longest_bytes=_LONGEST_MAP_BYTES))
        weights = {str(key): files for key, files in value["weight_map"].items()}
        # A large variable may be spread over several shards.
        named = {file for files in weights.values() for file in ([files] if isinstance(files, str) else files)}
        wrong += [f"{name} is missing" for name in sorted(map(str, named)) if name not in shards]
        # The index is written anew after each shard: one that it does not name was added after it.
        wrong += [f"{index} does not name {name} yet" for name in shards if name not in named]
        wrong += _short_of_total(folder, shards, value.get("metadata"))
    except Unreadable as error:
        wrong.append(f"{index}: {error}")
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        wrong.append(f"{index}: JSON empty, cut or damaged")
    hole = holes("shards", (int(match["number"]) for name in shards if (match := _SHARD.fullmatch(name))))
    wrong += [hole] if hole else []
    optimizer = any(key.lstrip("/").startswith("optimizer") for key in weights)
    members = [folder.path / name for name in (index, *shards) if folder.has_file(name)]
    judged = _by_epoch(
        found(
            folder.path / index,
            WEIGHTS,
            step,
            wrong,
            roles=dict.fromkeys(shards, "weights") | ({index: "config"} if folder.has_file(index) else {}),
            present=["weights", *(["optimizer"] if optimizer else [])],
            # Where the index names no variable of an optimizer there is none.
            possible=[] if weights and not optimizer else [Role.OPTIMIZER, Role.SCHEDULER, Role.RNG],
            members=members,
        )
    )
    return replace(judged, metrics=_metrics_in(index.removesuffix(".weights.json")))


def _short_of_total(folder: Folder, shards: Sequence[str], metadata: object) -> Iterator[str]:
    """After each shard but the last the total counts the first weights of the next one too."""
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    have = sum(folder.size_bytes(name) for name in shards)
    if isinstance(total, int | float) and have < total:
        yield f"the shards have {have} bytes of {str(total)[:24]}"


def _backup(folder: Folder) -> Loose:
    """One checkpoint of two files; what was kept of the one before it is accounted for and left alone."""
    names = [name for name in (_BACKUP, _TRAINING) if folder.has_file(name)]
    kept = [f"{name}.bkp" for name in (_BACKUP, _TRAINING) if folder.has_file(f"{name}.bkp")]
    step, _ = _trained(folder)
    judge = partial(_judged_backup, folder, names, notes=[f"{name} is of the backup before it" for name in kept])
    members = tuple(folder.path / name for name in names)
    path = folder.path / _BACKUP
    return Loose(path=path, names=(*names, *kept), members=members, step=step, judge=judge)


def _judged_backup(folder: Folder, names: Sequence[str], *, notes: Sequence[str]) -> Found:
    step, why = _trained(folder)
    broke = broken(folder, _BACKUP)
    wrong = [f"{name}: {text}" for name, text in ((_BACKUP, broke), (_TRAINING, why)) if text]
    # Overwritten in place in this order: newer weights with the old metadata are a backup that was cut between both.
    wrong += [] if wrong or not _is_newer(folder) else [f"{_TRAINING} is of the backup before, {_BACKUP} is newer"]
    roles, _ = keras_files.roles_in(folder, _BACKUP) if broke is None else (keras_files.ASSUMED[False], None)
    return _by_epoch(
        found(
            folder.path / _BACKUP,
            WEIGHTS,
            step,
            wrong,
            roles={name: "weights" if name == _BACKUP else "trainer" for name in names},
            present=sorted(roles.present),
            possible=sorted(roles.possible),
            members=[folder.path / name for name in names],
            notes=notes,
        )
    )


def _is_newer(folder: Folder) -> bool:
    """Whether the weights were written well after what is written after them."""
    try:
        weights, said = folder.stat(_BACKUP), folder.stat(_TRAINING)
    except Unreadable:
        return False
    # The weights come first, so in a whole backup they are older; a copy is allowed the time that it takes.
    return weights.st_mtime_ns > said.st_mtime_ns + copied_ns(weights.st_size)


def _trained(folder: Folder) -> tuple[int | None, str | None]:
    """The epochs that were finished; None in the middle of one, which has no number of its own. And what is wrong."""
    if not folder.has_file(_TRAINING):
        return None, "it is missing"
    try:
        value = json.loads(folder.text(_TRAINING))
        batch, done = int(value.get("batch", 0)), int(value["epoch"])
    except Unreadable as error:
        return None, str(error)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, OverflowError):
        return None, "JSON empty or cut"
    # In the middle of an epoch two backups of it would have the same number.
    return (done if batch == 0 and done >= 0 else None), None
