"""Git objects as lakemark writes them: loose and durable, with a second copy beside Git's own folders.

A `git gc --prune=now` beside an append removes objects that nothing referred to when it began looking, however new the
reference is by then. So what an entry is made of lies in `lakemark/recent/<commit>` too, where no git program looks, until
a pack that git leaves alone (one with `.keep`) holds it; and whatever is found missing or damaged is written anew from there.
libgit2 would not do it: it takes an object for present that lies in a pack it still has open, and gives up where git
removes an empty folder under its hands.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import pygit2

from lakemark.adapters.disk.files import fsync_directory, make_directories, make_directory, write_new

RECENT: Final = "lakemark/recent"
_DRAFT: Final = "draft-"
_OID_DIGITS: Final = 40
# A bound for unpacking: a damaged copy could unpack to anything.
_LONGEST_BYTES: Final = 2**30
_TRIES: Final = 50
# A draft is renamed within moments; one an hour old was left by a kill.
_DEAD_SECONDS: Final = 3600


class Made:
    """The objects of one append, first in memory. Used by one thread at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._framed: dict[str, bytes] = {}

    def begin(self) -> None:
        """Forgets what an earlier append made."""
        self._framed = {}

    def add(self, kind: str, data: bytes) -> str:
        """The id of an object of Git's `kind` (blob, tree, commit) with these bytes; nothing is written yet."""
        framed = b"%s %d\0" % (kind.encode(), len(data)) + data
        oid = _oid(framed)
        self._framed[oid] = framed
        return oid

    def store(self, name: str) -> None:
        """Writes all of them, durably: the copy called `name` first, so that from the first moment there are two."""
        if self._framed:
            # First, since a prune can take loose objects from the moment they are written, until a reference leads to them.
            _keep(self._path, name, self._framed)
            absent = _absent(self._path, self._framed)
            for oid, framed in self._framed.items():
                # A loose one is looked at although it is there: a crash may have left it cut short.
                if oid in absent or _loose(self._path, oid).exists():
                    _write_loose(self._path, oid, framed)

    def look_again(self) -> None:
        """Once a reference leads to them: what went meanwhile is written anew."""
        for oid in _absent(self._path, self._framed):
            _write_loose(self._path, oid, self._framed[oid])


def write_again(path: Path, kind: str, oid: str, data: bytes) -> bool:
    """Writes an object that is known by its id where it is missing or damaged. False for other bytes: nothing is written."""
    framed = b"%s %d\0" % (kind.encode(), len(data)) + data
    if _oid(framed) != oid:
        return False
    _write_loose(path, oid, framed)
    return True


def reads(path: Path, oid: str) -> bool:
    """Whether the object can be read, asked of the disk by an object store opened for it."""
    try:
        pygit2.Odb(str(path / "objects")).read(oid)
    except (pygit2.GitError, KeyError, ValueError):
        return False
    return True


def forget_loose(path: Path, oid: str) -> None:
    """Removes a loose object that nothing leads to any more."""
    # The id comes from a heartbeat, which another program may have written: it must not lead out of `objects`.
    if len(oid) == _OID_DIGITS and not set(oid).difference("0123456789abcdef"):
        _loose(path, oid).unlink(missing_ok=True)


def put_back(path: Path) -> int:
    """Writes anew what the copies hold and the repository at `path` lacks, or has damaged; answers how many objects."""
    count = 0
    for name in names(path):
        framed = kept(path, name)
        absent = _absent(path, framed)
        for oid, data in framed.items():
            # One that is there loose is compared too: power loss may have cut it short under its right name.
            if (oid in absent or _loose(path, oid).exists()) and _write_loose(path, oid, data):
                count += 1
    return count


def names(path: Path) -> list[str]:
    """The copies there are."""
    folder = path / RECENT
    return sorted(name for name in os.listdir(folder) if len(name) == _OID_DIGITS) if folder.is_dir() else []


def clear_drafts(path: Path, *, now: float) -> None:
    """Removes what killed writers left. now: the file system's own time, in seconds."""
    folder = path / RECENT
    for entry in os.scandir(folder) if folder.is_dir() else ():
        with suppress(FileNotFoundError):
            if entry.name.startswith(_DRAFT) and now - entry.stat().st_mtime > _DEAD_SECONDS:
                os.unlink(entry.path)


def kept(path: Path, name: str) -> Mapping[str, bytes]:
    """Object ids of a copy -> framed bytes; of one that was cut short by a crash, what is whole."""
    try:
        data = (path / RECENT / name).read_bytes()
    except FileNotFoundError:
        return {}
    return dict(_unwrapped(data))


def forget(path: Path, name: str) -> None:
    """Removes a copy: a pack with `.keep` holds its objects durably, or no reference ever led to them."""
    (path / RECENT / name).unlink(missing_ok=True)


def _keep(path: Path, name: str, framed: Mapping[str, bytes]) -> None:
    """Writes the copy `name`, durably: for each object its packed length, a newline, its packed bytes."""
    folder = path / RECENT
    data = b"".join(b"%d\n%s" % (len(packed), packed) for packed in (zlib.compress(one, 1) for one in framed.values()))
    draft = folder / f"{_DRAFT}{secrets.token_hex(8)}"
    try:
        write_new(draft, data)
    except FileNotFoundError:
        make_directories(folder)
        write_new(draft, data)
    # Under its name it is whole; over one that is there, which is the same commit's, after a retry.
    os.rename(draft, folder / name)
    fsync_directory(folder)


def _unwrapped(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Ids and framed bytes, as far as a copy is whole. Each id is worked out anew: what rotted gets a name nobody asks for."""
    at = 0
    while (end := data.find(b"\n", at)) > at:
        try:
            size = int(data[at:end])
            unpacker = zlib.decompressobj()
            framed = unpacker.decompress(data[end + 1 : end + 1 + size], _LONGEST_BYTES)
        except (ValueError, zlib.error):
            return
        # Cut short by power loss, or longer than anything of ours.
        if not unpacker.eof:
            return
        yield _oid(framed), framed
        at = end + 1 + size


def _absent(path: Path, framed: Mapping[str, bytes]) -> set[str]:
    """Those that the repository lacks now: asked of the disk, by an object store opened for it."""
    absent = {oid for oid in framed if not _loose(path, oid).exists()}
    if absent:
        # Not the open repository's: that goes on counting a pack that a git program has removed meanwhile.
        packs = pygit2.Odb(str(path / "objects"))
        absent = {oid for oid in absent if not packs.exists(pygit2.Oid(hex=oid))}
    return absent


def _write_loose(path: Path, oid: str, framed: bytes) -> bool:
    """False: it lies there already, whole."""
    target = _loose(path, oid)
    if _is_whole(target, framed):
        # Whole, but perhaps not durable yet: its writer may stand between its rename and its fsync.
        with suppress(FileNotFoundError):  # another writer may have renamed it there just now
            fsync_directory(target.parent)
        return False
    # Not below `objects`: git's pruning takes drafts there for rubbish.
    # The process and the moment are in the name: two writers of one object must not meet in one draft.
    draft = path / RECENT / f"{_DRAFT}{oid}-{os.getpid()}-{time.monotonic_ns()}"
    make_directories(draft.parent)
    # Read-only, as Git makes its own: nobody changes an object in place.
    write_new(draft, zlib.compress(framed, 1), mode=0o444)
    try:
        _rename(draft, target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    return True


def _rename(draft: Path, target: Path) -> None:
    """Renames durably, making the folder anew as often as git removes it. Raises FileNotFoundError where that never ends."""
    for last in (*(False,) * _TRIES, True):
        try:
            os.rename(draft, target)
            break
        except FileNotFoundError:
            # git removes folders that it has emptied: between these two lines, too.
            if last:
                raise
            with suppress(FileExistsError):
                make_directory(target.parent)
                fsync_directory(target.parent.parent)
    with suppress(FileNotFoundError):  # gone with all that was in it: whoever wrote it looks again
        fsync_directory(target.parent)


def _is_whole(target: Path, framed: bytes) -> bool:
    try:
        return zlib.decompress(target.read_bytes()) == framed
    except (FileNotFoundError, zlib.error):
        return False


def _loose(path: Path, oid: str) -> Path:
    return path / "objects" / oid[:2] / oid[2:]


def _oid(framed: bytes) -> str:
    return hashlib.sha1(framed, usedforsecurity=False).hexdigest()
