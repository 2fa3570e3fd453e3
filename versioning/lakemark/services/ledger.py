"""Small things every service needs of the ledger: stop without an entry, find a record, refuse where a newer version must."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from lakemark.errors import InDistress, NotFound, Refused
from lakemark.model.entries.committed import CommittedBody
from lakemark.model.ledger.entry import Means
from lakemark.model.ledger.run import Place, RecordState, RunState
from lakemark.model.ledger.site import SiteState, tier_name
from lakemark.model.tiers.moves import SKEW
from lakemark.ports import Checkpoint, Expiry, Identity, Named, Site, Spooled, TierPlace

T = TypeVar("T")


def opened(site: Site, run: str) -> RunState:
    """The run's state. Raises NotFound for a run nobody opened."""
    state = site.ledger.run(run)
    require_opened(site, state)
    return state


def require_opened(site: Site, state: RunState) -> None:
    """Raises NotFound for a run nobody opened."""
    if not state.exists:
        run, known = state.run, site.ledger.runs()
        shown = ", ".join(known[:5]) + (", …" if len(known) > 5 else "") if known else "none yet"  # noqa: PLR2004
        raise NotFound(f"there is no run {run!r}; the ledger has {shown}", advice=f"Open it: lakemark run open {run}")


def recorded(state: RunState, record: str) -> RecordState:
    """The state of a record id. Raises NotFound."""
    found = state.records.get(record)
    if found is None:
        raise NotFound(
            f"{state.run} has no record {record[:12]}", advice=f"See `lakemark ls {state.run} --all-timelines`."
        )
    return found


def still(known: Mapping[str, T], key: str, *, what: str) -> T:
    """An attempt, rollback or pin that this command saw in the ledger before. Raises InDistress where it is gone again."""
    found = known.get(key)
    if found is None:
        raise InDistress(
            f"the ledger has no {what} {key} any more: it was replaced by an older one meanwhile",
            advice="lakemark ledger recover --dry-run says what is missing and where it is.",
        )
    return found


def checkpoint(site: Site, found: RecordState, *, tier: str | None = None) -> Checkpoint:
    """The record with its manifest and, of a DVC tier, the names of its objects there."""
    record = found.record
    names = (tier, *site.ledger.site().earlier_tiers(tier)) if tier else ()
    # Entries are never rewritten: those from before a rename name the tier as it was called then.
    each = (site.ledger.objects(record.run, record.id, name) for name in names)
    objects: Mapping[str, str] = next((told for told in each if told), {})
    return Checkpoint(record=record, manifest=site.ledger.manifest(record.run, record.id), objects=objects)


def announced(site: Site, run: str) -> Iterator[Spooled]:
    """What trainers of the run announced and nobody committed yet, by the paths of this node.

    Whoever sees a directory under another path may also see other inodes.
    """
    for one in site.spool.spooled(site.spool_of(run)):
        path = site.here(run, one.path)
        if path != one.path and one.identity:
            seen = {name: (0, size_bytes, mtime_ns) for name, (_, size_bytes, mtime_ns) in one.identity.items()}
            yield replace(one, path=path, identity=seen)
        else:
            yield replace(one, path=path)


def committed(site: Site, found: RecordState) -> CommittedBody:
    """What the entry that committed the record says; nothing where it can't be found, or read."""
    # One entry: where the ledger lacks it, the next one is another's.
    for entry, _ in site.ledger.entries(found.record.run, after=found.sequence - 1):
        if entry.sequence != found.sequence:
            break
        try:
            return CommittedBody.from_json(entry.body)
        except ValueError:  # of another version: where it lay is not needed to have its bytes back
            break
    return CommittedBody()


def left_out(site: Site, found: RecordState) -> tuple[Place, ...]:
    """Where the ledger says that the record has replicas, and this node's configuration does not name the tier."""
    return tuple(place for place in found.replicas if place.tier not in site.tiers and place.node in (None, site.node))


def named_again(tiers: Collection[str]) -> str:
    """What brings tiers back that the configuration leaves out."""
    old = ", ".join(sorted(tiers))
    return (
        f"Name {old} again under `tiers:` in lakemark.yaml, as it was; what is called otherwise on purpose: "
        "lakemark tier rename OLD NEW."
    )


def require_writable(state: RunState | SiteState) -> None:
    """Raises Refused where an entry of a newer version says that this one may only read."""
    if state.blocked is Means.READ_ONLY:
        _refuse(state)


def require_deletable(state: RunState | SiteState) -> None:
    """Raises Refused where an entry of a newer version forbids releasing, pruning, rolling back and unpinning."""
    if state.blocked is not Means.IGNORE:
        _refuse(state)


def require_identity(site: Site, store: TierPlace) -> None:
    """Raises Refused unless the place behind `store` is the tier the ledger knows under that name."""
    seen = site.ledger.site().tiers.get(tier_key(site, store))
    found = store.identity()
    if seen is None or seen.retired:
        require_name(site, store, found)
        if found is not None and found.ledger != site.ledger.id:
            raise Refused(
                f"the place of the tier {store.name} is of the ledger {found.ledger[:12]}, not of this one",
                advice="Give every site a place of its own; nothing was changed there.",
            )
        raise Refused(
            f"the tier {store.name}{_of_node(store.place)} is {'retired' if seen else 'not registered'} in this ledger",
            advice=f"If this place is to become it: lakemark tier init {store.name}",
        )
    if found is None or found.id != seen.id:
        shown = "has no identity file" if found is None else f"is tier {found.id[:8]}"
        raise Refused(
            f"the place of the tier {store.name} {shown}; the ledger knows it as {seen.id[:8]}",
            advice=place_again(store.kind),
        )


def place_again(kind: str) -> str:
    """What to do where a tier of that kind has another identity than the ledger knows, or none any more."""
    if kind != "s3":
        return "Is its disk mounted, and is it the right one? Nothing was changed."
    return (
        "Is it the right bucket, or was it emptied or made anew? Bring back what lay there. If that is gone for good, give the "
        "empty place another name under `tiers:`, then: lakemark tier init THAT-NAME; copies are made there again. "
        "Nothing was changed."
    )


def require_name(site: Site, store: Named, found: Identity | None) -> None:
    """Raises Refused where the ledger knows the tier of the identity `found` under another name, or of another node.

    Whoever changed a name by mistake would else begin a new tier over the old one's trees.
    """
    known = None if found is None else site.ledger.site().known_as(found.id)
    if known is not None:
        require_name_of(store.place, known, node=site.node)


def require_name_of(place: Place, known: str, *, node: str) -> None:
    """The same of a tier's place, by what the ledger knows it as; node: this one's name. Asks nothing."""
    if known == tier_name(place.tier, place.node):
        return
    name, _, before = known.partition("@")
    if name != place.tier:
        means = f"rename it in the ledger, too: lakemark tier rename {name} {place.tier}"
    else:
        means = f"rename the node in the ledger, too: lakemark node rename {before} {node}"
    raise Refused(
        f"the place of the tier {place.tier}{_of_node(place)} is known as {name}{f' of node {before}' if before else ''}",
        advice=f"Give it its old name (node:, $LAKEMARK_NODE, tiers:); if it is called otherwise on purpose, {means}",
    )


def _of_node(place: Place) -> str:
    return "" if place.node is None else f" of node {place.node}"


def require_lasting(store: TierPlace) -> None:
    """Raises Refused where the place removes things by itself, or may: its replicas justify no release."""
    expiry = store.expires()
    if expiry is not None:
        what, advice = expiring(store.name, expiry)
        raise Refused(what, advice=advice)


def expiring(tier: str, expiry: Expiry) -> tuple[str, str]:
    """(what is wrong, what to do) where the store of a tier removes things by itself, or may."""
    if not expiry.known:
        return (
            f"whether the store of the tier {tier} removes objects by itself can't be read ({expiry.rule})",
            "Let its keys read the bucket's rules, or say `expires: never` in the tier; it counts for nothing till then.",
        )
    return (
        f"the store of the tier {tier} removes objects by itself, by its rule {expiry.rule}",
        "Take that rule away from the tier's prefix; until then its replicas count for nothing.",
    )


def require_clock(site: Site, store: TierPlace) -> None:
    """Raises Refused where this node's clock is more than five minutes from the store's: no grace can be told then."""
    theirs = None if site.simulated_clock else store.clock()
    if theirs is not None and abs(site.now() - theirs) > SKEW:
        away = round((site.now() - theirs).total_seconds())
        raise Refused(
            f"this clock is {away:+d} s from that of the tier {store.name}: nothing is deleted",
            advice="Set this machine's clock, with NTP; `lakemark doctor` compares it with every server's.",
        )


def tier_key(site: Site, store: Named) -> str:
    """How the site's branch names a tier: a node's own hot carries the node's name."""
    return tier_name(store.name, site.node if store.place.node is not None else None)


def _refuse(state: RunState | SiteState) -> None:
    kinds = ", ".join(sorted(set(state.unknown)))
    raise Refused(
        f"the ledger has entries of a newer version ({kinds}) that forbid this", advice="Update lakemark on this node."
    )
