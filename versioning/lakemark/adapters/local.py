"""This node's own disk outside the tiers, as `ports.Workspace`."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from lakemark.adapters import run_files
from lakemark.adapters.files import fsync_directory, make_directories, os_errors, rename_new
from lakemark.adapters.matching import matches
from lakemark.adapters.restoring import restore_tree
from lakemark.errors import NotFound, quoted
from lakemark.model.canonical import JSON
from lakemark.model.checkpoint import Manifest
from lakemark.ports import Fetch, KnownFile, Progress, Restored, RunFile, Spooled

_MOST_NAMESAKES: Final = 10_000


class LocalWorkspace:
    """Keeps nothing itself: any number may work on one disk at once."""

    def restore(self, target: Path, manifest: Manifest, fetch: Fetch, *, tag: str, progress: Progress) -> Restored:
        return restore_tree(target, manifest, fetch, tag=tag, progress=progress)

    def matches(self, path: Path, manifest: Manifest, *, progress: Progress) -> bool:
        return matches(path, manifest, progress=progress)

    def move_aside(self, paths: Iterable[Path], into: Path) -> tuple[Path, ...]:
        with os_errors(into):
            make_directories(into)
            moved = tuple(_moved(path, into) for path in paths)
            for folder in {into, *(path.parent for path in paths)}:
                fsync_directory(folder)
        return moved

    def identities(self, path: Path) -> tuple[KnownFile, ...]:
        with os_errors(path):
            return tuple(sorted(_identities(path), key=lambda known: (known.device, known.inode)))

    def write_run_file(self, path: Path, run_file: RunFile) -> None:
        run_files.write_run_file(path, run_file)

    def read_run_file(self, path: Path) -> RunFile | None:
        return run_files.read_run_file(path)

    def spooled(self, spool: Path) -> Iterator[Spooled]:
        return run_files.spooled(spool)

    def unspool(self, spooled: Spooled) -> None:
        run_files.unspool(spooled)

    def exists(self, path: Path) -> bool:
        return os.path.lexists(path)

    def save_json(self, path: Path, value: JSON) -> None:
        run_files.save_json(path, value)


def _moved(path: Path, into: Path) -> Path:
    """Where `path` is afterwards. One that an interrupted call moved already is found there."""
    for number in range(1, _MOST_NAMESAKES):
        target = into / (path.name if number == 1 else f"{path.name}.{number}")
        try:
            rename_new(path, target)
        except FileExistsError:
            continue
        except FileNotFoundError:
            if number == 1 and os.path.lexists(target):
                return target
            raise NotFound(f"{quoted(str(path))} is not there to be moved", advice="Look at the directory.") from None
        return target
    raise NotFound(f"{quoted(str(into))} has no room for another {path.name!r}", advice="Clear it out.")


def _identities(path: Path) -> Iterator[KnownFile]:
    found = os.lstat(path)
    if stat.S_ISREG(found.st_mode):
        yield KnownFile(device=found.st_dev, inode=found.st_ino, size_bytes=found.st_size, mtime_ns=found.st_mtime_ns)
    elif stat.S_ISDIR(found.st_mode):
        for name in os.listdir(path):
            yield from _identities(path / name)
