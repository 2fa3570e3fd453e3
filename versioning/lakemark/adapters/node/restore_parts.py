"""Restoring only some parts of files: they get their full size, the parts that hold what is wanted, and holes elsewhere.

A file's own digest can't be compared then. Each part has its own, and is compared whole; so parts are fetched whole.
"""

from __future__ import annotations

import os
import stat
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import BinaryIO, Final

from lakemark.adapters.disk.digests import STEP_BYTES, digest_part, new_hash, read_into
from lakemark.adapters.disk.files import as_ours
from lakemark.adapters.node.matching import matches
from lakemark.adapters.node.restore import KEPT, OwnDiskError, Work, none_left, own_disk, place_name, show, staged
from lakemark.adapters.node.staging import occupied, require_space
from lakemark.errors import Corrupt, LakemarkError, NotFound, quoted
from lakemark.model.checkpoints.manifest import File, Manifest
from lakemark.ports import Fetch, Progress, Range, Restored, Sparse

_FLAGS: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def restore_parts(
    target: Path, manifest: Manifest, sparse: Sparse, *, fetch: Fetch, tag: str, progress: Progress
) -> Restored:
    """See `ports.Restorer.restore_parts`."""
    whole = [file for file in manifest.regular if file.path not in sparse.paths]
    with staged(target, tag) as (place, tree, again):
        if again and place.exists() and any(place.iterdir()):
            done = _done_before(place, manifest, sparse, progress=progress)
            if done is None:
                raise occupied(place)
            return done
        work = Work(tree=tree, manifest=manifest, fetch=fetch, progress=progress)
        require_space(tree, sum(file.size_bytes for file in whole), sparse=sparse.paths)
        # The whole files first: the index among them says which bytes of the others are wanted.
        work.run(whole)
        parts = _Parts(work=work, sparse=sparse)
        partly, plan = _planned(manifest, sparse, tree)
        bytes_there = {file.path: sum(part.length for part in plan[file.path]) for file in partly}
        # Asked again: only now is it known how much of the other files is wanted.
        size_bytes = sum(file.size_bytes for file in whole) + sum(bytes_there.values())
        require_space(tree, size_bytes, sparse=sparse.paths)
        parts.run(partly, plan)
        parts.narrow(partly)
        show(tree, place, manifest)
    return Restored(
        path=place,
        size_bytes=size_bytes,
        files_by_place=parts.counted(work.sources),
        damaged=tuple(dict.fromkeys(work.damaged)),
        sparse=bytes_there,
    )


@dataclass(frozen=True, slots=True)
class _Part:
    number: int
    offset: int
    length: int
    digest: str


def _planned(manifest: Manifest, sparse: Sparse, tree: Path) -> tuple[list[File], dict[str, tuple[_Part, ...]]]:
    wanted = sparse.wanted(tree)
    files = [file for file in manifest.regular if file.path in sparse.paths and file.path in wanted]
    return files, _plan(files, wanted, manifest.part_size_bytes)


def _plan(
    files: Sequence[File], wanted: Mapping[str, tuple[Range, ...]], part_size: int
) -> dict[str, tuple[_Part, ...]]:
    """The parts of each file that hold what is wanted of it. Raises Corrupt for bytes beyond a file's end."""
    plan: dict[str, tuple[_Part, ...]] = {}
    for file in files:
        numbers: set[int] = set()
        for offset, length in wanted.get(file.path, ()):
            if offset < 0 or length < 0 or offset + length > file.size_bytes:
                raise Corrupt(
                    f"{quoted(file.path)} has {file.size_bytes} bytes; its index names {length} from {offset} on",
                    advice="Restore the whole checkpoint, and look at its index.",
                )
            if length:
                numbers.update(range(offset // part_size, (offset + length - 1) // part_size + 1))
        digests = file.parts or (str(file.digest),)
        plan[file.path] = tuple(
            _Part(number, number * part_size, min(part_size, file.size_bytes - number * part_size), digests[number])
            for number in sorted(numbers)
        )
    return plan


def _done_before(place: Path, manifest: Manifest, sparse: Sparse, *, progress: Progress) -> Restored | None:
    """What was restored into `place` when it ended between its last rename and clearing up; None where it is not that."""
    whole = replace(manifest, files=tuple(file for file in manifest.files if file.path not in sparse.paths))
    if not matches(place, whole, progress=progress, beside=sparse.paths):
        return None
    partly, plan = _planned(manifest, sparse, place)
    buffer = memoryview(bytearray(STEP_BYTES))
    for file in partly:
        with suppress(FileNotFoundError), open(place / file.path, "rb", buffering=0) as stream:
            descriptor = stream.fileno()
            sizes = os.fstat(descriptor).st_size == file.size_bytes
            if sizes and all(_right(descriptor, part, buffer) for part in plan[file.path]):
                continue
        return None
    there = {path: sum(part.length for part in parts) for path, parts in plan.items()}
    size_bytes = whole.size_bytes + sum(there.values())
    return Restored(path=place, size_bytes=size_bytes, files_by_place={KEPT: len(manifest.regular)}, sparse=there)


@dataclass(slots=True)
class _Parts:
    """came: path -> where its parts came from."""

    work: Work
    sparse: Sparse
    came: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    _lock: Lock = field(default_factory=Lock)

    def run(self, files: Sequence[File], plan: Mapping[str, tuple[_Part, ...]]) -> None:
        for file in files:
            self._make(file)
        self.work.all_done([partial(self._part, file, part) for file in files for part in plan[file.path]])

    def narrow(self, files: Sequence[File]) -> None:
        """Takes back the rights that only the writing needed. Durable on return."""
        for file in files:
            with self.work.parent(file) as (parent, name):
                descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
                try:
                    os.fchmod(descriptor, stat.S_IMODE(os.fstat(descriptor).st_mode) & file.rights)
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)

    def counted(self, whole: Mapping[str, int]) -> dict[str, int]:
        """Files by where they came from, with those that were restored whole; one from several places counts in each."""
        counts = dict(whole)
        for places in self.came.values():
            for place in places:
                counts[place] = counts.get(place, 0) + 1
        return counts

    def _make(self, file: File) -> None:
        """The file with its full size; what an interrupted restore left of it stays, to be compared."""
        with self.work.parent(file) as (parent, name):
            descriptor = _opened(parent, name, file)
            try:
                if os.fstat(descriptor).st_size != file.size_bytes:
                    # Of another size it is none of ours: to nothing first, so that it is all holes when it gets its own.
                    os.ftruncate(descriptor, 0)
                os.ftruncate(descriptor, file.size_bytes)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def _part(self, file: File, part: _Part) -> None:
        """One part, unless another one failed. Raises what `_filled` does, and our own disk's error."""
        if self.work.stopped:
            return
        with self.work.parent(file) as (parent, name):
            with own_disk():
                descriptor = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
            try:
                self._filled(file, part, descriptor)
            except OwnDiskError as error:
                raise error.__cause__ or error from None
            finally:
                os.close(descriptor)

    def _filled(self, file: File, part: _Part, descriptor: int) -> None:
        """The part's bytes, from the first candidate that has them right. Raises as a whole file's restore does."""
        buffer = memoryview(bytearray(min(STEP_BYTES, part.length)))
        if _right(descriptor, part, buffer):
            self._note(file, KEPT, part)
            return
        failures: list[LakemarkError] = []
        for place, opened in self.sparse.fetch(file, part.offset, part.length):
            try:
                with opened as stream:
                    _copy(stream, descriptor, part, buffer=buffer, file=file)
            except (LakemarkError, OSError) as error:
                ours = error if isinstance(error, LakemarkError) else as_ours(error, file.path)
                failures.append(ours)
                if isinstance(ours, Corrupt | NotFound):
                    self.work.note(place, file)
            else:
                self._note(file, place_name(place), part)
                return
        raise none_left(file, failures)

    def _note(self, file: File, where: str, part: _Part) -> None:
        with self._lock:
            self.came[file.path].add(where)
        self.work.progress.advance(part.length)


def _opened(parent: int, name: str, file: File) -> int:
    """A descriptor of a regular file, to read and write, new where there was none of ours: what else has the name goes."""
    try:
        descriptor = os.open(name, _FLAGS, dir_fd=parent)
    except FileNotFoundError:
        pass
    except OSError:  # a link, or a file that may not be written
        os.unlink(name, dir_fd=parent)
    else:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISREG(mode) and bool(mode & stat.S_IXUSR) == file.executable:
            return descriptor
        os.close(descriptor)
        os.unlink(name, dir_fd=parent)
    # Its owner may write whatever it was saved with: it is opened again for each part.
    return os.open(name, _FLAGS | os.O_CREAT | os.O_EXCL, file.rights | 0o600, dir_fd=parent)


def _copy(stream: BinaryIO, descriptor: int, part: _Part, *, buffer: memoryview, file: File) -> None:
    """Writes one part, durably. Raises Corrupt where its bytes are wrong, OwnDiskError."""
    digest, at, end = new_hash(), part.offset, part.offset + part.length
    while at < end:
        got = read_into(stream, buffer[: min(len(buffer), end - at)])
        if not got:
            break
        digest.update(buffer[:got])
        with own_disk():
            # Before it is compared: what turns out wrong is written over by the next candidate, and without one nothing is shown.
            _write_at(descriptor, buffer[:got], at)
        at += got
    if at != end or digest.hexdigest() != part.digest:
        raise Corrupt(
            f"{quoted(file.path)}: part {part.number} is not that of its manifest",
            advice="Take the checkpoint from another replica; `lakemark verify` says which are sound.",
        )
    with own_disk():
        os.fsync(descriptor)


def _write_at(descriptor: int, data: memoryview, offset: int) -> None:
    while data:
        written = os.pwrite(descriptor, data, offset)
        data, offset = data[written:], offset + written


def _right(descriptor: int, part: _Part, buffer: memoryview) -> bool:
    """Whether the part lies there already, by its digest: zeros of a hole have another one."""
    return digest_part(descriptor, part.offset, part.length, buffer=buffer) == part.digest
