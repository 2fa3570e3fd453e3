"""A `MemoryDisk`'s pointers, and files restored in part."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

from lakemark.adapters.disk.digests import new_hash
from lakemark.errors import AnswerDamaged, Corrupt, NoReplica
from lakemark.model.checkpoints.manifest import File, Manifest
from lakemark.ports import Pointer, PointerKind, Sparse
from tests.support.memory.disk import Folder, Inode, Link, MemoryDisk

ASIDE: Final = ".lakemark-aside"


def points(disk: MemoryDisk, pointer: Pointer) -> bool:
    """See `ports.Workspace.points`."""
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


def draft(disk: MemoryDisk, pointer: Pointer, at: Path) -> None:
    """See `ports.Workspace.draft`."""
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


def swap(disk: MemoryDisk, one: Path, path: Path) -> bool:
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


def tidy(disk: MemoryDisk, path: Path) -> None:
    """See `ports.Workspace.tidy`."""
    while ASIDE in path.parts and disk.is_dir(path) and not disk.names(path):
        disk.remove(path)
        path = path.parent


def fill(disk: MemoryDisk, tree: Path, manifest: Manifest, sparse: Sparse) -> dict[str, int]:
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
