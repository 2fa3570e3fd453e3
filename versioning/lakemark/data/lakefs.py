"""`lakefs://repository/commit/path` as an fsspec file system: for pandas, `datasets`, Arrow, torch, and `fsspec.open`."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, BinaryIO, ClassVar, Final, NoReturn

from fsspec import register_implementation
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from lakemark.data import options
from lakemark.data.address import Address
from lakemark.data.forks import Lock
from lakemark.data.reader import BLOCK_BYTES, Reader, commit_of
from lakemark.data.server import Object

_READ_AHEAD_BYTES: Final = 2**20


class LakeFS(AbstractFileSystem):
    """Read-only; the ref is a full commit id, or NotPinned is raised.

    endpoint: of the server; LAKEFS_ENDPOINT wins. Keys: LAKEFS_ACCESS_KEY_ID, LAKEFS_SECRET_ACCESS_KEY, or each `…_FILE`.
    cache: a folder on a local disk, shared by all processes of the node; None: LAKEMARK_DATA_CACHE, else the user's cache
    folder; "": none. cache_bytes: what it may take; None: LAKEMARK_DATA_CACHE_BYTES, else 64 GiB.
    moving: branches and tags are taken too, for the commit they stand at when this file system first meets them.
    log: where what is read is noted; None: that of LAKEMARK_RUN_FILE's run, if there is one.
    """

    protocol: ClassVar[str] = "lakefs"
    root_marker = ""

    def __init__(
        self,
        *,
        endpoint: str | None = None,
        cache: str | None = None,
        cache_bytes: int | None = None,
        moving: bool = False,
        log: str | None = None,
        **fsspec_options: Any,  # noqa: ANN401 - fsspec's own
    ) -> None:
        super().__init__(**fsspec_options)
        self._moving = moving
        self._server = options.server(endpoint)
        self._cache = options.cache(cache, cache_bytes)
        self._log = options.log(log)
        self._readers: dict[tuple[str, str], Reader] = {}
        self._finding = Lock()

    def info(self, path: str, **_: object) -> dict[str, Any]:
        """`name`, `size`, `type`; of an object also `checksum` (the server's ETag) and `modified`."""
        reader, inside, above = self._at(path)
        if inside and not inside.endswith("/"):
            try:
                return _file(above, reader.stat(inside))
            except FileNotFoundError:
                pass
        folder = inside.rstrip("/")
        # An object store has no folders: one is there while something lies below it.
        if folder and next(iter(reader.below(f"{folder}/", most=1)), None) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return _folder(above, folder)

    def ls(self, path: str, detail: bool = True, **_: object) -> list[Any]:  # noqa: FBT001, FBT002 - fsspec's signature
        reader, inside, above = self._at(path)
        prefix = f"{inside.rstrip('/')}/" if inside else ""
        found = [_listed(above, one) for one in reader.below(prefix, folders=True)]
        if not found and inside:
            found = [self.info(path)]
            if found[0]["type"] == "directory":
                found = []
        return found if detail else [one["name"] for one in found]

    def find(self, path: str, *given: Any, **named: Any) -> Any:  # noqa: ANN401 - fsspec's signature
        """All objects below, in one listing."""
        if given or named.get("maxdepth") is not None:
            return super().find(path, *given, **named)
        reader, inside, above = self._at(path)
        prefix = f"{inside.rstrip('/')}/" if inside else ""
        found: dict[str, dict[str, Any]] = {}
        for one in reader.below(prefix):
            if isinstance(one, Object):
                if named.get("withdirs"):
                    found |= _folders(above, one.path, beneath=len(prefix), known=found)
                found[f"{above}/{one.path}"] = _file(above, one)
        if not found and inside and self.isfile(path):
            one_file = self.info(path)
            found = {one_file["name"]: one_file}
        return found if named.get("detail") else list(found)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: object) -> bytes:
        reader, inside, _above = self._at(path)
        found = reader.stat(inside)
        first, last, _step = slice(start, end).indices(found.size_bytes)
        return reader.read(found, first, last)

    def checksum(self, path: str) -> str:
        return str(self.info(path).get("checksum", ""))

    ukey = checksum

    def modified(self, path: str) -> datetime:
        return datetime.fromtimestamp(float(self.info(path)["modified"]), UTC)

    def _open(self, path: str, mode: str = "rb", block_size: object = None, **_: object) -> BinaryIO:
        if mode != "rb":
            self._refuse(path)
        reader, inside, _above = self._at(path)
        found = reader.stat(inside)
        # Small ones whole: fsspec's buffered file would cost more than the reading.
        if found.size_bytes <= _READ_AHEAD_BYTES:
            return io.BytesIO(reader.read(found, 0, found.size_bytes))
        size = block_size if isinstance(block_size, int) else _READ_AHEAD_BYTES
        opened: BinaryIO = _File(self, path, reader=reader, found=found, block_bytes=min(size, BLOCK_BYTES))
        return opened

    def _refuse(self, path: str, *_given: object, **_named: object) -> NoReturn:
        raise OSError(errno.EROFS, "a data version is read-only: write to a branch by other means", str(path))

    mkdir = makedirs = rmdir = rm = rm_file = _rm = cp_file = touch = pipe_file = put_file = mv = _refuse

    def _at(self, path: str) -> tuple[Reader, str, str]:
        """The reader of a path's data version, the path in it, and what comes before that path in names."""
        address = Address.of(str(self._strip_protocol(path)))
        known = (address.repository, address.ref)
        with self._finding:
            if known not in self._readers:
                commit = commit_of(self._server, address, moving=self._moving)
                self._readers[known] = Reader(self._server, address.repository, commit, self._cache, self._log)
            reader = self._readers[known]
        return reader, address.path, f"{address.repository}/{address.ref}"


class _File(AbstractBufferedFile):
    """Reads ahead by a mebibyte; what lies below keeps blocks on disk."""

    def __init__(self, owner: LakeFS, path: str, *, reader: Reader, found: Object, block_bytes: int) -> None:
        self._reader, self._found = reader, found
        super().__init__(owner, path, "rb", block_bytes, cache_type="readahead", size=found.size_bytes)

    def _fetch_range(self, start: int, end: int) -> bytes:
        return self._reader.read(self._found, start, end)


def _file(above: str, found: Object) -> dict[str, Any]:
    return {
        "name": f"{above}/{found.path}",
        "size": found.size_bytes,
        "type": "file",
        "checksum": found.checksum,
        "modified": found.modified,
    }


def _folder(above: str, inside: str) -> dict[str, Any]:
    return {"name": f"{above}/{inside}".rstrip("/"), "size": 0, "type": "directory"}


def _folders(above: str, path: str, *, beneath: int, known: Mapping[str, object]) -> dict[str, dict[str, Any]]:
    """Those on the way to an object, from the outermost in."""
    ends = [at for at, letter in enumerate(path) if letter == "/" and at >= beneath]
    names = (path[:at] for at in ends)
    return {f"{above}/{name}": _folder(above, name) for name in names if f"{above}/{name}" not in known}


def _listed(above: str, one: Object | str) -> dict[str, Any]:
    return _folder(above, one) if isinstance(one, str) else _file(above, one)


def _register(names: Iterable[str]) -> None:
    for name in names:
        register_implementation(name, LakeFS, clobber=True)


_register((LakeFS.protocol,))
