"""Orbax (google/orbax, orbax-checkpoint 0.4 to 0.12): a folder per step, a folder in it per item.

`_src/path/step.py`: `<N>`, `<prefix>_<N>`, zero-padded by option. `_src/path/atomicity.py`: everything is written under
`….orbax-checkpoint-tmp` and renamed, or, where renaming is not atomic, under its own name until `commit_success.txt`; since
0.12 both write that file, the former before the rename, so a name is looked at first. `_CHECKPOINT_METADATA` lists the items
that were saved and when they were committed. `_src/path/format_utils.py`: what an item's files are called.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any, Final

from lakemark.formats.jax.orbax_items import DATA, HASHED, OF_STEP, Items, above
from lakemark.formats.readers.folder import Folder, NameKind, Unreadable
from lakemark.formats.readers.headers import broken_json
from lakemark.formats.rules import numbered
from lakemark.formats.rules.family import Loose, found, temporary
from lakemark.formats.rules.metrics import of_mapping
from lakemark.formats.rules.sets import short_of
from lakemark.formats.rules.unfinished import unfinished
from lakemark.model.checkpoints.manifest import Role
from lakemark.ports import Found

FRAMEWORK: Final = "orbax"
TEMPORARY: Final = ".orbax-checkpoint-tmp"
COMMITTED: Final = "commit_success.txt"
STEP: Final = "_CHECKPOINT_METADATA"
_PENDING: Final = ".pending_"
_NAME: Final = re.compile(r"(?:.*(?:_|(?<!\de)-|(?<!\d)\.))?(\d{1,18})(?:\.0+)?", re.ASCII | re.DOTALL)
"""Flax's steps may be floats: `checkpoint_0.5` and `checkpoint_1e-05` name no whole one, `checkpoint_10.0` does."""
_ITEM: Final = frozenset({"_METADATA", "manifest.ocdbt", "_sharding", "array_metadatas", COMMITTED})
_IN_ITEM: Final = _ITEM | {f"{of}_random_key{more}" for of in ("jax", "np") for more in ("", "_metadata")}
_BEGUN: Final = (COMMITTED, "_sharding", "array_metadatas")
"""What nobody else calls anything in a folder that is named like a step."""
_OF_ITEM: Final = re.compile(r"d|ocdbt[._].*|array_metadatas", re.ASCII)
_JSON: Final = re.compile(r"(?:.*/)?(?:_sharding|metadata|metrics|array_metadatas/process_\d+)", re.ASCII | re.DOTALL)
_ALONE: Final = frozenset({"best", "last", "latest", "final", "initial", "init", "checkpoint", "ckpt"})
_METRICS: Final = "metrics/metrics"
_OF_PROCESS: Final = "ocdbt.process_"
# A step has a few items; a folder of a thousand that happens to end in a digit is not looked through.
_LOOKED_AT: Final = 64
_LONGEST_STEP_BYTES: Final = 4 * 2**20
_SHOWN: Final = 4


class Orbax:
    """Also Flax's and T5X's folders that Orbax writes, MaxText, and a node's own part of an emergency checkpoint."""

    def claims(self, folder: Folder) -> bool:
        name = folder.name
        # Before any marker: 0.12 writes `commit_success.txt` into the temporary folder, before the rename.
        if TEMPORARY in name:
            return True
        kinds = folder.kinds
        # `_METADATA` alone is a name of others, too: something else of an item must be beside it.
        if STEP in kinds or ("_METADATA" in kinds and not _ITEM.isdisjoint(kinds.keys() - {"_METADATA"})):
            return True
        if not name[-1:].isdigit() or not _NAME.fullmatch(name):
            return False
        # Files of an item whose `_METADATA` was lost or is yet to come.
        if any(one in kinds for one in _BEGUN) or _has_data(folder):
            return True
        return any(map(folder_is_item(folder), folder.folders[:_LOOKED_AT]))

    def step(self, folder: Folder) -> int | None:
        return step_of(folder.name)

    def judge(self, folder: Folder) -> Found:
        step = step_of(folder.name)
        if TEMPORARY in folder.name or _PENDING in folder.name:
            return temporary(folder.path, FRAMEWORK, step, "tmp suffix")
        names = list(folder.walk())
        files = [name for name, kind in names if kind is NameKind.FILE]
        folders = [name for name, kind in names if kind is NameKind.FOLDER]
        # Items have temporary names of their own inside the step: one that is left was cut.
        left = [name for name in folders if TEMPORARY in name.rpartition("/")[2]]
        locks = unfinished(files)
        handlers, of_step = _step(folder)
        items = Items.read(folder, files, folders, handlers=handlers)
        problems = [
            *([f"temporary items inside: {_some(left)}"] if left else []),
            *([f"unfinished files inside: {_some(locks)}"] if locks else []),
            *of_step,
            *_uncommitted(folder, files, folders, handlers),
            *_damaged(folder, files),
            *_missing(files, () if left else handlers),
            *_without_step(files, items),
            *(() if left else items.treeless(handlers)),
            *items.problems,
            *short_of(files),
            *([f"it can't be read: {folder.problem}"] if folder.problem else []),
        ]
        judged = found(
            folder.path,
            FRAMEWORK,
            step,
            problems,
            roles=items.roles(handlers),
            present=sorted(items.present(handlers)),
            possible=sorted(items.possible(handlers)),
            ranks=items.ranks,
            unfinished=[*left, *locks],
            notes=_notes(folder, files),
        )
        return replace(judged, metrics=_metrics(folder))

    def loose(self, folder: Folder) -> Iterator[Loose]:  # noqa: ARG002 - its checkpoints are folders
        yield from ()


def step_of(name: str) -> int | None:
    """Of a folder's name, without what says that it is temporary."""
    # `<N>.orbax-checkpoint-tmp-<time>` of older ones ends in another number.
    match = _NAME.fullmatch(name.partition(TEMPORARY)[0].partition(_PENDING)[0])
    return int(match[1]) if match else None


class folder_is_item:  # noqa: N801 - a function with a folder bound to it
    """Whether a folder in `folder` looks like an item. One that is named like a step is another checkpoint."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def __call__(self, name: str) -> bool:
        meant = name.partition(TEMPORARY)[0]
        # Items are named by words; numbers inside a folder are steps of a run.
        if name[-1:].isdigit() or meant[-1:].isdigit():
            return False
        kinds = self._folder.sub(name).kinds
        if STEP in kinds and (meant in _ALONE or numbered.of_folder(self._folder.name) is None):
            return False  # a checkpoint of its own: what it lies in is a run
        return meant != name or not _IN_ITEM.isdisjoint(kinds) or _has_data(self._folder.sub(name))


def _has_data(folder: Folder) -> bool:
    """Whether a store lies in it, or what is left of one."""
    if any(one.startswith(_OF_PROCESS) for one in folder.folders):
        return True
    return folder.has_folder(DATA) and any(HASHED.fullmatch(name) for name in folder.sub(DATA).files)


def _step(folder: Folder) -> tuple[dict[str, str], list[str]]:
    """Item -> the class that wrote it, as far as the step's own metadata say; and what is wrong with these."""
    if STEP not in folder.kinds:
        return {}, []
    try:
        value: Any = json.loads(folder.text(STEP, longest_bytes=_LONGEST_STEP_BYTES))
    except Unreadable as error:
        return {}, [f"{STEP}: {error}"]
    except (ValueError, RecursionError):
        return {}, [f"{STEP}: JSON empty or cut"]
    if not isinstance(value, dict):
        return {}, [f"{STEP}: not what Orbax writes"]
    handlers = value.get("item_handlers")
    items = {str(item): str(by) for item, by in handlers.items()} if isinstance(handlers, dict) else {}
    # null until it is committed; metadata without the key say nothing of it.
    committed = value.get("commit_timestamp_nsecs", 0) is not None
    return items, [] if committed else ["no commit_timestamp_nsecs"]


def _missing(files: list[str], handlers: Collection[str]) -> Iterator[str]:
    """Items without a file, and a step that says of itself that it is there and holds none."""
    # The marker alone, without what it marks, is what a removal or a copy may leave.
    there = {name.partition("/")[0] for name in files if name.rpartition("/")[2] != COMMITTED}
    yield from (f"the item {item} is missing" for item in handlers if item not in there)
    if there <= OF_STEP:
        yield "there is nothing in it"


def _without_step(files: list[str], items: Items) -> list[str]:
    """Whoever saves what each process wrote, since 0.11.9, has saved the metadata of the step, or of the item, before.

    Where there are no weights either, nothing says that this is all.
    """
    # Whoever writes these is new enough to have written metadata first; an older step without any may be whole.
    of_items = {name.rpartition("/array_metadatas/")[0] for name in files if "array_metadatas/process_" in name}
    told = {name.rpartition("/")[0] for name in files if name.rpartition("/")[2] == STEP}
    alone = [at for at in sorted(of_items) if told.isdisjoint({at, *above(at)})]
    held = {*items.present({}), *items.possible({})}
    return [f"no {STEP}"] if alone or not (told or Role.WEIGHTS in held) else []


def _uncommitted(folder: Folder, files: list[str], folders: list[str], handlers: Collection[str]) -> list[str]:
    """Where one item is marked, those beside it are; what they are in comes after them, the step last.

    handlers: the items, where the step itself names them; what else lies beside these is the user's. So is a folder in
    which each was saved by itself: then it is nothing of Orbax's, and each says when it was committed.
    """
    marked = {name.rpartition("/")[0] for name in files if name.rpartition("/")[2] == COMMITTED}
    if not marked:
        return []
    # A user's own folder with a checkpoint saved into each part.
    alone = STEP not in files and all(f"{at}/{STEP}" in files for at in marked if "/" not in at)
    problems = [] if "" in marked or alone else [f"no {COMMITTED}"]
    problems += [f"{at}/{COMMITTED} is empty".lstrip("/") for at in sorted(marked) if not _has_bytes(folder, at)]
    with_marked = {at.rpartition("/")[0] for at in marked if at}
    for at in folders:
        above, _, name = at.rpartition("/")
        # Beside the items that the step names lies what the user added, unless it looks like Orbax's.
        if not above and handlers and name not in handlers and not any(one.startswith(f"{at}/_") for one in files):
            continue
        if above in with_marked and at not in marked and TEMPORARY not in name and not _OF_ITEM.fullmatch(name):
            problems.append(f"{at}: no {COMMITTED}")
    # A marker that was copied without what it speaks of.
    filled = {name.rpartition("/")[0] for name in (*files, *folders) if name.rpartition("/")[2] != COMMITTED}
    problems += [f"{at}: nothing but {COMMITTED}" for at in sorted(marked - filled)]
    return problems


def _damaged(folder: Folder, files: list[str]) -> list[str]:
    """JSON files whose names do not say so, and those whose names do."""
    own = [name for name in files if name.endswith(".json") or _JSON.fullmatch(name)]
    return [f"{name}: {why}" for name in own if (why := broken_json(folder, name))]


def _metrics(folder: Folder) -> dict[str, float]:
    """What the program gave its `CheckpointManager` to choose the best step by."""
    if not folder.has_folder("metrics"):
        return {}
    try:
        return of_mapping(json.loads(folder.text(_METRICS, longest_bytes=_LONGEST_STEP_BYTES)))
    except (Unreadable, ValueError, RecursionError):
        return {}  # it is said among what is damaged


def _has_bytes(folder: Folder, at: str) -> bool:
    try:
        return folder.size_bytes(f"{at}/{COMMITTED}") > 0
    except Unreadable:
        return False


def _notes(folder: Folder, files: list[str]) -> list[str]:
    notes = []
    if folder.has_file(COMMITTED):
        # Its text is an absolute path, wrong after a restore elsewhere; nothing in it is believed.
        notes.append(f"{COMMITTED} names the place it was saved at")
    if folder.has_folder("process_metadata") or any(name.startswith("ocdbt.process_replica_") for name in files):
        notes.append("one node's part of an emergency checkpoint")
    return notes


def _some(names: list[str]) -> str:
    return ",".join(names[:_SHOWN]) + (f",… ({len(names)})" if len(names) > _SHOWN else "")
