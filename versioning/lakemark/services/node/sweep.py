"""Sweep: one pass that finds saves, finishes or undoes what was interrupted, and does what residence says.

It has two halves: work that only this node can do, and duties of the site, in `duties`, which some node has to do. Whoever
runs it second finds it done. A part that can't reach what it needs says so in `pending`; the others go on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Final

from lakemark.errors import LakemarkError
from lakemark.model.ledger.soundness import in_words
from lakemark.model.tiers.residence import Tier
from lakemark.model.values.names import printable
from lakemark.ports import CheckpointStore, Site
from lakemark.ports.watching import Lookout
from lakemark.services.ledger import require_identity
from lakemark.services.node.duties import collect, tend_site
from lakemark.services.node.swept import Swept, in_lanes, part
from lakemark.services.node.tidy_journal import tidy_journal
from lakemark.services.recovery.orphans import Orphan, settle_orphan
from lakemark.services.runs.open_watched import nobody_s
from lakemark.services.saves.find import commit_found
from lakemark.services.saves.late import late_saves
from lakemark.services.saves.lost_ledger import LostLedger, for_saving
from lakemark.services.saves.waiting import need_bytes, waiting_of
from lakemark.services.site_facts import beat, tell_site
from lakemark.services.soundness import look, require_sound
from lakemark.services.tiers import rename
from lakemark.services.tiers.demote import Pending, demote_all, present
from lakemark.services.tiers.register import ready, require_named
from lakemark.services.tiers.release import drop_unclaimed
from lakemark.services.tiers.sources import changed, note_suspect
from lakemark.services.tiers.store_note import note_stores

_PASSES: Final = {
    "find": "saves",
    "data": "data versions",
    "rollbacks": "rollbacks",
    "tend": "unfinished work",
    "copies": "copies of the ledger",
}
"""What a heartbeat calls the parts of a sweep."""


def sweep(
    site: Site,
    *,
    find: bool = True,
    move: bool = True,
    tend: bool = True,
    unclaimed: Collection[str] | None = None,
    lookout: Lookout | None = None,
) -> Swept:
    """move=False: finds and finishes only; replicas stay as they are. find=False: saves are left to who looks for them.

    tend=False: data versions are not looked at this time.
    unclaimed: of the trees without an entry only these are finished or undone; None: all. Whoever leaves saves to others
    names those an earlier pass saw: a commit from where the trainer saved knows more, and may be under way.
    lookout: given where no service watches this node: then it is also said which watched directories nobody opened.
    Raises Refused where this node or its hot is called otherwise than the ledger knows it: nothing would be right then.
    """
    site, why = for_saving(site)
    require_named(site)
    result = Swept()
    if not isinstance(site.ledger, LostLedger):
        lacking = look(site)
        why = in_words(lacking) if lacking else None
    if why is not None:
        # Saves are sealed, and wait; everything else would act on what the ledger says, which may be old.
        result.pending.append(Pending(what="the ledger", why=f"{why}: lakemark ledger recover"))
        if find:
            part(result, "saves", lambda: _saves(site, result))
        return result
    # First of all: whatever comes after acts on places, and an ephemeral hot that was emptied begins anew here.
    in_lanes(site, result, {f"tier {name}": partial(_ready, site, store) for name, store in site.tiers.items()})
    part(result, "what the site says of itself", lambda: result.said.extend(tell_site(site)))
    own_work(site, result, find=find, unclaimed=unclaimed, lookout=lookout)
    # A pass that moves looks at them run by run, while it has each in memory.
    if not move:
        part(result, "linked files", lambda: result.said.extend(suspects(site)))
    tend_site(site, result, data=tend)
    if move:
        tiers, _ = present(site)
        away = _move(site, result, tiers)
        part(result, "the note of stores", lambda: note_stores(site, [one.name for one in tiers], refusing=away))
        collect(site, result)
    # A part that a server kept from ending is seen by its pass being old; what each part said is in `pending`.
    beat(site, passes=[name for name, what in _PASSES.items() if what in result.ended])
    return result


def own_work(
    site: Site,
    result: Swept,
    *,
    find: bool = True,
    unclaimed: Collection[str] | None = None,
    lookout: Lookout | None = None,
) -> None:
    """What only this node can do: its saves, the trees of its hot, its journal. The arguments are those of `sweep`."""
    part(result, "unfinished work", lambda: result.said.extend(finish(site)))
    if find:
        part(result, "saves", lambda: _saves(site, result))
        part(result, "saves of closed runs", lambda: _late(site, result))
    if lookout is not None:
        part(result, "watched directories", lambda: result.pending.extend(nobody_s(site, lookout)))
    part(result, "sealed trees", lambda: _orphans(site, result, unclaimed))
    part(result, "this node's journal", lambda: tidy_journal(site))


def _ready(site: Site, store: CheckpointStore) -> list[str]:
    anew = ready(site, store)
    return [] if anew is None else [f"{store.name}: {anew}"]


def finish(site: Site) -> list[str]:
    """Ends what a crash left half done: replicas follow renames; of hot dead landings go, and trees that were released."""
    require_sound(site)
    said = [f"the replicas of {run} follow a tier or node that was renamed" for run in rename.finish(site)]
    require_identity(site, site.hot)
    said += [f"removed {count} landing(s) whose process is gone" for count in [site.hot.clean()] if count]
    said.extend(f"dropped the released {identity[:12]} from {site.hot.name}" for identity in drop_unclaimed(site))
    site.progress.step("sweep.finished")
    return said


def suspects(site: Site) -> list[str]:
    """Looks at the identity of linked replicas; one that changed in place counts for nothing until it was read."""
    return [text for run in site.ledger.runs() for text in suspects_of(site, run)]


def suspects_of(site: Site, run: str) -> list[str]:
    """The same of one run."""
    said: list[str] = []
    linked = site.ledger.outline(run).linked.get(site.hot.place, frozenset())
    records = site.ledger.run(run).records if linked else {}
    for found in [found for identity, found in records.items() if identity in linked]:
        try:
            # By identity alone: reading every linked file at each sweep would cost the disk that training saves to.
            damages = changed(site, found)
        except LakemarkError as error:  # of one record; the others are looked at
            said.append(f"{run}@{found.record.step} in {site.hot.name} could not be looked at: {error}")
            continue
        if damages:
            note_suspect(site, found, site.hot.place, damages)
            said.append(f"{run}@{found.record.step} in {site.hot.name} may have changed: {damages[0].why}")
    return said


def _suspects(site: Site, run: str, result: Swept) -> None:
    result.said.extend(suspects_of(site, run))


def _saves(site: Site, result: Swept) -> None:
    saves = commit_found(site)
    result.committed.extend(saves.committed)
    result.incomplete.extend((*saves.lost, *saves.incomplete))
    result.abandoned.extend(saves.abandoned)
    result.unreadable.extend(saves.unreadable)
    result.passed_over.extend(saves.passed_over)
    result.left.extend(saves.left)
    result.pending.extend(Pending.of(printable(path), error) for path, error in saves.failed)
    result.need_bytes = need_bytes(waiting_of(site, saves.failed).values())
    for done in saves.committed:
        result.said.extend(f"{done.record.run}@{done.record.step}: {note}" for note in done.notes)


def _late(site: Site, result: Swept) -> None:
    result.pending.extend(
        Pending(what=f"{printable(one.path)} of {one.run}", why=one.why, next=one.next) for one in late_saves(site)
    )


def _move(site: Site, result: Swept, tiers: Sequence[Tier]) -> Mapping[str, str]:
    """Answers which tiers took nothing, and why."""

    def first(run: str) -> None:
        # Both need the whole run: while it is in memory.
        part(result, f"linked files of {run}", partial(_suspects, site, run, result))

    done = demote_all(site, site.ledger.runs(), tiers=tiers, need_bytes=result.need_bytes, first=first)
    result.replicated += done.replicated
    result.released += done.released
    result.thinned += done.thinned
    result.pending += done.pending
    return done.away


def _orphans(site: Site, result: Swept, only: Collection[str] | None) -> None:
    """Named trees without an entry: a crash fell in between. Nobody was told they are safe, but each may be all there is.

    While a commit is under way, here or in another process, which trees these are can't be told: the next pass looks.
    """
    require_identity(site, site.hot)
    with site.hot.settled() as settled:
        if not settled:
            return
        # While nobody names a tree, every name without an entry is left over; an incomplete listing says so of none.
        listing = site.hot.records()
        named = frozenset(listing.records if listing.complete else ())
        unclaimed = set(named)
        for run in site.ledger.runs() if unclaimed else ():
            unclaimed -= site.ledger.outline(run).records_of(unclaimed)
    # So that another copy of this ledger, which may lack their entries, leaves them alone.
    site.hot.note_recorded(named - unclaimed - site.hot.recorded())
    result.unclaimed = frozenset(unclaimed)
    for identity in sorted(result.unclaimed):
        if only is None or identity in only:
            part(result, f"{identity[:12]} in {site.hot.name}", partial(_adopt, site, identity, result))


def _adopt(site: Site, identity: str, result: Swept) -> None:
    sealed = site.hot.load(identity)
    record = sealed.record
    shown = f"{record.run}@{record.step} ({record.id[:12]})"
    outcome = settle_orphan(site, sealed)
    if outcome is Orphan.UNKNOWN:
        why = f"this ledger has no timeline {record.timeline} of {record.run}; it was left as it is"
        result.pending.append(Pending(what=f"{shown} in {site.hot.name}", why=why))
    elif outcome is Orphan.DAMAGED:
        why = "somebody was told that it is kept, and its bytes are no longer those that were sealed; it was left as it is"
        result.pending.append(Pending(what=f"{shown} in {site.hot.name}", why=why))
    elif outcome is Orphan.RECORDED:
        result.said.append(f"finished the commit of {shown}")
    elif outcome is Orphan.UNDONE:
        result.said.append(f"undid the commit of {shown}")
