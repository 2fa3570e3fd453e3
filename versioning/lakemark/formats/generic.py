"""Checkpoints of no framework in particular: `step-100/`, `checkpoint-100/`, `iter_0000100/`, `100/`, `model-100.npz`.

The step is the number a name ends in, by a strict rule: `step-10.bak` and `pinned-step-10` are no step 10. Whole means: not
empty, nothing in it that is named as unfinished, and every file whose format says how long it is is that long. Whether
training can go on from it is not known.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from zipfile import is_zipfile

from lakemark.errors import Denied, NotFound, quoted
from lakemark.ports import Found, Verdict

FRAMEWORK: Final = "generic"
_DIRECTORY: Final = re.compile(
    r"(?:(?:step|steps|checkpoint|ckpt|global_step|global-step|iter|iteration|update)[-_=]?)?([0-9]{1,15})",
    re.ASCII | re.IGNORECASE,
)
_FILE: Final = re.compile(
    r"(?:(?P<stem>.*)[-_=]|(?:step|checkpoint|ckpt|iter)?)(?P<step>[0-9]{1,15})\.(?:ckpt|pt|pth|npz|safetensors)",
    re.ASCII | re.IGNORECASE,
)
_SHARD: Final = re.compile(
    r".*(?:^|[-_.])(?:of|rank|rng_state|random_states|shard|part|worker)", re.ASCII | re.IGNORECASE
)
_UNFINISHED: Final = re.compile(
    r"(?:tmp|temp)[-_.](?P<after>.*)|(?P<before>.*?)(?:[-_.]tmp(?:[-_.].*)?|\.orbax-checkpoint-tmp.*|[-_]temp"
    r"|\.(?:temp|part|partial|incomplete|inprogress)(?:[-_.].*)?)",
    re.ASCII | re.IGNORECASE,
)
_LEFT_OVER: Final = re.compile(
    r"(?P<before>.*?)(?:\.(?:bak|old|orig|swp|lock|trash)[0-9]*|~)", re.ASCII | re.IGNORECASE
)
_POINTER: Final = re.compile(r"(?:latest|last|best)(?:[-_][\w-]*)?(?:\.\w+)?", re.ASCII | re.IGNORECASE)
_MARKER: Final = re.compile(
    r"(?:_success|_complete|_?done|complete|commit_success|(?P<before>.+)\.(?:done|complete|success))(?:\.txt)?",
    re.ASCII | re.IGNORECASE,
)
_LARGEST_HEADER_BYTES: Final = 100_000_000
_ZIP: Final = b"PK\x03\x04"


@dataclass(frozen=True, slots=True)
class GenericRecogniser:
    """`ports.Recogniser` by names and file headers alone."""

    def find(self, root: Path) -> Iterator[Found]:
        """Only what is or was to be a checkpoint, a pointer or a marker; other names (logs, code) are passed over."""
        found = [one for name in _names(root) if (one := _listed(root / name)) is not None]
        yield from sorted(found, key=lambda one: (one.step is None, one.step or 0, str(one.path)))

    def judge(self, path: Path) -> Found:
        """A directory or file of any name may be a checkpoint; its step is then None. Denied where it may not be read."""
        try:
            mode = os.lstat(path).st_mode
            if stat.S_ISDIR(mode):
                for _ in _files(path):
                    pass
        except PermissionError as error:
            raise Denied(
                f"{quoted(str(error.filename or path))} may not be read by this user",
                advice="Give this user the right to read all of the checkpoint.",
            ) from error
        except OSError as error:
            raise NotFound(f"{quoted(str(path))}: {error.strerror}", advice="Check the path.") from error
        return _judged(path, mode)


def _names(root: Path) -> list[str]:
    try:
        return sorted(path.name for path in root.iterdir())
    except OSError:
        return []


def _listed(path: Path) -> Found | None:
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return None
    hidden = path.name.startswith(".")
    found = _judged(path, mode)
    if found.verdict is Verdict.TEMPORARY:
        return found if found.step is not None else None
    if hidden or (found.step is None and found.verdict in (Verdict.COMPLETE, Verdict.INCOMPLETE)):
        return None
    return found


def _judged(path: Path, mode: int) -> Found:
    name = path.name
    unfinished = _UNFINISHED.fullmatch(name) or _LEFT_OVER.fullmatch(name)
    if unfinished:
        return _found(path, _meant(unfinished), Verdict.TEMPORARY, "its name says that it is unfinished or left over")
    if stat.S_ISLNK(mode):
        return _found(path, None, Verdict.POINTER, f"a link to {quoted(_target(path))}")
    if stat.S_ISDIR(mode):
        return _directory(path)
    if not stat.S_ISREG(mode):
        return _found(path, None, Verdict.INCOMPLETE, "neither a file nor a directory")
    step = _file_step(name)
    if step is None and _POINTER.fullmatch(name):
        return _found(path, None, Verdict.POINTER, "its name says that it is whatever is newest")
    marker = _MARKER.fullmatch(name)
    if marker:
        return _found(path, _meant(marker), Verdict.MARKER, "its name says that something else is whole")
    broken = _broken(path)
    if broken:
        return _found(path, step, Verdict.INCOMPLETE, broken)
    return _found(path, step, Verdict.COMPLETE, "a whole file" if step is not None else "a file; its name says no step")


def _directory(path: Path) -> Found:
    match = _DIRECTORY.fullmatch(path.name)
    step = int(match[1]) if match else None
    count = 0
    try:
        for file in _files(path):
            count += 1
            short = quoted(str(file.relative_to(path)))
            if _UNFINISHED.fullmatch(file.name):
                return _found(path, step, Verdict.INCOMPLETE, f"{short} is unfinished")
            broken = _broken(file)
            if broken:
                return _found(path, step, Verdict.INCOMPLETE, f"{short}: {broken}")
    except OSError as error:
        return _found(path, step, Verdict.INCOMPLETE, f"it can't be read: {error.strerror}")
    if not count:
        return _found(path, step, Verdict.INCOMPLETE, "it has no file yet")
    said = "" if step is not None else "; its name says no step"
    return _found(path, step, Verdict.COMPLETE, f"{count} files, none of them unfinished{said}")


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.is_symlink():
            yield from _files(path)
        else:
            yield path


def _broken(path: Path) -> str | None:
    """Why a file is not as long as its own format says; None where it is, or the format doesn't say."""
    suffix = path.suffix.lower()
    if suffix not in (".safetensors", ".npz", ".pt", ".pth", ".ckpt"):
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        return None if path.is_symlink() else f"it can't be read: {error.strerror}"
    with os.fdopen(descriptor, "rb") as stream:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return "neither a file nor a directory"
        if found.st_size == 0:
            return "it is empty"
        start = stream.read(8)
        if suffix == ".safetensors":
            header = stream.read(min(int.from_bytes(start, "little"), _LARGEST_HEADER_BYTES))
            return _broken_safetensors(start, header, found.st_size)
        zipped = start.startswith(_ZIP)
        if (suffix == ".npz" and not zipped) or (zipped and not is_zipfile(stream)):
            return "its zip archive does not end: it is cut short"
    return None


def _broken_safetensors(start: bytes, header: bytes, size_bytes: int) -> str | None:
    try:
        tensors = json.loads(header)
        ends = [row["data_offsets"][1] for name, row in tensors.items() if name != "__metadata__"]
        expected = 8 + int.from_bytes(start, "little") + max(ends, default=0)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return "its safetensors header is cut short or damaged"
    return None if size_bytes == expected else f"it has {size_bytes} bytes, its header says {expected}"


def _file_step(name: str) -> int | None:
    match = _FILE.fullmatch(name)
    if not match or _SHARD.fullmatch(match["stem"] or ""):
        return None
    return int(match["step"])


def _meant(match: re.Match[str]) -> int | None:
    """The step of the name that is left without what says that it is unfinished; None where that names none."""
    name = next((text for text in match.groupdict().values() if text), "").lstrip(".")
    directory = _DIRECTORY.fullmatch(name)
    if name.isdigit() and match.groupdict().get("after"):
        return None  # `tmp-20261129`: a number of something else
    return int(directory[1]) if directory else _file_step(name)


def _target(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return "?"


def _found(path: Path, step: int | None, verdict: Verdict, why: str) -> Found:
    return Found(path=path, framework=FRAMEWORK, step=step, verdict=verdict, why=why)
