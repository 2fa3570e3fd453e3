"""Checkpoints brought back on a `MemoryDisk`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from lakemark.adapters.disk.digests import new_hash
from lakemark.errors import (
    AnswerDamaged,
    Corrupt,
    LakemarkError,
    NoReplica,
    NotFound,
    Refused,
    SourceDamaged,
    StoreUnavailable,
)
from lakemark.model.checkpoints.manifest import File, FileType, Manifest
from lakemark.model.ledger.run import Place
from lakemark.ports import Fetch, Progress, Restored, Sparse
from tests.support.memory.disk import Folder, Inode, Link, MemoryDisk, manifest_of
from tests.support.memory.stores import sound, taken

ASIDE: Final = ".lakemark-aside"


class MemoryRestorer:
    """`ports.Restorer` on a `MemoryDisk`."""

    def __init__(self, disk: MemoryDisk) -> None:
        self.disk = disk

    def restore(self, target: Path, manifest: Manifest, fetch: Fetch, *, tag: str, progress: Progress) -> Restored:
        return self._restore(target, manifest, fetch, tag=tag, progress=progress)

    def restore_parts(
        self, target: Path, manifest: Manifest, sparse: Sparse, *, fetch: Fetch, tag: str, progress: Progress
    ) -> Restored:
        return self._restore(target, manifest, fetch, tag=tag, progress=progress, sparse=sparse)

    def matches(self, path: Path, manifest: Manifest, *, progress: Progress) -> bool:
        if not self.disk.exists(path):
            return False
        if not self.disk.is_dir(path):
            return self._alike({at.name: node for at, node in self.disk.walk(path)}, manifest)
        nodes = {str(at.relative_to(path)): node for at, node in self.disk.walk(path) if at != path}
        progress.advance(manifest.size_bytes)
        return self._alike(nodes, manifest)

    def alone(self, directory: Path) -> AbstractContextManager[None]:
        self.disk.mkdir(directory)
        return nullcontext()

    def tidy(self, path: Path) -> None:
        while ASIDE in path.parts and self.disk.is_dir(path) and not self.disk.names(path):
            self.disk.remove(path)
            path = path.parent

    def move_aside(self, paths: Iterable[Path], into: Path) -> tuple[Path, ...]:
        return moved_aside(self.disk, paths, into)

    def _restore(
        self,
        target: Path,
        manifest: Manifest,
        fetch: Fetch,
        *,
        tag: str,
        progress: Progress,
        sparse: Sparse | None = None,
    ) -> Restored:
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
            if sparse is not None and file.path in sparse.paths:
                continue
            if file.type is FileType.FILE:
                sources[self._fetched(tree / file.path, file, manifest, fetch=fetch, damaged=damaged)] += 1
            elif not self.disk.exists(tree / file.path):
                self._made(tree / file.path, file)
            progress.advance(file.size_bytes)
        partly = _fill(self.disk, tree, manifest, sparse) if sparse else {}
        with self.disk.lock:
            if self.disk.names(target):
                raise Refused(f"{target} is not empty any more", advice="Choose an absent or empty one.")
            self.disk.remove(target)
            self.disk.rename(tree, target)
            self.disk.remove(staging)
        whole = sum(file.size_bytes for file in manifest.files if file.path not in partly)
        return Restored(
            path=target,
            size_bytes=whole + sum(partly.values()),
            files_by_place=dict(sources),
            damaged=tuple(damaged),
            sparse=partly,
        )

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
        why = "; ".join(dict.fromkeys(str(error) for error in failures)) or "there is none"
        kind = SourceDamaged if any(isinstance(error, Corrupt) for error in failures) else NoReplica
        raise kind(f"no replica has {file.path!r} right: {why}", advice="`lakemark verify` says which are sound.")

    @staticmethod
    def _alike(nodes: dict[str, Inode | Link | Folder], manifest: Manifest) -> bool:
        found = {file.path: _essence(file) for file in manifest_of(nodes, roles={}).files}
        return found == {file.path: _essence(file) for file in manifest.files}

    def _made(self, path: Path, file: File) -> None:
        if file.type is FileType.SYMLINK:
            self.disk.place(path, Link(str(file.target)))
        else:
            self.disk.mkdir(path)


def moved_aside(disk: MemoryDisk, paths: Iterable[Path], into: Path) -> tuple[Path, ...]:
    """See `ports.Restorer.move_aside`."""
    with disk.lock:
        disk.mkdir(into)
        return tuple(_moved(disk, path, into) for path in paths)


def _moved(disk: MemoryDisk, path: Path, into: Path) -> Path:
    if not disk.exists(path) and disk.exists(into / path.name):
        return into / path.name
    number, target = 1, into / path.name
    while disk.exists(target):
        number += 1
        target = into / f"{path.name}.{number}"
    disk.rename(path, target)
    return target


def _fill(disk: MemoryDisk, tree: Path, manifest: Manifest, sparse: Sparse) -> dict[str, int]:
    """Writes the sparse files into the tree; path -> bytes of it that are there. Raises NoReplica."""
    there: dict[str, int] = {}
    size, wanted = manifest.part_size_bytes, sparse.wanted(tree)
    for file in manifest.regular:
        if file.path in sparse.paths and file.path in wanted:
            numbers = {
                number
                for offset, length in wanted.get(file.path, ())
                for number in range(offset // size, -(-(offset + length) // size))
            }
            parts = {number: _part(file, number, size, sparse) for number in sorted(numbers)}
            data = bytearray(file.size_bytes)
            for number, content in parts.items():
                data[number * size : number * size + len(content)] = content
            disk.remove(tree / file.path)
            disk.write(tree / file.path, bytes(data), executable=file.executable)
            there[file.path] = sum(map(len, parts.values()))
    return there


def _part(file: File, number: int, size: int, sparse: Sparse) -> bytes:
    start = number * size
    length = min(size, file.size_bytes - start)
    right = file.parts[number] if file.parts else file.digest
    for _, opened in sparse.fetch(file, start, length):
        with suppress(Corrupt), opened as stream:
            data = stream.read(length)
            digest = new_hash()
            digest.update(memoryview(data))
            if digest.hexdigest() != right:
                raise AnswerDamaged(f"part {number} of {file.path!r} is not the manifest's", advice="Read it again.")
            return data
    raise NoReplica(f"no replica has part {number} of {file.path!r} right", advice="`lakemark verify` says which are.")


def _essence(file: File) -> File:
    return replace(file, role="", extra={}, parts=())
