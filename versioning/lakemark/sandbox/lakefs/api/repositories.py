"""Repositories, their settings, branches and tags."""

from __future__ import annotations

import re
import secrets
import time
from dataclasses import asdict
from typing import Any

from starlette.responses import JSONResponse, PlainTextResponse, Response

from lakemark.sandbox.lakefs import branches, history, refs, retention, rules, trees
from lakemark.sandbox.lakefs.api.paging import collect, in_order, pagination
from lakemark.sandbox.lakefs.api.web import NO_CONTENT, Call, Store
from lakemark.sandbox.lakefs.faults import BAD_REQUEST, CONFLICT, Fault
from lakemark.sandbox.lakefs.refs import Branch
from lakemark.sandbox.lakefs.scope import NAME, Repository, Scope

__all__ = [
    "create_branch",
    "create_repository",
    "create_tag",
    "delete_branch",
    "delete_repository",
    "delete_tag",
    "drop_gc_rules",
    "get_branch",
    "get_gc_rules",
    "get_metadata",
    "get_protection",
    "get_repository",
    "get_tag",
    "hard_reset",
    "list_branches",
    "list_repositories",
    "list_tags",
    "prepare_gc",
    "reset",
    "set_gc_rules",
    "set_protection",
]

_CREATED = 201
_OWNED = ("repository", "branch", "tag", "commits", "staged", "tree", "range", "setting")


def list_repositories(store: Store, call: Call) -> Response:
    """Answer GET /repositories."""
    with store.database.reading() as db:
        rows = db.execute("SELECT id, namespace, default_branch, created_s FROM repository ORDER BY id").fetchall()
    known = [_shown(Repository(*row)) for row in rows]
    return _page(known, call)


def create_repository(store: Store, call: Call) -> Response:
    """Also the first commit, which holds nothing, and the default branch."""
    name = call.field("name", str)
    if not re.fullmatch(NAME, name):
        raise Fault(BAD_REQUEST, _bad_name(name))
    namespace, default_branch = (
        call.field("storage_namespace", str),
        call.field("default_branch", str, "main") or "main",
    )
    refs.check_branch_name(default_branch)
    repository = Repository(name, namespace, default_branch, int(time.time()))
    with store.database.writing() as db:
        if db.execute("SELECT 1 FROM repository WHERE id = ?", (name,)).fetchone():
            raise Fault(CONFLICT, "error creating repository: not unique")
        if db.execute("SELECT 1 FROM namespace WHERE id = ?", (namespace,)).fetchone():
            # Two repositories in one namespace would collect each other's objects; so would one made again after its deletion.
            place = f"found lakeFS objects in the storage (:{namespace}) key(_lakefs/dummy)"
            raise Fault(BAD_REQUEST, f"failed to create repository: {place}: storage namespace already in use")
        db.execute("INSERT INTO namespace VALUES (?)", (namespace,))
        db.execute("INSERT INTO repository VALUES (?, ?, ?, ?)", tuple(asdict(repository).values()))
        scope = Scope(db, store.blobs, repository)
        # lakeFS's first commit has no committer and no tree.
        first = history.add_commit(scope, history.CommitDraft("", "Repository created", trees.NO_TREE, {}, [], 1))
        db.execute("INSERT INTO branch VALUES (?, ?, ?, ?)", (name, default_branch, first.id, False))
    return JSONResponse(_shown(repository), _CREATED)


def get_repository(scope: Scope, _call: Call) -> Response:
    """Answer GET …."""
    return JSONResponse(_shown(scope.repository))


def get_metadata(_scope: Scope, _call: Call) -> Response:
    """Answer GET …/metadata: nobody can give a repository any here."""
    return JSONResponse({})


def delete_repository(scope: Scope, _call: Call) -> Response:
    """The objects' bytes stay, and so the namespace stays in use."""
    for table in _OWNED:
        key = "id" if table == "repository" else "repository"
        scope.db.execute(f"DELETE FROM {table} WHERE {key} = ?", (scope.repository.id,))  # noqa: S608 -- our own names
    return Response(status_code=NO_CONTENT)


def list_branches(scope: Scope, call: Call) -> Response:
    """Answer GET …/branches."""
    known = branches.list_branches(scope, hidden_too=call.flag_query("show_hidden"))
    return _page([_pointer(branch) for branch in known], call)


def create_branch(scope: Scope, call: Call) -> Response:
    """Answer POST …/branches."""
    name, source = call.field("name", str), call.field("source", str)
    commit = branches.create_branch(scope, name, source, hidden=call.field("hidden", bool, default=False))
    return PlainTextResponse(commit, _CREATED)


def get_branch(scope: Scope, call: Call) -> Response:
    """Answer GET …/branches/{branch}."""
    return JSONResponse(_pointer(refs.find_branch(scope, call.path("branch"))))


def delete_branch(scope: Scope, call: Call) -> Response:
    """Answer DELETE …/branches/{branch}."""
    branches.delete_branch(scope, call.path("branch"))
    return Response(status_code=NO_CONTENT)


def hard_reset(scope: Scope, call: Call) -> Response:
    """Answer PUT …/branches/{branch}/hard_reset."""
    branches.hard_reset(scope, call.path("branch"), call.required_query("ref"))
    return Response(status_code=NO_CONTENT)


def reset(scope: Scope, call: Call) -> Response:
    """Answer PUT …/branches/{branch}."""
    kind, branch = call.field("type", str), call.path("branch")
    if kind == "reset":
        branches.reset(scope, branch)
    elif kind == "object":
        branches.reset(scope, branch, path=call.field("path", str))
    elif kind == "common_prefix":
        branches.reset(scope, branch, prefix=call.field("path", str))
    else:
        raise Fault(BAD_REQUEST, "unknown reset type")
    return Response(status_code=NO_CONTENT)


def list_tags(scope: Scope, call: Call) -> Response:
    """Answer GET …/tags."""
    return _page([_pointer(tag) for tag in branches.list_tags(scope)], call)


def create_tag(scope: Scope, call: Call) -> Response:
    """Answer POST …/tags."""
    name = call.field("id", str)
    commit = branches.create_tag(scope, name, call.field("ref", str))
    return JSONResponse({"commit_id": commit, "id": name}, _CREATED)


def get_tag(scope: Scope, call: Call) -> Response:
    """Answer GET …/tags/{tag}."""
    name = call.path("tag")
    return JSONResponse({"commit_id": branches.find_tag(scope, name), "id": name})


def delete_tag(scope: Scope, call: Call) -> Response:
    """Answer DELETE …/tags/{tag}."""
    branches.delete_tag(scope, call.path("tag"))
    return Response(status_code=NO_CONTENT)


def get_protection(scope: Scope, _call: Call) -> Response:
    """Answer GET …/settings/branch_protection."""
    patterns, tag = rules.patterns(scope)
    return JSONResponse([{"pattern": pattern} for pattern in patterns], headers={"etag": tag})


def set_protection(scope: Scope, call: Call) -> Response:
    """Answer PUT …/settings/branch_protection."""
    items = call.body if isinstance(call.body, list) else [None]
    patterns = [item["pattern"] for item in items if isinstance(item, dict) and isinstance(item.get("pattern"), str)]
    if len(patterns) < len(items):
        raise Fault(BAD_REQUEST, "request body has an error: doesn't match schema: an array of objects with a pattern")
    tag = call.request.headers.get("if-match")
    # An empty If-Match is no condition, and lakeFS refuses it rather than ignore it.
    if tag == "":
        raise Fault(BAD_REQUEST, 'parameter "If-Match" in header has an error: empty value is not allowed')
    rules.set_patterns(scope, patterns, tag)
    return Response(status_code=NO_CONTENT)


def get_gc_rules(scope: Scope, _call: Call) -> Response:
    """Answer GET …/settings/gc_rules."""
    return JSONResponse(rules.retention(scope))


def set_gc_rules(scope: Scope, call: Call) -> Response:
    """Answer PUT …/settings/gc_rules."""
    days: dict[str, int] = {}
    for rule in call.field("branches", list):
        each = Call(call.request, rule)
        days[each.field("branch_id", str)] = each.field("retention_days", int)
    rules.set_retention(scope, call.field("default_retention_days", int), days)
    return Response(status_code=NO_CONTENT)


def drop_gc_rules(scope: Scope, _call: Call) -> Response:
    """Answer DELETE …/settings/gc_rules."""
    rules.drop_retention(scope)
    return Response(status_code=NO_CONTENT)


def prepare_gc(scope: Scope, _call: Call) -> Response:
    """Write the list of active commits as an object's bytes would be, and say where."""
    # Random: two collectors at once each get a list of their own.
    run = secrets.token_hex(10)
    with scope.blobs.writer() as writer:
        writer.write(retention.listed(retention.active_commits(scope, time.time_ns())).encode())
        blob = writer.finish()
    place = f"{scope.repository.namespace}/data/{blob.name}"
    return JSONResponse({"gc_addresses_location": "", "gc_commits_location": place, "run_id": run}, _CREATED)


def _shown(repository: Repository) -> dict[str, Any]:
    return {
        "creation_date": repository.created_s,
        "default_branch": repository.default_branch,
        "id": repository.id,
        "read_only": False,
        "storage_id": "",
        "storage_namespace": repository.namespace,
    }


def _pointer(branch: Branch) -> dict[str, Any]:
    return {"commit_id": branch.commit_id, "id": branch.id}


def _page(items: list[dict[str, Any]], call: Call) -> Response:
    found, has_more = collect(in_order(items, _id), _id, call.page())
    shown = [each for each in found if not isinstance(each, str)]
    last = _id(shown[-1]) if shown else ""
    return JSONResponse({"pagination": pagination(last, len(shown), has_more=has_more), "results": shown})


def _id(item: dict[str, Any]) -> str:
    return str(item["id"])


def _bad_name(name: str) -> str:
    rule = f'string doesn\'t match the regular expression "{NAME}"'
    schema = f'Schema:\n  {{\n    "pattern": "{NAME}",\n    "type": "string"\n  }}\n\nValue:\n  "{name}"\n'
    where = 'doesn\'t match schema #/components/schemas/RepositoryCreation: Error at "/name"'
    return f"request body has an error: {where}: {rule}\n{schema}"
