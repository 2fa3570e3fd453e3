"""The server's addresses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from lakemark.sandbox.lakefs.api import (
    commits as commit_routes,
    objects as object_routes,
    repositories as repository_routes,
)
from lakemark.sandbox.lakefs.api.uploads import upload
from lakemark.sandbox.lakefs.api.web import NO_CONTENT, Call, Handler, Store, answering, reading, writing
from lakemark.sandbox.lakefs.faults import NOT_FOUND

if TYPE_CHECKING:
    from starlette.requests import Request

__all__ = ["VERSION", "create_app"]

# The suffix tells people what they talk to.
VERSION = "1.84.0-stand-in"

_VERSION = {"version": VERSION, "version_context": "lakeFS"}
_STORAGE = {
    "blockstore_description": "",
    "blockstore_id": "",
    "blockstore_namespace_ValidityRegex": "^local://",
    "blockstore_namespace_example": "local://example-bucket/",
    "blockstore_type": "local",
    "default_namespace_prefix": "local://",
    "import_support": False,
    "import_validity_regex": "^local://",
    "pre_sign_multipart_upload": False,
    # Else lakeFS's own programs would ask for addresses that only an object store can sign.
    "pre_sign_support": False,
    "pre_sign_support_ui": False,
}
_REPOSITORY = "/repositories/{repository}"
_BRANCH = _REPOSITORY + "/branches/{branch}"
_REF = _REPOSITORY + "/refs/{ref}"

# GET and HEAD, and the one POST that changes nothing of the repository: each sees one state throughout.
_READING: tuple[tuple[str, str, Handler], ...] = (
    ("GET", _REPOSITORY, repository_routes.get_repository),
    ("GET", _REPOSITORY + "/metadata", repository_routes.get_metadata),
    ("GET", _REPOSITORY + "/branches", repository_routes.list_branches),
    ("GET", _BRANCH, repository_routes.get_branch),
    ("GET", _BRANCH + "/diff", object_routes.diff_branch),
    ("GET", _REPOSITORY + "/commits/{ref}", commit_routes.get_commit),
    ("GET", _REF + "/commits", commit_routes.log),
    ("HEAD", _REF + "/objects", object_routes.head_object),
    ("GET", _REF + "/objects", object_routes.get_object),
    ("GET", _REF + "/objects/stat", object_routes.stat_object),
    ("GET", _REF + "/objects/ls", object_routes.list_objects),
    ("GET", _REPOSITORY + "/refs/{left}/diff/{right}", object_routes.diff_refs),
    ("GET", _REPOSITORY + "/tags", repository_routes.list_tags),
    ("GET", _REPOSITORY + "/tags/{tag}", repository_routes.get_tag),
    ("GET", _REPOSITORY + "/settings/branch_protection", repository_routes.get_protection),
    ("GET", _REPOSITORY + "/settings/gc_rules", repository_routes.get_gc_rules),
    ("POST", _REPOSITORY + "/gc/prepare_commits", repository_routes.prepare_gc),
)

_WRITING: tuple[tuple[str, str, Handler], ...] = (
    ("DELETE", _REPOSITORY, repository_routes.delete_repository),
    ("POST", _REPOSITORY + "/branches", repository_routes.create_branch),
    ("DELETE", _BRANCH, repository_routes.delete_branch),
    ("PUT", _BRANCH, repository_routes.reset),
    ("PUT", _BRANCH + "/hard_reset", repository_routes.hard_reset),
    ("POST", _BRANCH + "/commits", commit_routes.create_commit),
    ("POST", _BRANCH + "/revert", commit_routes.revert),
    ("POST", _BRANCH + "/cherry-pick", commit_routes.cherry_pick),
    ("DELETE", _BRANCH + "/objects", object_routes.delete_object),
    ("POST", _BRANCH + "/objects/copy", object_routes.copy_object),
    ("POST", _BRANCH + "/objects/delete", object_routes.delete_objects),
    ("POST", _REF + "/merge/{branch}", commit_routes.merge),
    ("POST", _REPOSITORY + "/tags", repository_routes.create_tag),
    ("DELETE", _REPOSITORY + "/tags/{tag}", repository_routes.delete_tag),
    ("PUT", _REPOSITORY + "/settings/branch_protection", repository_routes.set_protection),
    ("PUT", _REPOSITORY + "/settings/gc_rules", repository_routes.set_gc_rules),
    ("DELETE", _REPOSITORY + "/settings/gc_rules", repository_routes.drop_gc_rules),
)


def create_app(directory: Path, *, access_key: str, secret_key: str) -> Starlette:
    """A server that keeps everything below `directory`, which no other process may use meanwhile."""
    store = Store(directory, access_key, secret_key)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        yield
        store.database.close()

    routes = [
        Route("/healthcheck", _healthy),
        Route("/config", answering(store, _config)),
        Route("/config/storage", answering(store, _storage)),
        Route("/config/version", answering(store, _version)),
        Route("/repositories", answering(store, partial(repository_routes.list_repositories, store))),
        Route("/repositories", answering(store, partial(repository_routes.create_repository, store)), methods=["POST"]),
        # Its body is streamed to disk; those of the others are read whole.
        Route(_BRANCH + "/objects", upload(store), methods=["POST"]),
        *(Route(path, reading(store, handler), methods=[method]) for method, path, handler in _READING),
        *(Route(path, writing(store, handler), methods=[method]) for method, path, handler in _WRITING),
        Route("/{rest:path}", _unknown, methods=["GET", "POST", "PUT", "PATCH", "DELETE"]),
    ]
    return Starlette(routes=[Mount("/api/v1", routes=routes), Route("/_health", _alive)], lifespan=lifespan)


async def _healthy(_request: Request) -> Response:
    return Response(status_code=NO_CONTENT)


async def _alive(_request: Request) -> Response:
    return Response("alive!")


async def _unknown(_request: Request) -> Response:
    return JSONResponse({"message": "invalid API endpoint"}, NOT_FOUND)


def _version(_call: Call) -> Response:
    return JSONResponse(_VERSION)


def _storage(_call: Call) -> Response:
    return JSONResponse(_STORAGE)


def _config(_call: Call) -> Response:
    """What lakeFS's own programs ask before they read or write: above all that addresses are not pre-signed."""
    whole = {"capabilities_config": {}, "storage_config": _STORAGE, "storage_config_list": [], "ui_config": {}}
    return JSONResponse(whole | {"version_config": _VERSION})
