"""A user's disk and what a node remembers of it, in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from threading import RLock

from lakemark.errors import Corrupt, LakemarkError, NoReplica, NotFound, Refused, SourceDamaged, StoreUnavailable
from lakemark.model.checkpoints.manifest import File, FileType, Manifest, check_path, check_target
from lakemark.model.checkpoints.record import DataRef
from lakemark.model.checkpoints.survey import Survey
from lakemark.model.ledger.run import Place
from lakemark.model.ledger.soundness import Seen
from lakemark.model.values.canonical import JSON
from lakemark.ports import (
    Directory,
    Fetch,
    KnownFile,
    OnDisk,
    Pointer,
    Progress,
    Restored,
    RunFile,
    Sparse,
    Spooled,
)
from tests.support.memory import workspace_parts
from tests.support.memory.disk import Folder, Inode, Link, MemoryDisk, manifest_of
from tests.support.memory.stores import sound, taken


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
        return self._restore(target, manifest, fetch, tag=tag, progress=progress)

    def restore_parts(
        self, target: Path, manifest: Manifest, sparse: Sparse, *, fetch: Fetch, tag: str, progress: Progress
    ) -> Restored:
        return self._restore(target, manifest, fetch, tag=tag, progress=progress, sparse=sparse)

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
        partly = workspace_parts.fill(self.disk, tree, manifest, sparse) if sparse else {}
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

    def matches(self, path: Path, manifest: Manifest, *, progress: Progress) -> bool:
        if not self.disk.exists(path):
            return False
        if not self.disk.is_dir(path):
            return self._alike({at.name: node for at, node in self.disk.walk(path)}, manifest)
        nodes = {str(at.relative_to(path)): node for at, node in self.disk.walk(path) if at != path}
        progress.advance(manifest.size_bytes)
        return self._alike(nodes, manifest)

    def points(self, pointer: Pointer) -> bool:
        return workspace_parts.points(self.disk, pointer)

    def draft(self, pointer: Pointer, at: Path) -> None:
        workspace_parts.draft(self.disk, pointer, at)

    def swap(self, draft: Path, path: Path, *, keep: Path) -> Path | None:
        return self.move_aside([draft], keep)[0] if workspace_parts.swap(self.disk, draft, path) else None

    def alone(self, directory: Path) -> AbstractContextManager[None]:
        self.disk.mkdir(directory)
        return nullcontext()

    def tidy(self, path: Path) -> None:
        workspace_parts.tidy(self.disk, path)

    def move_aside(self, paths: Iterable[Path], into: Path) -> tuple[Path, ...]:
        with self.disk.lock:
            self.disk.mkdir(into)
            return tuple(self._moved(path, into) for path in paths)

    def identities(self, path: Path) -> tuple[KnownFile, ...]:
        return self.disk.identities(path)

    def is_gone(self, file: KnownFile) -> bool:
        place = Path(file.place)
        there = self.disk.identities(place) if self.disk.exists(place) else ()
        return bool(file.place) and file not in there

    def survey(self, root: Path) -> Survey | None:
        return None

    def same(self, before: Survey) -> bool:
        return False

    def files(self, path: Path, members: Sequence[Path] = ()) -> tuple[OnDisk, ...]:
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

    def require_keepable(self, path: Path, members: Sequence[Path] = ()) -> None:
        for one in self.files(path, members):
            check_path(one.path)
        for top in members or (path,):
            base = path.parent if members else path
            for at, node in self.disk.walk(top):
                if isinstance(node, Link):
                    check_target(str(at.relative_to(base)), node.target)

    def last_change(self, paths: Iterable[Path]) -> datetime | None:
        times = [file.mtime_ns for path in paths for file in self.disk.identities(path)]
        return self.disk.instant(max(times)) if times else None

    def digest(self, path: Path) -> str:
        return str(self.disk.inode(path).describe(path.name).digest)

    def write_run_file(self, path: Path, run_file: RunFile) -> None:
        self._run_files[path] = run_file

    def read_run_file(self, path: Path) -> RunFile | None:
        return self._run_files.get(path)

    def spooled(self, spool: Path) -> Iterator[Spooled]:
        here = [one for one in self._spooled.values() if one.file.parent == spool]
        yield from sorted(here, key=lambda one: (one.step, one.file))

    def announcing(self, spools: Path) -> tuple[str, ...]:
        return tuple(
            sorted({one.file.parent.name for one in self._spooled.values() if one.file.parent.parent == spools})
        )

    def unspool(self, spooled: Spooled) -> None:
        self._spooled.pop(spooled.file, None)

    def with_reads(self, spool: Path, attempt: str, data: tuple[DataRef, ...]) -> tuple[DataRef, ...]:
        return data

    def exists(self, path: Path) -> bool:
        return path in self.json or self.disk.exists(path)

    def not_to_take(self, announcement: Path, paths: Sequence[Path], *, inside: Sequence[Path]) -> str | None:
        """Without owners; what counts is where it lies."""
        out = [path for path in paths if inside and not any(path.is_relative_to(root) for root in inside)]
        return f"{out[0]} lies outside the directories of its run" if out else None

    def save_json(self, path: Path, value: JSON) -> None:
        self.json[path] = value

    def load_json(self, path: Path) -> JSON:
        return self.json.get(path)

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
        self._files: dict[KnownFile, tuple[str, str, KnownFile, datetime | None]] = {}
        self._by_inode: dict[tuple[int, int], KnownFile] = {}
        self._directories: dict[Path, Directory] = {}
        self._looks: dict[str, datetime] = {}
        self._digests: dict[KnownFile, KnownFile] = {}
        self._tips: dict[tuple[str, str], str] = {}
        self._lock = RLock()

    def remember(self, files: Iterable[KnownFile], *, record: str, why: str) -> None:
        with self._lock:
            for file in files:
                if file.inode:
                    self._files.pop(self._by_inode.get((file.device, file.inode), file), None)
                    self._by_inode[file.device, file.inode] = file
                self._files[file] = (record, why, file, None)

    def known(self, file: KnownFile) -> str | None:
        found = self._files.get(file)
        return None if found is None or _in_doubt(file, found[2]) else found[0]

    def all_known(self, files: Iterable[KnownFile], *, at: datetime | None = None) -> bool:
        files = list(files)
        if not all(self.known(file) for file in files):
            return False
        with self._lock:
            for file in files if at is not None else ():
                record, why, read, _ = self._files[file]
                self._files[file] = (record, why, replace(read, place=file.place), at)
        return True

    def doubtful(self, files: Iterable[KnownFile]) -> tuple[KnownFile, ...]:
        return tuple(file for file in files if file in self._files and _in_doubt(file, self._files[file][2]))

    def confirm(self, file: KnownFile) -> None:
        with self._lock:
            found = self._files.get(file)
            if found is None or not _in_doubt(replace(file, digest=""), found[2]):
                return
            if found[2].digest == file.digest:
                self._files[file] = (*found[:2], file, found[3])
            else:
                del self._files[file]

    def unseen_files(self, before: datetime) -> Iterator[KnownFile]:
        with self._lock:
            old = [one[2] for one in self._files.values() if one[2].place and (one[3] is None or one[3] < before)]
        yield from old

    def forget_files(self, files: Iterable[KnownFile]) -> None:
        with self._lock:
            for file in files:
                if file in self._files and self._files[file][2].place == file.place:
                    del self._files[file]

    def note_digest(self, file: KnownFile, digest: str) -> None:
        self._digests[file] = replace(file, digest=digest)

    def digest(self, file: KnownFile) -> str | None:
        found = self._digests.get(file)
        return None if found is None or found.ctime_ns != file.ctime_ns else found.digest

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

    def forget_looks(self, prefix: str, *, before: datetime) -> None:
        with self._lock:
            old = [key for key, at in self._looks.items() if key.startswith(prefix) and at < before]
            for key in old:
                del self._looks[key]

    def saw(self, source: str, tips: Mapping[str, str]) -> None:
        with self._lock:
            self._tips |= {(source, branch): revision for branch, revision in tips.items()}

    def seen(self, branch: str | None = None) -> tuple[Seen, ...]:
        with self._lock:
            return tuple(
                Seen(source=source, branch=name, revision=revision)
                for (source, name), revision in self._tips.items()
                if branch in (None, name)
            )

    def forget_seen(self, seen: Iterable[Seen]) -> None:
        with self._lock:
            for one in seen:
                if self._tips.get((one.source, one.branch)) == one.revision:
                    del self._tips[one.source, one.branch]

    def forget_all(self) -> None:
        with self._lock:
            self._tips.clear()
            self._files.clear()
            self._directories.clear()
            self._looks.clear()
            self._digests.clear()


def _in_doubt(file: KnownFile, read: KnownFile) -> bool:
    return bool(read.digest) and read.ctime_ns != file.ctime_ns and file.digest != read.digest


def _essence(file: File) -> File:
    return replace(file, role="", extra={}, parts=())
