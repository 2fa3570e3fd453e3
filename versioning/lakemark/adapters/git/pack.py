"""Packing: loose objects that references reach go into a pack, and packs of one size into a larger one.

Never `git gc`: beside appends, its pruning destroys a repository. Others may run it: so our packs have a `.keep`, which
git leaves alone, and the copies of the newest objects (`git_objects`) stay until such a pack holds them. What no reference
reaches is left alone; what is packed is durable before the first other copy goes.
"""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pygit2
from pygit2.enums import ObjectType

from lakemark.adapters.disk.files import (
    fsync_directory,
    make_directories,
    make_directory,
    open_shared,
    os_errors,
    remove_tree,
    share,
    try_lock,
)
from lakemark.adapters.git import nodes as git_nodes, objects as git_objects, trees as git_tree
from lakemark.adapters.git.damage import DAMAGED
from lakemark.errors import Corrupt

LOOSE_LIMIT: Final = 1000
"""About two hundred and fifty entries: an append slows with what lies loose."""
# Ids are spread evenly: eight of the 256 folders tell of all.
_SAMPLED: Final = range(0, 256, 32)
_FAN_OUT: Final = 8
_SMALLEST: Final = 2048
_MERGED_LEVELS: Final = 2
_INDEX_MAGIC: Final = b"\xfftOc\x00\x00\x00\x02"
_OID_BYTES: Final = 20
# Of version 2: the magic, 256 sums of names by their first byte, the last of which counts all; then the names, sorted.
_NAMES_AT: Final = 8 + 256 * 4
# What our `.keep` files say, so that one which somebody else made to keep a pack is not taken for ours.
_OURS: Final = b"lakemark\n"


def make_folders(path: Path) -> None:
    """All 256 folders of loose objects, durable: nobody fsyncs `objects` when it makes one later. And that of our locks.

    A git program that packs removes the empty ones; a clone has none.
    """
    folders = [path / "objects" / f"{number:02x}" for number in range(256)]
    missing = [folder for folder in folders if not folder.is_dir()]
    for folder in missing:
        with suppress(FileExistsError):
            make_directory(folder)
    if missing:
        fsync_directory(path / "objects")
    for name in ("lakemark/locks", git_objects.RECENT):
        make_directories(path / name)


def loose_estimate(path: Path) -> int:
    """How many loose objects there are, from a sample of their folders."""
    return sum(len(os.listdir(path / "objects" / f"{number:02x}")) for number in _SAMPLED) * 256 // len(_SAMPLED)


def signature(path: Path) -> tuple[int, int]:
    """Changes whenever a pack comes or goes. Raises what the disk does, in our words."""
    folder = path / "objects" / "pack"
    with os_errors(folder):
        found = folder.stat()
    return found.st_ino, found.st_mtime_ns


def pack(path: Path) -> int:
    """Packs and consolidates; answers how many loose objects went. Does nothing while another process packs.

    Opens the repository for itself: threads that read go on meanwhile.
    """
    with _alone(path) as now:
        if now is None:
            return 0
        make_folders(path)
        git_objects.clear_drafts(path, now=now)
        git_objects.put_back(path)
        repository = pygit2.Repository(str(path))
        try:
            return _pack(path, repository)
        finally:
            repository.free()


def _pack(path: Path, repository: pygit2.Repository) -> int:
    """Packs what references and copies lead to; answers how many loose objects went. Only while no other process packs."""
    # The copies' names first, then references, then what lies loose: so all that these lead to is listed, and what is
    # forgotten in the end is packed.
    copies = {name: git_objects.kept(path, name) for name in git_objects.names(path)}
    # Heartbeats are replaced every few minutes: packed, each of them would stay.
    named = (one for one in repository.references.iterator() if not one.name.startswith(git_nodes.NODES))
    tips = [str(reference.target) for reference in named]
    loose = set(_loose(path))
    ours = _Kept(path)
    chosen = _reached(repository, tips, loose)
    for framed in copies.values():
        chosen |= dict.fromkeys(framed)
    new = [oid for oid in chosen if not ours.has(oid)]
    if new:
        _write(path, repository, new)
        ours = _Kept(path)
    gone = 0
    for oid in loose:
        # Only what lies in a pack of ours by now: one of a git program's may be gone at the next `git gc`.
        if ours.has(oid):
            (path / "objects" / oid[:2] / oid[2:]).unlink(missing_ok=True)
            gone += 1
    for name in copies:
        git_objects.forget(path, name)
    _consolidate(path, repository)
    _pack_tags(path)
    return gone


def set_packs_aside(path: Path) -> list[str]:
    """Moves packs whose bytes are not those that were packed out of the way; answers their names.

    What can be read of them is packed anew first. libgit2 goes no further where it finds an object in a pack and can't read
    it: neither another pack that has it whole nor a loose one counts while the damaged pack is there.
    """
    with _alone(path) as now:
        folder = path / "objects" / "pack"
        damaged = [] if now is None else [index for index in sorted(folder.glob("*.idx")) if not _is_verified(index)]
        if not damaged:
            return []
        repository = pygit2.Repository(str(path))
        try:
            names = dict.fromkeys(oid for index in damaged for oid in listed(index))
            whole = [oid for oid in names if _is_readable(repository, oid)]
            if whole:
                _write(path, repository, whole)
            for oid in names.keys() - whole:
                _read_by_git(path, oid)
        finally:
            repository.free()
        make_directories(path / DAMAGED)
        for index in damaged:
            for suffix in (".idx", ".pack", ".rev", ".bitmap", ".mtimes", ".keep"):  # by its index a pack is seen
                with suppress(FileNotFoundError):
                    os.replace(index.with_suffix(suffix), path / DAMAGED / index.with_suffix(suffix).name)
        fsync_directory(folder)
        fsync_directory(path / DAMAGED)
        return [index.stem for index in damaged]


def _is_verified(index: Path) -> bool:
    """Whether every object of the pack is what its name says; git reads all of them."""
    command = ["git", "verify-pack", str(index)]
    return subprocess.run(command, check=False, stdin=subprocess.DEVNULL, capture_output=True).returncode == 0


def _read_by_git(path: Path, oid: str) -> None:
    """Writes an object loose that Git can read: unlike libgit2 it takes the base of a delta from wherever it is whole."""
    command = ["git", "--git-dir", str(path), "cat-file"]
    kind = subprocess.run([*command, "-t", oid], check=False, stdin=subprocess.DEVNULL, capture_output=True)
    name = kind.stdout.decode().strip()
    if kind.returncode == 0 and name in ("blob", "tree", "commit", "tag"):
        read = subprocess.run([*command, name, oid], check=False, stdin=subprocess.DEVNULL, capture_output=True)
        if read.returncode == 0:
            git_objects.write_again(path, name, oid, read.stdout)


def _is_readable(repository: pygit2.Repository, oid: str) -> bool:
    try:
        repository.odb.read(oid)
    except (pygit2.GitError, KeyError, ValueError):
        return False
    return True


@contextmanager
def _alone(path: Path) -> Iterator[float | None]:
    """The file system's time, in seconds; None while another process packs."""
    descriptor = open_shared(path / "lakemark" / "packing")
    try:
        alone = try_lock(descriptor)
        # Ages of files are compared with this, not with this machine's clock: the disk may be a file server's.
        os.utime(descriptor)
        yield os.fstat(descriptor).st_mtime if alone else None
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def _loose(path: Path) -> Iterator[str]:
    """Ids of the objects that lie loose now."""
    for number in range(256):
        folder = f"{number:02x}"
        for name in os.listdir(path / "objects" / folder):
            # Temporaries of git and libgit2 lie in the same folders.
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
        found = git_tree.found(repository, oid)
        if found.type == ObjectType.COMMIT:
            waiting += [str(found.tree_id), *(str(parent) for parent in found.parent_ids)]
        elif found.type == ObjectType.TREE:
            waiting += [str(item.id) for item in found]
        elif found.type == ObjectType.TAG:
            waiting.append(str(found.target))
    return chosen


def _write(path: Path, repository: pygit2.Repository, oids: list[str]) -> None:
    """One pack of `oids`, durable, that no git program removes: its `.keep` is there before it."""
    builder = pygit2.PackBuilder(repository)
    builder.set_threads(1)
    for oid in oids:
        git_tree.found(repository, oid)  # put back, where a git program pruned it just now
        builder.add(pygit2.Oid(hex=oid))
    folder, drafts = path / "objects" / "pack", path / "lakemark" / "packs"
    # Left by a kill: only one process packs.
    remove_tree(drafts)
    make_directories(drafts)
    builder.write(str(drafts))
    for index in drafts.glob("*.idx"):
        keep = folder / index.with_suffix(".keep").name
        # Durable before its pack appears: in between, a `git gc` could pack that one's objects anew and remove it.
        keep.write_bytes(_OURS)
        share(keep, folder=folder)
        _fsync(keep)
        # The index last: by it a pack is seen.
        for draft in (index.with_suffix(".pack"), index):
            _fsync(draft)
            os.chmod(draft, 0o444)
            os.rename(draft, folder / draft.name)
    fsync_directory(folder)


class _Kept:
    """What our packs hold, asked of their indexes on the disk."""

    def __init__(self, path: Path) -> None:
        self.indexes = [index for index in sorted((path / "objects" / "pack").glob("pack-*.idx")) if _is_ours(index)]
        self._read = [_index(index) for index in self.indexes]

    def has(self, oid: str) -> bool:
        return any(_holds(data, bytes.fromhex(oid)) for data in self._read)


def _is_ours(index: Path) -> bool:
    """Whether the pack is one that `_write` made, and is there whole."""
    try:
        # A `.keep` without its pack: a kill fell between the two in `_write`.
        return index.with_suffix(".keep").read_bytes() == _OURS and index.with_suffix(".pack").exists()
    except FileNotFoundError:
        return False


def _index(index: Path) -> bytes:
    """The index up to the end of its names. Raises Corrupt."""
    count = _count(index)
    with index.open("rb") as file:
        return file.read(_NAMES_AT + count * _OID_BYTES)


def _holds(data: bytes, oid: bytes) -> bool:
    """Whether an index, as `_index` reads it, has the object; by bisection."""
    # The sums say where the names with this first byte begin and end.
    first, last = oid[0], 8 + 4 * oid[0]
    low = int.from_bytes(data[last - 4 : last]) if first else 0
    high = int.from_bytes(data[last : last + 4])
    while low < high:
        middle = (low + high) // 2
        at = _NAMES_AT + middle * _OID_BYTES
        found = data[at : at + _OID_BYTES]
        if found == oid:
            return True
        low, high = (middle + 1, high) if found < oid else (low, middle)
    return False


def _consolidate(path: Path, repository: pygit2.Repository) -> None:
    """Eight packs of one size become one of the next, twice; larger ones stay, or an append would wait for a minute.

    Those of git programs too, but for the ones that somebody told git to keep.
    """
    folder = path / "objects" / "pack"
    for keep in folder.glob("pack-*.keep"):
        if not keep.with_suffix(".pack").exists() and keep.read_bytes() == _OURS:
            keep.unlink()  # a kill fell between it and its pack
    levels: dict[int, list[Path]] = {}
    for index in sorted(folder.glob("pack-*.idx")):
        if _is_ours(index) or not index.with_suffix(".keep").exists():
            levels.setdefault(_level(_count(index)), []).append(index)
    for level in sorted(level for level in levels if level < _MERGED_LEVELS):
        indexes = levels[level]
        if len(indexes) >= _FAN_OUT:
            # One name may be in several packs; the builder is to have it once.
            _write(path, repository, list(dict.fromkeys(oid for index in indexes for oid in listed(index))))
            for index in indexes:
                for suffix in (".idx", ".pack", ".rev", ".bitmap", ".mtimes", ".keep"):
                    # The index first: a pack without one is not seen, an index without its pack would be an error to readers.
                    index.with_suffix(suffix).unlink(missing_ok=True)
            fsync_directory(folder)
            return


def _level(count: int) -> int:
    level = 0
    while count >= _SMALLEST * _FAN_OUT**level:
        level += 1
    return level


def _count(index: Path) -> int:
    """How many objects the pack has. Raises Corrupt for an index of another version, or one that was cut short."""
    with index.open("rb") as file:
        head = file.read(_NAMES_AT)
    if head[:8] != _INDEX_MAGIC or len(head) < _NAMES_AT:
        raise Corrupt(f"{index} is no pack index of version 2", advice="Run `git fsck` in the ledger.")
    return int(struct.unpack(">I", head[-4:])[0])


def listed(index: Path) -> Iterator[str]:
    """Ids of the objects that a pack has, by its index."""
    count = _count(index)
    with index.open("rb") as file:
        file.seek(_NAMES_AT)
        for _ in range(count):
            yield file.read(_OID_BYTES).hex()


def _pack_tags(path: Path) -> None:
    """A loose reference costs a block of the file system, and there is a tag for each record: Git keeps them in one file."""
    tags = path / "refs" / "tags" / "records"
    if tags.is_dir() and len(os.listdir(tags)) >= LOOSE_LIMIT:
        # Git removes the loose files right afterwards: what replaces them has to be on the disk by then.
        command = ["git", "-c", "core.fsync=all", "--git-dir", str(path), "pack-refs"]
        subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL)


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
