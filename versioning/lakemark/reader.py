"""Reading the data a checkpoint is trained with: `lakefs://repository/commit/path`, by full commit id and nothing else.

A branch or tag names other bytes tomorrow, so they are refused here: `run open` resolves them once, and
`Run.data_uri()` gives the address to read from. Paths are taken literally, without percent-encoding::

    for path, size_bytes in list_uri(run.data_uri() + "train/"):
        batch = load(read_uri(run.data_uri() + path))
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from functools import cache
from typing import BinaryIO, Final, NamedTuple

from lakemark.errors import Misconfigured, Usage, quoted
from lakemark.model.data_ids import is_commit_id
from lakemark.ports.data import DataVersions

SCHEME: Final = "lakefs://"
_BUFFER_BYTES: Final = 1 << 20


class Address(NamedTuple):
    """What a data address names. `path` is empty for the whole commit."""

    repository: str
    commit: str
    path: str


def parse_uri(uri: str) -> Address:
    """`lakefs://repository/commit/path`, taken apart. Usage for anything else, and for a commit that is no full id."""
    repository, _, rest = uri.removeprefix(SCHEME).partition("/")
    commit, _, path = rest.partition("/")
    if not uri.startswith(SCHEME) or not repository:
        raise Usage(
            f"{quoted(uri)} is no data address",
            advice="Write lakefs://repository/commit/path, as `run open` prints it.",
        )
    if not is_commit_id(commit):
        raise Usage(
            f"{quoted(uri)} names {quoted(commit)}, not a commit by its full id of 64 hex digits",
            advice="Read from the address that `run open` prints: a branch is something else tomorrow.",
        )
    return Address(repository, commit, path)


def open_uri(uri: str, *, data: DataVersions | None = None) -> BinaryIO:
    """The object's bytes as a file to read once, from the front. Close it, or use it in a `with`.

    data: where to read; by default what `lakemark.yaml` and the environment say, as for the command line.
    Raises Usage, NotFound, DataGone, Denied, StoreUnavailable; the last also from `read`.
    """
    repository, commit, path = _object(uri)
    source = _Chunks((data or _configured(os.getpid())).read(repository, commit, path))
    return io.BufferedReader(source, _BUFFER_BYTES)


def read_uri(uri: str, *, data: DataVersions | None = None) -> bytes:
    """The object's bytes, whole. As `open_uri`."""
    repository, commit, path = _object(uri)
    return b"".join((data or _configured(os.getpid())).read(repository, commit, path))


def list_uri(uri: str, *, data: DataVersions | None = None) -> Iterator[tuple[str, int]]:
    """(path, size_bytes) of each object whose path begins as the address's does, in order.

    Paths count from the commit: append them to `lakefs://repository/commit/`.
    """
    repository, commit, prefix = parse_uri(uri)
    return (data or _configured(os.getpid())).list(repository, commit, prefix=prefix)


def _object(uri: str) -> Address:
    address = parse_uri(uri)
    if not address.path:
        raise Usage(f"{quoted(uri)} names a whole data version", advice="Add an object's path; `list_uri` gives them.")
    return address


@cache
def _configured(pid: int) -> DataVersions:  # noqa: ARG001 - a forked process must not share its parent's connections
    """The configured data versions, connected once in each process."""
    from lakemark.site import Parts, configuration

    data = Parts(configuration(environ=os.environ), os.environ).data
    if data is None:
        raise Misconfigured("`data` is none here: there is nothing to read from", advice="Name lakeFS under `data:`.")
    return data


class _Chunks(io.RawIOBase):
    """An iterator of bytes, as a file."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview, /) -> int:  # type: ignore[override]
        while not self._left:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._left = memoryview(chunk)
        amount = min(len(buffer), len(self._left))
        buffer[:amount] = self._left[:amount]
        self._left = self._left[amount:]
        return amount

    def close(self) -> None:
        close = getattr(self._chunks, "close", None)
        if close is not None:
            close()
        super().close()
