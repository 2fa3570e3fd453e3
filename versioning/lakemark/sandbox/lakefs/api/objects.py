"""Reading, listing, removing and comparing objects."""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.utils import formatdate
from typing import Any

from starlette.responses import JSONResponse, Response, StreamingResponse

from lakemark.sandbox.lakefs import merging, objects, refs, staging, trees
from lakemark.sandbox.lakefs.api.paging import ListPage, collect, in_order, pagination
from lakemark.sandbox.lakefs.api.web import NO_CONTENT, Call
from lakemark.sandbox.lakefs.entries import ObjectEntry
from lakemark.sandbox.lakefs.faults import BAD_REQUEST, FORBIDDEN, NOT_FOUND, Fault
from lakemark.sandbox.lakefs.history import DataCommit, merge_base
from lakemark.sandbox.lakefs.scope import Scope
from lakemark.sandbox.lakefs.trees import TreeChange

__all__ = [
    "delete_object",
    "delete_objects",
    "diff_branch",
    "diff_refs",
    "get_object",
    "head_object",
    "list_objects",
    "stat_object",
]

_PARTIAL_CONTENT = 206
_NOT_MODIFIED = 304
_UNSATISFIABLE = 416
# What lakeFS's schema lets through; several ranges pass here and are refused below.
_RANGES = re.compile(r"bytes=((\d*-\d*,? ?)+)")
_CREATED = 201
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


def stat_object(scope: Scope, call: Call) -> Response:
    """Answer GET …/refs/{ref}/objects/stat."""
    entry = objects.find(scope, call.path("ref"), call.required_query("path"))
    return JSONResponse(objects.stats(scope, entry, with_metadata=call.flag_query("user_metadata", default=True)))


def head_object(scope: Scope, call: Call) -> Response:
    """Answer HEAD …/refs/{ref}/objects."""
    try:
        entry = objects.find(scope, call.path("ref"), call.required_query("path"))
        _, length, status, headers = _extent(entry, call)
    # HEAD has no body to tell anything in.
    except Fault as fault:
        return Response(status_code=fault.status)
    headers |= _describing(entry) | {"accept-ranges": "bytes", "content-length": str(length)}
    return Response(status_code=status, headers=headers)


def get_object(scope: Scope, call: Call) -> Response:
    """Answer GET …/refs/{ref}/objects."""
    entry = objects.find(scope, call.path("ref"), call.required_query("path"))
    # Before the bytes are opened: also of an object whose bytes are gone.
    if call.request.headers.get("if-none-match") == entry.etag:
        return Response(status_code=_NOT_MODIFIED)
    start, length, status, headers = _extent(entry, call)
    # Here a collected object is found out: stat and HEAD never open the bytes and answer 200.
    body = scope.blobs.read(entry.blob, start, length)
    headers |= _describing(entry) | {"content-disposition": "attachment", "content-length": str(length)}
    return StreamingResponse(body, status, headers)


def list_objects(scope: Scope, call: Call) -> Response:
    """Answer GET …/refs/{ref}/objects/ls."""
    page = call.page()
    found, has_more = collect(objects.scanner(scope, call.path("ref")), lambda entry: entry.path, page)
    with_metadata = call.flag_query("user_metadata", default=True)
    return _listed([_item(scope, each, with_metadata=with_metadata) for each in found], has_more=has_more)


def copy_object(scope: Scope, call: Call) -> Response:
    """Answer POST …/branches/{branch}/objects/copy."""
    branch = call.path("branch")
    source = objects.find(scope, call.field("src_ref", str, branch), call.field("src_path", str))
    entry = objects.copy(scope, branch, call.required_query("dest_path"), source=source)
    return JSONResponse(objects.stats(scope, entry, with_metadata=True), _CREATED)


def delete_object(scope: Scope, call: Call) -> Response:
    """Answer DELETE …/branches/{branch}/objects."""
    objects.remove(scope, call.path("branch"), [call.required_query("path")])
    return Response(status_code=NO_CONTENT)


def delete_objects(scope: Scope, call: Call) -> Response:
    """Answer POST …/branches/{branch}/objects/delete."""
    paths = [str(path) for path in call.field("paths", list)]
    errors = []
    try:
        objects.remove(scope, call.path("branch"), paths)
    except Fault as fault:
        if fault.status == FORBIDDEN:
            # On a protected branch each path has its refusal, and the whole answers 200.
            errors = [{"message": fault.message, "path": path, "status_code": fault.status} for path in paths]
        # An unknown branch answers 200 without errors, as lakeFS does.
        elif fault.status != NOT_FOUND:
            raise
    return JSONResponse({"errors": errors})


def diff_branch(scope: Scope, call: Call) -> Response:
    """Answer GET …/branches/{branch}/diff."""
    name = call.path("branch")
    branch = refs.find_branch(scope, name)
    tree = refs.resolve(scope, branch.commit_id).commit.tree
    return _diff_listed([_diff(change) for change in staging.uncommitted(scope, name, tree)], call.page())


def diff_refs(scope: Scope, call: Call) -> Response:
    """Answer GET …/refs/{left}/diff/{right}."""
    kind = call.query("type") or "three_dot"
    if kind not in {"two_dot", "three_dot"}:
        problem = 'value is not one of the allowed values ["two_dot","three_dot"]'
        raise Fault(BAD_REQUEST, f'parameter "type" in query has an error: {problem}')
    left, right = call.path("left"), call.path("right")
    # Tree against tree; three_dot, the default, is against the merge base and answers what a merge would bring.
    if kind == "two_dot":
        found = trees.changes(scope, refs.resolve(scope, left).commit.tree, refs.resolve(scope, right).commit.tree)
        return _diff_listed([_diff(change) for change in found], call.page())
    source, destination = _named(scope, right, "ref"), _named(scope, left, "branch")
    base = merge_base(scope, source.id, destination.id)
    outcomes = merging.compare(scope, destination=destination.tree, source=source.tree, base=base.tree)
    return _diff_listed([_diff(each.change, conflict=each.conflict) for each in outcomes], call.page())


def _named(scope: Scope, ref: str, kind: str) -> DataCommit:
    try:
        return refs.resolve(scope, ref).commit
    except Fault as fault:
        raise fault.under(f"get commit by {kind} {ref}") from fault


def _diff(change: TreeChange, *, conflict: bool = False) -> dict[str, Any]:
    kind = "conflict" if conflict else "changed"
    if not conflict and change.before is None:
        kind = "added"
    if not conflict and change.after is None:
        kind = "removed"
    shown = change.after or change.before
    size_bytes = shown.size_bytes if shown else 0
    return {"path": change.path, "path_type": "object", "size_bytes": size_bytes, "type": kind}


def _diff_listed(differences: list[dict[str, Any]], page: ListPage) -> Response:
    found, has_more = collect(in_order(differences, _path), _path, page)
    items = [
        {"path": each, "path_type": "common_prefix", "type": "prefix_changed"} if isinstance(each, str) else each
        for each in found
    ]
    return _listed(items, has_more=has_more)


def _path(item: Mapping[str, Any]) -> str:
    return str(item["path"])


def _item(scope: Scope, each: ObjectEntry | str, *, with_metadata: bool) -> dict[str, Any]:
    if isinstance(each, str):
        return {"checksum": "", "mtime": 0, "path": each, "path_type": "common_prefix", "physical_address": ""}
    item = objects.stats(scope, each, with_metadata=with_metadata)
    # Listings leave it out where it is empty, `stat` does not.
    if not item["metadata"]:
        del item["metadata"]
    return item


def _listed(items: list[dict[str, Any]], *, has_more: bool) -> Response:
    last = _path(items[-1]) if items else ""
    return JSONResponse({"pagination": pagination(last, len(items), has_more=has_more), "results": items})


def _describing(entry: ObjectEntry) -> dict[str, str]:
    return {
        "etag": entry.etag,
        "content-type": entry.content_type,
        "last-modified": formatdate(entry.modified_s, usegmt=True),
        "cache-control": "no-store, must-revalidate",
        "expires": "0",
    }


def _extent(entry: ObjectEntry, call: Call) -> tuple[int, int, int, dict[str, str]]:
    """Start, length and status of what was asked for; raises Fault 400 or 416 for a range that cannot be served."""
    asked = call.request.headers.get("range")
    size = entry.size_bytes
    if asked is None:
        return 0, size, 200, {}
    if not _RANGES.fullmatch(asked):
        raise Fault(
            BAD_REQUEST, 'parameter "Range" in header has an error: string doesn\'t match the regular expression'
        )
    matched = _RANGE.fullmatch(asked)
    first, last = matched.groups() if matched else ("", "")
    # `bytes=-5`: the last five.
    start = int(first) if first else max(size - int(last or 0), 0)
    end = min(int(last), size - 1) if first and last else size - 1
    if not matched or start > end:
        where = {"content-range": f"bytes */{size}"} if matched and start >= size else {}
        raise Fault(_UNSATISFIABLE, "Requested Range Not Satisfiable", where | {"etag": entry.etag})
    headers = {"content-range": f"bytes {start}-{end}/{size}"}
    return start, end - start + 1, _PARTIAL_CONTENT, headers
