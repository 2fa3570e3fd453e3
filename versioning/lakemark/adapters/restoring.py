"""Bringing a checkpoint back: staged beside its target, every byte compared while it is written, shown by one rename.

The staging folder `.<name>.lakemark-restore` lies next to the target, so the last step is a rename within one directory.
It holds `tag` (which restore this is) and `tree`; its flock is held while a restore runs. What an interrupted restore left
there is read and compared again before it counts.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Lock
from typing import Final

from lakemark.adapters import tier_file
from lakemark.adapters.digests import Verified, drain
from lakemark.adapters.files import (
    as_ours,
    fsync_directory,
    make_directories,
    os_errors,
    remove_tree,
    try_lock,
    write_all,
    write_atomic,
)
from lakemark.adapters.matching import buffer_for, matches
from lakemark.errors import Corrupt, LakemarkError, NoReplica, NotFound, Refused, StoreUnavailable, quoted
from lakemark.model.checkpoint import File, FileType, Manifest
from lakemark.model.ledger import Place
from lakemark.ports import Fetch, Progress, Restored

WORKERS: Final = 4
KEPT: Final = "kept"
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NAME_ROOM_BYTES: Final = 255 - len("..lakemark-restore")


def restore_tree(target: Path, manifest: Manifest, fetch: Fetch, *, tag: str, progress: Progress) -> Restored:
    """See `ports.Workspace.restore`."""
    with os_errors(target):
        target = Path(os.path.realpath(target))
        staging = _staging(target)
        _refuse_inside_ours(target)
        _refuse_unless_free(target, staging)
        make_directories(target.parent)
        with _claimed(staging, tag) as (tree, again):
            if target.exists() and any(target.iterdir()):
                if again and matches(target, manifest, progress=progress):
                    return _restored(target, manifest, {KEPT: len(manifest.regular)})
                raise _occupied(target)
            work = _Work(tree=tree, manifest=manifest, fetch=fetch, progress=progress)
            _require_space(tree, manifest)
            work.run()
            _durable(tree)
            if target.is_dir():
                os.chmod(tree, stat.S_IMODE(target.stat().st_mode))
            os.rename(tree, target)
            fsync_directory(target.parent)
    return _restored(target, manifest, dict(work.sources), tuple(work.damaged))


def _restored(
    target: Path, manifest: Manifest, sources: Mapping[str, int], damaged: tuple[tuple[Place, str], ...] = ()
) -> Restored:
    return Restored(path=target, size_bytes=manifest.size_bytes, files_by_place=sources, damaged=damaged)


def place_name(place: Place) -> str:
    """`tier`, or `tier@node` where the tier is a node's own: the keys of `Restored.files_by_place`."""
    return place.tier if place.node is None else f"{place.tier}@{place.node}"


def _staging(target: Path) -> Path:
    name = target.name
    if not name:
        raise Refused(f"{quoted(str(target))} can't be a restore's target", advice="Name a directory below it.")
    if len(os.fsencode(name)) > _NAME_ROOM_BYTES:
        name = hashlib.sha256(os.fsencode(name)).hexdigest()
    return target.parent / f".{name}.lakemark-restore"


def _refuse_inside_ours(target: Path) -> None:
    """A tier's place and a ledger are nobody's to restore into: a pass would take the files for its own, or fail on them."""
    for folder in target.parents:
        ledger = all((folder / name).exists() for name in ("HEAD", "objects", "refs"))
        if ledger or (folder / tier_file.NAME).is_file():
            raise Refused(
                f"{quoted(str(target))} is inside {'the ledger' if ledger else 'the tier'} {quoted(str(folder))}",
                advice="Restore into a directory of your own.",
            )


def _refuse_unless_free(target: Path, staging: Path) -> None:
    if not target.exists():
        return
    if os.path.ismount(target):
        raise Refused(
            f"{quoted(str(target))} is a mount point: a checkpoint can't appear there in one step",
            advice="Restore into a directory below it.",
        )
    if not target.is_dir() or (any(target.iterdir()) and not staging.is_dir()):
        raise _occupied(target)


def _occupied(target: Path) -> Refused:
    return Refused(
        f"{quoted(str(target))} is not an empty directory, and no interrupted restore of this checkpoint",
        advice="Choose an absent or empty directory; nothing was changed.",
    )


@contextmanager
def _claimed(staging: Path, tag: str) -> Iterator[tuple[Path, bool]]:
    """Holds the staging folder; yields its tree, and whether it was there for this `tag` before. Others' trees go first."""
    with suppress(FileExistsError):
        os.mkdir(staging, 0o700)
    descriptor = os.open(staging, _DIRECTORY)
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise Refused(
                f"{quoted(str(staging))} belongs to another user", advice="Let its owner finish or remove it."
            )
        if not try_lock(descriptor) or not _still(staging, descriptor):
            raise Refused(
                f"another restore into {quoted(str(staging.parent))} is running",
                advice="Wait for it, or choose another place.",
            )
        try:
            yield from _prepared(staging, tag)
        finally:
            _drop_if_empty(staging)
    finally:
        os.close(descriptor)


def _prepared(staging: Path, tag: str) -> Iterator[tuple[Path, bool]]:
    tree = staging / "tree"
    again = _read_tag(staging) == tag
    if not again:
        remove_tree(tree)
        write_atomic(staging / "tag", tag.encode())
    with suppress(FileExistsError):
        os.mkdir(tree)
    yield tree, again
    remove_tree(staging)


def _still(staging: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.lstat(staging), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _read_tag(staging: Path) -> str | None:
    try:
        return (staging / "tag").read_bytes().decode(errors="replace")
    except FileNotFoundError:
        return None


def _drop_if_empty(staging: Path) -> None:
    """A restore that was refused before it wrote anything leaves nothing behind."""
    tree = staging / "tree"
    with suppress(OSError):
        if not any(tree.iterdir()):
            remove_tree(staging)


def _require_space(tree: Path, manifest: Manifest) -> None:
    there = sum(entry.stat(follow_symlinks=False).st_size for entry in _files(tree))
    system = os.statvfs(tree)
    free = system.f_bavail * system.f_frsize
    needed = manifest.size_bytes - there
    if needed > free:
        raise Refused(
            f"{quoted(str(tree.parent.parent))} has {free} bytes free; the checkpoint needs {needed} more",
            advice="Make room there, or restore to another file system.",
        )


def _files(tree: Path) -> Iterator[os.DirEntry[str]]:
    with os.scandir(tree) as listing:
        entries = list(listing)
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _files(Path(entry.path))
        else:
            yield entry


def _durable(tree: Path) -> None:
    for folder, _, _ in os.walk(tree, topdown=False):
        fsync_directory(folder)


@dataclass(slots=True, kw_only=True)
class _Work:
    tree: Path
    manifest: Manifest
    fetch: Fetch
    progress: Progress
    sources: Counter[str] = field(default_factory=Counter)
    damaged: list[tuple[Place, str]] = field(default_factory=list)
    _stop: Event = field(default_factory=Event)
    _lock: Lock = field(default_factory=Lock)

    def run(self) -> None:
        for file in self.manifest.files:
            if file.type is not FileType.FILE:
                self._make(file)
        with ThreadPoolExecutor(max_workers=WORKERS, thread_name_prefix="restore") as pool:
            futures = [pool.submit(self._restore, file) for file in self.manifest.regular]
            try:
                for future in futures:
                    future.result()
            finally:
                self._stop.set()

    def _make(self, file: File) -> None:
        with self._parent(file) as (parent, name):
            try:
                if file.type is FileType.DIRECTORY:
                    os.mkdir(name, dir_fd=parent)
                else:
                    os.symlink(str(file.target), name, dir_fd=parent)
            except FileExistsError:
                found = os.lstat(name, dir_fd=parent)
                same = (
                    stat.S_ISDIR(found.st_mode) if file.type is FileType.DIRECTORY else self._leads(parent, name, file)
                )
                if not same:
                    os.unlink(name, dir_fd=parent)
                    os.symlink(str(file.target), name, dir_fd=parent)

    @staticmethod
    def _leads(parent: int, name: str, file: File) -> bool:
        try:
            return os.readlink(name, dir_fd=parent) == file.target
        except OSError:
            return False

    def _restore(self, file: File) -> None:
        if self._stop.is_set():
            return
        with self._parent(file) as (parent, name), buffer_for(file.size_bytes) as buffer:
            if self._there(parent, name, file, buffer):
                self._count(KEPT, file)
                return
            failures: list[LakemarkError] = []
            for place, opened in self.fetch(file):
                try:
                    with _own_file(parent, name, file) as descriptor, opened as stream:
                        part_size = self.manifest.part_size_bytes
                        self._copy(Verified(stream, file, part_size_bytes=part_size), descriptor, buffer)
                except (LakemarkError, OSError) as error:
                    ours = error if isinstance(error, LakemarkError) else as_ours(error, file.path)
                    failures.append(ours)
                    if isinstance(ours, Corrupt | NotFound):
                        self._note(place, file)
                except _OwnDiskError as error:
                    raise error.__cause__ or error from None
                else:
                    self._count(place_name(place), file)
                    return
            raise _none_left(file, failures)

    def _copy(self, stream: Verified, descriptor: int, buffer: memoryview) -> None:
        while True:
            if self._stop.is_set():
                raise _OwnDiskError from StoreUnavailable(
                    "the restore was stopped", advice="Call it again: it goes on."
                )
            count = stream.readinto(buffer)
            with _own_disk():
                write_all(descriptor, buffer[:count])  # type: ignore[arg-type] # any buffer will do
            if count < len(buffer):
                break
        with _own_disk():
            os.fsync(descriptor)

    def _there(self, parent: int, name: str, file: File, buffer: memoryview) -> bool:
        try:
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
        except FileNotFoundError:
            return False
        except OSError:
            os.unlink(name, dir_fd=parent)
            return False
        with open(descriptor, "rb", buffering=0) as stream:
            found = os.fstat(descriptor)
            fits = stat.S_ISREG(found.st_mode) and found.st_size == file.size_bytes
            if fits and bool(found.st_mode & stat.S_IXUSR) == file.executable:
                with suppress(Corrupt):
                    drain(Verified(stream, file, part_size_bytes=self.manifest.part_size_bytes), buffer)
                    os.fsync(descriptor)
                    return True
        os.unlink(name, dir_fd=parent)
        return False

    @contextmanager
    def _parent(self, file: File) -> Iterator[tuple[int, str]]:
        """The folder of `file` below the tree, made if need be, without ever following a link; and the file's name there."""
        *folders, name = file.path.split("/")
        descriptor = os.open(self.tree, _DIRECTORY)
        try:
            for folder in folders:
                deeper = _entered(descriptor, folder)
                os.close(descriptor)
                descriptor = deeper
            yield descriptor, name
        finally:
            os.close(descriptor)

    def _count(self, where: str, file: File) -> None:
        with self._lock:
            self.sources[where] += 1
            self.progress.advance(file.size_bytes)

    def _note(self, place: Place, file: File) -> None:
        with self._lock:
            self.damaged.append((place, file.path))


def _entered(parent: int, folder: str) -> int:
    """`folder` in `parent`, made if need be. Anything else of that name, such as a link, is not followed but removed."""
    with suppress(FileExistsError):
        os.mkdir(folder, dir_fd=parent)
    try:
        return os.open(folder, _DIRECTORY, dir_fd=parent)
    except NotADirectoryError:
        os.unlink(folder, dir_fd=parent)
        os.mkdir(folder, dir_fd=parent)
        return os.open(folder, _DIRECTORY, dir_fd=parent)


class _OwnDiskError(Exception):
    """Not the candidate's fault: no other one would help. The cause says what."""


@contextmanager
def _own_disk() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _OwnDiskError from error


@contextmanager
def _own_file(parent: int, name: str, file: File) -> Iterator[int]:
    """A new file for one candidate's bytes; gone again if anything goes wrong."""
    mode = 0o777 if file.executable else 0o666
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with _own_disk():
        descriptor = os.open(name, flags, mode, dir_fd=parent)
    try:
        yield descriptor
    except BaseException:
        with suppress(OSError):
            os.unlink(name, dir_fd=parent)
        raise
    finally:
        os.close(descriptor)


def _none_left(file: File, failures: list[LakemarkError]) -> LakemarkError:
    tried = "; ".join(f"{failure.kind}: {failure}" for failure in failures) or "there was no candidate"
    transient = any(isinstance(failure, StoreUnavailable) for failure in failures)
    error = StoreUnavailable if transient else NoReplica
    return error(
        f"{quoted(file.path)} could not be had from any replica: {tried}"[:1000],
        advice="Call it again when the tiers answer."
        if transient
        else "Run `lakemark verify`, or choose another record.",
    )
