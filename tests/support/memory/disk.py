"""A directory tree in memory: where trainers save, hot keeps its trees and checkpoints are brought back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from threading import RLock
from typing import Final

from lakemark.adapters.disk.digests import Digester
from lakemark.errors import Conflict, NotFound
from lakemark.model.checkpoints.manifest import PART_SIZE_BYTES, File, FileType, Manifest
from lakemark.ports import KnownFile

_DEVICE: Final = 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Inode:
    """A regular file. Two names of it see one another's writes; `changed` counts what ctime would show."""

    number: int
    data: bytes
    mtime_ns: int
    executable: bool = False
    changed: int = 0

    @property
    def known(self) -> KnownFile:
        return KnownFile(
            device=_DEVICE,
            inode=self.number,
            size_bytes=len(self.data),
            mtime_ns=self.mtime_ns,
            ctime_ns=1 + self.changed,
        )

    def describe(self, path: str, *, role: str = "other") -> File:
        """The file as a manifest lists it, all bytes digested."""
        digester = Digester(PART_SIZE_BYTES)
        digester.update(memoryview(self.data))
        found = digester.finish()
        return File(
            path=path,
            size_bytes=found.size_bytes,
            executable=self.executable,
            digest=found.digest,
            parts=found.parts,
            role=role,
        )


@dataclass(slots=True)
class Link:
    """A symbolic link."""

    target: str


@dataclass(slots=True)
class Folder:
    """A directory."""

    made: bool = field(default=True)


class MemoryDisk:
    """Absolute paths only. Every write gets an mtime of its own, also while the clock stands still."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._nodes: dict[str, Inode | Link | Folder] = {}
        self._inodes = 0
        self._last_ns = 0
        self.lock = RLock()

    @property
    def now(self) -> datetime:
        return self._now()

    def write(self, path: Path, data: bytes, *, executable: bool = False) -> Inode:
        """Makes the file and its folders, or overwrites it in place: other names of it change too."""
        with self.lock:
            node = self._nodes.get(str(path))
            if isinstance(node, Inode):
                node.data, node.mtime_ns, node.executable = data, self._stamp(), executable
                node.changed += 1
                return node
            self._inodes += 1
            made = Inode(self._inodes, data, self._stamp(), executable)
            self.place(path, made)
            return made

    def replace(self, path: Path, data: bytes) -> Inode:
        """A new file under that name, as by writing beside it and renaming."""
        with self.lock:
            self._nodes.pop(str(path), None)
            return self.write(path, data)

    def place(self, path: Path, node: Inode | Link | Folder) -> None:
        """Gives `node` the name `path`; a hard link where it has another. Raises Conflict for a name that is taken."""
        with self.lock:
            if str(path) in self._nodes:
                raise Conflict(f"{path} exists", advice="Look at what is there; nothing was overwritten.")
            for parent in path.parents:
                found = self._nodes.setdefault(str(parent), Folder())
                if not isinstance(found, Folder):
                    raise Conflict(f"{parent} is not a directory", advice="Choose another path.")
            self._nodes[str(path)] = node

    def symlink(self, path: Path, target: str) -> None:
        self.place(path, Link(target))

    def mkdir(self, path: Path) -> None:
        if not isinstance(self._nodes.get(str(path)), Folder):
            self.place(path, Folder())

    def read(self, path: Path) -> bytes:
        """Raises NotFound where there is no regular file."""
        return self.inode(path).data

    def inode(self, path: Path) -> Inode:
        node = self._nodes.get(str(path))
        if not isinstance(node, Inode):
            raise NotFound(f"there is no file {path}", advice="Check the path.")
        return node

    def exists(self, path: Path) -> bool:
        return str(path) in self._nodes

    def is_dir(self, path: Path) -> bool:
        return isinstance(self._nodes.get(str(path)), Folder)

    def names(self, path: Path) -> list[str]:
        """Of a directory's entries, sorted; empty where there is none."""
        with self.lock:
            below = _below(path)
            found = [at[len(below) :] for at in self._nodes if at.startswith(below)]
            return sorted(name for name in found if name and "/" not in name)

    def walk(self, path: Path) -> Iterator[tuple[Path, Inode | Link | Folder]]:
        """`path` itself and everything below it, sorted by name."""
        with self.lock:
            top, below = str(path), _below(path)
            found = sorted(at for at in self._nodes if at == top or at.startswith(below))
            pairs = [(Path(at), self._nodes[at]) for at in found]
        yield from pairs

    def remove(self, path: Path) -> None:
        """A file, or a directory with all in it; nothing happens where there is nothing."""
        with self.lock:
            for at, node in list(self.walk(path)):
                if isinstance(node, Inode):
                    node.changed += 1
                del self._nodes[str(at)]

    def rename(self, source: Path, target: Path) -> None:
        """In one step, with everything below. Raises NotFound, Conflict where `target` exists."""
        with self.lock:
            moving = list(self.walk(source))
            if not moving:
                raise NotFound(f"{source} is not there", advice="Check the path.")
            if str(target) in self._nodes:
                raise Conflict(f"{target} exists", advice="Look at what is there; nothing was overwritten.")
            for at, _ in moving:
                del self._nodes[str(at)]
            for at, node in moving:
                self.place(target / at.relative_to(source), node)

    def identities(self, path: Path) -> tuple[KnownFile, ...]:
        """Of the regular files at or under `path`."""
        found = ((at, node) for at, node in self.walk(path) if isinstance(node, Inode))
        return tuple(replace(node.known, place=str(at)) for at, node in found)

    def names_of(self, inode: Inode) -> int:
        """How many names the file has."""
        return sum(node is inode for node in self._nodes.values())

    def instant(self, mtime_ns: int) -> datetime:
        """The time of an mtime, in whole microseconds."""
        return datetime.fromtimestamp(mtime_ns // 1000 / 1_000_000, UTC)

    def _stamp(self) -> int:
        now = self._now() - _EPOCH
        wanted = (now.days * 86_400 + now.seconds) * 10**9 + now.microseconds * 1000
        self._last_ns = max(self._last_ns + 1, wanted)
        return self._last_ns


def _below(path: Path) -> str:
    return "/" if path == path.parent else f"{path}/"


def manifest_of(nodes: dict[str, Inode | Link | Folder], *, roles: dict[str, str]) -> Manifest:
    """The manifest of a tree, given by relative path; directories count only where they are empty."""
    files: list[File] = []
    for path, node in nodes.items():
        if isinstance(node, Inode):
            files.append(node.describe(path, role=roles.get(path, "other")))
        elif isinstance(node, Link):
            files.append(File(path=path, type=FileType.SYMLINK, target=node.target))
        elif not any(other.startswith(f"{path}/") for other in nodes):
            files.append(File(path=path, type=FileType.DIRECTORY))
    return Manifest(files=tuple(files))
