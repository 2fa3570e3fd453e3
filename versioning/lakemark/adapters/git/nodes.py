"""Heartbeats in the ledger's repository: a reference for each node, to an object that holds what it last said.

Replaced, never history: what a heartbeat replaced is removed once it is replaced itself, so that whoever read the reference
just before still finds it, and nothing grows with time. Each node writes its own; its processes take turns.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from lakemark.adapters.disk.files import make_directories, os_errors
from lakemark.adapters.git import refs as git_refs
from lakemark.adapters.git.file_lock import Locked
from lakemark.errors import Corrupt, StoreUnavailable
from lakemark.model.heartbeat import Heartbeat
from lakemark.model.values.canonical import JSON, canonical, parse
from lakemark.model.values.outside import node_name

NODES: Final = "refs/lakemark/nodes/"
_TRIES: Final = 100
# A bound for unpacking: a damaged object could unpack to anything.
_LONGEST_BYTES: Final = 2**20


def beat(path: Path, node: str, change: Callable[[Heartbeat | None], Heartbeat]) -> Heartbeat:
    """Puts what `change` makes of the node's last heartbeat in its place, durably. Raises StoreUnavailable, Denied."""
    name = NODES + node_name(node)
    try:
        with os_errors(path):
            make_directories(path / "lakemark" / "locks")
            # No run's name has a plus: it is a turn of its own.
            with git_refs.Turn(path, f"+{node}") as turn:
                for _ in range(_TRIES):
                    made = _replaced(path, name, change, turn=turn)
                    if made is not None:
                        return made
                raise Locked(name)
    except Locked:
        raise StoreUnavailable(f"{name} is held by another program", advice="See which program works there.") from None


def heartbeats(path: Path) -> dict[str, Heartbeat]:
    """Node -> what it last said, of every node; one that can't be read is left out. Loads no Git unless one is packed."""
    found: dict[str, Heartbeat] = {}
    for name, oid in git_refs.under(path, NODES):
        with suppress(ValueError, Corrupt):
            node = node_name(name.removeprefix(NODES))
            said = _said(path, oid)
            if said is not None:
                found[node] = Heartbeat.from_json(said["heartbeat"])
    return found


def _replaced(
    path: Path, name: str, change: Callable[[Heartbeat | None], Heartbeat], *, turn: git_refs.Turn
) -> Heartbeat | None:
    from lakemark.adapters.git import objects as git_objects

    try:
        old = git_refs.read(path, name)
    except Corrupt:  # names nothing: it says nothing either, and is not worth keeping
        (path / name).unlink(missing_ok=True)
        old = None
    before = None if old is None else _said(path, old)
    known = None
    with suppress(ValueError, KeyError):
        known = None if before is None else Heartbeat.from_json(before["heartbeat"])
    new = change(known)
    data = canonical({"heartbeat": new.as_json(), "replaces": old})
    oid = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
    # Durable before the reference names it.
    git_objects.write_again(path, "blob", oid, data)
    try:
        turn.move(name, old, oid)
    except git_refs.ReferenceMoved:
        return None
    last = None if before is None else before.get("replaces")
    # A heartbeat that says the same again has the same id: then the reference still leads there.
    if isinstance(last, str) and last not in (old, oid):
        git_objects.forget_loose(path, last)
    return new


def _said(path: Path, oid: str) -> dict[str, JSON] | None:
    """None where it is gone or is none of ours."""
    framed = _loose(path, oid) or _packed(path, oid)
    value = None
    with suppress(ValueError):
        value = None if framed is None else parse(framed)
    return dict(value) if isinstance(value, dict) and "heartbeat" in value else None


def _loose(path: Path, oid: str) -> bytes | None:
    try:
        packed = (path / "objects" / oid[:2] / oid[2:]).read_bytes()
        head, _, data = zlib.decompressobj().decompress(packed, _LONGEST_BYTES).partition(b"\0")
    except (OSError, zlib.error):
        return None
    return data if head.startswith(b"blob ") else None


def _packed(path: Path, oid: str) -> bytes | None:
    """Of a mirror, which got it with much else. Raises Corrupt, Denied."""
    folder = path / "objects" / "pack"
    with os_errors(folder):
        if not any(name.endswith(".pack") for name in os.listdir(folder)):
            return None
    import pygit2

    from lakemark.adapters.git import trees as git_tree

    repository = git_tree.opened(path)
    try:
        with git_tree.git_errors(path):
            found = repository.get(oid)
            return found.data if isinstance(found, pygit2.Blob) else None
    finally:
        repository.free()
