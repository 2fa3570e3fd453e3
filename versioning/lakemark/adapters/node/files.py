"""The user's files on this machine's disks, as `ports.Files`."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from lakemark.adapters.disk.file_identity import known_file
from lakemark.adapters.disk.files import os_errors
from lakemark.adapters.disk.scan import place_of, scan
from lakemark.adapters.node import survey as surveying
from lakemark.adapters.node.matching import digest_of
from lakemark.model.checkpoints.survey import Survey
from lakemark.ports import KnownFile, OnDisk


class LocalFiles:
    """Implements `ports.Files`. Keeps nothing itself: any number may look at one disk at once."""

    def exists(self, path: Path) -> bool:
        return os.path.lexists(path)

    def resolved(self, path: Path) -> Path:
        return Path(os.path.realpath(path))

    def regular(self, path: Path, members: Sequence[Path] = ()) -> tuple[OnDisk, ...]:
        with os_errors(path):
            return tuple(sorted(_files(path, members), key=lambda one: one.path))

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
