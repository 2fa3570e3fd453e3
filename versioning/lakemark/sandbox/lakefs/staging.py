"""What is staged on a branch: entries not yet committed, and marks for paths removed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lakemark.sandbox.lakefs import trees
from lakemark.sandbox.lakefs.entries import ObjectEntry
from lakemark.sandbox.lakefs.scope import Scope
from lakemark.sandbox.lakefs.trees import TreeChange

__all__ = ["drop", "find", "is_clean", "put", "remove", "scan", "staged", "uncommitted"]


def put(scope: Scope, branch: str, entry: ObjectEntry) -> None:
    """Stage an entry in place of what the path had."""
    _write(scope, branch, entry.path, entry.dumped())


def remove(scope: Scope, branch: str, tree: str, path: str) -> None:
    """Make `path` absent from the branch; where it never was, nothing changes."""
    # A removal of what neither side has would make the branch dirty for nothing.
    is_staged, _ = find(scope, branch, path)
    if is_staged or trees.find(scope, tree, path) is not None:
        _write(scope, branch, path, None)


def drop(scope: Scope, branch: str, *, path: str | None = None, prefix: str = "") -> None:
    """Forget what is staged: one path, or all below a prefix."""
    chosen = [path] if path is not None else [each for each in staged(scope, branch) if each.startswith(prefix)]
    scope.db.executemany(
        "DELETE FROM staged WHERE repository = ? AND branch = ? AND path = ?",
        [(scope.repository.id, branch, each) for each in chosen],
    )


def find(scope: Scope, branch: str, path: str) -> tuple[bool, ObjectEntry | None]:
    """Whether anything is staged for the path, and the entry, None where it marks a removal."""
    row = scope.db.execute(
        "SELECT entry FROM staged WHERE repository = ? AND branch = ? AND path = ?",
        (scope.repository.id, branch, path),
    ).fetchone()
    # NULL is a removed path.
    return row is not None, ObjectEntry.loaded(row[0]) if row and row[0] else None


def staged(scope: Scope, branch: str) -> dict[str, ObjectEntry | None]:
    """By path, in path order; None marks a removed path."""
    rows = scope.db.execute(
        "SELECT path, entry FROM staged WHERE repository = ? AND branch = ? ORDER BY path",
        (scope.repository.id, branch),
    )
    return {path: None if entry is None else ObjectEntry.loaded(entry) for path, entry in rows}


def uncommitted(scope: Scope, branch: str, tree: str) -> list[TreeChange]:
    """How the branch with what is staged differs from its commit's tree, in path order."""
    after = staged(scope, branch)
    before = trees.find_all(scope, tree, after)
    found = (TreeChange(path, before.get(path), entry) for path, entry in after.items())
    # An upload of what the commit has already changes nothing: the branch is still clean.
    return [change for change in found if not trees.same(change)]


def is_clean(scope: Scope, branch: str, tree: str) -> bool:
    """Whether the branch, with what is staged, shows exactly its commit's tree."""
    return not uncommitted(scope, branch, tree)


def scan(scope: Scope, tree: str, overlay: Mapping[str, ObjectEntry | None], start: str = "") -> Iterator[ObjectEntry]:
    """A tree's entries with staged ones laid over them, from the path `start` on; raises as `trees.scan`."""
    committed = trees.scan(scope, tree, start)
    return _overlaid(committed, {path: entry for path, entry in overlay.items() if path >= start})


def _overlaid(committed: Iterator[ObjectEntry], overlay: Mapping[str, ObjectEntry | None]) -> Iterator[ObjectEntry]:
    above = sorted(overlay)
    position = 0
    for entry in committed:
        # Both come in order of path, and are merged without holding the committed ones.
        while position < len(above) and above[position] < entry.path:
            yield from _present(overlay[above[position]])
            position += 1
        if entry.path not in overlay:
            yield entry
    for path in above[position:]:
        yield from _present(overlay[path])


def _present(entry: ObjectEntry | None) -> Iterator[ObjectEntry]:
    if entry is not None:
        yield entry


def _write(scope: Scope, branch: str, path: str, entry: str | None) -> None:
    scope.db.execute("INSERT OR REPLACE INTO staged VALUES (?, ?, ?, ?)", (scope.repository.id, branch, path, entry))
