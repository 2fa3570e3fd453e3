"""Whether files on this disk are those of a manifest, byte for byte."""

from __future__ import annotations

import os
import stat
from collections.abc import Container, Iterator
from pathlib import Path

from lakemark.adapters.disk.digests import STEP_BYTES, VerifiedStream, digest_part, drain, of_parts, part_count
from lakemark.adapters.disk.files import open_regular, os_errors
from lakemark.errors import Corrupt
from lakemark.model.checkpoints.manifest import PART_SIZE_BYTES, File, FileType, Manifest
from lakemark.ports import Progress


def matches(path: Path, manifest: Manifest, *, progress: Progress, beside: Container[str] = ()) -> bool:
    """See `ports.Restorer.matches`. A single file matches the manifest that lists only it, under its name.

    beside: paths that may lie there too.
    """
    with os_errors(path):
        if path.is_file() and not path.is_symlink():
            root = path.parent
            listed = {file.path: _shape(file) for file in manifest.files}
            alike = listed == {path.name: _shape_of(path)}
        else:
            root = path
            found = {name: shape for name, shape in _walk(path, "") if name not in beside} if path.is_dir() else None
            alike = found == {file.path: _shape(file) for file in manifest.files}
        if not alike:
            return False
        progress.expect(f"comparing {path.name}", manifest.size_bytes)
        return all(_equal(root, file, manifest, progress) for file in manifest.regular)


def digest_of(path: Path) -> str:
    """Of one regular file, no link."""
    descriptor = open_regular(path)
    try:
        size_bytes = os.fstat(descriptor).st_size
        buffer = memoryview(bytearray(STEP_BYTES))
        parts = [
            digest_part(descriptor, index * PART_SIZE_BYTES, PART_SIZE_BYTES, buffer=buffer)
            for index in range(part_count(size_bytes))
        ]
        return of_parts(size_bytes, parts).digest
    finally:
        os.close(descriptor)


def buffer_for(size_bytes: int) -> memoryview:
    """Room to read a file in steps; a small one, and that it ends, in one."""
    return memoryview(bytearray(min(STEP_BYTES, size_bytes + 1)))


def _equal(root: Path, file: File, manifest: Manifest, progress: Progress) -> bool:
    try:
        descriptor = open_regular(root / file.path)
    except Corrupt:
        return False
    with open(descriptor, "rb", buffering=0) as stream:
        try:
            drain(VerifiedStream(stream, file, part_size_bytes=manifest.part_size_bytes), buffer_for(file.size_bytes))
        except Corrupt:
            return False
    progress.advance(file.size_bytes)
    return True


def _shape(file: File) -> tuple[object, ...]:
    if file.type is FileType.FILE:
        return (file.type, file.size_bytes, file.executable)
    return (file.type, file.target) if file.type is FileType.SYMLINK else (file.type,)


def _shape_of(path: str | Path) -> tuple[object, ...]:
    found = os.lstat(path)
    if stat.S_ISLNK(found.st_mode):
        return (FileType.SYMLINK, os.readlink(path))
    if stat.S_ISREG(found.st_mode):
        return (FileType.FILE, found.st_size, bool(found.st_mode & stat.S_IXUSR))
    return ("other",)


def _walk(folder: str | Path, prefix: str) -> Iterator[tuple[str, tuple[object, ...]]]:
    with os.scandir(folder) as listing:
        entries = list(listing)
    for entry in entries:
        path = prefix + entry.name
        if not entry.is_dir(follow_symlinks=False):
            yield path, _shape_of(entry.path)
        # As a manifest has it: only an empty directory is named, the others by what lies in them.
        elif os.listdir(entry.path):
            yield from _walk(entry.path, path + "/")
        else:
            yield path, (FileType.DIRECTORY,)
