"""Writes a checkpoint's tree from a source, and reads one back."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from lakemark.adapters.disk import copying
from lakemark.adapters.disk.digests import VerifiedStream, digest_part, part_count
from lakemark.adapters.disk.files import as_ours, forget_pages, fsync_directory, is_shared, share
from lakemark.adapters.disk.pool import Buffers, run_all
from lakemark.adapters.hot.marker import Change, FileIdentity
from lakemark.model.checkpoints.manifest import File, FileType, Manifest
from lakemark.ports.store import Damage, Source
from lakemark.ports.work import Progress

WORKERS: Final = 4


def write_tree(tree: Path, manifest: Manifest, source: Source, *, progress: Progress) -> None:
    """Fills the new directory `tree`, durably, comparing what comes with the manifest: Corrupt where it differs."""
    progress.expect("copy", manifest.size_bytes)
    _make_folders(tree, manifest)
    keep_rights(tree, manifest.folders)
    buffers = Buffers(WORKERS, copying.CHUNK_BYTES)

    def write(file: File) -> int:
        with source(file) as stream, buffers.take() as buffer:
            checked = VerifiedStream(stream, file, part_size_bytes=manifest.part_size_bytes)
            mode = sealed_rights(file.rights)
            copying.write_stream(tree / file.path, checked, file.size_bytes, buffer=buffer, mode=mode)
        return file.size_bytes

    for size_bytes in run_all((partial(write, file) for file in manifest.regular), workers=WORKERS):
        progress.advance(size_bytes)
    for folder, _, _ in os.walk(tree, topdown=False):
        fsync_directory(folder)


def sealed_rights(saved: int) -> int:
    """Of a file of ours: nobody writes, and nobody reads who could not read what the trainer saved, but its owner."""
    return saved & 0o555 | 0o400


def keep_rights(tree: Path, folders: Mapping[str, int]) -> None:
    """Narrows directories of a tree of ours to the rights they were saved with, but never its keepers' rights.

    Keepers are the owner, or the group of a root that several accounts share: any of them may have to move or drop it.
    """
    keepers = 0o700
    if is_shared(tree.parent):
        keepers = 0o2770
        for folder, _, _ in os.walk(tree):
            share(folder, folder=tree.parent)
    for path, mode in folders.items():
        with suppress(FileNotFoundError, NotADirectoryError):
            place = tree if path == "." else tree / path
            now = stat.S_IMODE(os.lstat(place).st_mode)
            # Only narrower, never wider: what the umask or the folder above took away stays away.
            narrow = now & (mode | keepers)
            if narrow != now:
                _set_rights(place, narrow)


def _set_rights(place: Path, mode: int) -> None:
    try:
        os.chmod(place, mode)
    except PermissionError:
        # As a service that may set no set-group-ID: nothing more is made in a sealed tree, which would need it.
        if not mode & stat.S_ISGID:
            raise
        os.chmod(place, mode & ~stat.S_ISGID)


@dataclass(slots=True)
class TreeLook:
    """A tree that was read. `fresh`: identities of linked files whose bytes are sound though their stamps moved."""

    damage: list[Damage] = field(default_factory=list)
    fresh: dict[str, FileIdentity] = field(default_factory=dict)


def read_tree(tree: Path, manifest: Manifest, linked: Mapping[str, FileIdentity], *, progress: Progress) -> TreeLook:
    """Reads every byte from the disk and compares it with the manifest."""
    progress.expect("verify", manifest.size_bytes)
    look = TreeLook()
    buffers = Buffers(WORKERS, 2**20)

    def tasks() -> Iterator[Callable[[], tuple[File, list[str], int]]]:
        for file in manifest.files:
            if file.type is FileType.FILE:
                for index in range(part_count(file.size_bytes, manifest.part_size_bytes)):
                    yield partial(_read_part, tree, file, (index, manifest.part_size_bytes), buffers)
            else:
                look.damage.extend(_compare_other(tree / file.path, file))

    # Before the first byte: a trainer that writes into a linked file while it is read moves these.
    before = {path: steady_identity(tree / path) for path in linked}
    bad: dict[str, tuple[str, bool]] = {}
    for file, why, size_bytes in run_all(tasks(), workers=WORKERS):
        progress.advance(size_bytes)
        if why:
            bad.setdefault(file.path, (why[0], why[0] == _MISSING))
    for path, first in before.items():
        now = _identity(tree / path)
        if path in bad or first is None or now is None:
            continue
        if first.change_to(now) is Change.WRITTEN:
            bad[path] = ("was written while it was read", False)
        # Only names or rights changed since it was sealed, and all bytes were right: these stamps spare the next reading.
        elif first == now != linked[path]:
            look.fresh[path] = now
    for path, (why_bad, missing) in bad.items():
        look.damage.append(Damage(path=path, why=why_bad, missing=missing, suspect=not missing and path in linked))
    look.damage.sort(key=lambda damage: damage.path)
    return look


def glance(tree: Path, linked: Mapping[str, FileIdentity]) -> Mapping[str, Change]:
    """Linked files that are not as they were sealed, by their stamps; WRITTEN also for one that is not there."""
    looks = {path: _identity(tree / path) for path in linked}
    changes = {path: Change.WRITTEN if now is None else linked[path].change_to(now) for path, now in looks.items()}
    return {path: change for path, change in changes.items() if change is not Change.NONE}


_MISSING: Final = "is missing"


def steady_identity(place: Path) -> FileIdentity | None:
    """Once dirty pages are written, so that a later store through a mapping moves the stamps; None where unreadable."""
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return None  # a pipe has nothing to write, and says so by an error
        os.fsync(descriptor)
        return FileIdentity.of(os.fstat(descriptor))
    finally:
        os.close(descriptor)


def shared_now(place: Path) -> FileIdentity | None:
    """Of a file that has another name too, its identity as it is; None of any other."""
    try:
        found = os.lstat(place)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return FileIdentity.of(found) if stat.S_ISREG(found.st_mode) and found.st_nlink > 1 else None


def _identity(place: Path) -> FileIdentity | None:
    try:
        return FileIdentity.of(os.lstat(place))
    except (FileNotFoundError, NotADirectoryError):
        return None


def _read_part(tree: Path, file: File, part: tuple[int, int], buffers: Buffers) -> tuple[File, list[str], int]:
    """(file, what is wrong with this part, bytes read); the first part also looks at type, size and rights."""
    index, part_size = part
    length = min(part_size, file.size_bytes - index * part_size)
    try:
        descriptor = os.open(tree / file.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return file, [_MISSING], length
    except OSError as error:
        return file, [f"can't be opened: {error.strerror}"], length
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return file, ["is no longer a regular file"], length
        if found.st_size != file.size_bytes:
            return file, [f"has {found.st_size} bytes instead of {file.size_bytes}"], length
        # From the disk: what the cache still has of the write would hide what became of it.
        forget_pages(descriptor)
        with buffers.take() as buffer:
            digest = digest_part(descriptor, index * part_size, length, buffer=buffer)
    except OSError as error:
        return file, [f"can't be read: {error.strerror}"], length
    finally:
        os.close(descriptor)
    right = file.parts[index] if file.parts else file.digest
    return file, [] if digest == right else [f"has other bytes in part {index + 1}"], length


def _compare_other(place: Path, file: File) -> Iterator[Damage]:
    """What is wrong with a directory or link. Raises what keeps anybody from looking."""
    try:
        found = os.lstat(place)
        if file.type is FileType.DIRECTORY:
            right = stat.S_ISDIR(found.st_mode)
        else:
            right = stat.S_ISLNK(found.st_mode) and os.readlink(place) == file.target
    except (FileNotFoundError, NotADirectoryError):
        yield Damage(path=file.path, why=_MISSING, missing=True)
        return
    except OSError as error:
        raise as_ours(error, place) from error
    if not right:
        yield Damage(path=file.path, why=f"is not the {file.type} it was")


def _make_folders(tree: Path, manifest: Manifest) -> None:
    tree.mkdir(mode=0o755)
    for file in manifest.files:
        place = tree / file.path
        folder = place if file.type is FileType.DIRECTORY else place.parent
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    for file in manifest.files:
        if file.type is FileType.SYMLINK:
            # Links last: no folder is made, and no file written, through one.
            os.symlink(str(file.target), tree / file.path)
