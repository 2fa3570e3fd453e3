"""A user's files, as they are looked at, in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from lakemark.errors import NotFound
from lakemark.model.checkpoints.manifest import check_path, check_target
from lakemark.model.checkpoints.survey import Survey
from lakemark.ports import KnownFile, OnDisk
from tests.support.memory.disk import Inode, Link, MemoryDisk
from tests.support.memory.notes import MemoryNotes


class MemoryFiles:
    """`ports.Files` on a `MemoryDisk`; what `notes` keeps lies there, too."""

    def __init__(self, disk: MemoryDisk, notes: MemoryNotes | None = None) -> None:
        self.disk = disk
        self._notes = notes or MemoryNotes()

    def exists(self, path: Path) -> bool:
        return path in self._notes.json or self.disk.exists(path)

    def resolved(self, path: Path) -> Path:
        return path

    def regular(self, path: Path, members: Sequence[Path] = ()) -> tuple[OnDisk, ...]:
        found: list[OnDisk] = []
        with self.disk.lock:
            for top in members or (path,):
                if not self.disk.exists(top):
                    raise NotFound(f"there is nothing at {top}", advice="Check the path.")
                base = path.parent if members else top if self.disk.is_dir(top) else top.parent
                for at, node in self.disk.walk(top):
                    if isinstance(node, Inode):
                        names = self.disk.names_of(node)
                        found.append(
                            OnDisk(path=str(at.relative_to(base)), file=replace(node.known, place=str(at)), names=names)
                        )
        return tuple(sorted(found, key=lambda one: one.path))

    def identities(self, path: Path) -> tuple[KnownFile, ...]:
        return self.disk.identities(path)

    def is_gone(self, file: KnownFile) -> bool:
        place = Path(file.place)
        there = self.disk.identities(place) if self.disk.exists(place) else ()
        return bool(file.place) and file not in there

    def require_keepable(self, path: Path, members: Sequence[Path] = ()) -> None:
        for one in self.regular(path, members):
            check_path(one.path)
        for top in members or (path,):
            base = path.parent if members else path
            for at, node in self.disk.walk(top):
                if isinstance(node, Link):
                    check_target(str(at.relative_to(base)), node.target)

    def last_change(self, paths: Iterable[Path]) -> datetime | None:
        times = [file.mtime_ns for path in paths for file in self.disk.identities(path)]
        return self.disk.instant(max(times)) if times else None

    def survey(self, root: Path) -> Survey | None:
        return None

    def same(self, before: Survey) -> bool:
        return False

    def digest(self, path: Path) -> str:
        return str(self.disk.inode(path).describe(path.name).digest)
