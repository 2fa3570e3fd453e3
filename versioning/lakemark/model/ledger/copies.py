"""When a tier's copy of the ledger is sent whole, and when only what goes on from the whole one that lies there.

What goes on is sent anew each time, from the whole copy to now: one file, whatever the number of passes. It grows; once what was
sent of it comes to the size of a whole copy, a whole one is sent. So in all about twice the ledger's size is sent while it
doubles, and what is sent in an hour does not grow with the history but with its root.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from lakemark.model.values.codec import Coded, Size
from lakemark.model.values.wording import instant

SMALL_BYTES: Final = 2**20
"""A copy of this size is sent whole each time: one file and Git alone then bring all of it back."""
AT_LEAST_EVERY: Final = timedelta(days=6)
"""A whole copy lies twice: as the newest one, and under its day until that comes again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent(Coded, what="what was sent of the ledger"):
    """What this node sent to a tier. at, size_bytes: of the last whole copy; more_bytes: of all that went on from it."""

    at: datetime
    size_bytes: Size
    more_bytes: Size = 0


class Sending(NamedTuple):
    """whole: or only what goes on from the whole copy that is there."""

    whole: bool
    why: str


def sending(sent: Sent | None, *, now: datetime, stands: bool, small_bytes: int = SMALL_BYTES) -> Sending:
    """stands: a whole copy of this ledger lies there, and reads as it was made."""
    if not stands:
        return Sending(whole=True, why="no whole copy stands there")
    # A lost note of it must not make what is sent grow without bound.
    if sent is None:
        return Sending(whole=True, why="nothing is known of what was sent there")
    if sent.size_bytes <= small_bytes:
        return Sending(whole=True, why="it is small")
    # From the future it is by a clock that was wrong: nobody knows then how old it is.
    if not timedelta(0) <= now - sent.at < AT_LEAST_EVERY:
        return Sending(whole=True, why=f"the whole copy is of {instant(sent.at)}")
    if sent.more_bytes >= sent.size_bytes:
        return Sending(whole=True, why="what went on from the whole copy came to its size")
    return Sending(whole=False, why="a whole copy stands there")
