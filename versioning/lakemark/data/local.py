"""Local files of a data version, for loaders that want paths: `torch`, `datasets`, C++ readers."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakemark.data import options
from lakemark.data.address import Address
from lakemark.data.errors import DataError
from lakemark.data.reader import Reader, commit_of
from lakemark.data.server import Object

if TYPE_CHECKING:
    from lakemark.trainer import Run


def paths(
    source: Run | str,
    pattern: str = "*",
    *,
    data: str | None = None,
    moving: bool = False,
    cache: str | None = None,
    cache_bytes: int | None = None,
    workers: int = 16,
) -> list[Path]:
    """Files with the bytes, and the names, of the objects that match; fetched `workers` at a time where they are not here.

    source: a run, or `lakefs://repository/commit/prefix`. data: which of the run's, as in `Run.data_uri`.
    pattern: of paths below the prefix; `*` stands for anything, `/` too. cache, cache_bytes, moving: as in `LakeFS`.

    The files are read-only and stay as long as this process lives. Raises DataError where they don't fit the cache: then
    read them through `filesystem`.
    """
    said: dict[str, Any] = options.of_run(None if isinstance(source, str) else source)
    kept = options.cache(cache, cache_bytes)
    if kept is None:
        raise DataError("local files need a cache: `cache=` names its folder")
    address = Address.of(source if isinstance(source, str) else source.data_uri(data))
    server = options.server(said.get("endpoint"))
    commit = commit_of(server, address, moving=moving)
    reader = Reader(server, address.repository, commit, kept, options.log(said.get("log")))
    wanted = list(_matching(reader, address.path, pattern))
    total = sum(one.size_bytes for one in wanted)
    # Before the first is fetched: held files can't make room for each other.
    if total > kept.limit_bytes:
        raise DataError(
            f"{len(wanted)} objects of {total} bytes don't fit the cache of {kept.limit_bytes}: give it more by "
            "cache_bytes=, or read through lakemark.data.filesystem"
        )
    with ThreadPoolExecutor(max(1, workers)) as pool:
        return list(pool.map(reader.local, wanted))


def _matching(reader: Reader, prefix: str, pattern: str) -> Iterator[Object]:
    for one in reader.below(prefix):
        if isinstance(one, Object) and fnmatchcase(one.path.removeprefix(prefix).lstrip("/"), pattern):
            yield one
