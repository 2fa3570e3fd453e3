"""Links that name a checkpoint: `last.ckpt`, `latest-rank0.pt`, `…-last`. Recorded, never followed, never trusted."""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lakemark.formats.readers.folder import Folder
from lakemark.formats.rules.family import pointer
from lakemark.ports import Found

FRAMEWORK: Final = "alias"
_NAMES: Final = re.compile(
    r"(?:last|best)(?:-v\d+)?\.ckpt|latest-rank\d+\.pt(?:\.symlink)?|(?:latest|last|best)(?:[-_]\w+)?|.+-last(?:\.ckpt)?"
    r"|checkpoint_(?:best|last)(?:-\w+)?\.pt",
    re.ASCII,
)


LASTS: Final = re.compile(r"last(?:-v\d+)?\.ckpt|latest-rank\d+\.pt", re.ASCII)
"""Names that no one else gives a link: where it leads nowhere, and nothing is beside it, it is a pointer still."""


@dataclass(frozen=True, slots=True)
class Link:
    """at: the folder it lies in. It is read when its target is asked for."""

    at: str
    name: str

    @property
    def path(self) -> Path:
        return Path(self.at, self.name)

    @property
    def target(self) -> str:
        """As it is written; empty where it can't be read."""
        try:
            return os.readlink(f"{self.at}/{self.name}")  # noqa: PTH115 - names may be no UTF-8
        except OSError:
            return ""


def links_of(folder: Folder) -> Iterator[Link]:
    """The links directly in a folder."""
    return (Link(folder.at, name) for name in folder.links)


def judge_link(link: Link, steps: Mapping[str, int | None], parents: Container[str]) -> Found | None:
    """None for a link that is nobody's pointer.

    steps: path of each checkpoint that was found -> its step. parents: of these.
    """
    target = link.target
    why = f"symlink -> {target}"
    # By text: the target is not looked at, so links in a ring, or into the dark of a hung mount, cost nothing.
    meant = os.path.normpath(f"{link.at}/{target}" if not target.startswith("/") else target)
    if meant in steps:
        return pointer(link.path, target, framework=FRAMEWORK, step=steps[meant], why=why)
    # A link elsewhere that is called `latest` is of some other program.
    beside = os.path.normpath(link.at) in parents or LASTS.fullmatch(link.name) is not None
    if _NAMES.fullmatch(link.name) and beside and _checkpoint_like(link.name, target):
        return pointer(link.path, target, framework=FRAMEWORK, why=f"{why}, which is no checkpoint here")
    return None


def _checkpoint_like(name: str, target: str) -> bool:
    """`latest` alone is a common name: only where the target names a step is it taken for a pointer."""
    return bool(re.search(r"\d", target.rpartition("/")[2])) or name.endswith((".ckpt", ".pt"))
