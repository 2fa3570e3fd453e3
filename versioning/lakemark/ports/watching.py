"""Looking about on this node: which directories there are, and a word when something in one of them may have changed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol


class Lookout(Protocol):
    """A hint is never the truth: changes are missed, also all of them, and hints come for nothing. Whoever needs to know looks.

    Safe to use from several threads; one of them waits.
    """

    def folders(self, pattern: Path) -> tuple[Path, ...]:
        """Directories that are there and match, in order of name: a `*` in a component stands for part of one name.

        As in a shell it stands for no leading dot. Links to directories count. Nothing is raised for what can't be read.
        """

    def follow(self, folders: Sequence[Path]) -> bool:
        """Hints are of these folders from now on, of the names in them and not of what is deeper; the most important first.

        Answers whether one is followed now that was not before: what happened in it until now gave no hint.
        """

    @property
    def whole(self) -> bool:
        """False once a folder came, went or was replaced since `follow`: then it should be called again."""

    def wait(self, seconds: float) -> frozenset[Path]:
        """The folders that hints came for since the last call. Returns at the first; without any after `seconds` or `wake`.

        That a folder is there which was not gives a hint of it, within seconds.
        """

    def wake(self) -> None:
        """Ends the `wait` that goes on, or the next one, early. May be called by a signal's handler."""

    @property
    def trouble(self) -> str | None:
        """Why some folders give no hints, in words."""

    def close(self) -> None:
        """No more hints."""
