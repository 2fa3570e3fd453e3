"""Sweep: one pass that finds saves, finishes or undoes what was interrupted, and does what residence says.

Whoever runs it second finds it done. A part that can't reach what it needs says so in `pending`; the others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

from lakemark.errors import LakemarkError
from lakemark.model.ledger.soundness import in_words
from lakemark.model.tiers.residence import Move, Release, Tier
from lakemark.model.values.names import printable
from lakemark.ports import Checkpoint, CheckpointStore, Mark, MarkKind, Named, Patience, Site, TierPlace
from lakemark.ports.watching import Lookout
from lakemark.services.back import rollback_apply, rollback_decide
from lakemark.services.data.tend import tend_data
from lakemark.services.ledger import checkpoint, require_clock, require_identity
from lakemark.services.node.tidy_journal import tidy_journal
from lakemark.services.recovery.check import check_ledger
from lakemark.services.recovery.keep_copies import keep_copies
from lakemark.services.recovery.orphans import Orphan, settle_orphan
from lakemark.services.runs.attempts import end_idle
from lakemark.services.runs.open_watched import nobody_s
from lakemark.services.saves.abandoned import Abandoned
from lakemark.services.saves.commit import Committed
from lakemark.services.saves.find import commit_found
from lakemark.services.saves.late import late_saves
from lakemark.services.saves.lost_ledger import LostLedger, for_saving
from lakemark.services.saves.waiting import need_bytes, waiting_of
from lakemark.services.site_facts import beat, tell_site
from lakemark.services.soundness import look, require_sound
from lakemark.services.tiers import rename
from lakemark.services.tiers.demote import Pending, demote_all, present
from lakemark.services.tiers.register import ready, require_named
from lakemark.services.tiers.release import drop_released, drop_unclaimed, unfinished
from lakemark.services.tiers.sources import changed, note_suspect
from lakemark.services.tiers.store_note import note_stores

AUDIT_EVERY: Final = timedelta(days=1)
"""How often a tier is looked through for what nothing uses and nobody condemned, which reads all of its listings."""
_PASSES: Final = {
    "find": "saves",
    "data": "data versions",
    "rollbacks": "rollbacks",
    "tend": "unfinished work",
    "copies": "copies of the ledger",
}
"""What a heartbeat calls the parts of a sweep."""
LEEWAY: Final = 12
"""What was dropped goes within one part in so many of the grace after it, so that one look serves many drops."""


@dataclass(slots=True, kw_only=True)
class Swept:
    """said: what was finished, undone, observed or pinned, a sentence each. abandoned: nobody goes on with it.

    unreadable: directories that were passed over, with why. passed_over: (path, record) of what was known and not read.
    ended: parts that ended, whatever they found. need_bytes: of the largest save that waits for room in hot.
    data_as_it_was: data versions were looked at, and nothing was to be done about them.
    unclaimed: records that named trees of hot are of, and that had no entry: a crash fell in between, or a commit is under way.
    """

    data_as_it_was: bool = False
    committed: list[Committed] = field(default_factory=list)
    replicated: list[Move] = field(default_factory=list)
    released: list[Release] = field(default_factory=list)
    thinned: list[str] = field(default_factory=list)
    incomplete: list[tuple[Path, str]] = field(default_factory=list)
    abandoned: list[Abandoned] = field(default_factory=list)
    unreadable: list[tuple[Path, str]] = field(default_factory=list)
    passed_over: list[tuple[Path, str]] = field(default_factory=list)
    pending: list[Pending] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    unclaimed: frozenset[str] = frozenset()
    ended: set[str] = field(default_factory=set)
    need_bytes: int = 0


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
            _part(result, "saves", lambda: _saves(site, result))
        return result
    # First of all: whatever comes after acts on places, and an ephemeral hot that was emptied begins anew here.
    _in_lanes(site, result, {f"tier {name}": partial(_ready, site, store) for name, store in site.tiers.items()})
    _part(result, "what the site says of itself", lambda: result.said.extend(tell_site(site)))
    _part(result, "unfinished work", lambda: result.said.extend(finish(site)))
    _part(result, "the ledger's entries", lambda: result.said.extend(check_ledger(site)))
    if find:
        _part(result, "saves", lambda: _saves(site, result))
        _part(result, "saves of closed runs", lambda: _late(site, result))
    if lookout is not None:
        _part(result, "watched directories", lambda: result.pending.extend(nobody_s(site, lookout)))
    _part(result, "sealed trees", lambda: _orphans(site, result, unclaimed))
    # A pass that moves looks at them run by run, while it has each in memory.
    if not move:
        _part(result, "linked files", lambda: result.said.extend(suspects(site)))
    # One for both: each alone would wait as long for the same slow server.
    patience = Patience()
    if site.data is not None and tend:
        _part(result, "data versions", lambda: _data(site, result, patience))
    _part(result, "rollbacks", lambda: _rollbacks(site, result, patience))
    _part(result, "idle runs", lambda: result.said.extend(end_idle(site)))
    _part(result, "this node's journal", lambda: tidy_journal(site))
    if move:
        tiers, _ = present(site)
        away = _move(site, result, tiers)
        _part(result, "the note of stores", lambda: note_stores(site, [one.name for one in tiers], refusing=away))
        collect(site, result)
    # A part that a server kept from ending is seen by its pass being old; what each part said is in `pending`.
    beat(site, passes=[name for name, part in _PASSES.items() if part in result.ended])
    return result


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


def collect(site: Site, result: Swept) -> None:
    """Drops what was released from shared tiers; after the grace, bytes nothing claims. Renews the copies of the ledger."""
    shared = [store for store in site.tiers.values() if store.place.node is None]
    _in_lanes(site, result, {f"condemned bytes of {one.name}": partial(_collect, site, one) for one in shared})
    _part(result, "copies of the ledger", partial(_copies, site, result))


def _collect(site: Site, store: CheckpointStore) -> list[str]:
    """Raises InDistress, Refused (another tier lies there, a clock is off): nothing is deleted then."""
    require_sound(site)
    require_identity(site, store)
    # Grace is told by this clock against the store's own times; one that is off would end it early.
    require_clock(site, store)
    now, grace = site.now(), site.policies.grace
    said: list[str] = []
    audit = _audit_due(site, store, now)
    # Listing a bucket is dear: only once a day, or where a release of this node did not come to its end.
    if audit or unfinished(site, store):
        said += [f"dropped the released {one[:12]} from {store.name}" for one in drop_released(site, store)]
    if audit or store.due(now=now, grace=grace + grace / LEEWAY):
        freed = store.collect(now=now, grace=grace, needed=_held_by(site, store))
        site.journal.marks.set(_audited(store), at=now)
        said += [f"freed {freed} bytes of {store.name}"] if freed else []
    return said


def _audit_due(site: Site, store: TierPlace, now: datetime) -> bool:
    last = site.journal.marks.get(_audited(store))
    # A note of the future is a clock that was set back: it keeps nothing from being done.
    return last is None or not timedelta(0) <= now - last < AUDIT_EVERY


def _audited(store: TierPlace) -> Mark:
    identity = store.identity()
    # By its identity: another disk under the same name was never looked through.
    return Mark(MarkKind.AUDITED, identity.id if identity else store.name)


def _held_by(site: Site, store: Named) -> Iterator[Checkpoint]:
    """What the ledger says the store holds, read as it is asked for."""
    for run in site.ledger.runs():
        for found in list(site.ledger.run(run).records.values()):
            if store.place in found.replicas:
                yield checkpoint(site, found, tier=store.name)


def _copies(site: Site, result: Swept) -> None:
    result.pending.extend(
        Pending.of(f"copy of the ledger in {name}", error) for name, error in keep_copies(site).items()
    )


def _part(result: Swept, what: str, work: Callable[[], object]) -> None:
    """One part's trouble is said, and keeps no other from its turn."""
    try:
        work()
    except LakemarkError as error:
        result.pending.append(Pending.of(what, error))
    else:
        result.ended.add(what)


def _in_lanes(site: Site, result: Swept, parts: Mapping[str, Callable[[], list[str]]]) -> None:
    """Parts that wait for a tier each, side by side; what they say is said in order."""

    def tried(what: str, work: Callable[[], list[str]]) -> Swept:
        found = Swept()
        _part(found, what, lambda: found.said.extend(work()))
        return found

    for found in site.at_once([partial(tried, what, work) for what, work in parts.items()]):
        result.said += found.said
        result.pending += found.pending
        result.ended |= found.ended


def _data(site: Site, result: Swept, patience: Patience) -> None:
    tended = tend_data(site, patience)
    result.data_as_it_was = not tended.said and not tended.failed
    result.said.extend(tended.said)
    result.pending.extend(Pending.of(what, error) for what, error in tended.failed)


def _saves(site: Site, result: Swept) -> None:
    saves = commit_found(site)
    result.committed.extend(saves.committed)
    result.incomplete.extend((*saves.lost, *saves.incomplete))
    result.abandoned.extend(saves.abandoned)
    result.unreadable.extend(saves.unreadable)
    result.passed_over.extend(saves.passed_over)
    result.pending.extend(Pending.of(printable(path), error) for path, error in saves.failed)
    result.need_bytes = need_bytes(waiting_of(site, saves.failed).values())
    for done in saves.committed:
        result.said.extend(f"{done.record.run}@{done.record.step}: {note}" for note in done.notes)


def _late(site: Site, result: Swept) -> None:
    result.pending.extend(
        Pending(what=f"{printable(one.path)} of {one.run}", why=one.why, next=one.next) for one in late_saves(site)
    )


def _rollbacks(site: Site, result: Swept, patience: Patience) -> None:
    result.said.extend(f"the rollback {identity} expired" for identity in rollback_decide.expire(site))
    if site.data is not None:
        result.said.extend(rollback_apply.leftovers(site, patience))


def _move(site: Site, result: Swept, tiers: Sequence[Tier]) -> Mapping[str, str]:
    """Answers which tiers took nothing, and why."""

    def first(run: str) -> None:
        # Both need the whole run: while it is in memory.
        _part(result, f"linked files of {run}", partial(_suspects, site, run, result))

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
            _part(result, f"{identity[:12]} in {site.hot.name}", partial(_adopt, site, identity, result))


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
