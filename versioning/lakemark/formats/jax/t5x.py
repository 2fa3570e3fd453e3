"""T5X (google-research/t5x, `checkpoints.py`, formats 2 and 3): a folder `checkpoint_<N>`, written as `….tmp-<seconds>`.

Small values lie in the msgpack file `checkpoint`, which is written last and names a folder for each array that is stored
apart, as Zarr: `target.…` is the model, `state.param_states.…` the optimizer's. `train_ds-<i>-of-<n>` is the dataset's
iterator of each host, `PINNED` keeps the step from being removed. Steps written by Orbax are Orbax's.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from lakemark.formats.readers import zarr
from lakemark.formats.readers.folder import Folder, NameKind, Unreadable
from lakemark.formats.readers.headers import broken
from lakemark.formats.readers.msgpack import outline
from lakemark.formats.rules.family import Loose, found, temporary
from lakemark.formats.rules.sets import short_of
from lakemark.formats.rules.unfinished import unfinished
from lakemark.model.checkpoints.manifest import Role
from lakemark.ports import Found

FRAMEWORK: Final = "t5x"
_NAME: Final = re.compile(r"(?:.*_)?(\d{1,18})(?P<tmp>\.tmp-\d+)?", re.ASCII | re.DOTALL)
_USUAL: Final = "checkpoint_"
_STATE: Final = "checkpoint"
_DATASET: Final = "train_ds"
_ITERATOR: Final = re.compile(r"train_ds-\d+-of-\d+\..+", re.ASCII)
_PINNED: Final = "PINNED"
_OF_ORBAX: Final = frozenset({"_CHECKPOINT_METADATA", "_METADATA", "manifest.ocdbt", "commit_success.txt"})
_SHOWN: Final = 3


class T5X:
    """`t5x`."""

    def claims(self, folder: Folder) -> bool:
        name = folder.name
        match = _NAME.fullmatch(name) if name[-1:].isdigit() else None
        if not match:
            return False
        # `<name>.tmp-<seconds>` without the usual prefix may be anybody's.
        if match["tmp"] and name.startswith(_USUAL):
            return True
        arrays = any(one.startswith(("target.", "state.param_states.")) for one in folder.folders)
        # The iterator of the dataset may come before the first array.
        begun = any(_ITERATOR.fullmatch(one) for one in folder.files) or {_STATE, _PINNED} <= set(folder.files)
        # T5X of later years saves through Orbax, under the same names.
        return (arrays or begun) and _OF_ORBAX.isdisjoint(folder.kinds)

    def step(self, folder: Folder) -> int | None:
        match = _NAME.fullmatch(folder.name)
        return int(match[1]) if match else None

    def judge(self, folder: Folder) -> Found:
        step = self.step(folder)
        match = _NAME.fullmatch(folder.name)
        names = list(folder.walk())
        files = [name for name, kind in names if kind is NameKind.FILE]
        roles = {name: str(_role(name)) for name in files}
        if match and match["tmp"]:
            return temporary(folder.path, FRAMEWORK, step, ".tmp-<ts> suffix", roles=roles)
        left = unfinished(files)
        problems = [
            *_state_problems(folder),
            *([f"unfinished files inside: {', '.join(left[:_SHOWN])}"] if left else []),
            *_array_problems(folder, files),
            *_dataset_problems(folder, files),
            *short_of(name for name in files if "/" not in name),
            *(f"{name}: {why}" for name in files if name.endswith(".json") and (why := broken(folder, name))),
            *([f"it can't be read: {folder.problem}"] if folder.problem else []),
        ]
        # It asks for the step to be kept, and is nothing that training needs.
        roles.pop(_PINNED, None)
        notes = [_PINNED] if folder.has_file(_PINNED) else []
        return found(
            folder.path,
            FRAMEWORK,
            step,
            problems,
            roles=roles,
            possible=(Role.SCHEDULER, Role.RNG),
            unfinished=left,
            notes=notes,
        )

    def loose(self, folder: Folder) -> Iterator[Loose]:  # noqa: ARG002 - its checkpoints are folders
        yield from ()


def _role(name: str) -> Role:
    if name.startswith("target."):
        return Role.WEIGHTS
    if name.startswith("state."):
        return Role.OPTIMIZER
    return Role.DATALOADER if name.startswith(_DATASET) else Role.OTHER


def _state_problems(folder: Folder) -> list[str]:
    """Of the msgpack file: cut, or an array that it names is not there."""
    if not folder.has_file(_STATE):
        return [f"no {_STATE}, which comes last"]
    try:
        with folder.open(_STATE) as stream:
            told = outline(stream, folder.size_bytes(_STATE))
    except (Unreadable, OSError) as error:
        return [f"{_STATE}: {error}"]
    if told.problem:
        return [f"{_STATE}: {told.problem}"]
    # A small model lies in the msgpack file itself.
    if not any(name.startswith("target.") for name in folder.folders) and not any("target" in key for key in told.keys):
        return ["no target, which is the model"]
    # Paths are of the place it was written at: only their last part is right here.
    named = {text.rstrip("/").rpartition("/")[2] for text in told.texts}
    missing = sorted(name for name in named if name.startswith(("target.", "state.")) and not folder.has_folder(name))
    return [f"{len(missing)} arrays missing: {', '.join(missing[:_SHOWN])}"] if missing else []


def _array_problems(folder: Folder, files: Iterable[str]) -> Iterator[str]:
    """Chunks of zeros alone are not written, so a missing one means nothing."""
    inside: dict[str, list[str]] = defaultdict(list)
    for name in files:
        inside[name.partition("/")[0]].append(name)
    for array in folder.folders:
        if not array.startswith(("target.", "state.")):
            continue
        metadata = f"{array}/{zarr.METADATA[0]}"
        if metadata in inside[array]:
            yield from zarr.problems(folder, metadata, [name for name in inside[array] if name != metadata])
        else:
            yield f"no {metadata}"


def _dataset_problems(folder: Folder, files: Iterable[str]) -> Iterator[str]:
    """TensorFlow's iterator state: an index, and data beside it."""
    own = sorted(name for name in files if name.startswith(_DATASET) and "/" not in name)
    for name in own:
        if ".data-" in name and f"{name.partition('.data-')[0]}.index" not in own:
            yield f"{name.partition('.data-')[0]}: no index"
        if name.endswith(".index") and not any(one.startswith(f"{name[:-6]}.data-") for one in own):
            yield f"{name[:-6]}: no data"
        # Not by its footer: an iterator's state is small, and an empty file is what a cut leaves.
        if name.endswith(".index") and not _has_bytes(folder, name):
            yield f"{name} is empty"


def _has_bytes(folder: Folder, name: str) -> bool:
    try:
        return folder.size_bytes(name) > 0
    except Unreadable:
        return False
