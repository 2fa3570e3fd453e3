"""A framework's own pointers: what names the checkpoint that training goes on from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol


class PointerKind(StrEnum):
    """text: a file that says `content`. symlink: a link to `content`. copy: the same bytes as `content`.

    gone: nothing may be there.
    """

    TEXT = "text"
    SYMLINK = "symlink"
    COPY = "copy"
    GONE = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointer:
    """How the thing at `path` must be. content: the text, the link's target as written, or the path to be copied."""

    path: Path
    kind: PointerKind
    content: str = ""
    why: str = ""


class Pointers(Protocol):
    """A framework's pointers, set by rename: at every moment there is the old one or the new one, each whole."""

    def points(self, pointer: Pointer) -> bool:
        """Whether what lies at its path is so already."""

    def draft(self, pointer: Pointer, at: Path) -> None:
        """Makes at `at` what the pointer must be, durably; an earlier draft there is replaced. Not of the kind gone."""

    def swap(self, draft: Path, path: Path, *, keep: Path) -> Path | None:
        """Shows the draft as `path`, durably; what lay there is afterwards in the directory `keep`, where this answers.

        Where the file system can exchange names, `path` is never absent in between.
        """
