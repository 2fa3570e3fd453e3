"""Settings of a repository: which branches are protected, and how long unreferenced commits keep their objects."""

from __future__ import annotations

import hashlib
import json
from fnmatch import fnmatchcase
from typing import Any

from lakemark.sandbox.lakefs.faults import NOT_FOUND, PRECONDITION_FAILED, Fault
from lakemark.sandbox.lakefs.scope import Scope

__all__ = ["drop_retention", "patterns", "protects", "retention", "set_patterns", "set_retention"]

_PROTECTION = "branch_protection"
_RETENTION = "gc_rules"


def protects(scope: Scope, branch: str) -> bool:
    """Whether writing, committing and resetting on the branch is refused."""
    return any(fnmatchcase(branch, pattern) for pattern in patterns(scope)[0])


def patterns(scope: Scope) -> tuple[list[str], str]:
    """The protected patterns and the tag of this state, empty before the first."""
    text = _get(scope, _PROTECTION)
    if text is None:
        return [], ""
    # The tag is of the content, so that setting the same rules again keeps it.
    return json.loads(text), hashlib.sha256(text.encode()).hexdigest()


def set_patterns(scope: Scope, wanted: list[str], if_match: str | None) -> None:
    """Raise Fault 412 where `if_match` is given and is not the tag of the present state."""
    # Who adds a pattern sends all of them back: without this two at once would lose one.
    if if_match is not None and if_match != patterns(scope)[1]:
        raise Fault(PRECONDITION_FAILED, "Precondition failed")
    _set(scope, _PROTECTION, json.dumps(sorted(set(wanted))))


def retention(scope: Scope) -> dict[str, Any]:
    """The rules in the API's form, `branches` null where there are none; raises Fault 404 where nothing is set."""
    text = _get(scope, _RETENTION)
    if text is None:
        raise Fault(NOT_FOUND, "not found")
    rules: dict[str, Any] = json.loads(text)
    return rules


def set_retention(scope: Scope, default_days: int, branch_days: dict[str, int]) -> None:
    """Days of retention: those of no branch in particular, and by branch."""
    branches = [{"branch_id": branch, "retention_days": days} for branch, days in sorted(branch_days.items())]
    # null and not []: lakefs-client's typed reader fails on it, and ours must know.
    _set(scope, _RETENTION, json.dumps({"branches": branches or None, "default_retention_days": default_days}))


def drop_retention(scope: Scope) -> None:
    """Where nothing is set, nothing changes."""
    scope.db.execute("DELETE FROM setting WHERE repository = ? AND name = ?", (scope.repository.id, _RETENTION))


def _get(scope: Scope, name: str) -> str | None:
    row = scope.db.execute(
        "SELECT value FROM setting WHERE repository = ? AND name = ?", (scope.repository.id, name)
    ).fetchone()
    return None if row is None else str(row[0])


def _set(scope: Scope, name: str, value: str) -> None:
    scope.db.execute("INSERT OR REPLACE INTO setting VALUES (?, ?, ?)", (scope.repository.id, name, value))
