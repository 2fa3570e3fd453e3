"""A framework's pointers, in memory."""

from __future__ import annotations

from pathlib import Path

from lakemark.ports import Pointer, PointerKind
from tests.support.memory.disk import Folder, Inode, Link, MemoryDisk
from tests.support.memory.restorer import moved_aside


class MemoryPointers:
    """`ports.Pointers` on a `MemoryDisk`."""

    def __init__(self, disk: MemoryDisk) -> None:
        self.disk = disk

    def points(self, pointer: Pointer) -> bool:
        return _points(self.disk, pointer)

    def draft(self, pointer: Pointer, at: Path) -> None:
        _draft(self.disk, pointer, at)

    def swap(self, draft: Path, path: Path, *, keep: Path) -> Path | None:
        return moved_aside(self.disk, [draft], keep)[0] if _swap(self.disk, draft, path) else None


def _points(disk: MemoryDisk, pointer: Pointer) -> bool:
    nodes = dict(disk.walk(pointer.path))
    node = nodes.get(pointer.path)
    match pointer.kind:
        case PointerKind.GONE:
            return node is None
        case PointerKind.TEXT:
            return isinstance(node, Inode) and node.data == pointer.content.encode()
        case PointerKind.SYMLINK:
            return isinstance(node, Link) and node.target == pointer.content
        case _:
            return _tree(disk, pointer.path) == _tree(disk, Path(pointer.content))


def _draft(disk: MemoryDisk, pointer: Pointer, at: Path) -> None:
    with disk.lock:
        disk.remove(at)
        if pointer.kind is PointerKind.TEXT:
            disk.write(at, pointer.content.encode())
        elif pointer.kind is PointerKind.SYMLINK:
            disk.symlink(at, pointer.content)
        else:
            source = Path(pointer.content)
            for path, node in list(disk.walk(source)):
                _put(disk, at / path.relative_to(source), node)


def _swap(disk: MemoryDisk, one: Path, path: Path) -> bool:
    """True where something was there: it is where the draft was."""
    with disk.lock:
        there = disk.exists(path)
        if there:
            between = one.with_name(f"{one.name}.exchanged")
            disk.rename(path, between)
            disk.rename(one, path)
            disk.rename(between, one)
        else:
            disk.rename(one, path)
        return there


def _tree(disk: MemoryDisk, path: Path) -> dict[str, object]:
    return {
        str(at.relative_to(path)): getattr(node, "data", getattr(node, "target", None)) for at, node in disk.walk(path)
    }


def _put(disk: MemoryDisk, path: Path, node: Inode | Link | Folder) -> None:
    if isinstance(node, Inode):
        disk.write(path, node.data, executable=node.executable)
    elif isinstance(node, Link):
        disk.symlink(path, node.target)
    else:
        disk.mkdir(path)
