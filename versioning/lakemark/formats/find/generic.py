"""Checkpoints of no framework in particular: `step-100/`, `checkpoint-100/`, `iter_0000100/`, `100/`, `model-100.npz`.

The step is the number a name ends in, by a strict rule: `step-10.bak` and `pinned-step-10` are no step 10. Whole means: not
empty, nothing in it that is named as unfinished, and every file whose format says how long it is is that long. Whether
training can go on from it is not known.

Where the search begins, a folder with such a name is taken at its word. A bare number, and anything deeper, needs a file in
it that looks like a model's state: years, jobs, Git objects and samples of data are numbers too.
"""

from __future__ import annotations

import os
import re
import stat
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from lakemark.errors import quoted
from lakemark.formats.readers import headers
from lakemark.formats.readers.folder import Folder, NameKind, Unreadable
from lakemark.formats.roles import BESIDE_WEIGHTS, of_file
from lakemark.formats.rules import numbered, own_files, rolling
from lakemark.formats.rules.contents import Contents
from lakemark.formats.rules.family import Loose, ordered, pointer as points
from lakemark.formats.rules.sets import holes, per_rank, short_of
from lakemark.formats.rules.unfinished import unfinished
from lakemark.model.checkpoints.judging import resumes
from lakemark.model.checkpoints.manifest import Role
from lakemark.ports import Found, Verdict

FRAMEWORK: Final = "generic"
_UNFINISHED: Final = re.compile(
    r"(?:tmp|temp)[-_.](?P<after>.*)|(?P<before>.*?)(?:[-_.]tmp(?:[-_.].*)?|\.orbax-checkpoint-tmp.*|[-_]temp"
    r"|\.(?:temp|part|partial|incomplete|inprogress)(?:[-_.].*)?)",
    re.ASCII | re.IGNORECASE | re.DOTALL,
)
_LEFT_OVER: Final = re.compile(
    r"(?P<before>.*?)(?:\.(?:bak|old|orig|swp|lock|trash)[0-9]*|~)", re.ASCII | re.IGNORECASE | re.DOTALL
)
_MAYBE_UNFINISHED: Final = re.compile(
    r"te?mp|part|incomplete|inprogress|bak|old|orig|swp|lock|trash|~", re.ASCII | re.IGNORECASE
)
_ENDS: Final = (
    ".bak",
    ".old",
    ".orig",
    ".swp",
    ".lock",
    ".trash",
    "~",
    "temp",
    ".part",
    ".partial",
    "incomplete",
    "inprogress",
)
# `best.pt`, `latest`, `last_model.pth`: overwritten at each save, so never a checkpoint of a step.
_POINTER: Final = re.compile(r"(?:latest|last|best)(?:[-_][\w-]*)?(?:\.\w+)?", re.ASCII | re.IGNORECASE)
# Those of them that may hold a path as text.
_TEXT: Final = re.compile(r"(?:latest|last|best)(?:[-_][a-z_-]*)?(?:\.txt)?", re.ASCII | re.IGNORECASE)
_MARKER: Final = re.compile(
    r"(?:_success|_complete|_?done|complete|commit_success|(?P<before>.+)\.(?:done|complete|success))(?:\.txt)?",
    re.ASCII | re.IGNORECASE,
)
_RANK: Final = "rank"
# NVIDIA Triton's model repository.
# `runs/train/exp/weights/last.pt`: a directory of a run, and a folder in it.
_NEAR: Final = 2
_OF_TRITON: Final = "config.pbtxt"
"""A model that is served: the folders beside it are its versions."""
_READ: Final = frozenset({".safetensors", ".npz", ".pt", ".pth", ".ckpt", ".keras", ".h5", ".bin", ".pkl", ".json"})


class GenericFamily:
    """Asked last, of what no framework knows."""

    def claims(self, folder: Folder) -> bool:
        """A step's name, also under one that says that it is unfinished."""
        name = folder.name
        step = numbered.of_folder(name)
        bare = name.isdigit()
        if step is None:
            meant = _meant(name)
            if meant is None:
                return False
            bare = meant.isdigit()
        # `100/` with `step-7/` in it is a job's folder.
        elif numbered.is_run(name, folder.folders, folder.files):
            return False
        if bare:
            return _is_state(folder, year=numbered.is_year(step)) and not folder.parent.is_file(_OF_TRITON)
        # Not yet filled it counts too where the search began: a save that has just made its folder must be waited for.
        return (folder.depth <= 1 and not _is_of_pictures(folder)) or _is_state(folder)

    def step(self, folder: Folder) -> int | None:
        return _step(folder.name)

    def judge(self, folder: Folder) -> Found:
        return self.anything(folder.path)

    def loose(self, folder: Folder) -> Iterator[Loose]:
        first = folder.depth == 0
        steps: dict[int, list[str]] = defaultdict(list)
        trained = partial(rolling.trained, folder)
        for name, step in numbered.of_files(folder.files, folder.name, first=first, trained=trained).items():
            steps[step].append(name)
        for step, names in sorted(steps.items()):
            yield _set(folder, step, names)
        for name in folder.files:
            meant = _meant(name) if "tmp" in name or name.startswith("temp") or name.endswith(_ENDS) else None
            if meant is not None and numbered.of_files((meant,), folder.name, first=first, trained=trained):
                yield Loose(
                    path=folder.path / name, names=(name,), judge=partial(_file, folder, name), step=_step(name)
                )
        # `best.pt` and `done` mean something beside checkpoints only.
        if steps or any(numbered.of_folder(name) is not None and not name.isdigit() for name in folder.folders):
            yield from (_one(folder, name) for name in folder.files if _POINTER.fullmatch(name) or _marks(name))
        elif folder.depth <= _NEAR:
            # The only thing that a loop writes, over and over again: then its header must say that it is one.
            yield from (_one(folder, name, alone=True) for name in folder.files if rolling.is_state(folder, name))

    def anything(self, path: Path) -> Found:
        """A directory or file of any name may be a checkpoint; its step is then None."""
        try:
            mode = os.lstat(path).st_mode
        except OSError as error:
            return _found(path, _step(path.name), Verdict.INCOMPLETE, f"it can't be read: {error.strerror}")
        # A link is told of as one, wherever it leads.
        if stat.S_ISLNK(mode) or not stat.S_ISDIR(mode):
            return _file(Folder.of(path.parent), path.name)
        if _unfinished(path.name):
            return _found(path, _step(path.name), Verdict.TEMPORARY, _SAYS_UNFINISHED)
        return _folder(Folder.of(path))


_SAYS_NEWEST: Final = "its name says that it is whatever is newest or best"
_SAYS_UNFINISHED: Final = "its name says that it is unfinished or left over"


def _is_state(folder: Folder, *, year: bool = False) -> bool:
    """Whether a file in it, or in a folder of it that is no step of its own, looks like a model's state."""
    inside = folder.folders
    # It would be taken with all the steps in it.
    if any(numbered.holds_checkpoints(name) for name in inside):
        return False
    files = list(folder.files)
    # `2026/` may hold photographs and models alike: of a year only an optimizer says that it is a step.
    if not year and any(map(numbered.is_state, files)):
        return True
    if year:
        return any(map(numbered.is_optimizer, files))
    return any(numbered.is_state(name) for sub in inside[:32] for name in folder.sub(sub).files)


def _is_of_pictures(folder: Folder) -> bool:
    """Whether the files in it, and in the folders in it, are pictures, sounds, tables and logs alone."""
    filled = [one for one in (folder, *map(folder.sub, folder.folders[:32])) if one.files]
    return bool(filled) and all(numbered.are_pictures(one.files) for one in filled)


def _folder(folder: Folder) -> Found:
    path, run = folder.path, numbered.is_run(folder.name, folder.folders, folder.files)
    step = None if run else _step(folder.name)
    count = 0
    for name, kind in folder.walk():
        if kind is NameKind.FOLDER:
            continue
        count += 1
        # The first is enough: nothing here says how much is missing.
        why = _wrong(folder, name, kind)
        if why:
            return _found(path, step, Verdict.INCOMPLETE, why)
    if folder.problem:
        return _found(path, step, Verdict.INCOMPLETE, f"it can't be read: {folder.problem}")
    lacking, strays, notes = _against_index(folder)
    lacking += short_of(name for name, kind in folder.walk() if kind is NameKind.FILE and name not in strays)
    ranks = per_rank(name for name, kind in folder.walk() if kind is NameKind.FILE)
    lacking += [hole for name, seen in sorted(ranks.items()) if name.endswith(_RANK) and (hole := holes(name, seen))]
    if lacking:
        return _found(path, step, Verdict.INCOMPLETE, lacking[0])
    # DCP writes its metadata last, in whatever folder a script lets it.
    without = next((one for one in _dcp(folder) if not any(name.endswith(".metadata") for name in one.files)), None)
    if without is not None:
        return _found(path, step, Verdict.INCOMPLETE, f"{quoted(without.name)} has .distcp files and no .metadata")
    if not count:
        return _found(path, step, Verdict.INCOMPLETE, "it has no file yet")
    # Only of what is named by a step: a person may keep an optimizer by itself.
    if step is not None and _without_weights(folder):
        return _found(path, step, Verdict.INCOMPLETE, "no weights")
    said = "" if step is not None else "; its name says no step"
    whole = _found(path, step, Verdict.COMPLETE, f"{count} files, none of them unfinished{said}")
    return _told(folder, replace(whole, notes=notes), [name for name, kind in folder.walk() if kind is NameKind.FILE])


def _told(folder: Folder, found: Found, names: Sequence[str]) -> Found:
    """With the roles that keys and names of files say. What else there is nobody knows."""
    held = own_files.look(folder, names)
    have, maybe = ordered(held.present), ordered(held.possible)
    if not have and not maybe:
        return found
    resumable, gaps = resumes(have, maybe)
    notes = (*found.notes, held.said) if held.said else found.notes
    return replace(found, roles=held.roles, present=have, possible=maybe, resumable=resumable, gaps=gaps, notes=notes)


def _against_index(folder: Folder) -> tuple[list[str], set[str], tuple[str, ...]]:
    """What an index of Hugging Face's shards names and is not there; shards of another save, and what is said of them."""
    if not any(name.endswith(".index.json") for name in folder.files):
        return [], set(), ()
    contents = Contents(folder)
    for name in (name for name in contents.files if name.endswith(".index.json")):
        contents.check_index(name)
    strays = contents.strays()
    return [problem for problem in contents.problems if " missing, " in problem], strays, tuple(contents.notes)


def _without_weights(folder: Folder) -> bool:
    """Whether all that may be state is an optimizer, a schedule, random numbers or data, by its name, or all is configuration."""
    names = [name for name, kind in folder.walk() if kind is NameKind.FILE]
    state = [of_file(name) for name in names if not numbered.is_text(name)]
    texts = [of_file(name) for name in names if numbered.is_text(name)]
    if state:
        return Role.WEIGHTS not in texts and BESIDE_WEIGHTS.issuperset(state)
    return bool(texts) and all(role is Role.CONFIG for role in texts)


def _dcp(folder: Folder) -> Iterator[Folder]:
    """The folders in it, as they were listed, that hold files of PyTorch's DCP: these end with a metadata file."""
    pending = [folder]
    while pending:
        one = pending.pop()
        if "distcp" in one.suffixes:
            yield one
        pending.extend(one.sub(name) for name in one.folders)


def _wrong(folder: Folder, name: str, kind: NameKind) -> str | None:
    if _unfinished(name.rpartition("/")[2]) or unfinished([name]):
        return f"{quoted(name)} is unfinished"
    if kind is NameKind.OTHER:
        return f"{quoted(name)}: neither a file nor a directory"
    why = _broken(folder, name) if kind is NameKind.FILE else None
    return f"{quoted(name)}: {why}" if why else None


def _broken(folder: Folder, name: str) -> str | None:
    return headers.broken(folder, name) if os.path.splitext(name)[1].lower() in _READ else None  # noqa: PTH122 - a name


def _file(folder: Folder, name: str, *, alone: bool = False) -> Found:
    """alone: nothing beside it is named by a step, so that it is no copy of what is."""
    path, kind, step = folder.path / name, folder.kinds.get(name, NameKind.OTHER), numbered.of_file(name)
    if _unfinished(name):
        return _found(path, _step(name), Verdict.TEMPORARY, _SAYS_UNFINISHED)
    if kind is NameKind.LINK:
        return _found(path, None, Verdict.POINTER, "a link")
    if kind is not NameKind.FILE:
        return _found(path, step, Verdict.INCOMPLETE, "neither a file nor a directory")
    # `best_model_100.pt` says its step and is a checkpoint.
    if step is None and (_POINTER.fullmatch(name) or rolling.NAMES.fullmatch(name)):
        return _pointer(folder, name) if _TEXT.fullmatch(name) else _rolling(folder, name, alone=alone)
    if _marks(name):
        return _found(path, _marked(name), Verdict.MARKER, "its name says that something else is whole")
    broken = _broken(folder, name)
    if broken:
        return _found(path, step, Verdict.INCOMPLETE, broken)
    why = "a whole file" if step is not None else "a file; its name says no step"
    return _told(folder, _found(path, step, Verdict.COMPLETE, why), [name])


def _rolling(folder: Folder, name: str, *, alone: bool) -> Found:
    """What each save is written over: a save where its header says a step, else told of, and taken where a person means it.

    Alone it is a save of a step that nobody knows: what every look passes over is kept nowhere, and has to be said.
    """
    broken = _broken(folder, name)
    if broken:
        return _found(folder.path / name, None, Verdict.POINTER, broken)
    named = _told(folder, _found(folder.path / name, None, Verdict.POINTER, _SAYS_NEWEST), [name])
    if not rolling.is_state(folder, name):
        return named
    step = rolling.step_inside(folder, name)
    if step is None:
        return replace(named, verdict=Verdict.COMPLETE, why="a whole file that says no step") if alone else named
    return replace(
        named, step=step, verdict=Verdict.COMPLETE, why=f"a whole file that says step {step} itself", rolling=True
    )


def _set(folder: Folder, step: int, names: Sequence[str]) -> Loose:
    """Files of one step, such as `model-100.pt` and `optimizer-100.pt`, are one checkpoint."""
    if len(names) == 1:
        return Loose(path=folder.path / names[0], names=tuple(names), judge=partial(_file, folder, names[0]), step=step)
    path, members = folder.path / names[0], tuple(folder.path / name for name in names)
    return Loose(path=path, names=tuple(names), judge=partial(_files, folder, step, names), step=step, members=members)


def _files(folder: Folder, step: int, names: Sequence[str]) -> Found:
    problems = [f"{quoted(name)}: {why}" for name in names if (why := _broken(folder, name))]
    whole = Found(
        path=folder.path / names[0],
        framework=FRAMEWORK,
        step=step,
        verdict=Verdict.INCOMPLETE if problems else Verdict.COMPLETE,
        why="; ".join(problems) or f"{len(names)} files of one step, all whole",
        unlisted=True,
        members=tuple(folder.path / name for name in names),
    )
    return whole if problems else _told(folder, whole, names)


def _one(folder: Folder, name: str, *, alone: bool = False) -> Loose:
    step = numbered.of_file(name) if _POINTER.fullmatch(name) else _marked(name)
    return Loose(path=folder.path / name, names=(name,), judge=partial(_file, folder, name, alone=alone), step=step)


def _pointer(folder: Folder, name: str) -> Found:
    if not _TEXT.fullmatch(name):
        return _found(folder.path / name, None, Verdict.POINTER, _SAYS_NEWEST)
    try:
        text = folder.text(name, longest_bytes=4096).strip()
    except (Unreadable, OSError):
        return _found(folder.path / name, None, Verdict.POINTER, _SAYS_NEWEST)
    # Scripts may write more below it, such as a loss.
    target = text.splitlines()[0] if text else ""
    return points(folder.path / name, target, step=_step(target.rstrip("/").rpartition("/")[2]))


def _marks(name: str) -> bool:
    return _MARKER.fullmatch(name) is not None


def _marked(name: str) -> int | None:
    match = _MARKER.fullmatch(name)
    return _step(match["before"].lstrip(".")) if match and match["before"] else None


def _unfinished(name: str) -> re.Match[str] | None:
    # The patterns below try every split of a name, and this is asked of each file there is.
    if not _MAYBE_UNFINISHED.search(name):
        return None
    return _UNFINISHED.fullmatch(name) or _LEFT_OVER.fullmatch(name)


def _meant(name: str) -> str | None:
    """The name of a step that is left without what says that it is unfinished; None where that names none."""
    match = _unfinished(name)
    if not match:
        return None
    groups = match.groupdict()
    meant = next((text for text in groups.values() if text), "").lstrip(".")
    if meant.isdigit() and groups.get("after"):
        return None  # `tmp-20261129`: a number of something else
    named = numbered.of_folder(meant) is not None or numbered.of_file(meant) is not None
    return meant if named else None


def _step(name: str) -> int | None:
    meant = _meant(name) or name
    step = numbered.of_folder(meant)
    return step if step is not None else numbered.of_file(meant)


def _found(path: Path, step: int | None, verdict: Verdict, why: str) -> Found:
    return Found(path=path, framework=FRAMEWORK, step=step, verdict=verdict, why=why, unlisted=True)
