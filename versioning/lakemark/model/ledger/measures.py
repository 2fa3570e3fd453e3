"""How long work took that entries report, and how many bytes it moved: what planners and objectives work with.

Told by whoever did the work, by a stopwatch that only goes forward, in `<work>_seconds` and `size_bytes` of a body. These
numbers explain and forecast: nothing that is kept or dropped depends on them, so one out of bounds is passed over.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from lakemark.model.ledger.entry import Entry
from lakemark.model.values.canonical import JSON

WORKS: Final = ("saved", "landed", "replicated", "restored", "resumed", "ready")
"""The trainer wrote it; it came to hot; to a slower tier; back; a directory was made ready; a drill could go on from it."""
# A year: no work on a checkpoint takes longer, a clock that jumped does.
MOST_SECONDS: Final = 366 * 86_400.0
_MOST_BYTES: Final = 2**53 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One piece of work: 0 to `MOST_SECONDS` seconds. size_bytes: None where nobody said."""

    work: str
    seconds: float
    size_bytes: int | None
    at: datetime
    node: str


def told(seconds: float) -> float:
    """How long something took, as an entry says it: 0 to `MOST_SECONDS`, to the millisecond, finer than anybody plans."""
    # A clock that somebody else handed in may stand still, or go back.
    return round(min(max(seconds, 0.0), MOST_SECONDS), 3)


def measures(entry: Entry) -> Iterator[Measure]:
    """What an entry and its items report."""
    items = entry.body.get("items")
    for body in (entry.body, *(items if isinstance(items, list | tuple) else ())):
        if isinstance(body, Mapping):
            yield from _told(body, entry)


def _told(body: Mapping[str, JSON], entry: Entry) -> Iterator[Measure]:
    size = body.get("size_bytes")
    # Entries of other nodes may say anything: a size that is none leaves the seconds usable.
    known = isinstance(size, int) and not isinstance(size, bool) and 0 <= size <= _MOST_BYTES
    node = body.get("node")
    for work in WORKS:
        seconds = body.get(f"{work}_seconds")
        if isinstance(seconds, bool) or not isinstance(seconds, int | float):
            continue
        if math.isfinite(seconds) and 0 <= seconds <= MOST_SECONDS:
            yield Measure(
                work=work,
                seconds=float(seconds),
                size_bytes=size if known and isinstance(size, int) else None,
                at=entry.recorded_at,
                node=node if isinstance(node, str) else entry.node,
            )
