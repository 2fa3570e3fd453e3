"""Objects of one commit: their names and their bytes, of the server once and of this node's cache from then on."""

from __future__ import annotations

import errno
import io
import os
import re
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

from lakemark.data.address import Address, NotPinned
from lakemark.data.cache import Cache, CacheFull, key_of
from lakemark.data.forks import Lock
from lakemark.data.reads import ReadLog
from lakemark.data.server import Object, Server

BLOCK_BYTES: Final = 8 * 2**20
_REMEMBERED: Final = 65_536
_PLAIN: Final = re.compile(r"(?:/(?!\.{1,2}(?:/|\Z))[^/\0]+)+")
_ODD: Final = re.compile(r"[^A-Za-z0-9._-]", re.ASCII)


@dataclass(slots=True)
class Reader:
    """repository, commit: which data version; it never changes, so what was asked once is remembered.

    Bytes are kept in blocks of 8 MiB: of a large object only what is read is fetched.
    """

    server: Server
    repository: str
    commit: str
    cache: Cache | None = None
    log: ReadLog | None = None
    _known: OrderedDict[str, Object] = field(default_factory=OrderedDict, init=False, repr=False)
    _lock: Lock = field(default_factory=Lock, init=False, repr=False)

    def stat(self, path: str) -> Object:
        """Raises FileNotFoundError."""
        with self._lock:
            found = self._known.get(path)
        return found if found is not None else self._remember(self.server.stat(self.repository, self.commit, path))

    def below(self, prefix: str, *, folders: bool = False, most: int | None = None) -> Iterator[Object | str]:
        """Objects whose path begins with `prefix`, in order; folders: one level alone, deeper ones as `…/` texts."""
        listed = self.server.list(self.repository, self.commit, prefix, delimiter="/" if folders else "", most=most)
        for one in listed:
            yield one if isinstance(one, str) else self._remember(one)

    def read(self, found: Object, start: int, end: int) -> bytes:
        """Bytes [start, end) of it; past its end there are none."""
        start, end = max(0, start), min(end, found.size_bytes)
        pieces = []
        for number in range(start // BLOCK_BYTES, -(-end // BLOCK_BYTES)) if start < end else ():
            at = number * BLOCK_BYTES
            pieces.append(self._piece(found, number, max(start - at, 0), min(end - at, BLOCK_BYTES)))
        self._note(found, max(0, end - start))
        return b"".join(pieces)

    def local(self, found: Object) -> Path:
        """The whole object as a file under its own name, as long as this process lives. Raises NoRoom."""
        if self.cache is None:
            raise CacheFull(errno.ENOSPC, "local files need a cache")
        for _ in range(3):
            key = self._key(found, "whole")
            path = self.cache.get(key, found.size_bytes, partial(self._fetch, found, start=0, length=found.size_bytes))
            try:
                named = self._held(found, path, key)
            except FileNotFoundError:  # it went to make room before it was held
                continue
            self._note(found, found.size_bytes)
            return named
        raise CacheFull(errno.EBUSY, f"{found.path} is thrown out as fast as it comes in: the cache is too small")

    def _note(self, found: Object, size_bytes: int) -> None:
        if self.log is not None:
            self.log.note(self.repository, self.commit, found, size_bytes)

    def _piece(self, found: Object, number: int, start: int, end: int) -> bytes:
        at = number * BLOCK_BYTES
        length = min(BLOCK_BYTES, found.size_bytes - at)

        fill = partial(self._fetch, found, start=at, length=length)
        if self.cache is not None:
            try:
                for _ in range(3):
                    path = self.cache.get(self._key(found, number), length, fill)
                    # None where the entry went before it could be opened: three times in a row, the cache is too small.
                    piece = _read(path, start, end)
                    if piece is not None:
                        return piece
            except CacheFull:
                pass
        # Past the cache, and only what was asked for: a full disk must not end a training run.
        buffer = io.BytesIO()
        self._fetch(found, buffer, start=at + start, length=end - start)
        return buffer.getvalue()

    def _fetch(self, found: Object, stream: BinaryIO, *, start: int, length: int) -> None:
        self.server.fetch(self.repository, self.commit, found, stream.write, start=start, length=length)

    def _held(self, found: Object, path: Path, key: str) -> Path:
        """Under its own name, where a file system can have it: an object store also has `a` beside `a/b`, and `..`."""
        cache, above = self.cache, f"{self.repository}/{self.commit[:12]}"
        if cache is None:
            return path
        if _PLAIN.fullmatch(f"/{found.path}"):
            try:
                return cache.hold(path, f"{above}/{found.path}")
            except FileNotFoundError:
                raise
            except OSError:  # too long, or taken by a folder or a file
                pass
        # A name that any file system can have, its ending kept: loaders go by that.
        last = _ODD.sub("_", found.path[-100:].rpartition("/")[2].lstrip("."))
        return cache.hold(path, f"{above}~/{key}/{last or 'object'}")

    def _key(self, found: Object, part: object) -> str:
        return key_of(self.repository, found.address, found.checksum, found.size_bytes, part)

    def _remember(self, found: Object) -> Object:
        with self._lock:
            self._known[found.path] = found
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return found


def commit_of(server: Server, address: Address, *, moving: bool) -> str:
    """The commit that is read. Raises NotPinned where the address names something that moves, unless `moving`."""
    if not moving:
        address.require_pinned()
    commit = server.commit_of(address.repository, address.ref)
    # Where there is no such commit, lakeFS answers with what a branch or tag of that name stands for.
    if address.pinned and commit != address.ref:
        raise NotPinned(
            f"{address.ref[:100]!r} is the name of a branch or tag of {address.repository}, not of a commit"
        )
    return commit


def _read(path: Path, start: int, end: int) -> bytes | None:
    """None where the entry went in this moment."""
    try:
        with open(path, "rb", buffering=0) as stream:
            piece = os.pread(stream.fileno(), end - start, start)
    except FileNotFoundError:
        return None
    return piece if len(piece) == end - start else None
