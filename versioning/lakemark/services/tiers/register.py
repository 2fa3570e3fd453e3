"""Register tiers: claim the places a configuration names, and record their identities on the site's branch.

Only a person claims: `init`, `tier init`, and `up` for the servers it started. Everybody else finds a place that is the
ledger's, or is refused. The one exception is a hot tier whose place is empty by design at each start (`ephemeral: true`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from lakemark.errors import LakemarkError, Refused
from lakemark.model.entries.replicas import (
    DATA_LOST,
    RELEASED,
    gone_from,
)
from lakemark.model.entries.tiers import TIER_REGISTERED, TierRegisteredBody
from lakemark.model.ledger.entry import Draft
from lakemark.model.ledger.run import RecordState, RunState
from lakemark.model.ledger.site import SiteState, TierSeen
from lakemark.ports import CheckpointStore, Identity, Site, TierPlace
from lakemark.services.ledger import (
    place_again,
    require_identity,
    require_name,
    require_writable,
    tier_key,
)
from lakemark.services.tiers import rename


@dataclass(frozen=True, slots=True, kw_only=True)
class Emptied:
    """An ephemeral hot tier that began anew. gone: replicas that went with the old one. lost: records that had no other."""

    gone: int
    lost: int

    def __str__(self) -> str:
        said = f"its place was empty: it began anew, {self.gone} replica(s) are gone with what lay there"
        return f"{said}; {self.lost} record(s) had no other and are lost" if self.lost else said


def register_tier(site: Site, store: CheckpointStore) -> Identity:
    """Claims the store's place for this ledger if nobody has, and records it. The same again changes nothing.

    Raises Refused: the place is another ledger's, is not empty, is not the one the ledger knows under this name, or is
    known under another one.
    """
    name = tier_key(site, store)
    known = site.ledger.site().tiers.get(name)
    if known is not None and not known.retired:
        ready(site, store)
        return _still(store, known)
    require_name(site, store, store.identity())
    rename.finish(site)  # the replicas of a tier that had this name before must not become this one's
    identity = store.claim(site.ledger.id, now=site.now())
    site.progress.step("register.claimed")
    # Somebody registered the name meanwhile: his is what this place is compared with now.
    if not _record(site, store, identity, instead_of=None):
        return register_tier(site, store)
    return identity


def registrable(site: Site, store: CheckpointStore) -> tuple[Identity | None, bool]:
    """What `register_tier` would find: the place's identity, None where it would be claimed; whether it is registered.

    Raises Refused as that does, as far as it can be told without writing: whether an empty place may be written is not.
    """
    known = site.ledger.site().tiers.get(tier_key(site, store))
    found = store.identity()
    if known is not None and not known.retired:
        require_identity(site, store)
        return found, True
    require_name(site, store, found)
    if found is not None and found.ledger != site.ledger.id:
        raise Refused(
            f"the place of {store.name} is a tier of another ledger, {found.ledger[:8]}",
            advice="Give this tier a place of its own in lakemark.yaml.",
        )
    return found, False


def register_all(site: Site, *, only: Collection[str] | None = None) -> dict[str, Identity | LakemarkError]:
    """Every tier of the site, or of these names; for each what it is, or the error that kept it out."""
    result: dict[str, Identity | LakemarkError] = {}
    for name, store in site.tiers.items():
        if only is not None and name not in only:
            continue
        try:
            result[name] = register_tier(site, store)
        except LakemarkError as error:
            result[name] = error
    return result


def require_named(site: Site) -> None:
    """Raises Refused where this node's hot is known to the ledger under another name, or as another node's."""
    try:
        found = site.hot.identity()
    except LakemarkError:
        return  # what is wrong with the place is said by whoever needs it
    if tier_key(site, site.hot) not in site.ledger.site().tiers:
        require_name(site, site.hot, found)


def ready(site: Site, store: CheckpointStore) -> Emptied | None:
    """Makes sure that the place is the tier that the ledger knows. Claims nothing, but for an empty ephemeral hot tier.

    Raises what `require_identity` does.
    """
    if store.place != site.hot.place or not site.policies.ephemeral_hot:
        require_identity(site, store)
        return None
    known = site.ledger.site().tiers.get(tier_key(site, store))
    found = store.identity()
    if known is None or known.retired or (found is not None and found.id == known.id):
        require_identity(site, store)
        return None
    if found is not None and (found.ledger != site.ledger.id or store.claimed().records):
        require_identity(site, store)  # another disk, with somebody's trees on it
    require_name(site, store, found)
    return _begin_anew(site, known)


def _begin_anew(site: Site, known: TierSeen) -> Emptied:
    """Claims the empty place; forgets what lay there; then registers the new identity.

    In this order: until the last entry nobody commits here, so whatever the runs say is here went with the old place. A
    process that ends in between leaves a claimed place without trees that the ledger does not know, which is done again.
    """
    identity = site.hot.claim(site.ledger.id, now=site.now())
    site.progress.step("anew.claimed")
    gone = lost = 0
    for run in site.ledger.runs():
        here, alone = _forget(site, run, known)
        gone, lost = gone + here, lost + alone
        site.progress.step("anew.forgotten")
    _record(site, site.hot, identity, instead_of=known.id)
    site.progress.step("anew.registered")
    return Emptied(gone=gone, lost=lost)


def _forget(site: Site, run: str, known: TierSeen) -> tuple[int, int]:
    """How many replicas of the run went with the old place, and of how many records they were the last."""
    lost = _say_gone(site, run, known, last=True)
    return lost + _say_gone(site, run, known, last=False), lost


def _say_gone(site: Site, run: str, known: TierSeen, *, last: bool) -> int:
    """Appends which replicas went, and answers how many: those that were their record's last, or the others."""
    done: list[str] = []
    why = f"{site.hot.name} of {site.node} is ephemeral, and its place was empty"
    kind = DATA_LOST if last else RELEASED

    def decide(state: RunState) -> Draft | None:
        require_writable(state)
        # Somebody else may have registered the new place meanwhile, and committed to it.
        now = site.ledger.site().tiers.get(tier_key(site, site.hot))
        done[:] = [] if now is None or now.id != known.id else _gone(site, state, last=last)
        if not done:
            return None
        return gone_from(done, site.hot.place, why=why, last=last, timeline=state.timeline, reason="ephemeral")

    sequence = site.ledger.run(run).sequence
    appended = site.ledger.append(run, decide, site.stamp(f"ephemeral:{known.id}:{kind.name}:{sequence}"))
    return 0 if appended.entry is None else len(done)


def _gone(site: Site, state: RunState, *, last: bool) -> list[str]:
    return [
        found.record.id
        for found in state.records.values()
        if site.hot.place in found.replicas and _is_last(site, found) == last
        if not site.hot.holds(found.record.id)
    ]


def _is_last(site: Site, found: RecordState) -> bool:
    return not any(copy.sound for place, copy in found.replicas.items() if place != site.hot.place)


def _record(site: Site, store: TierPlace, identity: Identity, *, instead_of: str | None) -> bool:
    """False where somebody registered it meanwhile."""
    name = tier_key(site, store)

    def decide(state: SiteState) -> Draft | None:
        require_writable(state)
        now = state.tiers.get(name)
        if now is not None and not now.retired and now.id != instead_of:
            return None
        return TIER_REGISTERED.draft(
            TierRegisteredBody(
                tier=name, id=identity.id, class_=store.tier_class, tier_kind=store.kind, domain=store.domain
            )
        )

    # With the sequence: a tier that is retired and registered again under its old id is news, not the first entry.
    sequence = site.ledger.site().sequence
    return site.ledger.append_site(decide, site.stamp(f"tier:{name}:{identity.id}:{sequence}")).entry is not None


def _still(store: TierPlace, known: TierSeen) -> Identity:
    """Raises Refused where the place lost its identity file."""
    found = store.identity()
    if found is None:
        raise Refused(
            f"the place of the tier {store.name} has no identity file; the ledger knows it as {known.id[:8]}",
            advice=place_again(store.kind),
        )
    return found
