"""Ray Train: folders of the user's files, named by the time or by the number of the report, which is taken for the step."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import lru_cache
from typing import Final, TypeAlias

from lakemark.formats.readers.folder import Folder, Unreadable
from lakemark.formats.readers.torch_file import told
from lakemark.formats.roles import EVERYTHING
from lakemark.formats.rules.contents import Contents
from lakemark.formats.rules.family import OfFolders
from lakemark.ports import Found

FRAMEWORK: Final = "ray-train"
SNAPSHOT: Final = "checkpoint_manager_snapshot.json"
_NAME: Final = re.compile(
    r"checkpoint_(?:(?P<time>\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d\.\d{1,6})|(?P<report>\d{6,9}))", re.ASCII
)
_INSIDE: Final = frozenset({".is_checkpoint", ".metadata.pkl", ".metadata.json", ".tune_metadata"})
_BESIDE: Final = ("result.json", "progress.csv", "params.pkl", "params.json")
_OF_EXPERIMENT: Final = (".validate_storage_marker", "tuner.pkl", "trainer.pkl")
_TORCH: Final = (".pt", ".pth", ".ckpt", ".bin")
# result.json grows by a line for each report, for as long as the trial runs.
_LOOKED_AT_BYTES: Final = 8 * 2**20
_MOST_LOOKED_INTO: Final = 8


class RayTrain(OfFolders):
    """`ray/train/v2/_internal/execution/checkpoint` of ray 2.43 to 2.60; `ray/train/_internal/storage.py` of 2.7 and later.

    Each worker uploads its files into the folder, then the controller lists it in `checkpoint_manager_snapshot.json` (by
    rename). Before v2 nothing beside it says that all workers have done so but the next report, and Tune's `result.json`,
    which names it and is copied into the trial's folder every few minutes and in the end; the experiment's folder has files
    of its own from the start. Ray before 2.7 has files of its own in the checkpoint.
    """

    def claims(self, folder: Folder) -> bool:
        match = _NAME.fullmatch(folder.name) if folder.name.startswith("checkpoint_") else None
        if match is None:
            return False
        # Nobody else names folders by microseconds, or has such files in them.
        if match["time"] or not _INSIDE.isdisjoint(folder.files):
            return True
        trial = folder.parent
        # A number of six digits is common: a trial's or an experiment's own files must lie around it.
        if trial.is_file(_BESIDE[0]) and any(trial.is_file(name) for name in _BESIDE[1:]):
            return True
        return any(trial.parent.is_file(name) for name in _OF_EXPERIMENT)

    def step(self, folder: Folder) -> int | None:
        """The number of its report: of its name, or as the snapshot says."""
        match = _NAME.fullmatch(folder.name)
        # Ray knows no step; reports are numbered in the order in which they came.
        if match is None or match["report"]:
            return int(match["report"]) if match else None
        try:
            return _listed(folder.parent.at, _version(folder.parent, SNAPSHOT)).get(folder.name)
        except (Unreadable, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return None

    def judge(self, folder: Folder) -> Found:
        contents = Contents(folder)
        contents.check()
        if not contents.files:
            contents.problems.append("it has no file yet")
        match = _NAME.fullmatch(folder.name)
        unlisted = _unlisted(folder) if match and match["time"] else _unnamed(folder)
        contents.problems.extend([unlisted] if unlisted else [])
        # What is in it is the user's own: the keys of the first few files are all that tells.
        states = [name for name in contents.files if name.endswith(_TORCH)][:_MOST_LOOKED_INTO]
        inside = told(folder, states)
        contents.present |= inside.present
        contents.possible |= set(EVERYTHING).difference(inside.present) if inside.possible or not states else set()
        step = self.step(folder)
        return replace(contents.found(FRAMEWORK, step), counted=step is not None)


def _unlisted(folder: Folder) -> str | None:
    """Why the controller has not (or no longer) listed it."""
    parent = folder.parent
    try:
        listed = _listed(parent.at, _version(parent, SNAPSHOT))
    except Unreadable as error:
        return f"{SNAPSHOT} beside it: {error}"
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return f"{SNAPSHOT} beside it is damaged"
    # The snapshot is replaced by rename, so it is never half there.
    return None if folder.name in listed else f"{SNAPSHOT} does not list it"


def _unnamed(folder: Folder) -> str | None:
    """Why it may not be done: neither a trial's results nor a later report speak of it. None where it says so itself."""
    parent = folder.parent
    # Ray before 2.7: the checkpoint itself says that it is one.
    if not _INSIDE.isdisjoint(folder.files):
        return None
    try:
        # The file's state is the key of what is remembered of it: a new line makes it be read again.
        names = _named(parent.at, _version(parent, _BESIDE[0]))
    except (Unreadable, OSError):
        names = frozenset()
    if folder.name.encode() in names or any(_follows(name, folder.name) for name in parent.folders):
        return None
    return "neither result.json beside it nor a later report names it"


def _follows(name: str, before: str) -> bool:
    """Of names with the same number of digits. Workers report together, and each waits until its files are there."""
    return len(name) == len(before) and name > before and _NAME.fullmatch(name) is not None


Version: TypeAlias = tuple[int, int, int]


def _version(folder: Folder, name: str) -> Version:
    found = folder.stat(name)
    return found.st_ino, found.st_size, found.st_mtime_ns


@lru_cache(maxsize=16)
def _listed(at: str, version: Version) -> dict[str, int | None]:  # noqa: ARG001 - read once until it changes
    """Folder -> number of its report, where the snapshot says it."""
    state = json.loads(Folder(at).text(SNAPSHOT, longest_bytes=_LOOKED_AT_BYTES))
    names = [str(result["checkpoint_dir_name"]) for result in state["checkpoint_results"]]
    numbers = state.get("checkpoint_report_indices")
    told = isinstance(numbers, list) and len(numbers) == len(names) and all(type(one) is int for one in numbers)
    listed: dict[str, int | None] = dict(zip(names, numbers, strict=True)) if told else dict.fromkeys(names)
    latest = state.get("latest_checkpoint_result")
    # The latest may be kept beside the best ones that the results list.
    return ({str(latest["checkpoint_dir_name"]): None} if latest else {}) | listed


@lru_cache(maxsize=16)
def _named(at: str, version: Version) -> frozenset[bytes]:
    """Of the last of a result.json: before what is left out of it there are later reports."""
    with Folder(at).open(_BESIDE[0]) as stream:
        stream.seek(max(0, version[1] - _LOOKED_AT_BYTES))
        tail = stream.read(_LOOKED_AT_BYTES)
    return frozenset(re.findall(rb'"checkpoint_dir_name": *"(checkpoint_\d+)"', tail))
