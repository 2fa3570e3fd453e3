"""Uploads: a raw body or the form field `content`, streamed to disk in bounded memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response

from lakemark.sandbox.lakefs import objects
from lakemark.sandbox.lakefs.api.web import Call, Endpoint, Store, refusal
from lakemark.sandbox.lakefs.blobs import BlobWriter
from lakemark.sandbox.lakefs.entries import ObjectEntry
from lakemark.sandbox.lakefs.faults import SERVER_ERROR, Fault
from lakemark.sandbox.lakefs.scope import Scope

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks
    from starlette.requests import Request

__all__ = ["upload"]

_CREATED = 201
_CLIENT_GONE = 499
_NOT_IMPLEMENTED = 501
_METADATA_HEADER = "x-lakefs-meta-"
_DEFAULT_TYPE = "application/octet-stream"
_FIELD = b"content"


def upload(store: Store) -> Endpoint:
    """An endpoint that answers 201 once bytes and entry are on disk."""

    async def endpoint(request: Request) -> Response:
        try:
            store.check_login(request)
            return await _upload(store, Call(request, None))
        except ClientDisconnect:
            return Response(status_code=_CLIENT_GONE)
        except Fault as fault:
            return refusal(fault)

    return endpoint


async def _upload(store: Store, call: Call) -> Response:
    request = call.request
    repository, branch, path = call.path("repository"), call.path("branch"), call.required_query("path")
    condition = request.headers.get("if-none-match")
    # Of conditions lakeFS 1.84 does this one on upload; what is not done must not be ignored.
    if (condition is not None and condition != "*") or "if-match" in request.headers:
        raise Fault(_NOT_IMPLEMENTED, "Not Implemented")
    only_if_absent = condition is not None

    def check(scope: Scope) -> None:
        objects.check_upload(scope, branch, path, only_if_absent=only_if_absent)

    # Before the bytes: nobody sends gigabytes to be refused. It is asked again when they are staged.
    await run_in_threadpool(store.read, repository, check)
    # A client that breaks off, or a form that is cut, leaves nothing: the writer removes what was not finished.
    with await run_in_threadpool(store.blobs.writer) as writer:
        content_type = await _receive(request, writer)
        blob = await run_in_threadpool(writer.finish)

    def stage(scope: Scope) -> ObjectEntry:
        return objects.stage(
            scope,
            branch,
            path,
            blob=blob,
            content_type=content_type,
            metadata=_metadata(request),
            only_if_absent=only_if_absent,
        )

    def answer(scope: Scope) -> Response:
        return JSONResponse(objects.stats(scope, stage(scope), with_metadata=True), _CREATED)

    try:
        return await run_in_threadpool(store.write, repository, answer)
    # Refused in the end: its bytes are nobody's.
    except Fault:
        await run_in_threadpool(store.blobs.discard, blob.name)
        raise


def _metadata(request: Request) -> dict[str, str]:
    headers = request.headers.items()
    return {name[len(_METADATA_HEADER) :]: value for name, value in headers if name.startswith(_METADATA_HEADER)}


async def _receive(request: Request, writer: BlobWriter) -> str:
    """Write the content to disk as it comes and give its type."""
    declared = request.headers.get("content-type", _DEFAULT_TYPE)
    kind, options = parse_options_header(declared)
    # A raw body is the content, whatever type it says.
    if kind != b"multipart/form-data":
        await _drain(request.stream(), writer.write)
        return declared
    if b"boundary" not in options:
        raise Fault(SERVER_ERROR, "no multipart boundary param in Content-Type")
    form = _Form(writer)
    parser = MultipartParser(options[b"boundary"], form.callbacks())
    try:
        await _drain(request.stream(), parser.write)
    except FormParserError as error:
        raise Fault(SERVER_ERROR, f"multipart: {error}") from error
    # Also a form that ends before its last boundary: half of an object is none.
    if not form.is_complete:
        raise Fault(SERVER_ERROR, "multipart upload missing key 'content': http: no such file")
    return form.content_type


async def _drain(stream: AsyncIterator[bytes], write: Callable[[bytes], object]) -> None:
    async for chunk in stream:
        if chunk:
            await run_in_threadpool(write, chunk)


class _Form:
    """Takes the first field named `content` out of a form; a form cut short is never complete."""

    def __init__(self, writer: BlobWriter) -> None:
        self.content_type = ""
        self.is_complete = False
        self._writer = writer
        self._name = b""
        self._value = b""
        self._headers: dict[bytes, bytes] = {}
        self._taking = False

    def callbacks(self) -> MultipartCallbacks:
        return {
            "on_part_begin": self._headers.clear,
            "on_header_field": self._header_field,
            "on_header_value": self._header_value,
            "on_header_end": self._header_end,
            "on_headers_finished": self._headers_finished,
            "on_part_data": self._part_data,
            "on_part_end": self._part_end,
        }

    def _header_field(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_end(self) -> None:
        self._headers[self._name.lower()] = self._value
        self._name = self._value = b""

    def _headers_finished(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        # The first field of that name; others are read past.
        self._taking = not self.is_complete and options.get(b"name") == _FIELD
        if self._taking:
            self.content_type = self._headers.get(b"content-type", b"").decode("latin-1")

    def _part_data(self, data: bytes, start: int, end: int) -> None:
        if self._taking:
            self._writer.write(data[start:end])

    def _part_end(self) -> None:
        self.is_complete = self.is_complete or self._taking
        self._taking = False
