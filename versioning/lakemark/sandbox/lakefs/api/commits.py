"""Commits: made, read and listed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from starlette.responses import JSONResponse, PlainTextResponse, Response

from lakemark.sandbox.lakefs import commits, refs, trees
from lakemark.sandbox.lakefs.api.paging import pagination
from lakemark.sandbox.lakefs.api.web import NO_CONTENT, Call
from lakemark.sandbox.lakefs.faults import BAD_REQUEST, CONFLICT, NOT_FOUND, Fault
from lakemark.sandbox.lakefs.history import DataCommit, find_commit, walk
from lakemark.sandbox.lakefs.scope import Scope

__all__ = ["cherry_pick", "create_commit", "get_commit", "log", "merge", "revert"]

_CREATED = 201
_NOT_IMPLEMENTED = 501
_INSTANT = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DATE_LENGTH = 10


def create_commit(scope: Scope, call: Call) -> Response:
    """Answer POST …/branches/{branch}/commits."""
    # Absent and null are now; 0 is 1970.
    date_s = call.body.get("date") if isinstance(call.body, dict) else None
    request = commits.Request(
        message=call.field("message", str),
        metadata=call.texts("metadata"),
        date_s=None if date_s is None else call.field("date", int),
        allow_empty=call.field("allow_empty", bool, default=False),
        tree=call.query("source_metarange") or None,
    )
    return JSONResponse(commits.commit(scope, call.path("branch"), request).document, _CREATED)


def merge(scope: Scope, call: Call) -> Response:
    """Answer POST …/refs/{ref}/merge/{branch}."""
    request = commits.MergeRequest(
        source=call.path("ref"),
        message=call.field("message", str, ""),
        metadata=call.texts("metadata"),
        strategy=call.field("strategy", str, ""),
        squash=call.field("squash_merge", bool, default=False),
        allow_empty=call.field("allow_empty", bool, default=False),
    )
    try:
        return JSONResponse({"reference": commits.merge(scope, call.path("branch"), request).id})
    except Fault as fault:
        # Of a merge lakeFS answers 409 with a result, and not in the form of its other faults.
        if fault.status == CONFLICT:
            return JSONResponse({"reference": ""}, CONFLICT)
        raise


def revert(scope: Scope, call: Call) -> Response:
    """Answer POST …/branches/{branch}/revert."""
    _refuse_overrides(call)
    commits.revert(
        scope,
        call.path("branch"),
        call.field("ref", str),
        parent_number=call.field("parent_number", int),
        allow_empty=call.field("allow_empty", bool, default=False),
    )
    return Response(status_code=NO_CONTENT)


def cherry_pick(scope: Scope, call: Call) -> Response:
    """Answer POST …/branches/{branch}/cherry-pick."""
    _refuse_overrides(call)
    # 0 is what clients send for none.
    number = call.field("parent_number", int, 0) or None
    made = commits.cherry_pick(scope, call.path("branch"), call.field("ref", str), parent_number=number)
    return JSONResponse(made.document, _CREATED)


def get_commit(scope: Scope, call: Call) -> Response:
    """Answer GET …/commits/{ref}."""
    ref = call.path("ref")
    try:
        return JSONResponse(refs.only_commit(refs.resolve(scope, ref), ref).document)
    except Fault as fault:
        raise Fault(NOT_FOUND, "commit not found") if fault.status == NOT_FOUND else fault from fault


def log(scope: Scope, call: Call) -> Response:
    """Answer GET …/refs/{ref}/commits."""
    since = call.query("since")
    # lakefs-client sends naive instants so; lakeFS refuses them in plain text before anything else is looked at.
    if since and _INSTANT.fullmatch(since) and since[-1] != "Z" and since[-6] not in "+-":
        return PlainTextResponse(_no_offset(since), BAD_REQUEST)
    start = _named(scope, call.path("ref"), "ref")
    stop_at = _named(scope, call.query("stop_at"), "stop_at").id if call.query("stop_at") else ""
    page = call.page()
    found = walk(
        scope,
        start.id,
        first_parent=call.flag_query("first_parent"),
        since_ns=_instant_ns(since) if since else None,
    )
    # From the start again, to where the page before ended: paging a log costs by the square, on lakeFS too.
    if page.after:
        after = _named(scope, page.after, "from ref").id
        for commit in found:
            if commit.id == after:
                break
    found = _touching(scope, found, call)
    shown: list[DataCommit] = []
    has_more = False
    for commit in found:
        if len(shown) == page.amount:
            # limit: the caller wants no more than these, and is told of none.
            has_more = not call.flag_query("limit")
            break
        shown.append(commit)
        if commit.id == stop_at:
            break
    last = shown[-1].id if shown else ""
    listed = [commit.document for commit in shown]
    return JSONResponse({"pagination": pagination(last, len(shown), has_more=has_more), "results": listed})


def _touching(scope: Scope, found: Iterator[DataCommit], call: Call) -> Iterator[DataCommit]:
    """Those that changed one of the objects or prefixes asked for, if any were; merges never count."""
    asked = call.request.query_params
    paths, prefixes = set(asked.getlist("objects")), tuple(asked.getlist("prefixes"))
    if not paths and not prefixes:
        yield from found
        return
    for commit in found:
        parents = commit.parents
        # Merges and first commits never match, whatever they changed.
        parent = find_commit(scope, parents[0]) if len(parents) == 1 else None
        if parent is not None and any(
            change.path in paths or change.path.startswith(prefixes)
            for change in trees.changes(scope, parent.tree, commit.tree)
        ):
            yield commit


def _named(scope: Scope, ref: str, parameter: str) -> DataCommit:
    try:
        return refs.only_commit(refs.resolve(scope, ref), ref)
    except Fault as fault:
        raise fault.under(parameter) from fault


def _instant_ns(text: str) -> int:
    try:
        instant = datetime.fromisoformat(text)
        return (instant - _EPOCH) // timedelta(microseconds=1) * 1000
    except (ValueError, TypeError):
        problem = 'string doesn\'t match the format "date-time"'
        raise Fault(BAD_REQUEST, f'parameter "since" in query has an error: {problem}') from None


def _no_offset(text: str) -> str:
    tried = f"error parsing '{text}' as RFC3339 or 2006-01-02 time"
    return f'Invalid format for parameter since: {tried}: parsing time "{text}": extra text: "{text[_DATE_LENGTH:]}"\n'


def _refuse_overrides(call: Call) -> None:
    if isinstance(call.body, dict) and call.body.get("commit_overrides"):
        raise Fault(_NOT_IMPLEMENTED, "this stand-in knows no commit_overrides")
