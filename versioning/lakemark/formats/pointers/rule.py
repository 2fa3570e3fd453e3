"""What a framework's module about its pointers offers: which names they have, how they must be, what it does without them.

Decisions only: what lies there is handed in. Sources: the frameworks' own loaders and savers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TypeAlias

from lakemark.ports import Placed, Pointer, PointerKind


class Kind(Enum):
    """What a name is, links not followed."""

    FILE = "file"
    FOLDER = "folder"
    LINK = "link"


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """Something beside a checkpoint. text: of a small file that may be a pointer. target: of a link, as written.

    aside: it was moved aside by this job and is not there any more.
    """

    kind: Kind
    text: str = ""
    target: str = ""
    aside: bool = False


Beside: TypeAlias = Mapping[Path, Mapping[str, Neighbour]]
"""By folder, from the checkpoint's own up to the directory that is resumed into: name -> what that is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Of one framework. names, set_to, without: for people; without: what the framework does where there is none.

    decide: how its pointers must be, also those that are right already. cannot: which can be neither set nor made, and why.
    """

    framework: str
    names: str
    set_to: str
    without: str
    decide: Callable[[Placed, Beside], Iterator[Pointer]]
    cannot: Callable[[Placed, Beside], Iterator[str]] = lambda _placed, _beside: iter(())


def here(placed: Placed, beside: Beside) -> Mapping[str, Neighbour]:
    """What lies in the checkpoint's own folder."""
    return beside.get(placed.path.parent, {})


def text(placed: Placed, name: str, content: str, why: str) -> Pointer:
    """A file beside the checkpoint that says `content`."""
    return Pointer(path=placed.path.parent / name, kind=PointerKind.TEXT, content=content, why=why)


def alike(placed: Placed, path: Path, old: Neighbour, why: str) -> Pointer:
    """A link where there was one; else a copy, because the trainer may write to it."""
    if old.kind is Kind.LINK:
        # Relative: it stays right where the run's directory is moved or mounted elsewhere.
        target = os.path.relpath(placed.path, path.parent)
        return Pointer(path=path, kind=PointerKind.SYMLINK, content=target, why=why)
    return Pointer(path=path, kind=PointerKind.COPY, content=str(placed.path), why=why)


def alone(placed: Placed, beside: Beside) -> bool:
    """Whether nothing else lies, or was moved aside by this job, where the checkpoint lies."""
    mine = {path.name for path in placed.paths}
    return all(name in mine or name.startswith(".lakemark") for name in here(placed, beside))
