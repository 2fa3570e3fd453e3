"""When a save was made, and when the ledger came to know of it: from its sequence, clocks and files' times, and how sure that is.

The one place that works it out: as-of, rollbacks, retention and listings go by `instant`.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum

from lakemark.model.ledger.entry import Clock


class Sure(StrEnum):
    """How sure an instant is. told: its process announced it. files: by the times of its files, which copies keep or lose.

    held: a clock was wrong when it was recorded, so it lies somewhere between its neighbours in sequence. simulated: a demo's
    or test's own time.
    """

    TOLD = "told"
    FILES = "files"
    HELD = "held"
    SIMULATED = "simulated"


def held(at: datetime, not_before: datetime | None, not_after: datetime | None) -> datetime:
    """`at`, moved between the bounds that there are. Where these contradict each other, `not_after` counts."""
    # The lower bound first: it must not seem newer than what came after it.
    if not_before is not None:
        at = max(at, not_before)
    return at if not_after is None else min(at, not_after)


def instant(
    saved_at: datetime, recorded_at: datetime, not_before: datetime | None, not_after: datetime | None
) -> datetime:
    """Of a record, as as-of compares it; held as `model.ledger.clocks` judges the entry that committed it."""
    # The earlier of two clocks: a record must not seem to be of a later moment than either says.
    return held(min(saved_at, recorded_at), not_before, not_after)


def sure(clock: str, *, announced: bool) -> Sure:
    """How sure it is."""
    if clock == Clock.SUSPECT:
        return Sure.HELD
    if clock == Clock.SIMULATED:
        return Sure.SIMULATED
    return Sure.TOLD if announced else Sure.FILES


def saved_at(told: datetime, *, now: datetime, after: Iterable[datetime | None]) -> datetime:
    """What a record is to say of when it was saved. told: by its process, else by its files. after: instants it came after.

    Never after now: files are copied with their times. Of one that is after now itself nothing is learnt: its clock was wrong.
    """
    return min(max((told, *(one for one in after if one is not None and one <= now))), now)
