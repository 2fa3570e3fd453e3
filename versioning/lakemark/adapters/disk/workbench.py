"""Directories for unfinished work, each held by the flock of the process at work in it: what nobody holds is dead."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lakemark.adapters.disk.files import locked, make_directories, open_lock, remove_tree, share, try_lock
from lakemark.errors import NotFound, quoted


class Workbench:
    """Below `root`, which is made on first use. The kernel lets go of a directory with its process, however that ends."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._held: dict[str, int] = {}

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Holds the bench beside others that do; nobody has it alone meanwhile."""
        with locked(self._gate(), shared=True):
            yield

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Whether nobody else holds it; does not wait."""
        descriptor = open_lock(self._gate())
        try:
            yield try_lock(descriptor)
        finally:
            os.close(descriptor)

    def _gate(self) -> Path:
        gate = self._root.with_name(f"{self._root.name}.gate")
        make_directories(gate)
        return gate

    def begin(self) -> Path:
        """A new empty directory, held until `end`."""
        make_directories(self._root)
        place = self._root / secrets.token_hex(8)
        # Shared: nobody looks for dead ones between mkdir and flock.
        with locked(self._root, shared=True):
            place.mkdir(mode=0o700)
            share(place, folder=self._root)
            descriptor = open_lock(place)
            try_lock(descriptor)
        self._held[place.name] = descriptor
        return place

    def find(self, token: str) -> Path:
        """The directory of a `begin`, taken over where its process is gone. Raises NotFound."""
        place = self._root / token
        # A token is a name of ours: one with a slash, or of dots, would lead out of the bench.
        if "/" in token or token in {"", ".", ".."} or not place.is_dir():
            raise NotFound(
                f"there is no unfinished work {quoted(token)}: its process ended and it was cleaned away",
                advice="Do it again from the start.",
            )
        return place

    def end(self, token: str) -> None:
        """Removes the directory and all in it."""
        # Still held: let go of first, it would look dead, and somebody else would remove it beside us.
        remove_tree(self._root / token)
        descriptor = self._held.pop(token, -1)
        if descriptor >= 0:
            os.close(descriptor)

    def dead(self) -> Iterator[Path]:
        """Directories whose process is gone, held while the caller looks at each; `end` removes one."""
        if not self._root.is_dir():
            return
        for name in sorted(os.listdir(self._root)):
            # Alone: in `begin` somebody may be between mkdir and flock, whose directory would look dead.
            with locked(self._root):
                descriptor = _hold(self._root / name)
            if descriptor >= 0:
                self._held[name] = descriptor
                try:
                    yield self._root / name
                finally:
                    if name in self._held:
                        os.close(self._held.pop(name))


def _hold(place: Path) -> int:
    """The directory's lock, taken; -1 where somebody holds it, or where it is gone."""
    try:
        descriptor = open_lock(place)
    except (FileNotFoundError, NotADirectoryError):
        return -1
    if try_lock(descriptor):
        return descriptor
    os.close(descriptor)
    return -1
