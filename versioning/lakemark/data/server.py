"""A lakeFS server as a reader sees it: objects of a commit, over HTTP, with bounded tries. Standard library only."""

from __future__ import annotations

import base64
import json
import os
import random
import ssl
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from lakemark.data.errors import DataError, DataGone

T = TypeVar("T")
_CHUNK_BYTES: Final = 2**20
_LONGEST_ANSWER_BYTES: Final = 64 * 2**20
_PAGE: Final = 1000
_AGAIN: Final = frozenset({423, 429, 500, 502, 503, 504})
_LONGEST_WAIT_SECONDS: Final = 10.0
_IDLE: Final = 32
_OK: Final = 200
_PARTIAL: Final = 206


@dataclass(frozen=True, slots=True)
class Object:
    """One object of a commit. checksum: the server's ETag: equal bytes have it in common, and it is no digest of ours.

    address: where the server keeps the bytes. modified: seconds since 1970.
    """

    path: str
    size_bytes: int
    checksum: str
    address: str
    modified: float


@dataclass(slots=True, weakref_slot=True)
class Server:
    """Safe to share between threads and over a fork: no two use a connection at a time.

    tries: of each request, and of a transfer as long as it gets no further. timeout_seconds: of each wait on the network.
    """

    endpoint: str
    key: str
    secret: str = field(repr=False)
    timeout_seconds: float = 30.0
    tries: int = 6
    _idle: list[tuple[int, HTTPConnection]] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        weakref.finalize(self, _close_all, self._idle)

    def commit_of(self, repository: str, ref: str) -> str:
        """The full id of the commit that a branch, tag or id stands for now. Raises FileNotFoundError."""
        target = f"{_repository(repository)}/commits/{quote(ref, safe='')}"
        return str(self._json(target, {}, about=f"{ref} of {repository}")["id"])

    def stat(self, repository: str, commit: str, path: str) -> Object:
        """Raises FileNotFoundError."""
        about = f"{path} in {commit[:12]} of {repository}"
        asked = {"path": path, "user_metadata": "false", "presign": "false"}
        return _object(self._json(f"{_ref(repository, commit)}/objects/stat", asked, about=about))

    def list(
        self, repository: str, commit: str, prefix: str, *, delimiter: str = "", most: int | None = None
    ) -> Iterator[Object | str]:
        """In order of path. delimiter: what comes after one is folded into the prefix before, a text. Page by page."""
        about = f"objects below {prefix!r} in {commit[:12]} of {repository}"
        after, left = "", most
        while True:
            amount = _PAGE if left is None else min(left, _PAGE)
            asked = {"prefix": prefix, "after": after, "amount": str(amount), "delimiter": delimiter}
            asked |= {"user_metadata": "false", "presign": "false"}
            page = self._json(f"{_ref(repository, commit)}/objects/ls", asked, about=about)
            for item in page["results"]:
                yield str(item["path"]) if item["path_type"] == "common_prefix" else _object(item)
            left = None if left is None else left - len(page["results"])
            # A page without objects that says there is more would be asked for without an end.
            if not page["pagination"]["has_more"] or not page["results"] or left == 0:
                return
            after = str(page["pagination"]["next_offset"])

    def fetch(
        self, repository: str, commit: str, found: Object, write: Callable[[bytes], object], *, start: int, length: int
    ) -> None:
        """Writes `length` bytes from `start` on, in order, each once; goes on where a transfer broke off.

        Raises DataGone, DataError, also where the server sends other bytes than the object's.
        """
        about = f"{found.path} in {commit[:12]} of {repository}"
        target = f"{_ref(repository, commit)}/objects?{urlencode({'path': found.path, 'presign': 'false'})}"
        got = 0

        def take(response: HTTPResponse) -> None:
            nonlocal got
            _check_range(response, found, start + got, about=about)
            for chunk in _chunks(response, length - got):
                _put(write, chunk)
                got += len(chunk)

        while got < length:
            # Tries count anew wherever it got further: a large object over a bad network must not run out of them.
            before = got
            try:
                # On from where the last answer broke off. Each try inside asks for the same: one that raises has written nothing.
                self._ask(target, {"Range": f"bytes={start + got}-{start + length - 1}"}, take, about=about)
            except _NotWrittenError as error:
                raise error.__cause__ or error from None
            if got == before:
                raise DataError(f"{about}: the server sends {got} of {length} bytes")

    def _json(self, target: str, query: Mapping[str, str], *, about: str) -> Any:  # noqa: ANN401 - JSON
        """An answer's JSON. Raises as `_ask`, and DataError for anything else."""
        text = self._ask(f"{target}?{urlencode(query)}", {}, lambda one: one.read(_LONGEST_ANSWER_BYTES), about=about)
        try:
            return json.loads(text)
        except ValueError as error:
            raise DataError(f"{self.endpoint} answers no JSON for {about}: is it a lakeFS server?") from error

    def _ask(self, target: str, headers: Mapping[str, str], read: Callable[[HTTPResponse], T], *, about: str) -> T:
        """What `read` makes of the answer, after a few tries. Raises DataError, DataGone, FileNotFoundError, PermissionError."""
        failed = "no answer"
        for number in range(self.tries):
            if number:
                time.sleep(_pause(number, failed))
            connection, kept = self._connection(), False
            try:
                response = self._send(connection, target, headers)
                status = response.status
                if status in (_OK, _PARTIAL):
                    value = read(response)
                    # Only one that was read to its end: the rest of this answer would be taken for the next one.
                    kept = response.isclosed() and connection.sock is not None and len(self._idle) < _IDLE
                    return value
                failed = f"{status} {_said(response)}"
                # Seconds alone: a date in it would need the server's clock.
                again = response.headers.get("Retry-After", "")
                failed += f" (again in {again} s)" if again.isdigit() else ""
            except DataError:
                raise
            except (OSError, HTTPException) as error:
                failed = str(error) or type(error).__name__
                continue
            finally:
                if kept:
                    self._idle.append((os.getpid(), connection))
                else:
                    connection.close()
            if status not in _AGAIN:
                raise _refused(status, failed, about)
        raise DataError(f"{about}: {self.endpoint} failed {self.tries} times, lastly: {failed}")

    def _send(self, connection: HTTPConnection, target: str, headers: Mapping[str, str]) -> HTTPResponse:
        known = base64.b64encode(f"{self.key}:{self.secret}".encode()).decode()
        said = {"Authorization": f"Basic {known}", "User-Agent": "lakemark", **headers}
        connection.request("GET", target, headers=said)
        return connection.getresponse()

    def _connection(self) -> HTTPConnection:
        """One that nobody uses: kept of before, of this process, or a new one."""
        with suppress(IndexError):  # another thread took the last one
            while True:
                process, idle = self._idle.pop()
                if process == os.getpid():
                    return idle
                # The parent's: two processes on one connection would get each other's answers. The parent still has it open.
                idle.close()
        at = urlsplit(self.endpoint)
        if at.scheme == "https":
            context = ssl.create_default_context()
            return HTTPSConnection(at.hostname or "", at.port, timeout=self.timeout_seconds, context=context)
        return HTTPConnection(at.hostname or "", at.port, timeout=self.timeout_seconds)

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("it holds a secret: make it where it is used")


def _close_all(idle: list[tuple[int, HTTPConnection]]) -> None:
    for _, connection in idle:
        connection.close()


def _repository(repository: str) -> str:
    return f"/api/v1/repositories/{quote(repository, safe='')}"


def _ref(repository: str, commit: str) -> str:
    return f"{_repository(repository)}/refs/{quote(commit, safe='')}"


def _object(item: Mapping[str, Any]) -> Object:
    return Object(
        path=str(item["path"]),
        size_bytes=int(item.get("size_bytes") or 0),
        checksum=str(item.get("checksum", "")),
        address=str(item.get("physical_address", "")),
        modified=float(item.get("mtime") or 0),
    )


def _check_range(response: HTTPResponse, found: Object, start: int, *, about: str) -> None:
    """An object of a commit never changes: other lengths or tags are another object's bytes."""
    tag = response.headers.get("ETag", "").removeprefix("W/").strip('"')
    if tag and found.checksum and tag != found.checksum:
        raise DataError(f"{about}: the server sends {tag}, the commit has {found.checksum}")
    expected = f"bytes {start}-"
    said = response.headers.get("Content-Range", "")
    if response.status == _PARTIAL:
        if not said.startswith(expected) or not said.endswith((f"/{found.size_bytes}", "/*")):
            raise DataError(f"{about}: asked from byte {start} of {found.size_bytes}, got {said!r}")
    elif start:
        raise DataError(f"{about}: the server ignores ranges")


def _chunks(response: HTTPResponse, length: int) -> Iterator[bytes]:
    """Until it ends, or breaks off after a part: the rest is asked for anew. Raises where nothing came."""
    got = 0
    while got < length:
        try:
            chunk = response.read(min(_CHUNK_BYTES, length - got))
        except (OSError, HTTPException):
            if not got:
                raise
            return
        if not chunk:
            return
        got += len(chunk)
        yield chunk


class _NotWrittenError(Exception):
    """Where the bytes go fails, which is not for the network to try again."""


def _put(write: Callable[[bytes], object], chunk: bytes) -> None:
    """Raises _NotWrittenError where the bytes can't go where they are to go."""
    try:
        write(chunk)
    except OSError as error:
        # An OSError too, as the network's are: told apart here, or a full disk would be asked for again and again.
        raise _NotWrittenError from error


def _said(response: HTTPResponse) -> str:
    # Bounded: what answers in the server's place may send anything.
    text = response.read(2**16)
    try:
        return str(json.loads(text)["message"])[:300]
    except (ValueError, TypeError, LookupError):
        return response.reason


def _refused(status: int, said: str, about: str) -> OSError:
    if status in (401, 403):
        return PermissionError(f"{about}: {said}; see LAKEFS_ACCESS_KEY_ID and LAKEFS_SECRET_ACCESS_KEY")
    if status == 404:  # noqa: PLR2004 - HTTP
        return FileNotFoundError(f"{about}: {said}")
    if status == 410:  # noqa: PLR2004 - HTTP
        return DataGone(f"{about}: its bytes were collected ({said})")
    return DataError(f"{about}: {said}")


def _pause(number: int, failed: str) -> float:
    """Doubling from a quarter of a second, with a random part; what the server asks for, up to ten seconds."""
    if "(again in " in failed:
        return min(float(failed.rpartition("(again in ")[2].split()[0]), _LONGEST_WAIT_SECONDS)
    return float(min(0.25 * 2 ** (number - 1), _LONGEST_WAIT_SECONDS) * (0.5 + random.random() / 2))  # noqa: S311
