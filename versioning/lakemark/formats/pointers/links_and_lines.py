"""Links and files of one line that anybody keeps beside checkpoints: `latest -> step-300`, `latest.txt` with a name or a number.

By their names they say which is the newest; what they say must name a step. Which form a run keeps is written down with each
save (`kept`), so that a directory that is empty gets the same. What says something else, or more, is left as it is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from lakemark.formats.pointers.rule import Beside, Kind, Neighbour, Rule, here
from lakemark.formats.rules import numbered
from lakemark.ports import Placed, Pointer, PointerKind

NEWEST: Final = re.compile(
    r"(?!.*best)(?:.*[-_.])?(?:latest|last|newest|current|most[-_]?recent|resume)(?:[-_.].*)?",
    re.ASCII | re.IGNORECASE | re.DOTALL,
)
"""Names of links and files that say which checkpoint is the newest."""
_STATE: Final = re.compile(
    r".*\.(?:pt|pth|ckpt|bin|safetensors|npz|npy|h5|hdf5|keras|pkl|msgpack|distcp|tar|log)",
    re.ASCII | re.IGNORECASE | re.DOTALL,
)
_EPOCH: Final = re.compile(r"epoch", re.IGNORECASE)
_STEPS: Final = re.compile(r"step|iter", re.IGNORECASE)
_NUMBER: Final = re.compile(r"\d{1,15}", re.ASCII)
LONGEST_BYTES: Final = 64 * 2**10
_WHY: Final = "it names the newest step"
_MOST_KEPT: Final = 8


def is_text(name: str) -> bool:
    """Whether a file of that name may say in text which checkpoint is the newest."""
    return NEWEST.fullmatch(name) is not None and _STATE.fullmatch(name) is None


def kept(folder: Path, likely: Mapping[str, Neighbour], *, beside: Collection[str]) -> dict[str, str]:
    """Of what lies beside a checkpoint: name of each link or line that names a step -> its form, to make it anew."""
    of = _Around(folder, beside, folder)
    forms = {name: form for name, one in sorted(likely.items()) if (form := of.form(name, one))}
    return dict(list(forms.items())[:_MOST_KEPT])


def unlike(names: Mapping[str, Neighbour], placed: Placed) -> Iterator[tuple[str, str]]:
    """(file, the step's name in it) of texts that name another step in a form that can't be set: JSON, several lines."""
    of = _Around(placed.path.parent, names, placed.root)
    mine = {path.name for path in (placed.path, *placed.paths)}
    steps = {name for name in names if step_of(name) is not None and not is_text(name)} - mine
    for name, one in sorted(names.items()):
        if one.aside or not one.text or not is_text(name) or of.form(name, one):
            continue
        for word in re.findall(r"[\w.,=+-]+", one.text):
            if word in steps:
                yield name, word
                break


def step_of(name: str) -> int | None:
    """The step that the name of a checkpoint says, by any rule for one."""
    for rule in (numbered.of_folder, numbered.of_file, numbered.of_tag):
        step = rule(name)
        if step is not None:
            return step
    return None


def _decide(placed: Placed, beside: Beside) -> Iterator[Pointer]:
    for folder, names in beside.items():
        of = _Around(folder, names, placed.root)
        for name, one in names.items():
            form = of.form(name, one)
            if form and folder / name not in placed.paths:
                yield from _set(placed, folder / name, form, one)
    # What the run kept elsewhere, or lost here.
    lies = here(placed, beside)
    for name, form in placed.kept.items():
        if name not in lies:
            yield from _set(placed, placed.path.parent / name, form, None)


@dataclass(frozen=True, slots=True)
class _Around:
    """What lies in a folder. root: what a pointer leads out of is another run's."""

    folder: Path
    names: Collection[str]
    root: Path

    def form(self, name: str, one: Neighbour) -> str:
        """`link`, `number`, `number:<width>`, `name`, `path`, `absolute`, with ` line` where a newline ends it; empty: none."""
        if not NEWEST.fullmatch(name):
            return ""
        if one.kind is Kind.LINK:
            return "link" if self._names_step(one.target) and self._inside(one.target) else ""
        said = one.text.strip()
        if one.kind is not Kind.FILE or len(said.splitlines()) != 1 or not is_text(name):
            return ""
        end = " line" if one.text.endswith("\n") else ""
        if _NUMBER.fullmatch(said):
            return f"{form}{end}" if (form := self._number(name, said)) else ""
        # A folder may have another path where the trainer runs, as in a container; its name is the same.
        if not self._names_step(said) or not (
            self._inside(said) or PurePosixPath(said).parent.name == self.folder.name
        ):
            return ""
        kind = "absolute" if said.startswith("/") else "path" if "/" in said else "name"
        return kind + end

    def _number(self, name: str, said: str) -> str:
        """A number may be of anything: a step of that number lies there, or lay, or the name says that it is one."""
        if _EPOCH.search(name):
            return ""
        digits = said.lstrip("0")
        if not _STEPS.search(name) and not any(digits in one and step_of(one) == int(said) for one in self.names):
            return ""
        return f"number:{len(said)}" if said.startswith("0") and len(said) > 1 else "number"

    def _names_step(self, said: str) -> bool:
        return step_of(PurePosixPath(said.rstrip("/")).name) is not None

    def _inside(self, said: str) -> bool:
        """By text: what it names may be moved already."""
        return self.root in Path(os.path.normpath(self.folder / said)).parents


def _set(placed: Placed, path: Path, form: str, old: Neighbour | None) -> Iterator[Pointer]:
    kind, _, end = form.partition(" ")
    if kind == "link":
        target = _target(placed, old.target if old else "")
        if target is not None:
            link = os.path.relpath(target, path.parent)
            yield Pointer(path=path, kind=PointerKind.SYMLINK, content=link, why=_WHY)
        return
    content = _content(placed, path, kind, old.text.strip() if old else "")
    if content is not None:
        yield Pointer(path=path, kind=PointerKind.TEXT, content=content + ("\n" if end else ""), why=_WHY)


def _content(placed: Placed, path: Path, kind: str, said: str) -> str | None:
    if kind.startswith("number"):
        width = int(kind.partition(":")[2] or 0)
        return None if placed.step is None else str(placed.step).zfill(width)
    target = _target(placed, said)
    if target is None:
        return None
    if kind == "name":
        return target.name
    if said:
        # Written for a container, or from where the trainer was started: only the step in it changes.
        return str(PurePosixPath(said.rstrip("/")).parent / target.name)
    return str(target) if kind == "absolute" else os.path.relpath(target, path.parent)


def _target(placed: Placed, said: str) -> Path | None:
    """The checkpoint, or the one of its members that is called as `said` is but for the step. None where none is."""
    if not placed.members:
        return placed.path
    shape = _shape(PurePosixPath(said).name)
    alike = [member for member in placed.members if _shape(member.name) == shape]
    return alike[0] if len(alike) == 1 else None


def _shape(name: str) -> str:
    return re.sub(r"\d+", "#", name)


ANYBODY_S = Rule(
    framework="all others",
    names="links and files of one line that are called `latest`, `last`, `newest`, `current` or so, and name a step",
    set_to="the same form: a link, a name, a path, a number; made anew where the run kept one when it saved",
    without="they take the greatest step that is there, or what their script says",
    decide=_decide,
)
