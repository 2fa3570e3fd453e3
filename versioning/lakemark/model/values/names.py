"""Which names a run may have, and how any other name is mapped to one and back."""

from __future__ import annotations

import re
from typing import Final

# A part of branch names, paths and bucket keys: no upper case, as some file systems take both for one.
_RUN: Final = re.compile(r"[a-z0-9]+([._-][a-z0-9]+)*", re.ASCII)
# As a label of DNS, and as node names.
_LONGEST: Final = 63
_ESCAPE: Final = re.compile(r"x-([0-9a-f]+)", re.ASCII)
_LOG: Final = re.compile(r".*\.(?:log|out|err|txt|jsonl|csv|tsv|tfevents\.[^/]*)", re.ASCII | re.DOTALL)


def printable(path: object) -> str:
    """A path as text that is valid UTF-8: bytes that are not come out as escapes. Other paths stay as they are."""
    return str(path).encode(errors="surrogateescape").decode(errors="backslashreplace")


def not_read(path: object) -> str:
    """As people are told of a directory that can't be listed; why follows."""
    return f"could not be read: {printable(path)}"


def is_log(path: str) -> bool:
    """Whether a file with this path is one that programs append to."""
    return _LOG.fullmatch(path) is not None


def is_run(name: str) -> bool:
    """Whether `name` may be a run's: `[a-z0-9]+([._-][a-z0-9]+)*`, at most 63 long, not `site`, not ending in `.lock`."""
    # `site` is the ledger's own branch; Git refuses names that end in `.lock`.
    return bool(_RUN.fullmatch(name)) and len(name) <= _LONGEST and name != "site" and not name.endswith(".lock")


def run_for(name: str) -> str:
    """A run name for any text, reversible by `original`: `Llama 7B` -> `x-4c6c616d61203742`.

    A valid name that does not look mapped stays as it is. Longer than 30 UTF-8 bytes when mapped, or empty: ValueError.
    """
    # A name that only looks mapped is mapped again, so that `original` gives it back.
    if is_run(name) and not _ESCAPE.fullmatch(name):
        return name
    mapped = "x-" + name.encode().hex()
    if not name or len(mapped) > _LONGEST:
        message = f"{name!r} can't be mapped to a run name: it must have 1 to {(_LONGEST - 2) // 2} UTF-8 bytes"
        raise ValueError(message)
    return mapped


def original(run: str) -> str:
    """What `run_for` was given: `original(run_for(name)) == name`."""
    match = _ESCAPE.fullmatch(run)
    if not match or len(match[1]) % 2:
        return run
    try:
        return bytes.fromhex(match[1]).decode()
    except UnicodeDecodeError:
        return run
