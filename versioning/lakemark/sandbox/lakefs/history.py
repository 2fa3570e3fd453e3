"""Commits: written once, walked by instant of creation, found by id or its beginning."""

from __future__ import annotations

import heapq
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakemark.sandbox.lakefs.faults import BAD_REQUEST, NOT_FOUND, Fault
from lakemark.sandbox.lakefs.identity import commit_id
from lakemark.sandbox.lakefs.scope import Scope

__all__ = ["CommitDraft", "DataCommit", "add_commit", "find_commit", "find_commit_by_prefix", "merge_base", "walk"]

_NS = 1_000_000_000
_VERSION = 1


@dataclass(frozen=True, slots=True)
class CommitDraft:
    """A commit to be. `created_ns` counts from the Unix epoch; None is now."""

    committer: str
    message: str
    tree: str
    metadata: Mapping[str, str]
    parents: Sequence[str]
    generation: int
    created_ns: int | None = None


@dataclass(frozen=True, slots=True)
class DataCommit:
    """`document` is the API's own form; `created_ns` orders commits within a second."""

    id: str
    created_ns: int
    document: dict[str, Any]

    @property
    def tree(self) -> str:
        return str(self.document["meta_range_id"])

    @property
    def parents(self) -> list[str]:
        return list(self.document["parents"])

    @property
    def message(self) -> str:
        return str(self.document["message"])

    @property
    def metadata(self) -> dict[str, str]:
        return dict(self.document["metadata"])

    @property
    def generation(self) -> int:
        return int(self.document["generation"])


def add_commit(scope: Scope, draft: CommitDraft) -> DataCommit:
    """The same fields in the same second are the same commit."""
    # Whoever commits may give any instant, also one before its parents'.
    created_ns = time.time_ns() if draft.created_ns is None else draft.created_ns
    created_s = created_ns // _NS
    name = commit_id(
        committer=draft.committer,
        message=draft.message,
        tree=draft.tree,
        created_s=created_s,
        metadata=draft.metadata,
        parents=draft.parents,
    )
    document = {
        "committer": draft.committer,
        # Whole seconds in the API and in the id; the order within a second is the server's own.
        "creation_date": created_s,
        "generation": draft.generation,
        "id": name,
        "message": draft.message,
        "meta_range_id": draft.tree,
        "metadata": dict(sorted(draft.metadata.items())),
        "parents": list(draft.parents),
        "version": _VERSION,
    }
    scope.db.execute(
        # The same fields in the same second have the same id, and are one commit.
        "INSERT OR IGNORE INTO commits VALUES (?, ?, ?, ?)",
        (scope.repository.id, name, created_ns, json.dumps(document, ensure_ascii=False)),
    )
    return DataCommit(name, created_ns, document)


def find_commit(scope: Scope, name: str) -> DataCommit | None:
    """The commit of that full id."""
    row = scope.db.execute(
        "SELECT id, created_ns, document FROM commits WHERE repository = ? AND id = ?", (scope.repository.id, name)
    ).fetchone()
    return None if row is None else _from_row(row)


def find_commit_by_prefix(scope: Scope, prefix: str) -> DataCommit | None:
    """The only commit whose id begins so; None where there is none, or more than one."""
    rows = scope.db.execute(
        "SELECT id, created_ns, document FROM commits WHERE repository = ? AND id >= ? AND id < ? LIMIT 2",
        # `g` comes right after the last hex digit.
        (scope.repository.id, prefix, prefix + "g"),
    ).fetchall()
    return _from_row(rows[0]) if len(rows) == 1 else None


def walk(scope: Scope, start: str, *, first_parent: bool = False, since_ns: int | None = None) -> Iterator[DataCommit]:
    """Commits from `start` back, newest first. A commit older than `since_ns` hides its ancestors too."""
    queue: list[_Newest] = []
    seen = {start}

    def enqueue(name: str) -> None:
        commit = _required(scope, name)
        # As lakeFS's iterator: a commit that is too old is not expanded, so one with a forged date hides all before it.
        if since_ns is None or commit.created_ns >= since_ns:
            heapq.heappush(queue, _Newest(commit))

    enqueue(start)
    while queue:
        commit = heapq.heappop(queue).commit
        yield commit
        for parent in commit.parents[:1] if first_parent else commit.parents:
            if parent not in seen:
                seen.add(parent)
                enqueue(parent)


def merge_base(scope: Scope, left: str, right: str) -> DataCommit:
    """The best common ancestor; raises Fault 400 where there is none."""
    if left == right:
        return _required(scope, left)
    # From both ends by generation, the highest first: the first commit that both reach is the best one.
    reached: dict[str, set[str]] = {left: {"left"}, right: {"right"}}
    queue = [(-_required(scope, name).generation, name) for name in (left, right)]
    heapq.heapify(queue)
    while queue:
        name = heapq.heappop(queue)[1]
        for parent in _required(scope, name).parents:
            if parent not in reached:
                reached[parent] = set()
                heapq.heappush(queue, (-_required(scope, parent).generation, parent))
            reached[parent] |= reached[name]
            if len(reached[parent]) > 1:
                return _required(scope, parent)
    raise Fault(BAD_REQUEST, "no merge base found")


@dataclass(frozen=True, slots=True)
class _Newest:
    """Orders a heap by instant, then by id, greatest first."""

    commit: DataCommit

    def __lt__(self, other: _Newest) -> bool:
        # Turned round: heapq gives the smallest first.
        return (self.commit.created_ns, self.commit.id) > (other.commit.created_ns, other.commit.id)


def _required(scope: Scope, name: str) -> DataCommit:
    commit = find_commit(scope, name)
    if commit is None:
        raise Fault(NOT_FOUND, "commit not found")
    return commit


def _from_row(row: tuple[str, int, str]) -> DataCommit:
    return DataCommit(row[0], row[1], json.loads(row[2]))
