"""Takes a trainer's tree over into hot: by reflink, hard link or copy, then hashed, fsynced and found unchanged.

Linked first and hashed afterwards: what is hashed is what is kept.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

from lakemark.adapters.disk import copying
from lakemark.adapters.disk.digests import digest_part, new_hash, of_parts, part_count
from lakemark.adapters.disk.files import fsync_directory, os_errors
from lakemark.adapters.disk.pool import Buffers, run_all
from lakemark.adapters.disk.scan import ScannedPath, changed, gone, place_of, require_closed, require_unchanged, scan
from lakemark.adapters.hot.marker import Change, FileIdentity
from lakemark.adapters.hot.tree_files import keep_rights, sealed_rights
from lakemark.errors import Incomplete, NotFound, quoted
from lakemark.model.checkpoints.manifest import PART_SIZE_BYTES, File, FileType, Manifest, Role
from lakemark.ports.files import KnownFile
from lakemark.ports.work import Progress

WAYS: Final[Mapping[str, tuple[str, ...]]] = {
    "auto": ("reflink", "link", "copy"),
    "reflink": ("reflink", "copy"),
    "link": ("link", "copy"),
    "copy": ("copy",),
}
"""What `landing` may be, and the ways it tries in turn."""

# _IOW(0x94, 9, int) of linux/fs.h.
_FICLONE: Final = 0x40049409
# Not here, or not by us: EPERM is also what `protected_hardlinks` answers for another user's file.
_CANNOT: Final = frozenset(
    {errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY, errno.ENOSYS}
)
# Older kernels stamp files by a coarse clock: two writes within one tick have the same stamp.
_COARSE_NS: Final = 20_000_000
# A trainer that keeps linking or renaming its file, so that it must be read again each time, is told to come back.
_LOOKS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How to land.

    landing: a key of WAYS. share: whether a hard link is one of them. quiet_seconds: how long files must not have changed.
    room: raises NoRoom unless so many bytes may be copied.
    """

    landing: str
    quiet_seconds: float
    roles: Mapping[str, str]
    room: Callable[[int], None]
    share: bool = True
    workers: int = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LandedTree:
    """What was landed, and the identities of the files that share the trainer's inodes."""

    manifest: Manifest
    linked: Mapping[str, FileIdentity]
    newest_mtime_ns: int
    taken: tuple[KnownFile, ...]


def land_tree(source: Path, tree: Path, way: Way, *, progress: Progress, members: Sequence[Path] = ()) -> LandedTree:
    """Fills the new directory `tree`, durably. On any error the caller removes it."""
    top, names = place_of(source, members)
    found = scan(top, names)
    base = top if top.is_dir() else top.parent
    if not any(seen.type is FileType.FILE for seen in found.values()):
        raise Incomplete(f"{quoted(str(source))} holds no file", advice="Commit it once the trainer has saved.")
    with os_errors(tree):
        _make_folders(tree, found)
        folders = _folders(base, found, whole=not names and top.is_dir())
        # While they are still empty: nobody looks in who could not look into the trainer's.
        keep_rights(tree, folders)
        jobs = list(_taken(base, tree, found, way))
        _wait_quiet(tree, found, way.quiet_seconds)
        # Before hashing: a tree that is still being written is given up before it costs a reading.
        require_unchanged(found, _rescan(top, names))
        files = _hash_all(jobs, way, progress)
        # After it: each file was compared by its own job, but only the tree as a whole shows a new or missing one.
        require_unchanged(found, _rescan(top, names))
        _sync_folders(tree)
    linked = {job.seen.path: job.identity for job in jobs if job.way == "link" and job.identity}
    return LandedTree(
        manifest=Manifest(files=(*files, *_others(found)), folders=folders),
        linked=linked,
        newest_mtime_ns=max(seen.stat.st_mtime_ns for seen in found.values() if seen.type is FileType.FILE),
        taken=tuple(_known(jobs, files)),
    )


def _known(jobs: Iterable[_Job], files: Iterable[File]) -> Iterator[KnownFile]:
    """The trainer's files with what was read of them. Their ctime is of before the reading, but after our own link."""
    digests = {file.path: file.digest or "" for file in files}
    for job in jobs:
        known = job.seen.known
        if known is not None:
            ctime_ns = known.ctime_ns if job.identity is None else job.identity.ctime_ns
            yield replace(known, ctime_ns=ctime_ns, digest=digests[job.seen.path])


@dataclass(slots=True, kw_only=True)
class _Job:
    """One file on its way: taken by `way`, then hashed part by part by whoever is free."""

    seen: ScannedPath
    source: str
    place: str
    way: str
    role: str
    parts: list[str] = field(default_factory=list)
    left: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    descriptor: int = -1
    before: os.stat_result | None = None
    target: copying.NewFile | None = None
    identity: FileIdentity | None = None

    def part(self, index: int, buffers: Buffers) -> tuple[File | None, int]:
        """Does one part; the last one done answers the file."""
        with self.lock:
            # The first worker opens it, whichever part that one has.
            if self.descriptor < 0:
                self._open()
        offset = index * PART_SIZE_BYTES
        length = min(PART_SIZE_BYTES, self.seen.stat.st_size - offset)
        with buffers.take() as buffer:
            self.parts[index] = self._read(offset, length, buffer)
        with self.lock:
            self.left -= 1
            if self.left:
                return None, length
        return self._finish(buffers), length

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
        if self.target is not None:
            self.target.close()
            self.target = None

    def _read(self, offset: int, length: int, buffer: memoryview) -> str:
        """The digest of one part, copied meanwhile where it is to be a copy. Raises Unsteady where the file became shorter."""
        if self.target is None:
            return digest_part(self.descriptor, offset, length, buffer=buffer)
        digest = new_hash()
        got = copying.copy_part(
            self.descriptor, self.target, offset=offset, length=length, buffer=buffer, digest=digest
        )
        if got < length:
            raise changed(self.seen.path, "became shorter")
        return digest.hexdigest()

    def _open(self) -> None:
        """Opens it, and the copy where it is to be one. Raises Unsteady where it is not the file that was seen."""
        self.descriptor = _open_source(self.seen.path, self.source if self.way == "copy" else self.place)
        # Also makes dirty pages of a mapping read-only: a store into one changes the times from now on.
        with suppress(OSError) if self.way == "copy" else nullcontext():
            os.fsync(self.descriptor)
        self.before = os.fstat(self.descriptor)
        # A clone has an inode and stamps of its own; it was compared with its source when it was made.
        if self.way != "reflink":
            _require_seen(self.seen, self.before)
        if self.way == "copy":
            self.target = copying.NewFile(self.place, self.seen.stat.st_size, sparse=self.seen.sparse)

    def _finish(self, buffers: Buffers) -> File:
        """Makes it durable and lets go of it. Raises Unsteady where it was written meanwhile."""
        size = self.seen.stat.st_size
        saved = stat.S_IMODE(self.seen.stat.st_mode) & 0o777
        executable = bool(saved & stat.S_IXUSR)
        mode = sealed_rights(saved)
        if self.target is not None:
            self.target.finish(mode)
        # Not for a link: its rights are those of the trainer's file.
        elif self.way == "reflink":
            os.fchmod(self.descriptor, mode)
            os.fsync(self.descriptor)
        digest = of_parts(size, self.parts)
        if self.way != "reflink":
            self._require_steady(digest.digest, buffers)
        self.close()
        return File(
            path=self.seen.path,
            size_bytes=size,
            executable=executable,
            mode=saved if saved != (0o755 if executable else 0o644) else None,
            digest=digest.digest,
            parts=digest.parts,
            role=self.role,
        )

    def _require_steady(self, digest: str, buffers: Buffers) -> None:
        """The file is as it was before hashing; where only its names or rights changed, it is hashed again."""
        assert self.before is not None  # noqa: S101 - opened before any part was read
        before = FileIdentity.of(self.before)
        for _ in range(_LOOKS):
            now = FileIdentity.of(os.fstat(self.descriptor))
            match before.change_to(now):
                case Change.NONE:
                    self.identity = now
                    return
                case Change.WRITTEN:
                    raise changed(self.seen.path)
            before = now
            if digest_descriptor(self.descriptor, now.size_bytes, buffers) != digest:
                raise changed(self.seen.path)
        raise changed(self.seen.path)


def digest_descriptor(descriptor: int, size_bytes: int, buffers: Buffers) -> str:
    """The digest of an open file, by one thread."""
    with buffers.take() as buffer:
        parts = [
            digest_part(descriptor, index * PART_SIZE_BYTES, PART_SIZE_BYTES, buffer=buffer)
            for index in range(part_count(size_bytes))
        ]
    return of_parts(size_bytes, parts).digest


def _taken(base: Path, tree: Path, found: Mapping[str, ScannedPath], way: Way) -> Iterator[_Job]:
    """Links, clones or opens each file; asks for room for what must be copied before anything is."""
    ways = [one for one in WAYS[way.landing] if way.share or one != "link"]
    jobs = []
    for seen in found.values():
        if seen.type is FileType.FILE:
            job = _Job(
                seen=seen,
                source=f"{base}/{seen.path}",
                place=f"{tree}/{seen.path}",
                way="copy",
                role=str(way.roles.get(seen.path, Role.OTHER)),
            )
            job.way = _take(job, ways)
            jobs.append(job)
    to_copy = sum(job.seen.room_bytes for job in jobs if job.way == "copy")
    if to_copy:
        way.room(to_copy)
    return iter(jobs)


def _take(job: _Job, ways: list[str]) -> str:
    """Takes the file by the first way that works; one that the file system can't do is not tried again."""
    descriptor = _open_source(job.seen.path, job.source)
    try:
        _require_seen(job.seen, os.fstat(descriptor))
        # Before anything is taken: an open writer's next store would land in a linked file, after it was hashed.
        require_closed(descriptor, job.seen.path)
        if "reflink" in ways:
            if _reflink(descriptor, job.place):
                _require_seen(job.seen, os.fstat(descriptor))
                return "reflink"
            ways.remove("reflink")
        # A link could not be told from another file there: what is kept is hashed, and is ours alone.
        if "link" in ways and job.seen.steady and _link(job):
            return "link"
        return "copy"
    finally:
        os.close(descriptor)


def _reflink(source: int, place: str) -> bool:
    """Whether `place` is now a clone of the file; False, and nothing made, where the file system can't."""
    target = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError as error:
        os.unlink(place)
        if error.errno in _CANNOT:
            return False
        raise
    finally:
        os.close(target)
    return True


def _link(job: _Job) -> bool:
    """Whether `place` is now a link to the file; False, and nothing made, where that can't be. Raises Unsteady."""
    try:
        os.link(job.source, job.place, follow_symlinks=False)
    except FileNotFoundError as error:
        raise gone(job.seen.path) from error
    except OSError as error:
        if error.errno in _CANNOT:
            return False
        raise
    # The name may have been given to another file since it was opened: what counts is the one that was linked.
    _require_seen(job.seen, os.lstat(job.place))
    return True


def _open_source(path: str, place: str) -> int:
    """Never blocks and follows no link."""
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise gone(path) from error
    except OSError as error:
        # A link answers ELOOP, a socket ENXIO.
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise changed(path, "was replaced") from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise changed(path, "was replaced")
    return descriptor


def _require_seen(seen: ScannedPath, now: os.stat_result) -> None:
    """Raises Unsteady where it is not the file that was scanned."""
    if not seen.same_file(now):
        raise changed(seen.path)


def _wait_quiet(tree: Path, found: Mapping[str, ScannedPath], quiet_seconds: float) -> None:
    """Until no file has changed for so long, by the clock that stamps files, and stamps can tell two writes apart."""
    now_ns = _stamp_ns(tree)
    newest = max(
        max(seen.stat.st_mtime_ns, seen.stat.st_ctime_ns) for seen in found.values() if seen.type is FileType.FILE
    )
    wanted_ns = max(int(quiet_seconds * 1e9), _COARSE_NS)
    # A stamp from the future, of a trainer whose clock is ahead, must not keep us longer than the whole time.
    left_ns = min(wanted_ns, newest + wanted_ns - now_ns)
    if left_ns > 0:
        time.sleep(left_ns / 1e9)


def _stamp_ns(tree: Path) -> int:
    os.utime(tree)
    return os.stat(tree).st_mtime_ns


def _hash_all(jobs: list[_Job], way: Way, progress: Progress) -> list[File]:
    progress.expect("hash", sum(job.seen.stat.st_size for job in jobs))
    buffers = Buffers(way.workers + 1, copying.CHUNK_BYTES if any(j.way == "copy" for j in jobs) else 2**20)
    files = []

    def tasks() -> Iterator[Callable[[], tuple[File | None, int]]]:
        for job in jobs:
            count = part_count(job.seen.stat.st_size)
            job.parts, job.left = [""] * count, count
            for index in range(count):
                yield partial(job.part, index, buffers)

    try:
        for file, size_bytes in run_all(tasks(), workers=way.workers):
            progress.advance(size_bytes)
            if file is not None:
                files.append(file)
    finally:
        for job in jobs:
            job.close()
    return files


def _rescan(source: Path, names: Sequence[str]) -> dict[str, ScannedPath]:
    """As `scan`, of what was there just now: Incomplete where it is gone."""
    try:
        return scan(source, names)
    except NotFound as error:
        raise gone(source.name) from error


def _make_folders(tree: Path, found: Mapping[str, ScannedPath]) -> None:
    folders = {Path(seen.path).parent for seen in found.values()}
    folders |= {Path(seen.path) for seen in found.values() if seen.type is FileType.DIRECTORY}
    for folder in sorted(folders):
        (tree / folder).mkdir(mode=0o755, parents=True, exist_ok=True)
    for seen in found.values():
        # Once every folder is there: none may be made through a link.
        if seen.type is FileType.SYMLINK:
            os.symlink(str(seen.target), tree / seen.path)


def _folders(base: Path, found: Mapping[str, ScannedPath], *, whole: bool) -> dict[str, int]:
    """Rights of its directories that are not the usual ones. whole: `base` itself is the checkpoint."""
    paths = {str(above) for seen in found.values() for above in Path(seen.path).parents}
    paths |= {seen.path for seen in found.values() if seen.type is FileType.DIRECTORY}
    folders: dict[str, int] = {}
    for path in sorted(paths if whole else paths - {"."}):
        try:
            mode = stat.S_IMODE(os.lstat(base / path).st_mode) & 0o777
        except FileNotFoundError as error:
            raise gone(path) from error
        if mode != 0o755:  # noqa: PLR2004 - the usual rights
            folders[path] = mode
    return folders


def _others(found: Mapping[str, ScannedPath]) -> Iterator[File]:
    for seen in found.values():
        if seen.type is not FileType.FILE:
            yield File(path=seen.path, type=seen.type, target=seen.target)


def _sync_folders(tree: Path) -> None:
    for folder, _, _ in os.walk(tree, topdown=False):
        fsync_directory(folder)
