"""This node's own disk outside the tiers, as `ports.Workspace`."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from lakemark.adapters.disk.file_identity import known_file
from lakemark.adapters.disk.files import fsync_directory, make_directories, os_errors, rename_new
from lakemark.adapters.disk.scan import place_of, scan
from lakemark.adapters.node import announcers, pointers as pointing, run_files, survey as surveying
from lakemark.adapters.node.directory_lock import alone
from lakemark.adapters.node.matching import digest_of, matches
from lakemark.adapters.node.restore import restore_tree
from lakemark.adapters.node.restore_parts import restore_parts
from lakemark.errors import NotFound, quoted
from lakemark.model.checkpoints.manifest import Manifest
from lakemark.model.checkpoints.record import DataRef
from lakemark.model.checkpoints.survey import Survey
from lakemark.model.values.canonical import JSON, parse
from lakemark.ports import Fetch, KnownFile, OnDisk, Pointer, Progress, Restored, RunFile, Sparse, Spooled

_MOST_NAMESAKES: Final = 10_000


class LocalWorkspace:
    """Keeps nothing itself: any number may work on one disk at once. data_endpoint: as run files tell trainers."""

    def __init__(self, *, data_endpoint: str | None = None) -> None:
        self._data_endpoint = data_endpoint

    def restore(self, target: Path, manifest: Manifest, fetch: Fetch, *, tag: str, progress: Progress) -> Restored:
        return restore_tree(target, manifest, fetch, tag=tag, progress=progress)

    def restore_parts(
        self, target: Path, manifest: Manifest, sparse: Sparse, *, fetch: Fetch, tag: str, progress: Progress
    ) -> Restored:
        return restore_parts(target, manifest, sparse, fetch=fetch, tag=tag, progress=progress)

    def matches(self, path: Path, manifest: Manifest, *, progress: Progress) -> bool:
        return matches(path, manifest, progress=progress)

    def move_aside(self, paths: Iterable[Path], into: Path) -> tuple[Path, ...]:
        with os_errors(into):
            make_directories(into)
            leaving = tuple(paths)
            moved = tuple(_moved(path, into) for path in leaving)
            for folder in {into, *(path.parent for path in leaving)}:
                fsync_directory(folder)
        return moved

    def alone(self, directory: Path) -> AbstractContextManager[None]:
        return alone(directory)

    def points(self, pointer: Pointer) -> bool:
        return pointing.points(pointer)

    def draft(self, pointer: Pointer, at: Path) -> None:
        pointing.draft(pointer, at)

    def swap(self, draft: Path, path: Path, *, keep: Path) -> Path | None:
        with os_errors(path):
            try:
                exchanged = pointing.swap(draft, path)
            except FileExistsError:
                # Names can't be exchanged here: for a moment nothing has this one; a kill leaves what was there in `keep`.
                kept = self.move_aside([path], keep)
                pointing.swap(draft, path)
                return kept[0]
            return self.move_aside([draft], keep)[0] if exchanged else None

    def tidy(self, path: Path) -> None:
        pointing.tidy(path)

    def identities(self, path: Path) -> tuple[KnownFile, ...]:
        with os_errors(path):
            return tuple(sorted(_identities(path), key=lambda known: (known.device, known.inode)))

    def is_gone(self, file: KnownFile) -> bool:
        place = Path(file.place)
        try:
            if not file.place:
                return False
            found = os.lstat(place)
            return found.st_dev == file.device and known_file(file.place, found) != file
        except (FileNotFoundError, NotADirectoryError):
            # Only where its disk is there: of one that is not mounted nothing is gone.
            return _device_of(place) == file.device
        except OSError:
            return False

    def files(self, path: Path, members: Sequence[Path] = ()) -> tuple[OnDisk, ...]:
        with os_errors(path):
            return tuple(sorted(_files(path, members), key=lambda one: one.path))

    def require_keepable(self, path: Path, members: Sequence[Path] = ()) -> None:
        with os_errors(path):
            scan(*place_of(path, members))

    def last_change(self, paths: Iterable[Path]) -> datetime | None:
        newest = max((time_ns for path in paths for time_ns in _times(path)), default=None)
        return None if newest is None else datetime.fromtimestamp(newest / 1e9, UTC)

    def survey(self, root: Path) -> Survey | None:
        return surveying.survey(root)

    def same(self, before: Survey) -> bool:
        return surveying.same(before)

    def digest(self, path: Path) -> str:
        with os_errors(path):
            return digest_of(path)

    def write_run_file(self, path: Path, run_file: RunFile) -> None:
        run_files.write_run_file(path, run_file, endpoint=self._data_endpoint)

    def read_run_file(self, path: Path) -> RunFile | None:
        return run_files.read_run_file(path)

    def spooled(self, spool: Path) -> Iterator[Spooled]:
        return run_files.spooled(spool)

    def announcing(self, spools: Path) -> tuple[str, ...]:
        return run_files.announcing(spools)

    def unspool(self, spooled: Spooled) -> None:
        run_files.unspool(spooled)

    def with_reads(self, spool: Path, attempt: str, data: tuple[DataRef, ...]) -> tuple[DataRef, ...]:
        return run_files.with_reads(spool, attempt, data)

    def exists(self, path: Path) -> bool:
        return os.path.lexists(path)

    def not_to_take(self, announcement: Path, paths: Sequence[Path], *, inside: Sequence[Path]) -> str | None:
        return announcers.why_not(announcement, paths, inside=inside)

    def save_json(self, path: Path, value: JSON) -> None:
        run_files.save_json(path, value)

    def load_json(self, path: Path) -> JSON:
        try:
            return parse(path.read_bytes())
        except (OSError, ValueError):
            return None


def _moved(path: Path, into: Path) -> Path:
    """Where `path` is afterwards. One that an interrupted call moved already is found there."""
    for number in range(1, _MOST_NAMESAKES):
        target = into / (path.name if number == 1 else f"{path.name}.{number}")
        try:
            rename_new(path, target)
        except FileExistsError:
            continue
        except FileNotFoundError:
            # The name that an interrupted call moved it to; under a later one another file of that name may lie.
            if number == 1 and os.path.lexists(target):
                return target
            raise NotFound(f"{quoted(str(path))} is not there to be moved", advice="Look at the directory.") from None
        return target
    raise NotFound(f"{quoted(str(into))} has no room for another {path.name!r}", advice="Clear it out.")


def _device_of(place: Path) -> int | None:
    """Of the nearest folder above `place` that is there."""
    for folder in place.parents:
        try:
            return os.stat(folder).st_dev
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            return None
    return None


def _identities(path: Path) -> Iterator[KnownFile]:
    found = os.lstat(path)
    if stat.S_ISREG(found.st_mode):
        yield known_file(os.fspath(path), found)
    elif stat.S_ISDIR(found.st_mode):
        top = os.fspath(path)
        yield from (known_file(f"{top}/{name}", below) for name, below in _walk(top, ""))


def _files(path: Path, members: Sequence[Path]) -> Iterator[OnDisk]:
    """With the paths that a manifest of them would have."""
    for top in members or (Path(os.path.realpath(path)),):
        found = os.lstat(top)
        if stat.S_ISREG(found.st_mode):
            name = _inside(top, path) if members else top.name
            yield OnDisk(path=name, file=known_file(os.fspath(top), found), names=found.st_nlink)
        elif stat.S_ISDIR(found.st_mode):
            prefix = f"{_inside(top, path)}/" if members else ""
            for name, below in _walk(os.fspath(top), ""):
                known = known_file(f"{top}/{name}", below)
                yield OnDisk(path=f"{prefix}{name}", file=known, names=below.st_nlink)


def _inside(member: Path, path: Path) -> str:
    """What a manifest calls a member of the checkpoint `path`."""
    return member.relative_to(path.parent).as_posix() if member.is_relative_to(path.parent) else member.name


def _walk(folder: str, prefix: str) -> Iterator[tuple[str, os.stat_result]]:
    """The regular files in a directory and below; links are not followed."""
    with os.scandir(folder) as listing:
        # Read to its end before going deeper: one open directory at a time, however deep the tree is.
        entries = list(listing)
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(entry.path, f"{prefix}{entry.name}/")
        elif entry.is_file(follow_symlinks=False):
            yield f"{prefix}{entry.name}", entry.stat(follow_symlinks=False)


def _times(path: Path) -> Iterator[int]:
    """Of everything at or under `path` that can be looked at, files and directories, when it was written last."""
    with suppress(OSError):
        yield os.lstat(path).st_mtime_ns
    for folder, folders, names in os.walk(path):
        for name in (*folders, *names):
            with suppress(OSError):
                yield os.lstat(os.path.join(folder, name)).st_mtime_ns
