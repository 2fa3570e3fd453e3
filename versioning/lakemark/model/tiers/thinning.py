"""Thinning: which last copies a full hot may drop. The only rule that drops one, so it believes the least.

A clock that jumped makes everything old at once. Where a store's own clock agrees with this node's, ages are as of now;
where none can be asked, they are as of the newest record: time that nothing was saved in proves nothing. Entries whose own
clock is suspect have no age.
"""

from __future__ import annotations

from datetime import datetime

from lakemark.model.back.rollback import target_of
from lakemark.model.ledger.entry import Means
from lakemark.model.ledger.moments import Sure
from lakemark.model.ledger.run import Place, RecordState, RunState
from lakemark.model.tiers.moves import behind
from lakemark.model.tiers.retention import holds


def ages_at(state: RunState, now: datetime, *, confirmed: bool) -> datetime:
    """The instant that ages count to. confirmed: a store's clock agrees with `now`, or time is simulated."""
    if confirmed:
        return now
    told = [found.recorded_at for found in state.records.values() if found.sure is not Sure.HELD]
    # Never beyond now: a record of the future would make all the others old.
    return min(now, max(told, default=now))


def forbidden(state: RunState, now: datetime) -> str | None:
    """Why nothing of the run may be dropped now; None where it may."""
    if state.blocked is not Means.IGNORE:
        return f"the ledger has entries of a newer version that forbid it: {state.blocked.value}"
    return behind(state, now)


def thinnable(state: RunState, found: RecordState, place: Place, *, at: datetime) -> bool:
    """Whether it is a last copy at `place` that nobody holds, no open rollback goes back to, and whose age is known."""
    wanted = any(request.open and target_of(request) == found.record.id for request in state.rollbacks.values())
    # Any other replica, sound or not, and it is the business of releases, which prove a survivor first.
    alone = set(found.replicas) == {place}
    return alone and found.pruned is None and found.sure is not Sure.HELD and not holds(found, at) and not wanted
