"""What lies at a path when its save is announced: told apart from what is written over it before the node takes it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator
from typing import Final

# A save is announced inside the training loop: what is told of it must cost next to nothing, on any file system.
_MOST_FILES: Final = 256
_MOST_SECONDS: Final = 0.0004
# Told however late it is: this process has just written them, so a stat asks no disk, while one that was preempted here
# would tell of none, and what is then written over them would pass for what was announced.
_AT_LEAST: Final = 8
# Among so many entries: folders without a file in them are no reason to walk on.
_AMONG: Final = 64
_INDEX: Final = ".index"
_LONGEST: Final = 400


def identity_of(
    path: str, *, rank_files: Collection[str] = (), clock: Callable[[], float] = time.perf_counter
) -> dict[str, str] | None:
    """Path inside the checkpoint -> `<inode> <size in bytes> <mtime in ns>`, `.` for `path` itself; empty: nothing is there yet.

    None where it can't be told. Nothing is read. Of many files the first few are told, and of the rest those that the time by
    `clock`, in seconds, allows. Of `path` as a beginning of names, as TensorFlow has it, the index. rank_files: of a checkpoint
    that other ranks still write only these, of the first rank.
    """
    try:
        if not os.path.isdir(path):
            return _of_file(path)
        told = dict(_of_ranks(path, rank_files) if rank_files else _of_folder(path, clock))
        return told if told or not os.listdir(path) else None
    except FileNotFoundError:
        return {}
    except OSError:
        return None


def _of_file(path: str) -> dict[str, str]:
    try:
        return {".": _told(os.stat(path))}
    except FileNotFoundError:
        return {os.path.basename(path) + _INDEX: _told(os.stat(path + _INDEX))}


def _of_ranks(folder: str, names: Collection[str]) -> Iterator[tuple[str, str]]:
    for name in (name.replace("{rank}", "0") for name in names):
        place = os.path.join(folder, name)
        if os.path.isfile(place) and not os.path.islink(place):
            yield name, _told(os.lstat(place))


def _of_folder(top: str, clock: Callable[[], float]) -> Iterator[tuple[str, str]]:
    """The files that lie in `top` itself first, then those one deeper, and so on."""
    until = clock() + _MOST_SECONDS
    told = seen = 0
    folders = [("", top)]
    # The list grows while it is walked: so a level is finished before the next one begins.
    for inside, folder in folders:
        with os.scandir(folder) as entries:
            for entry in entries:
                name = f"{inside}{entry.name}"
                seen += 1
                if entry.is_dir(follow_symlinks=False):
                    folders.append((f"{name}/", entry.path))
                elif entry.is_file(follow_symlinks=False) and _is_text(name):
                    yield name, _told(entry.stat(follow_symlinks=False))
                    told += 1
                if told >= _MOST_FILES or ((told >= _AT_LEAST or seen >= _AMONG) and clock() > until):
                    return


def _is_text(name: str) -> bool:
    """Not where bytes of it stand for no character: JSON can't say such a name. Nor where it is very long."""
    return len(name) <= _LONGEST and (name.isascii() or not any("\ud800" <= one <= "\udfff" for one in name))


def _told(found: os.stat_result) -> str:
    return f"{found.st_ino} {found.st_size} {found.st_mtime_ns}"
