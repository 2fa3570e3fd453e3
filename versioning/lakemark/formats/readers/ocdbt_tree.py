"""What the tree of an OCDBT store says: which bytes of which files must be there, and which arrays there are.

google.github.io/tensorstore/kvstore/ocdbt (format): `manifest.ocdbt` names the root of the newest version; nodes lie in the
files of data, compressed, and name other nodes or values. Orbax joins what its processes wrote by a root that names their
nodes, each under a path of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from lakemark.formats.readers import zarr, zstd
from lakemark.formats.readers.folder import Folder, Unreadable
from lakemark.formats.readers.varint import varint

MANIFEST: Final = "manifest.ocdbt"
_MANIFEST: Final = b"\x0c\xdb\x3a\x2a"
_NODE: Final = b"\x0c\xdb\x20\xde"
_HEAD_BYTES: Final = 12
_CHECKSUM_BYTES: Final = 4
_SINGLE: Final = 0
# Of all nodes together, unpacked. Each counts as often as it is named, so a tree that names one node a million times ends too.
_MOST_BYTES: Final = 64 * 2**20
_LONGEST_PATH_BYTES: Final = 65_535
_DEEPEST: Final = 16
_SHOWN: Final = 3


class Unknown(Exception):
    """It is of a later version, too large to be looked at, or keeps its versions elsewhere."""


class OcdbtDamaged(Exception):
    """Its text says what can't be so."""


@dataclass(slots=True)
class Tree:
    """needed_bytes: file, by its path from the store -> how long it must be. arrays: those that have metadata in it."""

    needed_bytes: dict[str, int] = field(default_factory=dict)
    arrays: set[str] = field(default_factory=set)
    read_bytes: int = 0

    def need(self, file: str, end: int) -> None:
        self.needed_bytes[file] = max(end, self.needed_bytes.get(file, 0))


class _Place(NamedTuple):
    """Of a node. base: what its own files' paths begin with. prefix: what its keys begin with."""

    file: str
    base: str
    offset: int
    length: int
    height: int
    prefix: bytes = b""


def read(folder: Folder, at: str) -> Tree:
    """at: where in the folder the store lies. Raises Unknown, Damaged, and Unreadable for its manifest.

    A file of nodes that can't be read is needed, and nothing is told of what they name.
    """
    inside = f"{at}/" if at else ""
    tree, name = Tree(), f"{inside}{MANIFEST}"
    manifest = _opened(folder, name, tree)
    try:
        pending = list(_roots(manifest))
        while pending:
            place = pending.pop()
            # Needed even if it can't be read: the caller says of the file itself that it is missing or short.
            tree.need(place.file, place.offset + place.length)
            name = f"{inside}{place.file}"
            with suppress(Unreadable):
                pending.extend(_node(tree, _opened(folder, name, tree, place), place))
    except (IndexError, ValueError) as error:
        raise OcdbtDamaged(f"{name}: a damaged node") from error
    return tree


def lacking(folder: Folder, at: str, tree: Tree) -> Iterator[str]:
    """Files that the tree names and that are gone or too short."""
    inside = f"{at}/" if at else ""
    missing = []
    for file, needed in sorted(tree.needed_bytes.items()):
        try:
            size_bytes = folder.size_bytes(f"{inside}{file}")
        except Unreadable:
            missing.append(file)
            continue
        if size_bytes < needed:
            yield f"{inside}{file}: {size_bytes} bytes, it needs {needed}"
    if missing:
        shown = ", ".join(missing[:_SHOWN]) + (", …" if len(missing) > _SHOWN else "")
        yield f"{len(missing)} of {len(tree.needed_bytes)} files of data missing: {inside}{shown}"


class _Bytes:
    """A cursor. IndexError where it ends, ValueError for a number that does not."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def byte(self) -> int:
        found = self.data[self.at]
        self.at += 1
        return found

    def number(self) -> int:
        value, self.at = varint(self.data, self.at)
        return value

    def numbers(self, count: int) -> list[int]:
        if count > len(self.data) - self.at:
            raise IndexError
        return [self.number() for _ in range(count)]

    def take(self, count: int) -> bytes:
        found = self.data[self.at : self.at + count]
        if len(found) < count:
            raise IndexError
        self.at += count
        return found


def _opened(folder: Folder, name: str, tree: Tree, place: _Place | None = None) -> _Bytes:
    """The body of a node, or of a manifest, which is all of its file."""
    try:
        with folder.open(name) as stream:
            length = place.length if place else os.fstat(stream.fileno()).st_size
            if tree.read_bytes + length > _MOST_BYTES:
                raise Unknown(f"{name}: too large")
            stream.seek(place.offset if place else 0)
            content = stream.read(length)
    except OSError as error:
        raise Unreadable(f"{name}: {error.strerror}") from error
    except Unreadable as error:
        raise Unreadable(f"{name}: {error}") from error
    if len(content) < _HEAD_BYTES or not content.startswith(_NODE if place else _MANIFEST):
        raise OcdbtDamaged(f"{name}: cut or damaged")
    said = int.from_bytes(content[4:_HEAD_BYTES], "little")
    if not said == len(content) == length:
        raise OcdbtDamaged(f"{name}: {len(content)} bytes, it says {said}")
    body = _Bytes(content[_HEAD_BYTES:-_CHECKSUM_BYTES])
    try:
        version, compression = body.number(), body.number()
        # Version 0 is all there is; 0: plain, 1: Zstandard.
        if version or compression > 1:
            raise Unknown(name)
        if compression:
            body = _Bytes(zstd.decompress(body.data[body.at :], limit_bytes=_MOST_BYTES - tree.read_bytes))
    except (IndexError, ValueError) as error:
        raise OcdbtDamaged(f"{name}: damaged") from error
    tree.read_bytes += len(body.data)
    return body


def _roots(body: _Bytes) -> Iterator[_Place]:
    """Of the newest version; none where the store is empty."""
    # The configuration: the store's uuid, kind of manifest, two limits in bytes, arity of the tree of versions, compression.
    body.take(16)
    kind = body.number()
    body.numbers(2)
    body.byte()
    # Zstandard has a level, four bytes.
    if body.number():
        body.take(4)
    # Then the versions lie in manifests of their own, numbered, and this one holds the configuration alone.
    if kind != _SINGLE:
        raise Unknown("numbered manifests")
    files = _files(body, "")
    count = body.number()
    body.numbers(count)
    # Tables are stored by columns: generation of each version, height of its root, then file, offset, length, number of keys.
    heights = body.take(count)
    columns = [body.numbers(count) for _ in range(4)]
    # Without keys there is no root: its file and offset mean nothing.
    if not count or not columns[3][-1]:
        return
    # Versions are in order of their generation: the last is the newest.
    which, offset, length, _ = (column[-1] for column in columns)
    file, base = files[which]
    yield _Place(file, base, offset, length, heights[-1])


def _files(body: _Bytes, base: str) -> list[tuple[str, str]]:
    """Of each: its path, and what paths in nodes that lie in it begin with."""
    count = body.number()
    if not count:
        return []
    shared = [0, *body.numbers(count - 1)]
    own, bases = body.numbers(count), body.numbers(count)
    found = []
    path = b""
    for prefix, suffix, length in zip(shared, own, bases, strict=True):
        # As keys below: only what differs from the one before is written.
        path = path[:prefix] + body.take(suffix)
        text = os.fsdecode(path)
        # A tree comes with the checkpoint, maybe from a stranger: nothing outside of its store is ever looked at.
        if len(path) + len(base) > _LONGEST_PATH_BYTES or text.startswith("/") or ".." in text.split("/"):
            raise OcdbtDamaged(f"it names {text[:200]!r}, which lies outside of it")
        found.append((base + text, base + os.fsdecode(path[:length])))
    return found


def _node(tree: Tree, body: _Bytes, place: _Place) -> list[_Place]:
    """Notes what a node needs; answers the nodes below it."""
    # Each node is one lower than what names it, so even a tree that names itself comes to an end.
    if body.byte() != place.height or place.height > _DEEPEST:
        raise IndexError
    files = _files(body, place.base)
    count = body.number()
    shared, own = [0, *body.numbers(count - 1)], body.numbers(count)
    # Of an inner node: how much of its key all keys below share, and leave out.
    common = body.numbers(count) if place.height else []
    keys = []
    key = b""
    for prefix, suffix in zip(shared, own, strict=True):
        key = key[:prefix] + body.take(suffix)
        keys.append(key)
    if not place.height:
        _leaf(tree, body, files, count)
        tree.arrays.update(found for key in keys if (found := _array(place.prefix + key)) is not None)
        return []
    # Statistics of what lies below follow; nobody needs them.
    columns = [body.numbers(count) for _ in range(3)]
    return [
        _Place(files[which][0], files[which][1], offset, length, place.height - 1, place.prefix + key[:prefix])
        for key, prefix, which, offset, length in zip(keys, common, *columns, strict=True)
    ]


def _leaf(tree: Tree, body: _Bytes, files: list[tuple[str, str]], count: int) -> None:
    lengths, kinds = body.numbers(count), body.numbers(count)
    # Kind 0: the value lies in the node itself and needs no file.
    apart = [length for length, kind in zip(lengths, kinds, strict=True) if kind]
    which, offsets = body.numbers(len(apart)), body.numbers(len(apart))
    for length, number, offset in zip(apart, which, offsets, strict=True):
        tree.need(files[number][0], offset + length)


def _array(key: bytes) -> str | None:
    path, _, last = key.decode(errors="replace").rpartition("/")
    return path if last in zarr.METADATA else None
