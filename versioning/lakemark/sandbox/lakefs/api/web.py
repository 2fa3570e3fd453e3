"""From an HTTP request to a repository within a transaction, and back."""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from lakemark.sandbox.lakefs.api.paging import MAX_PER_PAGE, ListPage
from lakemark.sandbox.lakefs.blobs import ObjectFiles
from lakemark.sandbox.lakefs.database import Database
from lakemark.sandbox.lakefs.faults import BAD_REQUEST, Fault
from lakemark.sandbox.lakefs.scope import Scope, find_repository

__all__ = ["NO_CONTENT", "Call", "Endpoint", "Store", "answering", "reading", "refusal", "writing"]

NO_CONTENT = 204
UNAUTHORIZED = 401

_DEFAULT_PER_PAGE = 100
_TRUE = frozenset({"1", "t", "T", "true", "True", "TRUE"})
_FALSE = frozenset({"0", "f", "F", "false", "False", "FALSE"})

Endpoint = Callable[[Request], Awaitable[Response]]
T = TypeVar("T")


class Store:
    """All that a server keeps, and the credentials that open it."""

    def __init__(self, directory: Path, access_key: str, secret_key: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.blobs = ObjectFiles(directory)
        self.database = Database(directory / "metadata.sqlite")
        self._login = base64.b64encode(f"{access_key}:{secret_key}".encode())

    def check_login(self, request: Request) -> None:
        """Raise Fault 401 unless the request carries the credentials."""
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        # compare_digest takes the same time wherever two keys begin to differ.
        if kind.lower() != "basic" or not hmac.compare_digest(given.strip().encode(), self._login):
            raise Fault(UNAUTHORIZED, "error authenticating request")

    def read(self, repository: str, work: Callable[[Scope], T]) -> T:
        with self.database.reading() as db:
            return work(Scope(db, self.blobs, find_repository(db, repository)))

    def write(self, repository: str, work: Callable[[Scope], T]) -> T:
        with self.database.writing() as db:
            return work(Scope(db, self.blobs, find_repository(db, repository)))


@dataclass(frozen=True, slots=True)
class Call:
    """A request with its JSON body. The accessors raise Fault 400 for values of the wrong type."""

    request: Request
    body: Any

    def path(self, name: str) -> str:
        return str(self.request.path_params[name])

    def query(self, name: str) -> str:
        return self.request.query_params.get(name, "")

    def required_query(self, name: str) -> str:
        if name not in self.request.query_params:
            raise _bad_query(name, "value is required but missing")
        if not self.query(name):
            raise _bad_query(name, "empty value is not allowed")
        return self.query(name)

    def flag_query(self, name: str, *, default: bool = False) -> bool:
        text = self.request.query_params.get(name)
        if text is None:
            return default
        if text not in _TRUE | _FALSE:
            raise _bad_query(name, f"value {text}: an invalid boolean: invalid syntax")
        return text in _TRUE

    def page(self) -> ListPage:
        text = self.query("amount") or str(_DEFAULT_PER_PAGE)
        try:
            amount = int(text)
        except ValueError:
            raise _bad_query("amount", f"value {text}: an invalid integer: invalid syntax") from None
        # As lakeFS: more than a thousand is a thousand, and nothing or less the default.
        amount = min(amount, MAX_PER_PAGE) if amount > 0 else _DEFAULT_PER_PAGE
        return ListPage(amount, self.query("after"), self.query("prefix"), self.query("delimiter"))

    def field(self, name: str, kind: type[T], default: T | None = None) -> T:
        """The body's member of that name and type; one without a default must be there."""
        body = self.body if isinstance(self.body, dict) else {}
        value = body.get(name, default)
        # null in a body is as good as absent.
        if value is None:
            value = default
        if value is None:
            raise _bad_body(f'Error at "/{name}": property "{name}" is missing')
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise _bad_body(f'Error at "/{name}": value must be of type {kind.__name__}')
        return value

    def texts(self, name: str) -> dict[str, str]:
        """The body's member of that name as a map from text to text, empty where it is missing."""
        values = self.field(name, dict, {})
        for key, value in values.items():
            if not isinstance(value, str):
                raise _bad_body(f'Error at "/{name}/{key}": value must be a string')
        return values


Handler = Callable[[Scope, Call], Response]


def reading(store: Store, handler: Handler) -> Endpoint:
    """An endpoint whose handler sees one state of the repository that the path names."""
    return answering(store, lambda call: store.read(call.path("repository"), lambda scope: handler(scope, call)))


def writing(store: Store, handler: Handler) -> Endpoint:
    """An endpoint whose handler changes that repository: wholly and durably, or not at all."""
    return answering(store, lambda call: store.write(call.path("repository"), lambda scope: handler(scope, call)))


def answering(store: Store, work: Callable[[Call], Response]) -> Endpoint:
    """An endpoint for those who give the credentials; `work` runs in a thread."""

    async def endpoint(request: Request) -> Response:
        try:
            store.check_login(request)
            # After the login: a stranger's body is not read.
            call = Call(request, _decoded(await request.body()))
            return await run_in_threadpool(work, call)
        except Fault as fault:
            return refusal(fault)

    return endpoint


def refusal(fault: Fault) -> Response:
    """A fault in the API's form."""
    return JSONResponse({"message": fault.message}, fault.status, fault.headers)


def _decoded(body: bytes) -> object:
    if not body:
        return None
    try:
        return json.loads(body)
    except ValueError as error:
        raise Fault(BAD_REQUEST, f"request body has an error: failed to decode request body: {error}") from error


def _bad_query(name: str, problem: str) -> Fault:
    return Fault(BAD_REQUEST, f'parameter "{name}" in query has an error: {problem}')


def _bad_body(problem: str) -> Fault:
    return Fault(BAD_REQUEST, f"request body has an error: doesn't match schema: {problem}")
