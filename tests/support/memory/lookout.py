"""A lookout over a disk in memory: hints come when a test or a program gives them, and waiting takes no time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.support.memory.disk import MemoryDisk


class MemoryLookout:
    """Implements `ports.watching.Lookout`."""

    def __init__(self, disk: MemoryDisk) -> None:
        self.followed: tuple[Path, ...] = ()
        self.trouble: str | None = None
        self.whole = True
        self._disk = disk
        self._heard: set[Path] = set()

    def folders(self, pattern: Path) -> tuple[Path, ...]:
        found = [Path(pattern.anchor)]
        for part in pattern.parts[1:]:
            found = [at / name for at in found for name in self._disk.names(at) if _fits(name, part)]
        return tuple(path for path in found if self._disk.is_dir(path))

    def follow(self, folders: Sequence[Path]) -> bool:
        new = not set(folders) <= set(self.followed)
        self.followed = tuple(folders)
        return new

    def hint(self, folder: Path) -> None:
        """As the kernel gives one; of a folder that is not followed nothing is heard."""
        if folder in self.followed:
            self._heard.add(folder)

    def wait(self, seconds: float) -> frozenset[Path]:
        found = frozenset(self._heard)
        self._heard.clear()
        return found

    def wake(self) -> None:
        pass

    def close(self) -> None:
        self.followed = ()


def _fits(name: str, part: str) -> bool:
    if "*" not in part:
        return name == part
    before, _, after = part.partition("*")
    visible = part.startswith(".") or not name.startswith(".")
    return visible and len(name) >= len(part) - 1 and name.startswith(before) and name.endswith(after)
