"""The ids of data commits, derived from their fields: a history that was edited afterwards does not fit its ids.

A lakeFS commit's id is the SHA-256 of its fields, each written as a type byte and a value that carries its own length
or count. A commit's tree enters by its meta-range, its parents by a digest of their own; what the server adds later
(generation, version) does not.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Final

_FULL: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
# The type bytes of lakeFS's identity hashing, 0 to 5 in this order.
_BYTES, _STRING, _INTEGER, _LIST, _MAP, _EMBEDDED = (bytes([kind]) for kind in range(6))
_EIGHT_BYTES: Final = b"\x08"


def is_commit_id(text: str) -> bool:
    """Whether `text` is a full data commit id: 64 lower-case hex digits."""
    return bool(_FULL.fullmatch(text))


def commit_id(
    *,
    committer: str,
    message: str,
    meta_range: str,
    created_s: int,
    metadata: Mapping[str, str],
    parents: Sequence[str],
) -> str:
    """The id that a commit with these fields has. `created_s`: whole seconds since 1970, UTC."""
    # Parents are hashed by themselves, and that digest is embedded as bytes.
    family = hashlib.sha256(_list(parents)).digest()
    fields = (
        _string("commit:v1"),
        _string(committer),
        _string(message),
        _string(meta_range),
        _integer(created_s),
        _map(metadata),
        _EMBEDDED + _bytes(family),
    )
    return hashlib.sha256(b"".join(fields)).hexdigest()


def _integer(value: int) -> bytes:
    return _INTEGER + _EIGHT_BYTES + value.to_bytes(8, "big", signed=True)


def _bytes(value: bytes) -> bytes:
    return _BYTES + _integer(len(value)) + value


def _string(text: str) -> bytes:
    value = text.encode()
    return _STRING + _integer(len(value)) + value


def _list(texts: Sequence[str]) -> bytes:
    return _LIST + _integer(len(texts)) + b"".join(_string(text) for text in texts)


def _map(texts: Mapping[str, str]) -> bytes:
    # In order of keys: a map has none of its own.
    pairs = (_string(key) + _string(texts[key]) for key in sorted(texts))
    return _MAP + _integer(len(texts)) + b"".join(pairs)
