"""Bringing a checkpoint back: staged beside its target, every byte compared while it is written, shown by one rename.

The staging folder `.<name>.lakemark-restore` lies next to the target, so the last step is a rename within one directory.
It holds `tag` (which restore this is) and `tree`; its flock is held while a restore runs. What an interrupted restore left
there is read and compared again before it counts.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event, Lock
from typing import Final

from lakemark.adapters.disk.digests import VerifiedStream, drain
from lakemark.adapters.disk.files import as_ours, fsync_directory, make_directories, os_errors, write_all
from lakemark.adapters.node.matching import buffer_for, matches
from lakemark.adapters.node.staging import (
    DIRECTORY,
    claimed,
    make_durable,
    occupied,
    refuse_inside_ours,
    refuse_unless_free,
    require_space,
    staging_of,
)
from lakemark.errors import Corrupt, LakemarkError, NoReplica, NotFound, SourceDamaged, StoreUnavailable, quoted
from lakemark.model.checkpoints.manifest import File, FileType, Manifest
from lakemark.model.ledger.run import Place
from lakemark.ports import Fetch, Progress, Restored

WORKERS: Final = 4
KEPT: Final = "kept"


def restore_tree(target: Path, manifest: Manifest, fetch: Fetch, *, tag: str, progress: Progress) -> Restored:
    """See `ports.Restorer.restore`."""
    with staged(target, tag) as (place, tree, again):
        # The kill fell between the rename and the end: it is all there, or somebody has put something else there since.
        if again and place.exists() and any(place.iterdir()):
            if matches(place, manifest, progress=progress):
                return _restored(place, manifest, {KEPT: len(manifest.regular)})
            raise occupied(place)
        work = Work(tree=tree, manifest=manifest, fetch=fetch, progress=progress)
        require_space(tree, manifest.size_bytes)
        work.run(manifest.regular)
        show(tree, place, manifest)
    return _restored(place, manifest, dict(work.sources), tuple(work.damaged))


@contextmanager
def staged(target: Path, tag: str) -> Iterator[tuple[Path, Path, bool]]:
    """The target with links in it followed, the tree to prepare, and whether this very restore was begun before."""
    with os_errors(target):
        # Links are followed once, here: the rename would else replace the link itself, not what it leads to.
        target = Path(os.path.realpath(target))
        staging = staging_of(target)
        refuse_inside_ours(target)
        refuse_unless_free(target, staging)
        make_directories(target.parent)
        with claimed(staging, tag) as (tree, again):
            if not again and target.exists() and any(target.iterdir()):
                raise occupied(target)
            yield target, tree, again


def show(tree: Path, target: Path, manifest: Manifest) -> None:
    """Makes the tree durable and gives it the target's name, in one step. No directory has more rights than it was saved with."""
    for folder, _, _ in os.walk(tree, topdown=False):
        wanted = manifest.folders.get(os.path.relpath(folder, tree), 0o755)
        # From the deepest up: one that lost its own rights could not be entered any more.
        os.chmod(folder, stat.S_IMODE(os.lstat(folder).st_mode) & wanted)
    make_durable(tree)
    # An empty directory there is replaced by the rename; the rights that its owner gave it stay.
    if target.is_dir():
        os.chmod(tree, stat.S_IMODE(target.stat().st_mode))
    os.rename(tree, target)
    fsync_directory(target.parent)


def _restored(
    target: Path, manifest: Manifest, sources: Mapping[str, int], damaged: tuple[tuple[Place, str], ...] = ()
) -> Restored:
    return Restored(path=target, size_bytes=manifest.size_bytes, files_by_place=sources, damaged=damaged)


def place_name(place: Place) -> str:
    """`tier`, or `tier@node` where the tier is a node's own: the keys of `Restored.files_by_place`."""
    return place.tier if place.node is None else f"{place.tier}@{place.node}"


@dataclass(slots=True, kw_only=True)
class Work:
    """Fills a tree. sources: how many files came from where. damaged: what was not there, or came out wrong."""

    tree: Path
    manifest: Manifest
    fetch: Fetch
    progress: Progress
    sources: Counter[str] = field(default_factory=Counter)
    damaged: list[tuple[Place, str]] = field(default_factory=list)
    _stop: Event = field(default_factory=Event)
    _lock: Lock = field(default_factory=Lock)

    def run(self, files: Sequence[File]) -> None:
        """Restores links, empty directories and these regular files, each from its first sound candidate."""
        for file in self.manifest.files:
            if file.type is not FileType.FILE:
                self._make(file)
        self.all_done([partial(self._restore, file) for file in files])

    @property
    def stopped(self) -> bool:
        """Whether a task failed, so that the others need not begin."""
        return self._stop.is_set()

    def all_done(self, tasks: Sequence[Callable[[], None]]) -> None:
        """Runs the tasks, a few at once; after a failure the rest stop early, and it is raised."""
        self._stop.clear()
        with ThreadPoolExecutor(max_workers=WORKERS, thread_name_prefix="restore") as pool:
            futures = [pool.submit(task) for task in tasks]
            try:
                for future in futures:
                    future.result()
            finally:
                # After a failure it keeps the others from beginning, while the pool waits for those at work.
                self._stop.set()

    def _make(self, file: File) -> None:
        """An empty directory or a link, as the manifest has it; what else has the name goes."""
        with self.parent(file) as (parent, name):
            try:
                _make_in(parent, name, file)
            except FileExistsError:
                # Of an earlier try that was killed, or of somebody who can write here: only what it must be stays.
                found = os.lstat(name, dir_fd=parent)
                same = (
                    stat.S_ISDIR(found.st_mode) if file.type is FileType.DIRECTORY else self._leads(parent, name, file)
                )
                if not same:
                    os.unlink(name, dir_fd=parent)
                    _make_in(parent, name, file)

    @staticmethod
    def _leads(parent: int, name: str, file: File) -> bool:
        try:
            return os.readlink(name, dir_fd=parent) == file.target
        except OSError:
            return False

    def _restore(self, file: File) -> None:
        """Raises NoReplica, SourceDamaged or StoreUnavailable where no candidate gave it, and our own disk's error."""
        if self._stop.is_set():
            return
        with self.parent(file) as (parent, name), buffer_for(file.size_bytes) as buffer:
            if self._there(parent, name, file, buffer):
                self.count(KEPT, file)
                return
            failures: list[LakemarkError] = []
            for place, opened in self.fetch(file):
                try:
                    with _own_file(parent, name, file) as descriptor, opened as stream:
                        part_size = self.manifest.part_size_bytes
                        self._copy(VerifiedStream(stream, file, part_size_bytes=part_size), descriptor, buffer)
                except (LakemarkError, OSError) as error:
                    ours = error if isinstance(error, LakemarkError) else as_ours(error, file.path)
                    failures.append(ours)
                    if isinstance(ours, Corrupt | NotFound):
                        self.note(place, file)
                except OwnDiskError as error:
                    raise error.__cause__ or error from None
                else:
                    self.count(place_name(place), file)
                    return
            raise none_left(file, failures)

    def _copy(self, stream: VerifiedStream, descriptor: int, buffer: memoryview) -> None:
        """Writes the stream's bytes, durably. Raises OwnDiskError, and what the stream raises where they are wrong."""
        while True:
            if self._stop.is_set():
                # As if it was our own disk's fault: else the next candidate would be tried, although nobody wants it any more.
                raise OwnDiskError from StoreUnavailable("the restore was stopped", advice="Call it again: it goes on.")
            count = stream.readinto(buffer)
            with own_disk():
                write_all(descriptor, buffer[:count])  # type: ignore[arg-type] # any buffer will do
            if count < len(buffer):
                break
        with own_disk():
            os.fsync(descriptor)

    def _there(self, parent: int, name: str, file: File, buffer: memoryview) -> bool:
        """Whether an earlier try left the file whole, byte for byte; what else has the name goes."""
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
                    # By its bytes: a size that fits is also that of a file whose end was never written.
                    drain(VerifiedStream(stream, file, part_size_bytes=self.manifest.part_size_bytes), buffer)
                    # Whoever wrote it was perhaps killed before he flushed it.
                    os.fsync(descriptor)
                    return True
        os.unlink(name, dir_fd=parent)
        return False

    @contextmanager
    def parent(self, file: File) -> Iterator[tuple[int, str]]:
        """The folder of `file` below the tree, made if need be, without ever following a link; and the file's name there."""
        *folders, name = file.path.split("/")
        descriptor = os.open(self.tree, DIRECTORY)
        try:
            for folder in folders:
                deeper = _entered(descriptor, folder)
                os.close(descriptor)
                descriptor = deeper
            yield descriptor, name
        finally:
            os.close(descriptor)

    def count(self, where: str, file: File) -> None:
        with self._lock:
            self.sources[where] += 1
            self.progress.advance(file.size_bytes)

    def note(self, place: Place, file: File) -> None:
        with self._lock:
            self.damaged.append((place, file.path))


def _make_in(parent: int, name: str, file: File) -> None:
    """Makes a directory or a link. FileExistsError where something has the name."""
    if file.type is FileType.DIRECTORY:
        os.mkdir(name, dir_fd=parent)
    else:
        os.symlink(str(file.target), name, dir_fd=parent)


def _entered(parent: int, folder: str) -> int:
    """`folder` in `parent`, made if need be. Anything else of that name, such as a link, is not followed but removed."""
    with suppress(FileExistsError):
        os.mkdir(folder, dir_fd=parent)
    try:
        return os.open(folder, DIRECTORY, dir_fd=parent)
    except NotADirectoryError:
        os.unlink(folder, dir_fd=parent)
        os.mkdir(folder, dir_fd=parent)
        return os.open(folder, DIRECTORY, dir_fd=parent)


class OwnDiskError(Exception):
    """Not the candidate's fault: no other one would help. The cause says what."""


@contextmanager
def own_disk() -> Iterator[None]:
    """Around what this machine's disk is asked to do."""
    try:
        yield
    except OSError as error:
        raise OwnDiskError from error


@contextmanager
def _own_file(parent: int, name: str, file: File) -> Iterator[int]:
    """A new file for one candidate's bytes; gone again if anything goes wrong."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with own_disk():
        # Exclusive: nothing of a candidate whose bytes were wrong stays in it, and no link of that name is followed.
        descriptor = os.open(name, flags, file.rights, dir_fd=parent)
    try:
        yield descriptor
    except BaseException:
        with suppress(OSError):
            os.unlink(name, dir_fd=parent)
        raise
    finally:
        os.close(descriptor)


def none_left(file: File, failures: list[LakemarkError]) -> LakemarkError:
    """What is raised when every candidate failed: transient if one may come back, damaged if one gave other bytes."""
    # A candidate that failed twice in one way is named once.
    tried = "; ".join(dict.fromkeys(f"{failure.kind}: {failure}" for failure in failures)) or "there was no candidate"
    said = f"{quoted(file.path)} could not be had from any replica: {tried}"[:1000]
    # First: a replica that can't be reached now may be sound, whatever the others gave.
    if any(isinstance(failure, StoreUnavailable) for failure in failures):
        return StoreUnavailable(said, advice="Call it again when the tiers answer.")
    kind = SourceDamaged if any(isinstance(failure, Corrupt) for failure in failures) else NoReplica
    return kind(said, advice="Run `lakemark verify`, or choose another record.")
