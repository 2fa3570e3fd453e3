"""A user's disk and what a node remembers of it, in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from threading import RLock

from lakemark.adapters.memory.disk import Link, MemoryDisk, manifest_of
from lakemark.adapters.memory.stores import sound, taken
from lakemark.errors import Corrupt, LakemarkError, NoReplica, NotFound, Refused, StoreUnavailable
from lakemark.model.canonical import JSON
from lakemark.model.checkpoint import File, FileType, Manifest
from lakemark.model.ledger import Place
from lakemark.ports import Directory, Fetch, KnownFile, Progress, Restored, RunFile, Spooled


class MemoryWorkspace:
    """`ports.Workspace` on a `MemoryDisk`; run files, announcements and plans are kept as values beside it."""

    def __init__(self, disk: MemoryDisk) -> None:
        self.disk = disk
        self._run_files: dict[Path, RunFile] = {}
        self._spooled: dict[Path, Spooled] = {}
        self.json: dict[Path, JSON] = {}

    def announce(self, spooled: Spooled) -> None:
        """What a trainer's `Run.saved` does."""
        self._spooled[spooled.file] = spooled

    def restore(self, target: Path, manifest: Manifest, fetch: Fetch, *, tag: str, progress: Progress) -> Restored:
        staging = target.parent / f".{target.name}.lakemark-restore"
        if self.disk.exists(target) and (not self.disk.is_dir(target) or self.disk.names(target)):
            raise Refused(f"{target} is not an empty directory", advice="Choose an absent or empty one.")
        if self.disk.names(staging) != [tag]:
            self.disk.remove(staging)
        tree = staging / tag
        self.disk.mkdir(tree)
        sources: Counter[str] = Counter()
        damaged: list[tuple[Place, str]] = []
        for file in manifest.files:
            if file.type is FileType.FILE:
                sources[self._fetched(tree / file.path, file, manifest, fetch=fetch, damaged=damaged)] += 1
            elif not self.disk.exists(tree / file.path):
                self._made(tree / file.path, file)
            progress.advance(file.size_bytes)
        with self.disk.lock:
            if self.disk.names(target):
                raise Refused(f"{target} is not empty any more", advice="Choose an absent or empty one.")
            self.disk.remove(target)
            self.disk.rename(tree, target)
            self.disk.remove(staging)
        return Restored(
            path=target, size_bytes=manifest.size_bytes, files_by_place=dict(sources), damaged=tuple(damaged)
        )

    def matches(self, path: Path, manifest: Manifest, *, progress: Progress) -> bool:
        if not self.disk.is_dir(path):
            return False
        nodes = {str(at.relative_to(path)): node for at, node in self.disk.walk(path) if at != path}
        progress.advance(manifest.size_bytes)
        found = {file.path: _essence(file) for file in manifest_of(nodes, roles={}).files}
        return found == {file.path: _essence(file) for file in manifest.files}

    def move_aside(self, paths: Iterable[Path], into: Path) -> tuple[Path, ...]:
        with self.disk.lock:
            self.disk.mkdir(into)
            return tuple(self._moved(path, into) for path in paths)

    def identities(self, path: Path) -> tuple[KnownFile, ...]:
        return self.disk.identities(path)

    def write_run_file(self, path: Path, run_file: RunFile) -> None:
        self._run_files[path] = run_file

    def read_run_file(self, path: Path) -> RunFile | None:
        return self._run_files.get(path)

    def spooled(self, spool: Path) -> Iterator[Spooled]:
        here = [one for one in self._spooled.values() if one.file.parent == spool]
        yield from sorted(here, key=lambda one: (one.step, one.file))

    def unspool(self, spooled: Spooled) -> None:
        self._spooled.pop(spooled.file, None)

    def exists(self, path: Path) -> bool:
        return self.disk.exists(path)

    def save_json(self, path: Path, value: JSON) -> None:
        self.json[path] = value

    def _fetched(
        self, path: Path, file: File, manifest: Manifest, *, fetch: Fetch, damaged: list[tuple[Place, str]]
    ) -> str:
        """Where the bytes came from."""
        if self.disk.exists(path) and sound(self.disk.read(path), file, manifest):
            return "kept"
        failures: list[LakemarkError] = []
        for place, opened in fetch(file):
            try:
                data = taken(lambda _, opened=opened: opened, file, manifest)  # type: ignore[misc]
            except LakemarkError as error:
                failures.append(error)
                if isinstance(error, Corrupt | NotFound):
                    damaged.append((place, file.path))
                continue
            self.disk.write(path, data, executable=file.executable)
            return place.tier if place.node is None else f"{place.tier}@{place.node}"
        away = next((error for error in failures if isinstance(error, StoreUnavailable)), None)
        if away is not None:
            raise away
        why = "; ".join(str(error) for error in failures) or "there is none"
        raise NoReplica(f"no replica has {file.path!r} right: {why}", advice="`lakemark verify` says which are sound.")

    def _made(self, path: Path, file: File) -> None:
        if file.type is FileType.SYMLINK:
            self.disk.place(path, Link(str(file.target)))
        else:
            self.disk.mkdir(path)

    def _moved(self, path: Path, into: Path) -> Path:
        if not self.disk.exists(path) and self.disk.exists(into / path.name):
            return into / path.name
        number, target = 1, into / path.name
        while self.disk.exists(target):
            number += 1
            target = into / f"{path.name}.{number}"
        self.disk.rename(path, target)
        return target


class MemoryJournal:
    """`ports.Journal`; `forget_all` is the loss of it."""

    def __init__(self) -> None:
        self._files: dict[KnownFile, tuple[str, str]] = {}
        self._directories: dict[Path, Directory] = {}
        self._looks: dict[str, datetime] = {}
        self._lock = RLock()

    def remember(self, files: Iterable[KnownFile], *, record: str, why: str) -> None:
        with self._lock:
            self._files.update(dict.fromkeys(files, (record, why)))

    def known(self, file: KnownFile) -> str | None:
        found = self._files.get(file)
        return None if found is None else found[0]

    def bind_directory(self, path: Path, directory: Directory) -> None:
        self._directories[path] = directory

    def directory(self, path: Path) -> Directory | None:
        return self._directories.get(path)

    def looked(self, key: str, *, at: datetime) -> datetime | None:
        with self._lock:
            before = self._looks.get(key)
            self._looks[key] = at
            return before

    def last_looked(self, key: str) -> datetime | None:
        return self._looks.get(key)

    def forget_all(self) -> None:
        with self._lock:
            self._files.clear()
            self._directories.clear()
            self._looks.clear()


def _essence(file: File) -> File:
    return replace(file, role="", extra={}, parts=())
