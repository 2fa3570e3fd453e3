"""Reading the tree that is to land: from a `MemoryDisk`, or from the real one, whose files are copied."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path
from typing import TypeAlias

from lakemark.adapters.files import os_errors
from lakemark.adapters.memory.disk import Folder, Inode, Link, MemoryDisk
from lakemark.adapters.tree_scan import Seen, gone, require_unchanged, scan
from lakemark.errors import Incomplete, NotFound
from lakemark.model.checkpoint import FileType, check_path, check_target

Nodes: TypeAlias = dict[str, Inode | Link | Folder]


def read_tree(disk: MemoryDisk, source: Path, *, quiet_seconds: float) -> tuple[Nodes, bool]:
    """Nodes by path, and whether they are `disk`'s own. Raises NotFound, Incomplete (not quiet, empty), Refused (names)."""
    if disk.exists(source):
        return _of_memory(disk, source, quiet_seconds), True
    if not os.path.lexists(source):
        raise NotFound(f"there is nothing at {source}", advice="Check the path.")
    return _of_real_disk(source, quiet_seconds), False


def _of_memory(disk: MemoryDisk, source: Path, quiet_seconds: float) -> Nodes:
    nodes: Nodes = {}
    for at, node in disk.walk(source):
        if at == source and isinstance(node, Folder):
            continue
        path = at.name if at == source else str(at.relative_to(source))
        check_path(path)
        if isinstance(node, Link):
            check_target(path, node.target)
        nodes[path] = node
    files = [node for node in nodes.values() if isinstance(node, Inode)]
    _require_files(source, files)
    newest = disk.instant(max(node.mtime_ns for node in files))
    if quiet_seconds and (disk.now - newest).total_seconds() < quiet_seconds:
        raise Incomplete(f"{source} was written less than {quiet_seconds:g} s ago", advice="Let the trainer finish it.")
    return nodes


def _of_real_disk(source: Path, quiet_seconds: float) -> Nodes:
    seen = scan(source)
    base = source if source.is_dir() else source.parent
    with os_errors(source):
        nodes = {path: _node(base / path, one) for path, one in seen.items()}
        _require_files(source, [node for node in nodes.values() if isinstance(node, Inode)])
        newest = max(one.stat.st_mtime for one in seen.values() if one.type is FileType.FILE)
        time.sleep(max(0.0, min(quiet_seconds, newest + quiet_seconds - time.time())))
        require_unchanged(seen, scan(source))
    return nodes


def _node(place: Path, seen: Seen) -> Inode | Link | Folder:
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


def _require_files(source: Path, files: list[Inode]) -> None:
    if not files:
        raise Incomplete(f"{source} holds no file", advice="Commit it once the trainer has saved.")
