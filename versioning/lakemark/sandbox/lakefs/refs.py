"""Names of branches, tags and commits, and what they point to."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

from lakemark.sandbox.lakefs.faults import BAD_REQUEST, NOT_FOUND, SERVER_ERROR, Fault, invalid_reference, required
from lakemark.sandbox.lakefs.history import DataCommit, find_commit, find_commit_by_prefix
from lakemark.sandbox.lakefs.scope import Scope

__all__ = [
    "Branch",
    "Resolved",
    "check_branch_name",
    "check_tag_name",
    "find_branch",
    "move_branch",
    "only_commit",
    "pointer",
    "resolve",
]

# lakeFS's own rule; no `/` and no `.`.
_BRANCH = re.compile(r"\w[-\w]*", re.ASCII)
# Git's rules, and no `/`. `@` and `~` pass, and yet a tag with one can't be read as a reference.
_TAG_FORBIDDEN = re.compile(r"[\x00-\x20\x7f/^:?*\[\\]|\.\.|@\{")
_PARTS = re.compile(r"(?:^|[~^@$])[^~^@$]*")
_HEX = re.compile(r"[0-9a-f]{1,64}")
_COMMIT_DIGITS = 64


@dataclass(frozen=True, slots=True)
class Branch:
    """A named, movable pointer to a commit. Hidden ones are left out of lists."""

    id: str
    commit_id: str


@dataclass(frozen=True, slots=True)
class Resolved:
    """A commit, and the branch whose staged changes belong on top of it, if any."""

    commit: DataCommit
    staged_on: str | None = None


def check_branch_name(name: str) -> None:
    """Raise Fault 400 for a name that no branch can have, 500 for an empty one."""
    if not name:
        raise required("branch")
    if not _BRANCH.fullmatch(name):
        rule = "branch id must consist of letters, digits, underscores and dashes, and cannot start with a dash"
        raise Fault(BAD_REQUEST, f"argument branch: branch id: invalid value: validation error: {rule}")


def check_tag_name(name: str) -> None:
    """Raise Fault 400 for a name that no tag can have, 500 for an empty one."""
    if not name:
        raise required("tagID")
    if name == "@" or name.endswith((".", ".lock")) or _TAG_FORBIDDEN.search(name):
        raise Fault(BAD_REQUEST, "argument tagID: tag id: invalid value: validation error")


def find_branch(scope: Scope, name: str) -> Branch:
    """Raise Fault 404 where there is none of that name."""
    row = scope.db.execute(
        "SELECT id, commit_id FROM branch WHERE repository = ? AND id = ?", (scope.repository.id, name)
    ).fetchone()
    if row is None:
        raise Fault(NOT_FOUND, "branch not found")
    return Branch(*row)


def move_branch(scope: Scope, name: str, commit: str) -> None:
    """Point an existing branch at another commit."""
    scope.db.execute(
        "UPDATE branch SET commit_id = ? WHERE repository = ? AND id = ?", (commit, scope.repository.id, name)
    )


def resolve(scope: Scope, reference: str) -> Resolved:
    """A full commit id, a branch, a tag or the beginning of a commit id, with `~n`, `^n`, `@` or `$` after it.

    A branch alone or with `$` includes what is staged on it; with `@` it does not. Raises Fault 404
    where nothing is named so, 500 where the text is no reference.
    """
    parts = _PARTS.findall(reference)
    # 500 and not 400: lakeFS takes it for its own failure.
    if not parts or not parts[0] or parts[0][0] in "~^@$":
        raise invalid_reference()
    base, modifiers = parts[0], [_modifier(part) for part in parts[1:]]
    found = _base(scope, base)
    for kind, count in modifiers:
        if kind in "@$":
            # `@` and `$` are of branches, and stand alone.
            if found.staged_on is None or len(modifiers) > 1:
                raise invalid_reference()
            return found if kind == "$" else Resolved(found.commit)
        step = _ancestor if kind == "~" else _parent
        found = Resolved(step(scope, found.commit, count))
    return found


def _modifier(part: str) -> tuple[str, int]:
    kind, digits = part[0], part[1:]
    if not digits:
        return kind, 1
    if kind in "@$":
        raise invalid_reference()
    if not digits.isdecimal():
        raise invalid_reference().under(f"could not parse modifier {part}")
    return kind, int(digits)


def _base(scope: Scope, name: str) -> Resolved:
    # This order is lakeFS's: a full id, a branch, a tag, the beginning of an id. So a branch may shadow a short id.
    if len(name) == _COMMIT_DIGITS and _HEX.fullmatch(name) and (commit := find_commit(scope, name)):
        return Resolved(commit)
    for table in ("branch", "tag"):
        target = pointer(scope, table, name)
        if target is not None:
            commit = find_commit(scope, target)
            if commit is None:
                _not_found()
            return Resolved(commit, staged_on=name if table == "branch" else None)
    # Two commits that begin so are no answer.
    if _HEX.fullmatch(name) and (commit := find_commit_by_prefix(scope, name)):
        return Resolved(commit)
    return _not_found()


def pointer(scope: Scope, table: str, name: str) -> str | None:
    """The commit that the branch or the tag (`table` says which) of that name points to."""
    query = {
        "branch": "SELECT commit_id FROM branch WHERE repository = ? AND id = ?",
        "tag": "SELECT commit_id FROM tag WHERE repository = ? AND id = ?",
    }[table]
    row = scope.db.execute(query, (scope.repository.id, name)).fetchone()
    return None if row is None else str(row[0])


def _ancestor(scope: Scope, commit: DataCommit, generations: int) -> DataCommit:
    for _ in range(generations):
        commit = _parent_at(scope, commit, 0)
    return commit


def _parent(scope: Scope, commit: DataCommit, number: int) -> DataCommit:
    # `^0` is the commit itself, as in Git.
    if number == 0:
        return commit
    if number > len(commit.parents):
        raise invalid_reference()
    return _parent_at(scope, commit, number - 1)


def _parent_at(scope: Scope, commit: DataCommit, position: int) -> DataCommit:
    parents = commit.parents
    found = find_commit(scope, parents[position]) if position < len(parents) else None
    if found is None:
        _not_found()
    return found


def _not_found() -> NoReturn:
    raise Fault(NOT_FOUND, "not found")


def only_commit(resolved: Resolved, reference: str) -> DataCommit:
    """Raise Fault 500 for a reference to what is staged, where a commit is wanted."""
    if reference.endswith("$"):
        raise Fault(SERVER_ERROR, "ref: invalid value: validation error: should point to a commit")
    return resolved.commit
