"""Reading the tree that is to land: from a `MemoryDisk`, or from the real one, whose files are copied."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from lakemark.adapters.disk.files import os_errors
from lakemark.adapters.disk.scan import ScannedPath, gone, place_of, require_unchanged, scan
from lakemark.errors import Incomplete, NotFound, Unsteady
from lakemark.model.checkpoints.manifest import FileType, check_path, check_target
from lakemark.ports import KnownFile
from tests.support.memory.disk import Folder, Inode, Link, MemoryDisk

Nodes: TypeAlias = dict[str, Inode | Link | Folder]


@dataclass(frozen=True, slots=True)
class Read:
    """shared: the nodes are the memory disk's own. files: the identities of the trainer's regular files."""

    nodes: Nodes
    shared: bool
    files: dict[str, KnownFile]


def read_tree(disk: MemoryDisk, source: Path, members: Sequence[Path] = (), *, quiet_seconds: float) -> Read:
    """Nodes by path. Raises NotFound, Incomplete (not quiet, empty, a member gone), Refused (names, members apart)."""
    place, names = place_of(source, members)
    if disk.exists(source.parent if members else source):
        return _of_memory(disk, source.parent if members else source, names, quiet_seconds)
    if not os.path.lexists(place):
        raise NotFound(f"there is nothing at {source}", advice="Check the path.")
    return _of_real_disk(place, names, quiet_seconds)


def _of_memory(disk: MemoryDisk, source: Path, names: Sequence[str], quiet_seconds: float) -> Read:
    nodes: Nodes = {}
    for name in names:
        if not disk.exists(source / name):
            raise gone(name)
    for at, node in (pair for top in ([source / name for name in names] or [source]) for pair in disk.walk(top)):
        if at == source and isinstance(node, Folder):
            continue
        path = at.name if at == source else str(at.relative_to(source))
        check_path(path)
        if isinstance(node, Link):
            check_target(path, node.target)
        nodes[path] = node
    files = {path: node.known for path, node in nodes.items() if isinstance(node, Inode)}
    _require_files(source, files)
    newest = disk.instant(max(known.mtime_ns for known in files.values()))
    if quiet_seconds and (disk.now - newest).total_seconds() < quiet_seconds:
        raise Unsteady(f"{source} was written less than {quiet_seconds:g} s ago", advice="Let the trainer finish it.")
    return Read(nodes, shared=True, files=files)


def _of_real_disk(source: Path, names: Sequence[str], quiet_seconds: float) -> Read:
    seen = scan(source, names)
    base = source if source.is_dir() else source.parent
    with os_errors(source):
        nodes = {path: _node(base / path, one) for path, one in seen.items()}
        files = {path: one.known for path, one in seen.items() if one.known is not None}
        _require_files(source, files)
        newest = max(one.stat.st_mtime_ns / 1e9 for one in seen.values() if one.type is FileType.FILE)
        time.sleep(max(0.0, min(quiet_seconds, newest + quiet_seconds - time.time())))
        require_unchanged(seen, scan(source, names))
    return Read(nodes, shared=False, files=files)


def _node(place: Path, seen: ScannedPath) -> Inode | Link | Folder:
    if seen.type is FileType.SYMLINK:
        return Link(str(seen.target))
    if seen.type is FileType.DIRECTORY:
        return Folder()
    try:
        data = place.read_bytes()
    except FileNotFoundError as error:
        raise gone(seen.path) from error
    executable = bool(seen.stat.st_mode & stat.S_IXUSR)
    return Inode(seen.stat.st_ino, data, seen.stat.st_mtime_ns, executable)


def _require_files(source: Path, files: dict[str, KnownFile]) -> None:
    if not files:
        raise Incomplete(f"{source} holds no file", advice="Commit it once the trainer has saved.")
