"""Commit a checkpoint: recognise it, seal it in hot, and append the one entry that binds it to its data.

Resolve, judge, land, place, adopt, append, remember: in this order. Only where the ledger moves meanwhile it is placed anew.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Final

from lakemark.errors import Conflict, Corrupt, InDistress, Refused, RunClosed, StoreUnavailable
from lakemark.model.entries.committed import COMMITTED
from lakemark.model.ledger.entry import Attachments, Draft
from lakemark.model.ledger.run import RecordState, RunState
from lakemark.model.runs.placing import Save, place
from lakemark.model.runs.whose import Known
from lakemark.ports import Site
from lakemark.services.ledger import require_opened, require_writable
from lakemark.services.saves.accept import Taken, judge, land
from lakemark.services.saves.announcements import told
from lakemark.services.saves.complete import require_numbers
from lakemark.services.saves.land_again import known_already, sound_replica
from lakemark.services.saves.lost_ledger import for_saving_of, ledger_may_fail
from lakemark.services.saves.own_trees import WAITS, own_trees
from lakemark.services.saves.place_save import Claim, place_save, place_waiting
from lakemark.services.saves.to_commit import Commit, Committed, ToCommit, as_now, resolve
from lakemark.services.tiers.register import ready
from lakemark.services.whose import as_same, copied_from, was_copied

__all__ = ["Commit", "Committed", "commit"]

_TRIES: Final = 8


def commit(site: Site, asked: Commit) -> Committed:
    """Commits one checkpoint, durably.

    While the ledger is in distress, or can't be read, it is sealed, as durably, and waits: `pending` says why.
    Raises NotFound (run, path), Incomplete (not a finished checkpoint, or still changing), Conflict (other bytes at this
    step), Refused (names, links, made after the run was closed, another tier in hot's place), NoRoom, Denied. Whatever it
    raises, nothing of it stays in hot or ledger.
    """
    site, why, state = for_saving_of(site, asked.run)
    _require_ready(site, state, asked, why=why)
    save = resolve(site, told(site, asked), state)
    if why is None:
        try:
            return _record(site, save)
        except InDistress as error:  # found out just now; what was landed is undone
            # Asked again, as it may not even be readable by now; or it was only for a moment that it was not.
            site, unread, state = for_saving_of(site, asked.run)
            save, why = replace(save, state=state), unread or str(error)
        except (Corrupt, StoreUnavailable):
            # Judging reads the ledger, too; what else failed is not its fault.
            site, why, state = for_saving_of(site, asked.run)
            if why is None:
                raise
            save = replace(save, state=state)
    return _seal(site, save, why=why)


def _require_ready(site: Site, state: RunState, asked: Commit, *, why: str | None) -> None:
    """Raises NotFound (run), Refused (a newer ledger's run, another tier in hot's place), Usage (metrics)."""
    if why is None:  # else its opening may be among the entries that are missing
        require_opened(site, state)
    require_writable(state)
    require_numbers(asked.metrics)
    if why is None:
        try:
            ready(site, site.hot)
        except (Corrupt, StoreUnavailable):  # one of the two can't be read: what is asked below tells which
            _require_this_ledger_s(site)
    else:
        _require_this_ledger_s(site)


def _record(site: Site, save: ToCommit) -> Committed:
    """Raises InDistress where the ledger turns out to lack entries, or fails; what it made in hot is undone then.

    Not where the entry may have come to the ledger all the same: then its tree stays, and whoever looks finds both.
    """
    taken = land(site, save, judge(site, save))
    with own_trees(site, taken) as own:
        site.progress.step("commit.landed")
        _require_open(save.state, taken.made_at)
        other = copied_from(site, save.asked.run, taken.landed.manifest.content) if save.is_guess else None
        if other is not None and was_copied(site, taken.identities, other):
            own.let_go()
            return _left(site, taken, other)
        twin = other or save.twin_of_another_attempt(taken.landed.manifest.content)
        if twin is not None:
            save = save.with_twin(as_same(twin))
        for _ in range(_TRIES):
            # Landing takes as long as its bytes, and a tree that was named for where the save no longer goes is copied anew.
            with ledger_may_fail():
                save = as_now(site, save)
            claim = place_save(site, save, taken)
            if claim.known is not None:
                sound, why = sound_replica(site, claim.known), claim.placement.why
                known = known_already(site, save, claim.known, why=why, own=own, sound=sound)
                return _remember(site, save, taken, known)
            own.adopt(claim.record, claim.body.as_json())
            site.progress.step("commit.adopted")
            new = _append(site, save, claim, taken)
            if new is not None:
                site.progress.step("commit.recorded")
                made = Committed(record=claim.record, new=new, why=claim.placement.why, notes=claim.body.notes or ())
                return _remember(site, save, taken, made)
        raise Conflict(
            f"the ledger of {save.asked.run} moved {_TRIES} times while step {save.asked.step} was being committed",
            advice="Commit it again; it is still where the trainer saved it.",
        )


def _left(site: Site, taken: Taken, other: RecordState) -> Committed:
    """A copy of another run's record is known from now on, so that it is not read again at each pass."""
    site.journal.remember(taken.identities, record=other.record.id, why=Known.COPY)
    return Committed(record=other.record, new=False, copy=as_same(other))


def _seal(site: Site, save: ToCommit, *, why: str) -> Committed:
    """Seals the save without an entry: the ledger lacks entries, so nothing is appended and what it says may be old.

    The tree's marker holds what the entry would have said; the recovery appends it, and nobody undoes the tree before.
    """
    taken = land(site, save, judge(site, save))
    with own_trees(site, taken) as own:
        site.progress.step("commit.landed")
        with suppress(Corrupt, StoreUnavailable):  # what is known of it may be old anyway
            save = as_now(site, save)
        claim = place_waiting(site, save, taken)
        sound = sound_replica(site, claim.known) if claim.known is not None else None
        if claim.known is not None and sound is not None:
            known = known_already(site, save, claim.known, why=claim.placement.why, own=own, sound=sound)
            return _remember(site, save, taken, known)
        recorded = claim.record.id in site.hot.recorded()
        site.hot.adopt(taken.landed, claim.record, entry={**claim.body.as_json(), WAITS: True}, instead=True)
        if recorded:  # the tree that said so was replaced
            site.hot.note_recorded([claim.record.id])
        site.progress.step("commit.waits")
        return _remember(
            site, save, taken, Committed(record=claim.record, new=True, pending=why, notes=claim.body.notes or ())
        )


def _require_this_ledger_s(site: Site) -> None:
    """Raises Refused where hot is not of this ledger. What the tier is called there may be among the entries that are missing."""
    found = site.hot.identity()
    if found is None or found.ledger != site.ledger.id:
        raise Refused(
            f"the place of {site.hot.name} {'has no identity file' if found is None else 'is a tier of another ledger'}",
            advice="Is its disk mounted, and is it the right one? Then bring the ledger back: lakemark ledger recover.",
        )


def _require_open(state: RunState, made_at: datetime | None) -> None:
    """What was made while the run was open is its own, whenever it is found: a run is closed while its last save is written."""
    if not state.takes(made_at):
        raise RunClosed(
            f"the run {state.run} is closed, and this was saved after that",
            advice=f"If it goes on: lakemark run reopen {state.run} --reason …",
        )


def _append(site: Site, save: ToCommit, claim: Claim, taken: Taken) -> bool | None:
    """True: appended. False: it was there. None: the ledger moved so that the save would be placed elsewhere now."""
    record, placement = claim.record, claim.placement
    contents = Attachments(record=record, manifest=taken.landed.manifest)
    # Only what may have changed since: whether the step is still free, or still held by the record to be superseded.
    again = Save(
        step=record.step,
        content=record.content,
        announced=True,
        attempt=record.attempt,
        placed=placement.timeline,
        data=placement.data,
        supersede=save.asked.supersede or placement.supersedes is not None,
    )

    wanted = (placement.timeline, placement.supersedes, placement.conflicts)

    def decide(state: RunState) -> Draft | None:
        require_writable(state)
        if record.id in state.records:
            return None
        _require_open(state, taken.made_at)
        # Somebody went back since: which of the lives it is of is another question now.
        if len(state.timelines) != claim.timelines:
            return None
        # `again` is no find: the record that a find is in conflict with, it collides with.
        now = place(state, again)
        if (now.timeline, now.supersedes, now.collides) != wanted:
            return None
        return COMMITTED.draft(claim.body, timeline=record.timeline, contents=contents, saved_at=record.saved_at)

    with ledger_may_fail():
        appended = site.ledger.append(save.asked.run, decide, site.stamp(f"commit:{record.id}"))
    if appended.entry is not None:
        return True
    return False if record.id in appended.state.records else None


def _remember(site: Site, save: ToCommit, taken: Taken, made: Committed) -> Committed:
    """Only after the entry: files that are known and of no record would never be looked at again."""
    site.journal.remember(taken.identities, record=made.record.id, why="committed")
    site.progress.step("commit.remembered")
    if made.pending is None:
        site.hot.note_recorded([made.record.id])
    if save.asked.spooled is not None and made.told:
        site.spool.unspool(save.asked.spooled)
    site.progress.step("commit.acknowledged")
    return made
