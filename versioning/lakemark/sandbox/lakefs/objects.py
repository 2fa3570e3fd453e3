"""Objects as a ref shows them, and their upload and removal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from lakemark.sandbox.lakefs import refs, rules, staging, trees
from lakemark.sandbox.lakefs.blobs import Blob
from lakemark.sandbox.lakefs.entries import ObjectEntry
from lakemark.sandbox.lakefs.faults import FORBIDDEN, NOT_FOUND, PRECONDITION_FAILED, Fault
from lakemark.sandbox.lakefs.history import find_commit
from lakemark.sandbox.lakefs.scope import Scope

__all__ = ["below", "check_upload", "copy", "find", "remove", "scanner", "stage", "stats"]


def find(scope: Scope, ref: str, path: str) -> ObjectEntry:
    """Raise Fault 404 where the ref or the path is not there, 410 where the ref's tree is not."""
    resolved = refs.resolve(scope, ref)
    is_staged, entry = False, None
    if resolved.staged_on is not None:
        is_staged, entry = staging.find(scope, resolved.staged_on, path)
    # A staged removal hides what the commit has: `None` and staged is not found.
    if not is_staged:
        entry = trees.find(scope, resolved.commit.tree, path)
    if entry is None:
        raise Fault(NOT_FOUND, "not found")
    return entry


def stats(scope: Scope, entry: ObjectEntry, *, with_metadata: bool) -> dict[str, Any]:
    """An object in the API's form."""
    return {
        "checksum": entry.checksum,
        "content_type": entry.content_type,
        "metadata": entry.metadata if with_metadata else {},
        "mtime": entry.modified_s,
        "path": entry.path,
        "path_type": "object",
        "physical_address": f"{scope.repository.namespace}/data/{entry.blob}",
        "size_bytes": entry.size_bytes,
    }


def scanner(scope: Scope, ref: str) -> Callable[[str], Iterator[ObjectEntry]]:
    """From a path to the ref's entries from there on, in path order; raises as `find`."""
    resolved = refs.resolve(scope, ref)
    # Only a branch by its name shows what is staged on it.
    overlay = {} if resolved.staged_on is None else staging.staged(scope, resolved.staged_on)
    return partial(staging.scan, scope, resolved.commit.tree, overlay)


def below(scope: Scope, ref: str, prefix: str) -> Iterator[ObjectEntry]:
    """The ref's entries whose path begins with `prefix`; raises as `find`."""
    for entry in scanner(scope, ref)(prefix):
        # In order of path: the first beyond the prefix ends it.
        if not entry.path.startswith(prefix):
            return
        yield entry


def check_upload(scope: Scope, branch: str, path: str, *, only_if_absent: bool) -> None:
    """Raise what `stage` would, without the bytes."""
    try:
        refs.find_branch(scope, branch)
    except Fault as fault:
        raise Fault(fault.status, f"branch '{branch}' not found") from None
    # Before protection, as lakeFS answers: 412 where the path is there, also on a protected branch.
    if only_if_absent and _exists(scope, branch, path):
        raise Fault(PRECONDITION_FAILED, "path already exists")
    _check_writable(scope, branch)


def stage(
    scope: Scope,
    branch: str,
    path: str,
    *,
    blob: Blob,
    content_type: str,
    metadata: Mapping[str, str],
    only_if_absent: bool,
) -> ObjectEntry:
    """Stage an object whose bytes are on disk; raises Fault 403, 404 or 412."""
    # Once more, in the transaction that stages: the check before the bytes came is out of date by now.
    check_upload(scope, branch, path, only_if_absent=only_if_absent)
    entry = ObjectEntry(path, blob.name, blob.checksum, blob.size_bytes, int(time.time()), content_type, dict(metadata))
    staging.put(scope, branch, entry)
    return entry


def copy(scope: Scope, branch: str, path: str, *, source: ObjectEntry) -> ObjectEntry:
    """Stage an object with the bytes of another; raises Fault 403 or 404."""
    check_upload(scope, branch, path, only_if_absent=False)
    entry = replace(source, path=path, modified_s=int(time.time()))
    staging.put(scope, branch, entry)
    return entry


def remove(scope: Scope, branch: str, paths: list[str]) -> None:
    """Remove paths from a branch. Those that are not there are no fault."""
    pointer = refs.find_branch(scope, branch)
    _check_writable(scope, branch)
    commit = find_commit(scope, pointer.commit_id)
    for path in paths:
        staging.remove(scope, branch, commit.tree if commit else trees.NO_TREE, path)


def _exists(scope: Scope, branch: str, path: str) -> bool:
    try:
        find(scope, branch, path)
    # Anything but absence is told as it is: a lost tree must not look like a free name.
    except Fault as fault:
        if fault.status == NOT_FOUND:
            return False
        raise
    return True


def _check_writable(scope: Scope, branch: str) -> None:
    if rules.protects(scope, branch):
        raise Fault(FORBIDDEN, "cannot write to protected branch")
