"""Trees: all objects of a commit, held as shared ranges of entries in path order.

Where a range ends is decided by the path of its last entry alone, so equal contents give equal
trees whatever way they came about, and a small change rewrites one or two ranges.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from lakemark.sandbox.lakefs.entries import ObjectEntry
from lakemark.sandbox.lakefs.faults import no_data
from lakemark.sandbox.lakefs.identity import range_id, tree_id
from lakemark.sandbox.lakefs.scope import Scope

__all__ = ["NO_TREE", "TreeChange", "apply", "changes", "find", "find_all", "same", "scan"]

NO_TREE = ""
"""The tree of a repository's first commit."""

# A range ends at a path whose digest is divisible by this: on the average so many entries share one.
_MEAN_RANGE_ENTRIES = 256


@dataclass(frozen=True, slots=True)
class TreeChange:
    """A path whose entry differs between two trees; None where it is absent."""

    path: str
    before: ObjectEntry | None
    after: ObjectEntry | None


@dataclass(frozen=True, slots=True)
class _Range:
    id: str
    last_path: str


def find(scope: Scope, tree: str, path: str) -> ObjectEntry | None:
    """Raise Fault 410 where the tree does not exist."""
    return find_all(scope, tree, [path]).get(path)


def find_all(scope: Scope, tree: str, paths: Iterable[str]) -> dict[str, ObjectEntry]:
    """Those of the paths that are there; raises Fault 410 where the tree does not exist."""
    ranges = _ranges(scope, tree)
    wanted: dict[str, set[str]] = {}
    for path in paths:
        # A range holds what comes after the one before, up to its last path.
        position = bisect_left(ranges, path, key=lambda each: each.last_path)
        if position < len(ranges):
            wanted.setdefault(ranges[position].id, set()).add(path)
    found = ((name, _load(scope, name)) for name in wanted)
    return {entry.path: entry for name, entries in found for entry in entries if entry.path in wanted[name]}


def scan(scope: Scope, tree: str, start: str = "") -> Iterator[ObjectEntry]:
    """The entries from the path `start` on, in path order; raises Fault 410 at once where the tree does not exist."""
    ranges = _ranges(scope, tree)
    first = bisect_left(ranges, start, key=lambda each: each.last_path)
    return _entries_from(scope, ranges[first:], start)


def changes(scope: Scope, left: str, right: str) -> list[TreeChange]:
    """What differs from one tree to the other, in path order; reads only the ranges they do not share."""
    left_ranges, right_ranges = _ranges(scope, left), _ranges(scope, right)
    # Equal ids are equal contents: a small change in a large tree reads one or two ranges.
    shared = {each.id for each in left_ranges} & {each.id for each in right_ranges}
    before = _by_path(scope, left_ranges, shared)
    after = _by_path(scope, right_ranges, shared)
    paths = sorted(before.keys() | after.keys())
    found = (TreeChange(path, before.get(path), after.get(path)) for path in paths)
    return [change for change in found if not same(change)]


def apply(scope: Scope, tree: str, patch: Mapping[str, ObjectEntry | None]) -> str:
    """Write the tree that differs from `tree` by `patch` (None removes a path) and give its id."""
    todo = sorted(patch)
    done = 0
    made: list[_Range] = []
    pending: list[ObjectEntry] = []
    ranges = _ranges(scope, tree)
    for position, each in enumerate(ranges):
        is_last = position == len(ranges) - 1
        # Up to this range's last path; what comes after the last range is appended to it.
        end = len(todo) if is_last else max(done, _after(todo, each.last_path))
        # Untouched, and the one before it ended where a range ends: taken over as it is.
        if end == done and not pending:
            made.append(each)
            continue
        pending = _merged(_load(scope, each.id), {path: patch[path] for path in todo[done:end]}, pending)
        done = end
        pending = _flush(scope, pending, made)
    pending.extend(entry for path in todo[done:] if (entry := patch[path]) is not None)
    pending = _flush(scope, pending, made)
    # The last range may end anywhere.
    if pending:
        made.append(_store(scope, pending))
    return _store_tree(scope, made)


def same(change: TreeChange) -> bool:
    """Whether before and after hold the same bytes and metadata."""
    if change.before is None or change.after is None:
        return change.before is change.after
    # By bytes and metadata: an object that was uploaded again, unchanged, is no change.
    return change.before.identity == change.after.identity


def _after(paths: list[str], path: str) -> int:
    position = bisect_left(paths, path)
    return position + (position < len(paths) and paths[position] == path)


def _merged(
    entries: list[ObjectEntry], patch: Mapping[str, ObjectEntry | None], pending: list[ObjectEntry]
) -> list[ObjectEntry]:
    by_path = {entry.path: entry for entry in entries}
    for path, entry in patch.items():
        if entry is None:
            by_path.pop(path, None)
        else:
            by_path[path] = entry
    return pending + [by_path[path] for path in sorted(by_path)]


def _flush(scope: Scope, pending: list[ObjectEntry], made: list[_Range]) -> list[ObjectEntry]:
    """Store every complete range of `pending`; what is left has no end yet."""
    run: list[ObjectEntry] = []
    for entry in pending:
        run.append(entry)
        if _ends_range(entry.path):
            made.append(_store(scope, run))
            run = []
    return run


def _ends_range(path: str) -> bool:
    digest = hashlib.sha256(path.encode()).digest()
    return int.from_bytes(digest[:4], "big") % _MEAN_RANGE_ENTRIES == 0


def _store(scope: Scope, entries: list[ObjectEntry]) -> _Range:
    name = range_id((entry.path, entry.identity) for entry in entries)
    rows = json.dumps([entry.row() for entry in entries], ensure_ascii=False)
    scope.db.execute("INSERT OR IGNORE INTO range VALUES (?, ?, ?)", (scope.repository.id, name, rows))
    return _Range(name, entries[-1].path)


def _store_tree(scope: Scope, ranges: list[_Range]) -> str:
    name = tree_id([each.id for each in ranges])
    listed = json.dumps([[each.id, each.last_path] for each in ranges], ensure_ascii=False)
    scope.db.execute("INSERT OR IGNORE INTO tree VALUES (?, ?, ?)", (scope.repository.id, name, listed))
    return name


def _ranges(scope: Scope, tree: str) -> list[_Range]:
    if tree == NO_TREE:
        return []
    row = scope.db.execute(
        "SELECT ranges FROM tree WHERE repository = ? AND id = ?", (scope.repository.id, tree)
    ).fetchone()
    if row is None:
        raise no_data()
    return [_Range(name, last_path) for name, last_path in json.loads(row[0])]


def _load(scope: Scope, name: str) -> list[ObjectEntry]:
    (rows,) = scope.db.execute(
        "SELECT entries FROM range WHERE repository = ? AND id = ?", (scope.repository.id, name)
    ).fetchone()
    return [ObjectEntry(*row) for row in json.loads(rows)]


def _entries_from(scope: Scope, ranges: Iterable[_Range], start: str) -> Iterator[ObjectEntry]:
    for each in ranges:
        for entry in _load(scope, each.id):
            if entry.path >= start:
                yield entry


def _by_path(scope: Scope, ranges: Iterable[_Range], without: set[str]) -> dict[str, ObjectEntry]:
    chosen = (each.id for each in ranges if each.id not in without)
    return {entry.path: entry for name in chosen for entry in _load(scope, name)}
