"""Release: forget a replica, then drop its bytes. Only while proven ones remain elsewhere, read back in full."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from lakemark.errors import LakemarkError, NotFound, Refused, StoreUnavailable
from lakemark.model.back.rollback import target_of
from lakemark.model.entries.replicas import RELEASED, ReleasedBody, ReleasedReplica
from lakemark.model.ledger.entry import Draft
from lakemark.model.ledger.run import Place, RecordState, Replica, RunState
from lakemark.model.tiers.residence import CLASSES, Release
from lakemark.model.values.instants import later
from lakemark.model.values.wording import instant
from lakemark.ports import Checkpoint, CheckpointStore, Mark, MarkKind, Named, Site
from lakemark.ports.store import Listing
from lakemark.services.ledger import (
    checkpoint,
    opened,
    recorded,
    require_clock,
    require_deletable,
    require_identity,
    require_lasting,
    tier_key,
)
from lakemark.services.soundness import require_sound
from lakemark.services.tiers.verify import ReplicaLook, look, record_looks
from lakemark.services.tiers.witness import is_transient

_FRESH: Final = timedelta(minutes=5)
"""How long a read-back justifies a release."""


def release(site: Site, run: str, record: str, *, tier: str, reason: str = "asked for") -> RecordState:
    """Drops the record's replica in `tier` of this node's reach, after reading the survivors back in full.

    Raises NotFound (no replica there), Refused (too few proven survivors in other domains, not settled, an open rollback's
    target, tier identity, a newer ledger), StoreUnavailable.
    """
    state = opened(site, run)
    require_deletable(state)
    store = site.store(tier)
    found = recorded(state, record)
    if store.place not in found.replicas:
        raise NotFound(f"{run}@{found.record.step} has no replica in {tier}", advice=f"lakemark show {record[:12]}")
    released = release_all(site, run, [Release(record=record, place=store.place, survivor=store.place, why=reason)])
    for _, error in released.failed:
        raise error
    if not released.done:
        raise Refused(
            f"{run}@{found.record.step} stays in {tier}: an open rollback goes back to it, or a survivor changed just now",
            advice=f"lakemark show {record[:12]}",
        )
    return recorded(site.ledger.run(run), record)


@dataclass(slots=True, kw_only=True)
class Released:
    """done: forgotten and dropped. failed: what stays, and why."""

    done: list[Release] = field(default_factory=list)
    failed: list[tuple[Release, LakemarkError]] = field(default_factory=list)


def release_all(site: Site, run: str, releases: Sequence[Release]) -> Released:
    """Forgets and drops what a plan chose, each after its survivors were read back here and now, in full.

    A proof is good for minutes: whatever reading takes, an entry follows the first of its proofs within five of them, and
    what nobody could prove keeps nothing else. Raises Refused where a tier is not what the ledger knows or a clock is off.
    """
    result = Released()
    if not releases:
        return result
    require_sound(site)
    for name in {one.place.tier for one in releases}:
        require_identity(site, site.store(name))
        require_clock(site, site.store(name))
    ready: list[_Proven] = []
    for one in releases:
        # Two releases of one record must not each count on the other's replica.
        leaving = frozenset(other.place for other in releases if other.record == one.record)
        try:
            ready.append(_proven(site, run, one, leaving=leaving))
        except LakemarkError as error:
            result.failed.append((one, error))
        # The oldest proof of the batch decides: what is read meanwhile makes it no younger.
        if ready and site.now() - ready[0].at >= _FRESH:
            result.done.extend(_released(site, run, ready))
            ready = []
    result.done.extend(_released(site, run, ready))
    return result


def _released(site: Site, run: str, ready: Sequence[_Proven]) -> list[Release]:
    """Appends what was seen and what goes, then drops it."""
    if not ready:
        return []
    releases = [one.release for one in ready]
    record_looks(site, run, [look for one in ready for look in one.looks])
    state = site.ledger.run(run)
    held = {one: _held(site, recorded(state, one.record), one.place) for one in releases}
    done: list[Release] = []

    def decide(state: RunState) -> Draft | None:
        require_deletable(state)
        # Decided anew on each try: a rollback may have been asked for, or a survivor found damaged, in between.
        done[:] = [one for one in releases if _still(state, one)]
        if not done:
            return None
        items = tuple(_item(state, one) for one in done)
        return RELEASED.draft(ReleasedBody(items=items), timeline=state.timeline)

    site.progress.step("release.checked")
    shared = {one.place.tier: site.store(one.place) for one in releases if one.place.node is None}
    for store in shared.values():
        site.journal.marks.set(_begun(site, store), at=site.now())
    request = f"released:{site.node}:{state.sequence}:{releases[0].place.tier}"
    if site.ledger.append(run, decide, site.stamp(request)).entry is None:
        return []
    site.progress.step("release.recorded")
    for one in done:
        # It came back between entry and drop, and is claimed again: its bytes stay.
        if one.place in _now(site, state.records[one.record]).replicas:
            continue
        site.store(one.place).drop(held[one], now=site.now())
        site.progress.step("release.dropped")
    for store in shared.values():
        site.journal.marks.set(_ended(site, store), at=site.now())
    return done


@dataclass(frozen=True, slots=True, kw_only=True)
class _Proven:
    """A release whose survivors were read back. at: when the first of them was."""

    release: Release
    looks: tuple[ReplicaLook, ...]
    at: datetime


def _proven(site: Site, run: str, one: Release, *, leaving: Collection[Place]) -> _Proven:
    """Raises Refused where survivors are too few, StoreUnavailable where they might be enough and are away."""
    found = recorded(site.ledger.run(run), one.record)
    others = _survivors(site, found, one.place, leaving=leaving)
    needed = max(1, site.policies.copies)
    looks: list[ReplicaLook] = []
    at = site.now()
    for replica in others:
        looks.append(_witnessed(site, found, replica.place))
        # When the first reading ended: of all proofs that is the one that grows stale first.
        at = at if len(looks) > 1 else site.now()
        # A store that removes things by itself keeps nothing that another could count on.
        good = [seen.place for seen in looks if seen.ok and site.store(seen.place).expires() is None]
        # Two copies on one disk array are lost together: domains are counted.
        if len({site.store(place).domain for place in good}) >= needed:
            why = f"{one.why}; {good[0].tier} was read back at {instant(site.now())}"
            chosen = replace(one, survivor=good[0], why=why)
            return _Proven(release=chosen, looks=tuple(seen for seen in looks if seen.error is None), at=at)
    record_looks(site, run, [seen for seen in looks if seen.error is None])
    raise _too_few(site, found, one.place, looks)


def _witnessed(site: Site, found: RecordState, place: Place) -> ReplicaLook:
    """Read back, unless the store's clock tells that nobody knows how long it has settled."""
    try:
        require_clock(site, site.store(place))
    except LakemarkError as error:
        record = found.record
        return ReplicaLook(record=record.id, run=record.run, step=record.step, place=place, error=error)
    return look(site, found, place)


def _survivors(site: Site, found: RecordState, leaving_from: Place, *, leaving: Collection[Place]) -> list[Replica]:
    """Sound ones in other domains that have settled, nearest first, without what leaves with it. Raises Refused."""
    residence = site.policies.residence.get(leaving_from.tier)
    domain = site.store(leaving_from).domain
    others = [
        replica
        for place, replica in found.replicas.items()
        if replica.sound
        # A hot tier is no survivor: it dies with its node.
        and place.node is None
        and place.tier in site.tiers
        and place not in leaving
        and site.tiers[place.tier].domain != domain
    ]
    # A store may still lose what it took just before its power went: only what has settled can take another's place.
    late = [r for r in others if residence and site.now() - r.replicated_at <= residence.settle]
    if others and len(late) == len(others) and residence:
        due = later(min(r.replicated_at for r in late), residence.settle)
        raise Refused(
            f"the other replicas of {found.record.run}@{found.record.step} settle until {instant(due)}",
            advice="Try again after that: a store that loses power may still lose what it just took.",
        )
    settled = [replica for replica in others if replica not in late]
    return sorted(settled, key=lambda replica: CLASSES.index(site.tiers[replica.place.tier].tier_class))


def _too_few(site: Site, found: RecordState, leaving: Place, looks: Sequence[ReplicaLook]) -> LakemarkError:
    """Why it stays, by what was seen."""
    needed = max(1, site.policies.copies)
    what = f"releasing {found.record.run}@{found.record.step} from {leaving.tier}"
    try:
        for one in looks:
            if one.ok:
                require_lasting(site.store(one.place))
    except LakemarkError as error:
        return error
    domains = {site.store(one.place).domain for one in looks if one.ok}
    seen = "; ".join(f"{one.place.tier}: {one.error or (one.damages[0].why if one.damages else 'ok')}" for one in looks)
    away = {site.store(one.place).domain for one in looks if one.error is not None and is_transient(one.error)}
    if away and len(domains | away) >= needed:
        return StoreUnavailable(
            f"{what}: {seen}", advice="Try again when they answer: they are read back before it goes."
        )
    return Refused(
        f"{what} needs {needed} proven replica(s) in other failure domains; it has {len(domains)} ({seen or 'none'})",
        advice="Replicate it further down first: lakemark replicate … --to TIER",
    )


def _held(site: Site, found: RecordState, place: Place) -> Checkpoint:
    """With the names of its objects where the place is a shared tier."""
    return checkpoint(site, found, tier=None if place.node else place.tier)


def _still(state: RunState, one: Release) -> bool:
    """Whether the state that the entry is appended to lets it go: it is there, its survivor sound, no rollback wants it."""
    found = state.records.get(one.record)
    if found is None or one.place not in found.replicas:
        return False
    survivor = found.replicas.get(one.survivor)
    wanted = any(request.open and target_of(request) == one.record for request in state.rollbacks.values())
    return survivor is not None and survivor.sound and not wanted


def _item(state: RunState, one: Release) -> ReleasedReplica:
    survivor = state.records[one.record].replicas[one.survivor]
    return ReleasedReplica(
        record=one.record,
        tier=one.place.tier,
        node=one.place.node,
        survivor=one.survivor.tier,
        survivor_verified_at=survivor.verified_at,
        why=one.why,
    )


def drop_unclaimed(site: Site) -> list[str]:
    """Drops hot trees whose replica at this very place the ledger lists as released or thinned. Answers record ids.

    That no replica is listed here proves nothing: the node may be called otherwise today. Nor while a tree is being named,
    which may be one that comes back and has no entry yet.
    """
    require_sound(site)
    with site.hot.settled() as settled:
        if not settled:
            return []
        # An incomplete listing names some trees and says nothing of the others; none is dropped on its word.
        listing = site.hot.records()
        known = list(_known(site, listing.records if listing.complete else ()))
        left = [found for found in known if _left(site.hot, found)]
    return [found.record.id for found in left if drop_left(site, found)]


def drop_released(site: Site, store: CheckpointStore) -> list[str]:
    """The same for a shared tier, where only what the ledger says was released is sure not to be on its way in."""
    require_sound(site)
    # A release that begins while this looks is not covered by it: what is noted in the end is the beginning.
    began = site.now()
    left = [
        found
        for run in site.ledger.runs()
        for found in list(site.ledger.run(run).records.values())
        if _left(store, found)
    ]
    listing = store.claimed() if left else Listing(records=(), complete=False)
    claimed = frozenset(listing.records if listing.complete else ())
    there = [one for one in left if one.record.id in claimed and store.holds(one.record.id)]
    # Asked anew for each: dropping takes long, and a replication may have brought it back.
    dropped = [_dropped(site, store, found) for found in there if _left(store, _now(site, found))]
    if listing.complete or not left:
        site.journal.marks.set(_ended(site, store), at=began)
    return dropped


def unfinished(site: Site, store: Named) -> bool:
    """Whether a release of this node from a shared tier may have left bytes there: it did not come to its end, or not yet."""
    begun, ended = site.journal.marks.get(_begun(site, store)), site.journal.marks.get(_ended(site, store))
    return begun is not None and (ended is None or ended <= begun)


def _begun(site: Site, store: Named) -> Mark:
    return Mark(MarkKind.RELEASE_BEGUN, tier_key(site, store))


def _ended(site: Site, store: Named) -> Mark:
    return Mark(MarkKind.RELEASE_ENDED, tier_key(site, store))


def _now(site: Site, found: RecordState) -> RecordState:
    """As the ledger has it at this moment: dropping takes long, and it may have come back meanwhile."""
    return recorded(site.ledger.run(found.record.run), found.record.id)


def _left(store: Named, found: RecordState) -> bool:
    """Released, and not come back since."""
    return store.place in found.released and store.place not in found.replicas


def _known(site: Site, ids: Collection[str]) -> Iterator[RecordState]:
    """Those of these records that the ledger has and that have no replica in hot."""
    wanted = frozenset(ids)
    for run in site.ledger.runs() if wanted else ():
        outline = site.ledger.outline(run)
        gone = outline.records_of(wanted) - outline.kept.get(site.hot.place, frozenset())
        records = site.ledger.run(run).records if gone else {}
        yield from (records[identity] for identity in sorted(gone))


def drop_left(site: Site, found: RecordState) -> bool:
    """Drops a tree of hot that the ledger lets go; False where it comes back at this moment, or did since that was seen."""
    with site.hot.settled() as settled:
        if settled and _left(site.hot, _now(site, found)):
            _dropped(site, site.hot, found)
            return True
    return False


def _dropped(site: Site, store: CheckpointStore, found: RecordState) -> str:
    """Raises Refused where the place is not the tier that the ledger knows."""
    require_identity(site, store)
    store.drop(_held(site, found, store.place), now=site.now())
    return found.record.id
