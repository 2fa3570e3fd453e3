"""PyTorch DCP's `.metadata`: which bytes of which data file hold what. Read as a stream of opcodes, nothing is built.

torch/distributed/checkpoint/{metadata,filesystem}.py of torch 1.13 to 2.15: a pickled `Metadata` whose `storage_data` maps a
`MetadataIndex` (fqn, offset, index) to a `_StorageInfo` (relative_path, offset, length). OLMo-core, Megatron-core, torchtitan,
Composer, ByteCheckpoint and Lightning's sharded checkpoints keep the same file.
"""

from __future__ import annotations

import re
import threading
from array import array
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import BinaryIO, Final, NamedTuple

from lakemark.formats.readers.folder import Folder, Unreadable
from lakemark.formats.readers.pickle_stream import OPAQUE, PickleReader, Unfit
from lakemark.formats.roles import of_names
from lakemark.model.checkpoints.manifest import Role

NAME: Final = ".metadata"
# A chunk of a tensor takes about 195 bytes of it (measured): this is room for 2.7 million of them.
LARGEST_BYTES: Final = 512 * 2**20
# About 40 MB at 25 bytes for an entry.
_MOST_CACHED_ENTRIES: Final = 1_500_000
_MOST_CACHED: Final = 64


class StoredChunk(NamedTuple):
    """One chunk of a tensor, or one pickled object: `length` bytes at `offset` of the data file `path`."""

    fqn: str | None
    path: str
    offset: int
    length: int


class TooLarge(Unfit):
    """It was not read because of its size."""


@dataclass(eq=False)
class DcpMetadata:
    """What a `.metadata` names. Compact: about 25 bytes for an entry, whatever its name."""

    names: list[str]
    paths: list[str]
    _name: array[int] = field(repr=False)
    _path: array[int] = field(repr=False)
    _offset: array[int] = field(repr=False)
    _length: array[int] = field(repr=False)
    _tensors: bytearray = field(repr=False)

    def __len__(self) -> int:
        return len(self._path)

    def entries(self) -> Iterator[StoredChunk]:
        for name, path, offset, length in zip(self._name, self._path, self._offset, self._length, strict=True):
            yield StoredChunk(self.names[name] if name < len(self.names) else None, self.paths[path], offset, length)

    @cached_property
    def needed_bytes(self) -> dict[str, int]:
        """Data file -> how long it must be at least."""
        longest = [0] * len(self.paths)
        # Chunks lie in no order of their offsets: a file must reach to the end of whichever lies last.
        for path, offset, length in zip(self._path, self._offset, self._length, strict=True):
            longest[path] = max(longest[path], offset + length)
        return dict(zip(self.paths, longest, strict=True))

    @cached_property
    def roles(self) -> dict[str, Role]:
        """Name -> role. A tensor of which nothing is known is a weight; an object of which nothing is known is `other`."""
        told = of_names(self.names)
        return {
            name: told[name] or (Role.WEIGHTS if tensor else Role.OTHER)
            for name, tensor in zip(self.names, self._tensors, strict=True)
        }

    @cached_property
    def roles_of_paths(self) -> dict[str, set[str]]:
        """Data file -> roles of what it holds."""
        of_name = [self.roles[name].value for name in self.names]
        pairs = set(zip(self._path, self._name, strict=True))
        found: dict[str, set[str]] = {path: set() for path in self.paths}
        for path, name in pairs:
            found[self.paths[path]].add(of_name[name] if name < len(of_name) else Role.OTHER.value)
        return found

    def ranges(self, wanted: Collection[str]) -> dict[str, list[tuple[int, int]]]:
        """Data file -> (offset, length) of what has one of the wanted roles: in order, touching ones as one."""
        of_name = [self.roles[name] in wanted for name in self.names]
        found: dict[int, list[tuple[int, int]]] = {}
        for name, path, offset, length in zip(self._name, self._path, self._offset, self._length, strict=True):
            if name < len(of_name) and of_name[name]:
                found.setdefault(path, []).append((offset, length))
        return {self.paths[path]: _merged(rows) for path, rows in sorted(found.items())}

    @cached_property
    def present(self) -> frozenset[str]:
        return frozenset(role.value for role in self.roles.values())


def ranges(metadata: DcpMetadata, wanted: Collection[str]) -> dict[str, list[tuple[int, int]]]:
    """Data file -> (offset, length) of what has one of the wanted roles: in order, touching ones as one."""
    return metadata.ranges(wanted)


def read(folder: Folder, name: str = NAME) -> DcpMetadata:
    """Raises Unreadable, Unfit (damaged, cut), TooLarge (more than `LARGEST_BYTES`)."""
    status = folder.stat(name)
    # A save to the same place renames a new file over this one: another inode, so what is known of the old one is not found.
    key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    known = _CACHE.get(key)
    if known is not None:
        return known
    if status.st_size > LARGEST_BYTES:
        raise TooLarge(f"not read: {status.st_size} bytes, more than {LARGEST_BYTES}")
    try:
        with folder.open(name) as stream:
            made = parse(stream)
    except OSError as error:
        raise Unreadable(f"it can't be read: {error.strerror}") from error
    _CACHE.put(key, made)
    return made


def parse(stream: BinaryIO, *, limit_bytes: int = LARGEST_BYTES) -> DcpMetadata:
    """Raises Unfit, and OSError of the stream."""
    reader = _Reader(stream, limit_bytes=limit_bytes)
    reader.run()
    return reader.made()


# Letters of protocols 4 and 5: h, j GET from the memo; ) EMPTY_TUPLE; \x81 NEWOBJ; \x94 MEMOIZE; } EMPTY_DICT; ( MARK.
# An object is made and gets a dict of its fields: u sets them, b gives them to it.
_NEW: Final = rb"(?:h.|j....)\)\x81\x94\}\x94\("
_GET: Final = rb"(h.|j....)"
_SMALL: Final = rb"(?:K.|M..|J....)"
# torch.Size is a tuple that REDUCE calls the class with; the same sizes come again from the memo.
_NEW_SIZE: Final = rb"(?:h.|j....)(?:" + _SMALL + rb"{1,3}[\x85-\x87]|\(" + _SMALL + rb"{4,8}t)\x94\x85\x94R\x94"
_SIZE: Final = rb"(?:(" + _NEW_SIZE + rb")|h.|j....)"
# A LONG1 says its own length, which a pattern can't follow: the match is tried and `_integer` checks it.
_OFFSET: Final = rb"(K.|M..|J....|\x8a[\x04-\x08].{4,8}?)"
_CHUNK: Final = re.compile(_NEW + _GET + _SIZE + _GET + _SIZE + b"ub", re.DOTALL)
_TEXT: Final = rb"(?:(h.|j....)|\x8c(.)([\x20-\x7e]+)\x94)"
_ENTRY: Final = re.compile(
    _NEW + _GET + _TEXT + _GET + rb"(?:K.|M..|J....|N)(?:" + _GET + _SIZE + b")?ub"
    + _NEW + _GET + _TEXT + _GET + _OFFSET + _GET + _OFFSET + b"ub",
    re.DOTALL,
)  # fmt: skip
_FIELDS: Final = frozenset({"fqn", "relative_path", "offset", "length"})
# `MetadataIndex.__init__` sets `offset` only where there is one: what is no tensor has none.
_KEYS: Final = (
    ("fqn", "index", "offset", "relative_path", "offset", "length"),
    ("fqn", "index", None, "relative_path", "offset", "length"),
)


class _Info(NamedTuple):
    path: str
    offset: int
    length: int


class _Index(NamedTuple):
    fqn: str
    tensor: bool


class _Reader(PickleReader):
    def __init__(self, stream: BinaryIO, *, limit_bytes: int) -> None:
        super().__init__(stream, limit_bytes=limit_bytes)
        self._names: dict[str, int] = {}
        self._paths: dict[str, int] = {}
        self._columns = (array("I"), array("I"), array("Q"), array("Q"))
        self._tensors = bytearray()
        self._keys: tuple[bytes | None, ...] = ()
        self._chunk_keys: tuple[bytes, ...] = ()

    def made(self) -> DcpMetadata:
        return DcpMetadata(list(self._names), list(self._paths), *self._columns, self._tensors)

    def items(self, start: int) -> None:
        """Of a dict with the fields of an index or a storage info these fields are left, of any other nothing."""
        stack = self.stack
        for key, value in zip(stack[start::2], stack[start + 1 :: 2], strict=False):
            if type(key) is str and key in _FIELDS:
                fields = stack[start - 1]
                if type(fields) is not dict:
                    # Opaque so far: the few fields that are wanted make a dict of ours, which BUILD leaves for the object.
                    fields = stack[start - 1] = {}
                fields[key] = value
            elif type(value) is dict and (info := _info(value)):
                self._add(_named(key), info)

    def _add(self, index: _Index | None, info: _Info) -> None:
        # A hostile file may say anything; array("Q") raises for these, and the sum of both must stay below 2^63.
        if not (0 <= info.offset < 1 << 62 and 0 <= info.length < 1 << 62):
            raise Unfit(f"an entry of {info.length} bytes at {info.offset}")
        # No name: an array has no None, and no table of names is so long.
        name = 0xFFFFFFFF
        if index is not None:
            name = self._names.setdefault(index.fqn, len(self._names))
            # Seen for the first time: what it is, is kept once for all its chunks.
            if name == len(self._tensors):
                self._tensors.append(index.tensor)
        names, paths, offsets, lengths = self._columns
        names.append(name)
        paths.append(self._paths.setdefault(info.path, len(self._paths)))
        offsets.append(info.offset)
        lengths.append(info.length)

    def shortcut(self, data: bytes, at: int) -> int:
        """Runs of chunks and of entries, in the very opcodes that CPython's pickler writes for them: five times as fast."""
        # The memo's numbers are given by counting MEMOIZEs: what is jumped over must count as if each had been read.
        chunks = 0
        while (match := _CHUNK.match(data, at)) and self._are_chunk_keys(match[1], match[3]):
            self.memoized += 2 + 3 * (match[2] is not None) + 3 * (match[4] is not None)
            at = match.end()
            chunks += 1
        # Chunks are items of a list: each leaves one value, which APPENDS takes away.
        if chunks:
            self.stack.extend([OPAQUE] * chunks)
            return at
        while (match := _ENTRY.match(data, at)) and self._entry(match):
            at = match.end()
        return at

    def _entry(self, match: re.Match[bytes]) -> bool:
        """Whether it was one after all."""
        row = match.groups()
        # All entries of one file get their keys from the same places of the memo: compared once by meaning, then as bytes.
        if (row[0], row[4], row[5], row[7], row[11], row[13]) != self._keys and not self._are_keys(row):
            return False
        fqn, path = self._read_text(row[1:4]), self._read_text(row[8:11])
        offset, length = _integer(row[12]), _integer(row[14])
        if fqn is None or path is None or offset is None or length is None:
            return False
        # Two MEMOIZEs, of the object and its dict, come before the first text; a torch.Size that is new has three.
        at = self.memoized + 2
        if row[1] is None:
            self.keep(at, fqn)
            at += 1
        at += 2 + 3 * (row[6] is not None)
        if row[8] is None:
            self.keep(at, path)
            at += 1
        self.memoized = at
        self._add(_Index(fqn, tensor=row[5] is not None), _Info(path, offset, length))
        return True

    def _read_text(self, row: Sequence[bytes | None]) -> str | None:
        """row: a BINGET or LONG_BINGET, or the length and bytes of a SHORT_BINUNICODE."""
        if row[0] is not None:
            known = self.memo.get(_index(row[0]))
            return known if isinstance(known, str) else None
        length, text = row[1], row[2]
        return text.decode() if length and text and len(text) == length[0] else None

    def _are_keys(self, row: Sequence[bytes | None]) -> bool:
        tokens = (row[0], row[4], row[5], row[7], row[11], row[13])
        said = tuple(None if token is None else self.memo.get(_index(token)) for token in tokens)
        if said not in _KEYS:
            return False
        # From here on entries whose keys are the same bytes are known without looking into the memo.
        self._keys = tokens
        return True

    def _are_chunk_keys(self, *tokens: bytes) -> bool:
        if tokens == self._chunk_keys:
            return True
        if tuple(self.memo.get(_index(token)) for token in tokens) != ("offsets", "sizes"):
            return False
        self._chunk_keys = tokens
        return True


def _index(token: bytes) -> int:
    """Of a BINGET or LONG_BINGET."""
    return token[1] if len(token) == 2 else int.from_bytes(token[1:], "little")  # noqa: PLR2004 - BINGET's


def _integer(token: bytes | None) -> int | None:
    """Of a BININT1, BININT2, BININT or LONG1; None for a LONG1 that is not as long as it says."""
    if token is None:
        return None
    if token[0] == 0x8A:  # noqa: PLR2004 - LONG1
        return int.from_bytes(token[2:], "little", signed=True) if len(token) == token[1] + 2 else None
    return int.from_bytes(token[1:], "little", signed=token[0] == 0x4A)  # noqa: PLR2004 - BININT


def _info(fields: Mapping[str, object]) -> _Info | None:
    path, offset, length = fields.get("relative_path"), fields.get("offset"), fields.get("length")
    if isinstance(path, str) and isinstance(offset, int) and isinstance(length, int):
        return _Info(path, offset, length)
    return None


def _named(key: object) -> _Index | None:
    """What a storage info is stored under."""
    fqn = key.get("fqn") if isinstance(key, dict) else None
    return _Index(fqn, "offset" in key) if isinstance(fqn, str) and isinstance(key, dict) else None


class _Cache:
    """The few last read, so that finding and committing read a large one once. Bounded by entries, not by files alone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[int, ...], DcpMetadata] = OrderedDict()

    def get(self, key: tuple[int, ...]) -> DcpMetadata | None:
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def put(self, key: tuple[int, ...], metadata: DcpMetadata) -> None:
        with self._lock:
            self._kept[key] = metadata
            # The last is kept whatever its size: a commit asks for it several times.
            while len(self._kept) > 1 and (
                len(self._kept) > _MOST_CACHED or sum(map(len, self._kept.values())) > _MOST_CACHED_ENTRIES
            ):
                self._kept.popitem(last=False)


_CACHE: Final = _Cache()


def _merged(rows: list[tuple[int, int]]) -> list[tuple[int, int]]:
    rows.sort()
    joined: list[tuple[int, int]] = []
    for offset, length in rows:
        start, size = joined[-1] if joined else (0, -1)
        # Ranges that touch or overlap are read in one go.
        if size >= 0 and offset <= start + size:
            joined[-1] = (start, max(size, offset + length - start))
        else:
            joined.append((offset, length))
    return joined
