"""Release: forget a replica, then drop its bytes. Only while proven ones remain elsewhere, read back in full."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from lakemark.errors import NotFound, Refused, StoreUnavailable
from lakemark.model.entry import Draft
from lakemark.model.instants import to_text
from lakemark.model.ledger import Place, RecordState, Replica, RunState
from lakemark.model.residence import Release
from lakemark.model.rollback import target_of
from lakemark.ports import Checkpoint, CheckpointStore, Site
from lakemark.ports.store import Listing
from lakemark.services.appending import (
    Settled,
    checkpoint,
    opened,
    recorded,
    require_clock,
    require_deletable,
    require_identity,
    require_lasting,
    tier_key,
)
from lakemark.services.verify import look, record_looks


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
    survivors = _prove(site, found, store.place)
    chosen = Release(record=record, place=store.place, survivor=survivors[0].place, why=reason)
    if not release_all(site, run, [chosen]):
        raise Refused(
            f"{run}@{found.record.step} stays in {tier}: an open rollback goes back to it, or a survivor changed just now",
            advice=f"lakemark show {record[:12]}",
        )
    return site.ledger.run(run).records[record]


def release_all(site: Site, run: str, releases: Sequence[Release]) -> list[Release]:
    """Forgets and drops what a plan chose, in one entry; answers what was done. Survivors that changed since are kept out."""
    if not releases:
        return []
    for name in {one.place.tier for one in releases} | {one.survivor.tier for one in releases}:
        require_identity(site, site.store(name))
        require_clock(site, site.store(name))
    for name in {one.survivor.tier for one in releases}:
        require_lasting(site.store(name))
    state = site.ledger.run(run)
    held = {one: _held(site, state.records[one.record], one.place) for one in releases}
    done: list[Release] = []

    def decide(state: RunState) -> Draft:
        require_deletable(state)
        done[:] = [one for one in releases if _still(state, one)]
        if not done:
            raise Settled(None)
        items = [_item(state, one) for one in done]
        return Draft(kind="released", timeline=state.timeline, body={"items": items})

    site.progress.step("release.checked")
    shared = {one.place.tier: site.store(one.place) for one in releases if one.place.node is None}
    for store in shared.values():
        site.journal.looked(_begun(site, store), at=site.now())
    try:
        site.ledger.append(run, decide, site.stamp(f"released:{site.node}:{state.sequence}:{releases[0].place.tier}"))
    except Settled:
        return []
    site.progress.step("release.recorded")
    for one in done:
        if one.place in _now(site, state.records[one.record]).replicas:
            continue
        site.store(one.place).drop(held[one], now=site.now())
        site.progress.step("release.dropped")
    for store in shared.values():
        site.journal.looked(_ended(site, store), at=site.now())
    return done


def _prove(site: Site, found: RecordState, leaving: Place) -> list[Replica]:
    """Survivors in other domains that were read back just now.

    Raises Refused where they are too few, StoreUnavailable where they might be enough and are away.
    """
    residence = site.policies.residence.get(leaving.tier)
    domain = site.store(leaving).domain
    others = [
        replica
        for place, replica in found.replicas.items()
        if replica.sound and place.node is None and place.tier in site.tiers and site.tiers[place.tier].domain != domain
    ]
    late = [r for r in others if residence and site.now() - r.replicated_at <= residence.settle]
    if others and len(late) == len(others) and residence:
        due = min(r.replicated_at for r in late) + residence.settle
        raise Refused(
            f"the other replicas of {found.record.run}@{found.record.step} settle until {to_text(due)}",
            advice="Try again after that: a store that loses power may still lose what it just took.",
        )
    looks = [look(site, found, replica.place) for replica in others if replica not in late]
    record_looks(site, found.record.run, [one for one in looks if one.error is None])
    read = [replica for replica in others if any(one.ok and one.place == replica.place for one in looks)]
    good = [replica for replica in read if site.store(replica.place).expires() is None]
    domains = {site.tiers[replica.place.tier].domain for replica in good}
    if len(domains) < max(1, site.policies.copies):
        for replica in read:
            require_lasting(site.store(replica.place))
        seen = "; ".join(
            f"{one.place.tier}: {one.error or (one.damages[0].why if one.damages else 'ok')}" for one in looks
        )
        away = {site.tiers[one.place.tier].domain for one in looks if isinstance(one.error, StoreUnavailable)}
        if away and len(domains | away) >= max(1, site.policies.copies):
            raise StoreUnavailable(
                f"releasing {found.record.run}@{found.record.step} from {leaving.tier}: {seen}",
                advice="Try again when they answer: they are read back before it goes.",
            )
        raise Refused(
            f"releasing {found.record.run}@{found.record.step} from {leaving.tier} needs {max(1, site.policies.copies)} proven "
            f"replica(s) in other failure domains; it has {len(domains)} ({seen or 'none'})",
            advice="Replicate it further down first: lakemark replicate … --to TIER",
        )
    return good


def _held(site: Site, found: RecordState, place: Place) -> Checkpoint:
    return checkpoint(site, found, tier=None if place.node else place.tier)


def _still(state: RunState, one: Release) -> bool:
    found = state.records.get(one.record)
    if found is None or one.place not in found.replicas:
        return False
    survivor = found.replicas.get(one.survivor)
    wanted = any(request.open and target_of(request) == one.record for request in state.rollbacks.values())
    return survivor is not None and survivor.sound and not wanted


def _item(state: RunState, one: Release) -> dict[str, str | None]:
    survivor = state.records[one.record].replicas[one.survivor]
    return {
        "record": one.record,
        "tier": one.place.tier,
        "node": one.place.node,
        "survivor": one.survivor.tier,
        "survivor_verified_at": to_text(survivor.verified_at),
        "why": one.why,
    }


def drop_unclaimed(site: Site) -> list[str]:
    """Drops hot trees whose replica at this very place the ledger lists as released or thinned. Answers record ids.

    That no replica is listed here proves nothing: the node may be called otherwise today. Nor while a tree is being named,
    which may be one that comes back and has no entry yet.
    """
    with site.hot.settled() as settled:
        if not settled:
            return []
        listing = site.hot.records()
        known = list(_known(site, listing.records if listing.complete else ()))
        left = [found for found in known if _left(site.hot, found)]
    return [found.record.id for found in left if drop_left(site, found)]


def drop_released(site: Site, store: CheckpointStore) -> list[str]:
    """The same for a shared tier, where only what the ledger says was released is sure not to be on its way in."""
    began = site.now()
    left = [
        found
        for run in site.ledger.runs()
        for found in list(site.ledger.run(run).records.values())
        if _left(store, found)
    ]
    listing = store.claimed() if left else Listing(records=(), complete=False)
    claimed = frozenset(listing.records if listing.complete else ())
    there = [one for one in left if one.record.id in claimed and store.holds(_held(site, one, store.place))]
    dropped = [_dropped(site, store, found) for found in there if _left(store, _now(site, found))]
    if listing.complete or not left:
        site.journal.looked(_ended(site, store), at=began)
    return dropped


def unfinished(site: Site, store: CheckpointStore) -> bool:
    """Whether a release of this node from a shared tier may have left bytes there: it did not come to its end, or not yet."""
    begun, ended = site.journal.last_looked(_begun(site, store)), site.journal.last_looked(_ended(site, store))
    return begun is not None and (ended is None or ended <= begun)


def _begun(site: Site, store: CheckpointStore) -> str:
    return f"release begun:{tier_key(site, store)}"


def _ended(site: Site, store: CheckpointStore) -> str:
    return f"release ended:{tier_key(site, store)}"


def _now(site: Site, found: RecordState) -> RecordState:
    """As the ledger has it at this moment: dropping takes long, and it may have come back meanwhile."""
    return site.ledger.run(found.record.run).records[found.record.id]


def _left(store: CheckpointStore, found: RecordState) -> bool:
    return store.place in found.released and store.place not in found.replicas


def _known(site: Site, ids: Collection[str]) -> Iterator[RecordState]:
    """Those of these records that the ledger has."""
    wanted = frozenset(ids)
    for run in site.ledger.runs() if wanted else ():
        records = site.ledger.run(run).records
        yield from (records[identity] for identity in sorted(wanted & records.keys()))


def drop_left(site: Site, found: RecordState) -> bool:
    """Drops a tree of hot that the ledger lets go; False where it comes back at this moment, or did since that was seen."""
    with site.hot.settled() as settled:
        if settled and _left(site.hot, _now(site, found)):
            _dropped(site, site.hot, found)
            return True
    return False


def _dropped(site: Site, store: CheckpointStore, found: RecordState) -> str:
    require_identity(site, store)
    store.drop(_held(site, found, store.place), now=site.now())
    return found.record.id
