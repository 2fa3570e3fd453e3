"""TensorFlow checkpoints (tensorflow 1 and 2, `core/util/tensor_bundle`, `python/checkpoint`): a prefix of names, no file.

`<prefix>.data-<i>-of-<n>`, then `<prefix>.index`, whose being there says that the data are; TensorFlow 1 adds
`<prefix>.meta`. Written in `<prefix>_temp/`. `checkpoint` is a text that names the newest, replaced by rename. A SavedModel
(`variables/variables.index`) is an export, not a checkpoint.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from lakemark.formats.readers import tf_index
from lakemark.formats.readers.folder import Folder, Unreadable
from lakemark.formats.readers.headers import broken
from lakemark.formats.rules.family import Loose, found, pointer, temporary
from lakemark.formats.rules.sets import short_of
from lakemark.formats.rules.state_trees import role_of
from lakemark.formats.tf import keras
from lakemark.model.checkpoints.manifest import Role
from lakemark.ports import Found

FRAMEWORK: Final = "tf"
POINTER: Final = "checkpoint"
_DATA: Final = re.compile(r"(?P<prefix>.+)\.data-(?P<number>\d{5})-of-(?P<count>\d{5})", re.ASCII | re.DOTALL)
# Not the digits behind a point or an exponent: those are of a metric.
_PREFIX: Final = re.compile(r"(?:.*[-_.])?(?<!\d\.)(?<!\de-)(\d{1,18})(?:\.ckpt|\.tf)?", re.ASCII | re.DOTALL)
_METRIC: Final = re.compile(
    r"(?P<stem>.*\d\.\d+(?:e[-+]?\d+)?|.*[-_=](?:nan|inf))(?:\.ckpt|\.tf)?", re.ASCII | re.DOTALL
)
"""How Keras names what it saves so up to 2.15: an epoch, then what was measured."""
# `x-00001-of-00004.index`: an index of shards of something else.
_PART: Final = re.compile(r".*-of-\d+", re.ASCII | re.DOTALL)
_USUAL: Final = frozenset({"ckpt", "model.ckpt", "cp.ckpt", "checkpoint", "latest", "last", "best"})
_NAMES_ONE: Final = re.compile(r'model_checkpoint_path:\s*"((?:[^"\\]|\\.)*)"')
_OLD_SLOT: Final = re.compile(
    r"(?:.*/)?(?:beta[12]_power(?:_\d+)?|(?:[A-Za-z]*Adam\w*|Adagrad|Adadelta|Momentum|RMSProp|Ftrl|LAMB\w*)(?:_\d+)?)",
    re.ASCII,
)
"""How TensorFlow 1 names what an optimizer keeps of a variable."""
# The newest is named first; the list of all may be long.
_PEEK_BYTES: Final = 64 * 2**10
_TEMPORARY: Final = re.compile(r"_temp(?:_[0-9a-f]{32})?\Z", re.ASCII)
"""TensorFlow 1 puts something random behind it."""


class TensorFlow:
    """`tf`, and the pointer file beside."""

    def claims(self, folder: Folder) -> bool:
        # The name alone is common: parts of a save must lie in it.
        return _TEMPORARY.search(folder.name) is not None and any(
            name.startswith("part-") and (".data-" in name or ".index" in name) for name in folder.files
        )

    def step(self, folder: Folder) -> int | None:
        return _step(_TEMPORARY.sub("", folder.name))

    def judge(self, folder: Folder) -> Found:
        return temporary(folder.path, FRAMEWORK, self.step(folder), "<prefix>_temp dir")

    def loose(self, folder: Folder) -> Iterator[Loose]:
        by_prefix = _by_prefix(folder)
        for prefix, names in sorted(by_prefix.items()):
            step = _step(prefix)
            members = tuple(folder.path / name for name in names)
            judge = partial(_judged, folder, prefix, names, step)
            yield Loose(path=folder.path / prefix, names=tuple(names), members=members, step=step, judge=judge)
        text = _pointer(folder, beside=bool(by_prefix))
        if text is not None:
            left = (name for name in folder.files if name.startswith(f"{POINTER}.tmp"))
            path = folder.path / POINTER
            yield Loose(path=path, names=(POINTER, *left), judge=partial(_pointed, path, text))


def _by_prefix(folder: Folder) -> dict[str, list[str]]:
    """Prefix -> its names. Data without an index are unfinished; an index alone says nothing but beside a pointer file."""
    found_: defaultdict[str, list[str]] = defaultdict(list)
    with_data: set[str] = set()
    for name in folder.files:
        if name.endswith(".index"):
            found_[name.removesuffix(".index")].append(name)
        elif "-of-" in name and (match := _DATA.fullmatch(name)):
            found_[match["prefix"]].append(name)
            with_data.add(match["prefix"])
    # `.index` is a suffix of many programs: without data, or a pointer file beside, it is not TensorFlow's.
    pointed = folder.has_file(POINTER)
    kept = {}
    for prefix, names in found_.items():
        stepless = _step(prefix) is None
        if (pointed or prefix in with_data) and not (stepless and not pointed and prefix not in _USUAL):
            # With neither a step nor data nothing speaks for it but the suffix.
            if prefix not in with_data and stepless:
                continue
            kept[prefix] = [*names, *([f"{prefix}.meta"] if folder.has_file(f"{prefix}.meta") else [])]
    return kept


def _step(prefix: str) -> int | None:
    match = _PREFIX.fullmatch(prefix) if not _PART.fullmatch(prefix) else None
    if match:
        return int(match[1])
    measured = _METRIC.fullmatch(prefix)
    return keras.epoch(measured["stem"]) if measured else None


def _judged(folder: Folder, prefix: str, names: Sequence[str], step: int | None) -> Found:
    index = f"{prefix}.index"
    data = [name for name in names if ".data-" in name]
    problems = [f"no {index}, which is written after the data"] if index not in names else []
    problems += [f"{index}: {why}"] if not problems and (why := broken(folder, index)) else []
    problems += [] if data else [f"no {prefix}.data-…"]
    problems += short_of(data)
    # A cut index must not be followed.
    told = None if problems else _index(folder, index)
    present, possible = {Role.WEIGHTS}, {Role.OPTIMIZER, Role.SCHEDULER, Role.RNG}
    if told is not None:
        problems += _short_data(folder, prefix, told)
        present |= _roles(told.keys)
    roles = {name: Role.CONFIG if name.endswith(".meta") else Role.WEIGHTS for name in names}
    return found(
        folder.path / prefix,
        FRAMEWORK,
        step,
        problems,
        roles={name: str(role) for name, role in roles.items()},
        present=sorted(str(role) for role in present),
        possible=sorted(str(role) for role in possible),
        members=[folder.path / name for name in names],
    )


def _index(folder: Folder, index: str) -> tf_index.TensorIndex | None:
    try:
        with folder.open(index) as stream:
            return tf_index.read(stream, os.fstat(stream.fileno()).st_size)
    except (Unreadable, OSError):
        return None


def _short_data(folder: Folder, prefix: str, told: tf_index.TensorIndex) -> Iterator[str]:
    for shard, needed_bytes in sorted(told.needed_bytes.items()):
        # How many there are is said in the index: files of another number are of another save of the prefix.
        name = f"{prefix}.data-{shard:05d}-of-{told.files:05d}"
        try:
            size_bytes = folder.size_bytes(name)
        except Unreadable as error:
            yield f"{name}: {error}"
            continue
        if size_bytes < needed_bytes:
            yield f"{name}: {size_bytes} bytes, the index needs {needed_bytes}"


def _roles(keys: Sequence[str]) -> set[Role]:
    """An object's path says what it is; what an optimizer's slot belongs to comes before `.OPTIMIZER_SLOT`."""
    roles = set()
    for key in keys:
        if ".OPTIMIZER_SLOT" in key:
            roles.add(Role.OPTIMIZER)
        elif key.endswith("/ITERATOR_STATE"):
            roles.add(Role.DATALOADER)
        # Keras 3 lists the model's variables in its optimizer, too; slots of TensorFlow 1 have no path.
        elif (key.startswith("optimizer/") and "/_trainable_variables/" not in key) or _OLD_SLOT.fullmatch(key):
            roles.add(Role.OPTIMIZER)
        elif role_of(key.split("/")[:1]) is Role.RNG:
            roles.add(Role.RNG)
    return roles


def _pointer(folder: Folder, *, beside: bool) -> str | None:
    """The text of the pointer file; None where there is none, or it is something else of that name."""
    if not folder.has_file(POINTER):
        return None
    try:
        with folder.open(POINTER) as stream:
            text = stream.read(_PEEK_BYTES).decode(errors="replace")
    except (Unreadable, OSError):
        return None
    # An empty one is what a kill leaves; it is TensorFlow's only where its checkpoints lie beside it.
    return text if text.startswith("model_checkpoint_path") or (beside and not text) else None


def _pointed(path: Path, text: str) -> Found:
    match = _NAMES_ONE.search(text)
    target = match[1] if match else ""
    why = f"it says {target[:200]!r}" if target else "it is empty" if not text else "it names no checkpoint"
    return pointer(path, target, why=why)
