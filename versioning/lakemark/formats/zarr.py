"""Zarr arrays in folders: are all chunks there that their metadata says? Metadata and names only, no chunk is opened.

Zarr specification versions 2 (`.zarray`, chunks `0.1` or `0/1`) and 3 (`zarr.json`, chunks `c/0/1`). A writer may leave out
chunks of nothing but the fill value: only where a checkpoint says that it stores those too does a missing one mean anything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from lakemark.formats.folder import Folder, Unreadable

METADATA: Final = (".zarray", "zarr.json")
_LONGEST_BYTES: Final = 2**20


def problem(folder: Folder, metadata: str, *, chunks: int, full: bool) -> str | None:
    """Why an array is not whole. metadata: its file in `folder`; chunks: how many other files lie beside and below it.

    full: chunks of the fill value are stored as well.
    """
    array = metadata.rpartition("/")[0]
    try:
        expected = _expected(json.loads(folder.text(metadata, longest_bytes=_LONGEST_BYTES)))
    except Unreadable as error:
        return f"{array}: {error}"
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, ArithmeticError):
        return f"{array}: its metadata is cut or damaged"
    if expected is None or not full or chunks >= expected:
        return None
    return f"{array}: {chunks} of {expected} chunks"


def _expected(meta: Mapping[str, Any]) -> int | None:
    """How many chunk files the whole array has; None where it can't be told."""
    shape: Sequence[int] = meta["shape"]
    if meta.get("zarr_format") == 3:  # noqa: PLR2004 - the specification's version
        grid = meta["chunk_grid"]
        if grid["name"] != "regular":
            return None
        sizes: Sequence[int] = grid["configuration"]["chunk_shape"]
    else:
        sizes = meta["chunks"]
    count = 1
    for length, size in zip(shape, sizes, strict=True):
        count *= -(-int(length) // int(size))
    return count
