"""Whether a run is still being written, judged by the rhythm of its own saves."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median
from typing import Final

from lakemark.model.ledger.outline import Outline
from lakemark.model.ledger.run import RunState
from lakemark.model.values.wording import ago, instant

_LOOKED_AT: Final = 20
# A toy run that saves each second may pause for a minute to evaluate.
_AT_LEAST: Final = timedelta(minutes=2)
_INTERVALS: Final = 2


def still_writing(state: RunState, now: datetime) -> str | None:
    """Why the run seems to be written still; None where it is closed or silent for two of its usual save intervals.

    The interval is the median of the last 20, at least 2 minutes; with fewer than two saves, 2 minutes.
    """
    if state.closed:
        return None
    # All timelines: whoever writes, writes now, wherever it went back to.
    saved = sorted(found.instant for found in state.records.values())[-_LOOKED_AT:]
    if not saved:
        return None
    steps = [(later - earlier).total_seconds() for earlier, later in pairwise(saved)]
    # The median: one long evaluation or restart among the last saves must not stretch it.
    usual = max(timedelta(seconds=median(steps)), _AT_LEAST) if steps else _AT_LEAST
    if now - saved[-1] >= _INTERVALS * usual:
        return None
    often = "second or more often" if steps and median(steps) < 1 else ago(timedelta(seconds=median(steps or [0])))
    rhythm = f"it saves every {often}" if steps else "it is its only one"
    return f"its last save was at {instant(saved[-1])}, and {rhythm}"


def is_idle(run: Outline, now: datetime, after: timedelta) -> bool:
    """Whether its newest attempt, not known to have ended, has shown nothing of itself for `after`."""
    return run.alive_at is not None and now - run.alive_at >= after
