"""Branches and tags: made, moved and deleted."""

from __future__ import annotations

from lakemark.sandbox.lakefs import refs, rules, staging
from lakemark.sandbox.lakefs.actions import Event, fire
from lakemark.sandbox.lakefs.faults import CONFLICT, FORBIDDEN, NOT_FOUND, Fault, required
from lakemark.sandbox.lakefs.refs import Branch
from lakemark.sandbox.lakefs.scope import Scope

__all__ = [
    "create_branch",
    "create_tag",
    "delete_branch",
    "delete_tag",
    "find_tag",
    "hard_reset",
    "list_branches",
    "list_tags",
    "reset",
]


def list_branches(scope: Scope, *, hidden_too: bool) -> list[Branch]:
    """In order of their names."""
    rows = scope.db.execute(
        "SELECT id, commit_id FROM branch WHERE repository = ? AND hidden <= ? ORDER BY id",
        (scope.repository.id, hidden_too),
    )
    return [Branch(*row) for row in rows]


def create_branch(scope: Scope, name: str, source: str, *, hidden: bool) -> str:
    """Give the commit that the branch was made at; raises Fault 404, 409 or 412."""
    refs.check_branch_name(name)
    if not source:
        raise required("ref")
    try:
        # A branch as source means its head: what is staged on it does not come along.
        commit = refs.only_commit(refs.resolve(scope, source), source)
    except Fault as fault:
        raise fault.under(f"source reference '{source}'") from fault
    if _exists(scope, "branch", name):
        raise Fault(CONFLICT, "branch already exists: not unique")
    # The actions of the source, as the new branch has none yet.
    fire(scope, Event("pre-create-branch", source, branch=name, commit=commit.id))
    scope.db.execute("INSERT INTO branch VALUES (?, ?, ?, ?)", (scope.repository.id, name, commit.id, hidden))
    return commit.id


def delete_branch(scope: Scope, name: str) -> None:
    """Raise Fault 403 for the default branch, 404, or 412 when a hook of the branch's own commit refuses."""
    if name == scope.repository.default_branch:
        raise Fault(FORBIDDEN, "cannot delete repository default branch")
    branch = refs.find_branch(scope, name)
    # By the branch's own commit: so a pin carries the guard that refuses its deletion.
    fire(scope, Event("pre-delete-branch", branch.commit_id, branch=name))
    staging.drop(scope, name)
    scope.db.execute("DELETE FROM branch WHERE repository = ? AND id = ?", (scope.repository.id, name))


def hard_reset(scope: Scope, name: str, ref: str) -> None:
    """Point the branch at another commit. What is staged stays, and no hook is asked."""
    # Protection refuses writes and resets, and not deletion: that is for hooks to refuse.
    if rules.protects(scope, name):
        raise Fault(FORBIDDEN, "protected branch")
    refs.find_branch(scope, name)
    try:
        commit = refs.only_commit(refs.resolve(scope, ref), ref)
    except Fault as fault:
        raise fault.under(f"hard-reset {name} to {ref}") from fault
    refs.move_branch(scope, name, commit.id)


def reset(scope: Scope, name: str, *, path: str | None = None, prefix: str = "") -> None:
    """Forget what is staged: one path, or all below a prefix."""
    if rules.protects(scope, name):
        raise Fault(FORBIDDEN, "cannot write to protected branch")
    refs.find_branch(scope, name)
    staging.drop(scope, name, path=path, prefix=prefix)


def list_tags(scope: Scope) -> list[Branch]:
    """In order of their names."""
    rows = scope.db.execute("SELECT id, commit_id FROM tag WHERE repository = ? ORDER BY id", (scope.repository.id,))
    return [Branch(*row) for row in rows]


def find_tag(scope: Scope, name: str) -> str:
    """Give the commit it names; raises Fault 404 where there is none of that name."""
    row = scope.db.execute(
        "SELECT commit_id FROM tag WHERE repository = ? AND id = ?", (scope.repository.id, name)
    ).fetchone()
    if row is None:
        raise Fault(NOT_FOUND, "tag not found")
    return str(row[0])


def create_tag(scope: Scope, name: str, ref: str) -> str:
    """Give the commit that it names now; raises Fault 404, 409 or 412."""
    refs.check_tag_name(name)
    commit = refs.only_commit(refs.resolve(scope, ref), ref)
    if _exists(scope, "tag", name):
        raise Fault(CONFLICT, "tag already exists: not unique")
    fire(scope, Event("pre-create-tag", commit.id, tag=name, commit=commit.id))
    scope.db.execute("INSERT INTO tag VALUES (?, ?, ?)", (scope.repository.id, name, commit.id))
    return commit.id


def delete_tag(scope: Scope, name: str) -> None:
    """Raise Fault 404, or 412 when a hook of its commit refuses."""
    commit = find_tag(scope, name)
    fire(scope, Event("pre-delete-tag", commit, tag=name, commit=commit))
    scope.db.execute("DELETE FROM tag WHERE repository = ? AND id = ?", (scope.repository.id, name))


def _exists(scope: Scope, table: str, name: str) -> bool:
    return refs.pointer(scope, table, name) is not None
