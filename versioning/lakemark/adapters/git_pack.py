"""Packing: loose objects that references reach go into a pack, and packs of one size into a larger one.

Never `git gc`: beside appends, its pruning destroys a repository. What no reference reaches is left alone; what is packed
is durable before the first loose copy goes.
"""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pygit2
from pygit2.enums import ObjectType

from lakemark.adapters.files import fsync_directory, make_directories, try_lock
from lakemark.errors import Corrupt

LOOSE_LIMIT: Final = 1000
"""About two hundred and fifty entries: an append slows with what lies loose."""
_SAMPLED: Final = range(0, 256, 32)
_FAN_OUT: Final = 8
_SMALLEST: Final = 2048
_MERGED_LEVELS: Final = 2
_INDEX_MAGIC: Final = b"\xfftOc\x00\x00\x00\x02"
_OID_BYTES: Final = 20


def make_folders(path: Path) -> None:
    """All 256 folders of loose objects, durable: nobody fsyncs `objects` when it makes one later. And that of our locks.

    A git program that packs removes the empty ones; a clone has none.
    """
    folders = [path / "objects" / f"{number:02x}" for number in range(256)]
    missing = [folder for folder in folders if not folder.is_dir()]
    for folder in missing:
        folder.mkdir(exist_ok=True)
    if missing:
        fsync_directory(path / "objects")
    make_directories(path / "lakemark" / "locks")


def loose_estimate(path: Path) -> int:
    """How many loose objects there are, from a sample of their folders."""
    return sum(len(os.listdir(path / "objects" / f"{number:02x}")) for number in _SAMPLED) * 256 // len(_SAMPLED)


def pack(path: Path, repository: pygit2.Repository) -> int:
    """Packs and consolidates; answers how many loose objects went. Does nothing while another process packs."""
    with _alone(path) as alone:
        if not alone:
            return 0
        make_folders(path)
        # References first: then all they reach is listed, and a packed commit leads to packed objects only.
        tips = [str(reference.target) for reference in repository.references.iterator()]
        loose = set(_loose(path))
        packed = pygit2.OdbBackendPack(str(path / "objects"))
        chosen = _reached(repository, tips, loose)
        new = [oid for oid in chosen if not packed.exists(pygit2.Oid(hex=oid))]
        if new:
            _write(path, repository, new)
        gone = 0
        for oid in loose:
            if oid in chosen or packed.exists(pygit2.Oid(hex=oid)):
                (path / "objects" / oid[:2] / oid[2:]).unlink(missing_ok=True)
                gone += 1
        _consolidate(path, repository)
        _pack_tags(path)
        return gone


@contextmanager
def _alone(path: Path) -> Iterator[bool]:
    descriptor = os.open(path / "lakemark" / "packing", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        yield try_lock(descriptor)
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def _loose(path: Path) -> Iterator[str]:
    for number in range(256):
        folder = f"{number:02x}"
        for name in os.listdir(path / "objects" / folder):
            if len(folder + name) == 2 * _OID_BYTES and not set(name).difference("0123456789abcdef"):
                yield folder + name


def _reached(repository: pygit2.Repository, tips: list[str], loose: set[str]) -> dict[str, None]:
    """Those of `loose` that `tips` reach, in the order found. What is not loose is packed with all it leads to."""
    chosen: dict[str, None] = {}
    waiting = list(tips)
    while waiting:
        oid = waiting.pop()
        if oid in chosen or oid not in loose:
            continue
        chosen[oid] = None
        found: Any = repository[oid]
        if found.type == ObjectType.COMMIT:
            waiting += [str(found.tree_id), *(str(parent) for parent in found.parent_ids)]
        elif found.type == ObjectType.TREE:
            waiting += [str(item.id) for item in found]
        elif found.type == ObjectType.TAG:
            waiting.append(str(found.target))
    return chosen


def _write(path: Path, repository: pygit2.Repository, oids: list[str]) -> None:
    builder = pygit2.PackBuilder(repository)
    builder.set_threads(1)
    for oid in oids:
        builder.add(pygit2.Oid(hex=oid))
    folder = path / "objects" / "pack"
    before = set(os.listdir(folder))
    builder.write(str(folder))
    for name in set(os.listdir(folder)) - before:
        _fsync(folder / name)
    fsync_directory(folder)


def _consolidate(path: Path, repository: pygit2.Repository) -> None:
    """Eight packs of one size become one of the next, twice; larger ones stay, or an append would wait for a minute."""
    levels: dict[int, list[Path]] = {}
    for index in sorted((path / "objects" / "pack").glob("pack-*.idx")):
        if not index.with_suffix(".keep").exists():
            levels.setdefault(_level(_count(index)), []).append(index)
    for level in sorted(level for level in levels if level < _MERGED_LEVELS):
        indexes = levels[level]
        if len(indexes) >= _FAN_OUT:
            _write(path, repository, list(dict.fromkeys(oid for index in indexes for oid in _listed(index))))
            for index in indexes:
                for suffix in (".idx", ".pack", ".rev", ".bitmap", ".mtimes"):
                    index.with_suffix(suffix).unlink(missing_ok=True)
            fsync_directory(path / "objects" / "pack")
            return


def _level(count: int) -> int:
    level = 0
    while count >= _SMALLEST * _FAN_OUT**level:
        level += 1
    return level


def _count(index: Path) -> int:
    with index.open("rb") as file:
        head = file.read(8 + 256 * 4)
    if head[:8] != _INDEX_MAGIC or len(head) < 8 + 256 * 4:
        raise Corrupt(f"{index} is no pack index of version 2", advice="Run `git fsck` in the ledger.")
    return int(struct.unpack(">I", head[-4:])[0])


def _listed(index: Path) -> Iterator[str]:
    count = _count(index)
    with index.open("rb") as file:
        file.seek(8 + 256 * 4)
        for _ in range(count):
            yield file.read(_OID_BYTES).hex()


def _pack_tags(path: Path) -> None:
    """A loose reference costs a block of the file system, and there is a tag for each record: Git keeps them in one file."""
    tags = path / "refs" / "tags" / "records"
    if tags.is_dir() and len(os.listdir(tags)) >= LOOSE_LIMIT:
        command = ["git", "-c", "core.fsync=all", "--git-dir", str(path), "pack-refs"]
        subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL)


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
