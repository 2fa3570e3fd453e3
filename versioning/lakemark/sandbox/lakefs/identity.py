"""Ids by content: SHA-256 over typed, length-prefixed fields, as lakeFS derives them.

Each item is one type byte and a value. An integer is a length byte and eight big-endian bytes;
a string is its length as an integer item and its UTF-8 bytes; lists and maps begin with their
count; an embedded identity is a digest of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

__all__ = ["commit_id", "object_identity", "range_id", "tree_id"]

_BYTES, _STRING, _INTEGER, _LIST, _MAP, _EMBEDDED = (bytes([code]) for code in range(6))
_INTEGER_BYTES = 8


def _integer(value: int) -> bytes:
    return _INTEGER + bytes([_INTEGER_BYTES]) + value.to_bytes(_INTEGER_BYTES, "big", signed=True)


def _bytes(value: bytes) -> bytes:
    return _BYTES + _integer(len(value)) + value


def _string(value: str) -> bytes:
    encoded = value.encode()
    return _STRING + _integer(len(encoded)) + encoded


def _list(values: Sequence[str]) -> bytes:
    return _LIST + _integer(len(values)) + b"".join(map(_string, values))


def _map(values: Mapping[str, str]) -> bytes:
    pairs = (_string(key) + _string(values[key]) for key in sorted(values))
    return _MAP + _integer(len(values)) + b"".join(pairs)


def commit_id(
    *,
    committer: str,
    message: str,
    tree: str,
    created_s: int,
    metadata: Mapping[str, str],
    parents: Sequence[str],
) -> str:
    """The id of a commit, 64 hex digits; `created_s` counts from the Unix epoch."""
    embedded = _EMBEDDED + _bytes(hashlib.sha256(_list(parents)).digest())
    head = _string("commit:v1") + _string(committer) + _string(message) + _string(tree)
    return hashlib.sha256(head + _integer(created_s) + _map(metadata) + embedded).hexdigest()


def object_identity(*, size_bytes: int, checksum: str, metadata: Mapping[str, str], content_type: str) -> str:
    """What makes two versions of a path the same: not where the bytes lie, nor when they came."""
    fields = _integer(size_bytes) + _string(checksum) + _map(metadata) + _string(content_type)
    return hashlib.sha256(fields).hexdigest()


def range_id(entries: Iterable[tuple[str, str]]) -> str:
    """The id of a run of entries, given as (path, identity) in path order."""
    digest = hashlib.sha256(_string("range:v1"))
    for path, identity in entries:
        digest.update(_string(path) + _string(identity))
    return digest.hexdigest()


def tree_id(ranges: Sequence[str]) -> str:
    """The id of a tree, from the ids of its ranges in order."""
    return hashlib.sha256(_string("tree:v1") + _list(ranges)).hexdigest()
