"""Directories that a search for checkpoints passes over although nobody told it to: they can't be read."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from lakemark.model.names import printable
from lakemark.ports import Workspace
from lakemark.services.layout import ASIDE

_DEEPEST: Final = 8
_MEANT: Final = frozenset({ASIDE, ".git", "__pycache__", "node_modules", "site-packages"})
"""As `Recogniser.find` leaves them alone."""


def unreadable(workspace: Workspace, root: Path, *, candidates: Collection[Path]) -> Iterator[tuple[Path, str]]:
    """Each with the reason. candidates: checkpoints, which are judged and say so themselves."""

    def entered(folder: Path) -> bool:
        deep = len(folder.parts) - len(root.parts)
        return folder.name not in _MEANT and deep <= _DEEPEST and folder not in candidates

    yield from workspace.unreadable(root, entered=entered)


def named(path: Path) -> str:
    """As people are told of one; why follows."""
    return f"could not be read: {printable(path)}"
