"""Flax's own checkpoints (google/flax, `training/checkpoints.py`, 0.3 to 0.12): one msgpack file per step, without suffix.

`<prefix><step>`, the step an integer or a float; written as `<prefix>tmp`, then renamed. Arrays over several processes lie
beside it in `<prefix><step>_gda/`, renamed before it. The prefix is `checkpoint_` unless the caller says otherwise.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from lakemark.formats.readers import zarr
from lakemark.formats.readers.folder import Folder, NameKind, Unreadable
from lakemark.formats.readers.msgpack import outline
from lakemark.formats.rules.family import Loose, OfFiles, found, temporary
from lakemark.formats.rules.state_trees import told
from lakemark.ports import Found

FRAMEWORK: Final = "flax-legacy"
ARRAYS: Final = "_gda"
METADATA: Final = zarr.METADATA[0]
# Steps may be floats, `checkpoint_1e-05`: the `-` in one is no end of a prefix.
_NAME: Final = re.compile(
    r"(?P<prefix>(?:.*(?:_|(?<!\de)-))?)(?P<step>\d{1,18}(?:\.\d+)?(?:e[+-]?\d+)?)", re.ASCII | re.DOTALL
)
_USUAL: Final = "checkpoint_"
# Of a TrainState and of the dicts that Flax's guides save; a map's first key lies in its first bytes.
_FIRST_KEYS: Final = (b"step", b"params", b"opt_state", b"target", b"state", b"model", b"optimizer", b"batch_stats")
_PEEK_BYTES: Final = 24
# First bytes of msgpack maps that are not empty: fixmap, map 16, map 32.
_MAPS: Final = frozenset({*range(0x81, 0x90), 0xDE, 0xDF})


class Flax(OfFiles):
    """`flax-legacy`. Its folders that Orbax writes are Orbax's."""

    def loose(self, folder: Folder) -> Iterator[Loose]:
        prefixes = set()
        for name in folder.files:
            match = _NAME.fullmatch(name) if name[-1:].isdigit() else None
            if match and match["prefix"] and _is_flax(folder, name, match["prefix"]):
                prefixes.add(match["prefix"])
                yield _one(folder, name, match["step"])
        yield from _without_file(folder)
        for prefix in sorted({*prefixes, _USUAL}):
            name = f"{prefix}tmp"
            beside = f"{name}{ARRAYS}"
            if folder.has_file(name) or folder.has_folder(beside):
                # The arrays are written under the temporary name as well.
                names = tuple(one for one in (name, beside) if one in folder.kinds)
                judge = partial(temporary, folder.path / names[0], FRAMEWORK, None, "checkpoint_tmp")
                yield Loose(path=folder.path / names[0], names=names, judge=judge)


def whole_step(text: str) -> int | None:
    """A step as Flax writes it; None for one that is no whole number."""
    number = float(text)
    # A float has 53 bits: a large whole step must not go through one.
    return int(text) if text.isdigit() else int(number) if number.is_integer() and number < 10**18 else None


def _is_flax(folder: Folder, name: str, prefix: str) -> bool:
    """An empty file of the usual name is a cut one; others need the look of a msgpack map, unusual names a known first key."""
    try:
        with folder.open(name) as stream:
            start = stream.read(_PEEK_BYTES)
    except (Unreadable, OSError):
        return prefix == _USUAL
    # Anybody's file may end in a number; `checkpoint_<N>` without a suffix is Flax's.
    if prefix == _USUAL:
        return not start or start[0] in _MAPS
    return start[:1] != b"" and start[0] in _MAPS and any(key in start for key in _FIRST_KEYS)


def _one(folder: Folder, name: str, step: str) -> Loose:
    beside = f"{name}{ARRAYS}"
    names = (name, beside) if folder.has_folder(beside) else (name,)
    members = tuple(folder.path / one for one in names) if len(names) > 1 else ()
    number = whole_step(step)
    return Loose(
        path=folder.path / name, names=names, members=members, step=number, judge=partial(_judged, folder, name, number)
    )


def _without_file(folder: Folder) -> Iterator[Loose]:
    """Arrays whose file is not there: it is renamed last."""
    for beside in folder.folders:
        name = beside.removesuffix(ARRAYS)
        match = _NAME.fullmatch(name) if beside.endswith(ARRAYS) else None
        if match and match["prefix"] and name not in folder.kinds:
            step = whole_step(match["step"])
            why = [f"only the arrays of several processes ({beside}/) are there, not {name}, which comes last"]
            members = (folder.path / beside,)
            # Never whole, so nothing need be opened.
            judge = partial(found, folder.path / name, FRAMEWORK, step, why, members=members)
            yield Loose(path=folder.path / name, names=(beside,), members=members, step=step, judge=judge)


def _judged(folder: Folder, name: str, step: int | None) -> Found:
    path, beside = folder.path / name, f"{name}{ARRAYS}"
    try:
        with folder.open(name) as stream:
            told_by = outline(stream, folder.size_bytes(name))
    except (Unreadable, OSError) as error:
        return found(path, FRAMEWORK, step, [str(error)], possible=sorted(told(()).possible))
    arrays = folder.has_folder(beside)
    problems = [told_by.problem] if told_by.problem else []
    # Lost, or left behind by a copy of the file alone.
    if told_by.placeholders and not arrays:
        problems.append(f"{len(told_by.placeholders)} arrays of several processes, but no {beside}/")
    roles = told(_leaves(told_by.keys))
    files = {name: "weights"}
    if arrays:
        inside = folder.sub(beside)
        names = [one for one, kind in inside.walk() if kind is NameKind.FILE]
        files |= {f"{beside}/{one}": "weights" for one in names}
        problems += [inside.problem] if inside.problem else []
        problems += _array_problems(folder, beside, names, told_by.placeholders)
    return found(
        path,
        FRAMEWORK,
        step,
        problems,
        roles=files,
        present=sorted(roles.present),
        possible=sorted(roles.possible),
        members=(path, folder.path / beside) if arrays else (),
    )


def _array_problems(folder: Folder, beside: str, names: Sequence[str], wanted: Iterable[str]) -> Iterator[str]:
    """wanted: as the file names them. A chunk of zeros alone need not be there."""
    inside: dict[str, list[str]] = defaultdict(list)
    for name in names:
        inside[name.rpartition("/")[0]].append(name)
    # A folder without `.zarray` is an array whose writing was cut.
    missing = sorted(set(wanted).difference(at for at, files in inside.items() if f"{at}/{METADATA}" in files))
    if missing:
        yield f"{len(missing)} arrays missing: {beside}/{missing[0]}" + (", …" if len(missing) > 1 else "")
    for at, files in inside.items():
        metadata = f"{at}/{METADATA}"
        if metadata in files:
            chunks = [f"{beside}/{name}" for name in files if name != metadata]
            yield from zarr.problems(folder, f"{beside}/{metadata}", chunks)


def _leaves(keys: set[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Only those that no longer path begins with."""
    inner = {key[:length] for key in keys for length in range(1, len(key))}
    return [key for key in keys if key not in inner]
