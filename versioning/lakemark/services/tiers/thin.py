"""Thin: where hot has no room for what waits for it, drops last copies of what retention would not keep, oldest first, loudly."""

from __future__ import annotations

from datetime import datetime

from lakemark.errors import LakemarkError, NotFound, Refused
from lakemark.model.entries.pruning import PRUNED, PrunedBody, PrunedRecord
from lakemark.model.ledger.entry import Draft
from lakemark.model.ledger.run import RecordState, RunState
from lakemark.model.tiers.thinning import ages_at, forbidden, thinnable
from lakemark.ports import Mark, MarkKind, Site
from lakemark.services.ledger import recorded, require_clock
from lakemark.services.tiers.kept import why_kept
from lakemark.services.tiers.release import drop_left


def thin(site: Site, run: str, *, need_bytes: int = 0) -> list[str]:
    """Ids of the records of `run` that were dropped. need_bytes: the largest save that waits for room; 0: none does.

    Never the newest, a held record, the target of an open rollback, or what gives no room back: all its files are the
    trainer's still, under other names. Raises Refused where a clock is wrong: nothing is deleted then.
    """
    if not site.policies.apply or site.policies.when_full != "thin" or not site.hot.full(need_bytes):
        return []
    state = site.ledger.run(run)
    why = forbidden(state, site.now())
    if why is not None:
        raise Refused(
            f"{run} is not thinned: {why}", advice="Set this machine's clock, or update lakemark on this node."
        )
    # A clock that ran ahead would make saves of today old enough to go: ages go by what stores confirm.
    at = ages_at(state, site.now(), confirmed=site.simulated_clock or _confirmed(site))
    keep = {identity for identity, one in why_kept(site.policies, state, now=at).items() if one.reasons}
    thinned: list[str] = []
    for found in sorted(state.live(), key=lambda found: found.instant):
        if found.record.id in keep or not thinnable(state, found, site.hot.place, at=at):
            continue
        # Asked after each drop: one may have made room enough.
        if not site.hot.full(need_bytes):
            break
        # Recorded before it is dropped: a crash in between leaves bytes, never a claim of bytes that are gone.
        if _gives_room(site, found) and _recorded(site, found, at):
            site.progress.step("thin.recorded")
            site.journal.marks.set(_noted(found.record.id), at=site.now())
            drop_left(site, found)
            thinned.append(found.record.id)
    return thinned


def thinned_at(site: Site, record: str) -> datetime | None:
    """When this node dropped a record for room, as it remembers it itself; None where it does not."""
    return site.journal.marks.get(_noted(record))


def _noted(record: str) -> Mark:
    return Mark(MarkKind.THINNED, record)


def _confirmed(site: Site) -> bool:
    """Whether a store's own clock agrees with this one. Raises Refused where one does not."""
    confirmed = False
    for store in site.tiers.values():
        try:
            require_clock(site, store)
            confirmed = confirmed or store.clock() is not None
        except Refused:
            raise
        except LakemarkError:
            continue  # away: it says nothing of the time
    return confirmed


def _gives_room(site: Site, found: RecordState) -> bool:
    try:
        tree = site.hot.path(found.record)
    except NotFound:
        return False
    # A file with another name, the trainer's, keeps its blocks when ours goes: dropping it loses a copy for nothing.
    return any(file.names == 1 for file in site.files.regular(tree))


def _recorded(site: Site, found: RecordState, at: datetime) -> bool:
    record = found.record
    item = PrunedRecord(record=record.id, reasons=("thinned: hot is full",), thinned=True)

    def decide(state: RunState) -> Draft | None:
        # It may have been held, or replicated, since it was chosen.
        if forbidden(state, site.now()) or not thinnable(state, recorded(state, record.id), site.hot.place, at=at):
            return None
        return PRUNED.draft(PrunedBody(items=(item,)), timeline=record.timeline, reason="thinned")

    sequence = site.ledger.run(record.run).sequence  # a record may be thinned, come back, and be thinned again
    return site.ledger.append(record.run, decide, site.stamp(f"thinned:{record.id}:{sequence}")).entry is not None
