"""A framework's pointers on this disk: drafted out of sight, then shown by one rename. See `ports.Pointers`."""

from __future__ import annotations

import filecmp
import os
import stat
from pathlib import Path
from typing import Final

from lakemark.adapters.disk.digests import STEP_BYTES
from lakemark.adapters.disk.files import (
    exchange,
    fsync_directory,
    make_directories,
    os_errors,
    remove_tree,
    rename_new,
    write_all,
    write_new,
)
from lakemark.adapters.node.aside import move_aside
from lakemark.ports import Pointer, PointerKind

_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class LocalPointers:
    """Implements `ports.Pointers`."""

    def points(self, pointer: Pointer) -> bool:
        return points(pointer)

    def draft(self, pointer: Pointer, at: Path) -> None:
        draft(pointer, at)

    def swap(self, draft: Path, path: Path, *, keep: Path) -> Path | None:
        with os_errors(path):
            try:
                exchanged = swap(draft, path)
            except FileExistsError:
                # Names can't be exchanged here: for a moment nothing has this one; a kill leaves what was there in `keep`.
                kept = move_aside([path], keep)
                swap(draft, path)
                return kept[0]
            return move_aside([draft], keep)[0] if exchanged else None


def points(pointer: Pointer) -> bool:
    """Whether what lies at the pointer's path is what it must be. A hard link to what is to be copied is no copy."""
    path = pointer.path
    with os_errors(path):
        if pointer.kind is PointerKind.GONE or not os.path.lexists(path):
            return (pointer.kind is PointerKind.GONE) != os.path.lexists(path)
        if pointer.kind is PointerKind.SYMLINK:
            return os.path.islink(path) and os.readlink(path) == pointer.content
        if pointer.kind is PointerKind.TEXT:
            return (
                _is_file(path) and path.stat().st_size == len(_bytes(pointer)) and path.read_bytes() == _bytes(pointer)
            )
        return _same(pointer.content, os.fspath(path))


def draft(pointer: Pointer, at: Path) -> None:
    """Replaces whatever was drafted at `at` before."""
    with os_errors(at):
        make_directories(at.parent)
        _remove(at)
        if pointer.kind is PointerKind.TEXT:
            write_new(at, _bytes(pointer))
        elif pointer.kind is PointerKind.SYMLINK:
            os.symlink(pointer.content, at)
        else:
            _copy(pointer.content, os.fspath(at))
        fsync_directory(at.parent)


def swap(draft_at: Path, path: Path) -> bool:
    """Shows the draft as `path`; True where the two were exchanged, so that what was there is now where the draft was.

    FileExistsError where something is there and the file system can't exchange names.
    """
    make_directories(path.parent)
    exchanged = False
    try:
        rename_new(draft_at, path)
    except FileExistsError:
        # In one step: a trainer that looks between two would find no pointer, and begin anew.
        exchanged = exchange(draft_at, path)
        if not exchanged:
            raise
    for folder in (path.parent, draft_at.parent):
        fsync_directory(folder)
    return exchanged


def _bytes(pointer: Pointer) -> bytes:
    return pointer.content.encode(errors="surrogateescape")


def _is_file(path: str | Path) -> bool:
    return stat.S_ISREG(os.lstat(path).st_mode)


def _same(source: str, target: str) -> bool:
    one, other = os.lstat(source), os.lstat(target)
    if stat.S_IFMT(one.st_mode) != stat.S_IFMT(other.st_mode):
        return False
    if stat.S_ISLNK(one.st_mode):
        return os.readlink(source) == os.readlink(target)
    if stat.S_ISREG(one.st_mode):
        # One file under two names: what is written through one changes the other.
        if os.path.samestat(one, other) or one.st_size != other.st_size:
            return False
        return filecmp.cmp(source, target, shallow=False)
    names = sorted(os.listdir(source))
    if not stat.S_ISDIR(one.st_mode) or names != sorted(os.listdir(target)):
        return False
    return all(_same(os.path.join(source, name), os.path.join(target, name)) for name in names)


def _copy(source: str, target: str) -> None:
    """A file or tree of its own, fsynced: no block of a regular file is written through another name."""
    found = os.lstat(source)
    if stat.S_ISLNK(found.st_mode):
        os.symlink(os.readlink(source), target)
    elif stat.S_ISDIR(found.st_mode):
        os.mkdir(target)
        for name in os.listdir(source):
            _copy(os.path.join(source, name), os.path.join(target, name))
        fsync_directory(target)
    else:
        _copy_file(source, target, stat.S_IMODE(found.st_mode))


def _copy_file(source: str, target: str, mode: int) -> None:
    reading = os.open(source, _READ)
    try:
        writing = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        try:
            while data := os.read(reading, STEP_BYTES):
                write_all(writing, data)
            os.fsync(writing)
        finally:
            os.close(writing)
    finally:
        os.close(reading)


def _remove(at: Path) -> None:
    if at.is_dir() and not at.is_symlink():
        remove_tree(at)
    elif os.path.lexists(at):
        os.unlink(at)
