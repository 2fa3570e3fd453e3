"""What a node remembers of its disk, in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from threading import RLock

from lakemark.model.ledger.soundness import Seen
from lakemark.ports import Directory, Kept, KnownFile, Mark, MarkKind


class MemoryMarks:
    """`ports.Marks`."""

    def __init__(self) -> None:
        self.instants: dict[Mark, datetime] = {}
        self._lock = RLock()

    def set(self, mark: Mark, *, at: datetime) -> datetime | None:
        with self._lock:
            before = self.instants.get(mark)
            self.instants[mark] = at
            return before

    def get(self, mark: Mark) -> datetime | None:
        return self.instants.get(mark)

    def forget(self, kind: MarkKind, *, before: datetime) -> None:
        with self._lock:
            for mark in [mark for mark, at in self.instants.items() if mark.kind is kind and at < before]:
                del self.instants[mark]


class MemoryJournal:
    """`ports.Journal`; `forget_all` is the loss of it."""

    def __init__(self) -> None:
        self._files: dict[KnownFile, tuple[str, str, KnownFile, datetime | None]] = {}
        self._by_inode: dict[tuple[int, int], KnownFile] = {}
        self._directories: dict[Path, Directory] = {}
        self.marks = MemoryMarks()
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
        found = self.kept(file)
        return None if found is None else found.record

    def kept(self, file: KnownFile) -> Kept | None:
        found = self._files.get(file)
        if found is None or _in_doubt(file, found[2]):
            return None
        return Kept(record=found[0], why=found[1], digest=found[2].digest)

    def twins(self, digest: str) -> tuple[KnownFile, ...]:
        return tuple(one[2] for one in self._files.values() if one[2].digest == digest)

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
            self.marks.instants.clear()
            self._digests.clear()


def _in_doubt(file: KnownFile, read: KnownFile) -> bool:
    return bool(read.digest) and read.ctime_ns != file.ctime_ns and file.digest != read.digest
