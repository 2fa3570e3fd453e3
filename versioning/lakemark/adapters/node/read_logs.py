"""What `lakemark.data` noted of the objects that an attempt's processes read, put together.

`<spool>/reads/<attempt>/<repository>@<commit>/<slot>.json`, `lakemark.reads/1`: each process keeps the 1024 objects whose
digest is smallest, so that lists of several unite exactly and tell how many different objects there were in all.
"""

from __future__ import annotations

import os
import stat
from hashlib import blake2b
from pathlib import Path
from typing import Final

from lakemark.model.values.canonical import JSON, digest, parse
from lakemark.model.values.fields import Fields

FORMAT: Final = "lakemark.reads/1"
_KEPT: Final = 1024
_DIGEST_BYTES: Final = 16
_MOST_FILES: Final = 4096
_LARGEST_BYTES: Final = 8 * 2**20


def summary(spool: Path, attempt: str, *, repository: str, commit: str) -> dict[str, JSON] | None:
    """`objects`: how many different ones were read; `exact`: whether that is no estimate; `reads`; `digest`.

    The digest is equal for equal sets of objects. None where nothing was noted, or nothing that can be read.
    """
    folder = spool / "reads" / attempt.replace("/", "-") / f"{repository}@{commit}"
    rows: dict[int, list[JSON]] = {}
    reads, exact = 0, True
    for path in _files(folder):
        try:
            read = Fields(parse(_content(path)), "a read log")
            read.format(FORMAT)
            reads += read.integer("reads")
            here = dict(_row(item) for item in read.items("objects"))
        except (OSError, ValueError):
            exact = False
            continue
        rows |= here
        # A full list may have left some out.
        exact = exact and len(here) < _KEPT
    if not reads:
        return None
    kept = sorted(rows)[:_KEPT]
    exact = exact and len(rows) <= _KEPT
    # Digests are spread evenly: how far the 1024th smallest lies from zero tells how many there are in all.
    objects = len(kept) if exact or len(kept) < _KEPT else round((_KEPT - 1) / (kept[-1] / 2 ** (8 * _DIGEST_BYTES)))
    said: list[JSON] = [rows[number] for number in kept]
    return {"objects": objects, "exact": exact, "reads": reads, "digest": digest(said)}


def _files(folder: Path) -> list[Path]:
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".json"))
    except OSError:
        return []
    return [folder / name for name in names[:_MOST_FILES]]


def _content(path: Path) -> bytes:
    """Raises ValueError for what is no regular file, or too large: whoever trains may write there. OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as stream:
        known = os.fstat(descriptor)
        if not stat.S_ISREG(known.st_mode) or known.st_size > _LARGEST_BYTES:
            message = "it is no read log"
            raise ValueError(message)
        return stream.read(_LARGEST_BYTES)


def _row(item: JSON) -> tuple[int, list[JSON]]:
    """An object's digest, and what is said of it. Raises ValueError."""
    if not isinstance(item, list | tuple) or len(item) != 3:  # noqa: PLR2004 - path, checksum, size
        message = "an object of a read log is [path, checksum, size]"
        raise ValueError(message)
    path, checksum, size_bytes = item
    text = f"{path}\0{checksum}\0{size_bytes}".encode(errors="surrogateescape")
    return int.from_bytes(blake2b(text, digest_size=_DIGEST_BYTES).digest(), "big"), [path, checksum, size_bytes]
