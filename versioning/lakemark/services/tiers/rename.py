"""Rename a tier or a node on purpose: first in the configuration, then here. Replicas stay where they are and follow the name.

The site's entry comes first: from then on the place is accepted under its new name and refused under the old one, so that
nobody adds to the old one. Then each run's replicas follow, an entry a run. A process that ends in between leaves runs whose
replicas are said to be at a name that nobody answers to: nothing is dropped for that, and the next `finish` goes on.
"""

from __future__ import annotations

from collections.abc import Callable

from lakemark.errors import NotFound, Refused
from lakemark.model.entries.kind import RecordItem
from lakemark.model.entries.renamed import NODE_RENAMED, TIER_RENAMED, NodeRenamedBody, TierRenamedBody
from lakemark.model.ledger.entry import Draft
from lakemark.model.ledger.run import Place, RunState
from lakemark.model.ledger.site import Renamed, SiteState, tier_name
from lakemark.ports import Site
from lakemark.services.ledger import require_writable, tier_key


def rename_tier(site: Site, old: str, new: str) -> list[str]:
    """The tier that was called `old` is the one the configuration calls `new`; answers the runs whose replicas followed.

    Done already: it only finishes. Raises Misconfigured (lakemark.yaml has no tier `new`), NotFound (the ledger
    knows no tier `old`), Refused (the place of `new` is not the one the ledger knows as `old`, `new` is another tier's name).
    """
    store = site.store(new)
    node = site.node if store.place.node is not None else None
    state = site.ledger.site()
    seen, already = state.tiers.get(tier_name(old, node)), state.tiers.get(tier_name(new, node))
    # By the rename itself, not by the name alone: another tier may have got that name by now.
    if already is not None and any((one.tier, one.new, one.node) == (old, new, node) for one in state.renamed):
        return finish(site)
    if seen is None or seen.retired:
        known = ", ".join(sorted(key for key, one in state.tiers.items() if not one.retired)) or "none"
        raise NotFound(f"the ledger knows no tier {old!r}; it knows {known}", advice="See `lakemark tiers`.")
    found = store.identity()
    if found is None or found.id != seen.id:
        shown = "has no identity file" if found is None else f"is tier {found.id[:8]}"
        raise Refused(
            f"the place of the tier {new} {shown}; the ledger knows {old} as {seen.id[:8]}",
            advice="Let `path` or `url` of the new name point to the old one's place.",
        )
    body = TierRenamedBody(tier=old, to=new, id=seen.id, node=node)

    def decide(now: SiteState) -> Draft | None:
        require_writable(now)
        _require_free(now, tier_name(new, node), seen.id)
        if tier_name(old, node) not in now.tiers:
            return None
        return TIER_RENAMED.draft(body)

    _append_site(site, decide, f"rename:{tier_key(site, store)}:{seen.id}:{state.sequence}")
    return finish(site)


def rename_node(site: Site, old: str, new: str) -> list[str]:
    """The node that was called `old` is this one, `new`; answers the runs that followed. Done already: it only finishes.

    Raises NotFound (the ledger knows no node `old`), Refused (`new` is not this node's name, its places are not the old
    one's, or `new` has tiers of its own).
    """
    if new != site.node:
        raise Refused(
            f"this node is {site.node}, not {new}",
            advice="Set `node:` (or $LAKEMARK_NODE) to the new name first, and give this command on that node.",
        )
    state = site.ledger.site()
    tiers = {key.removesuffix(f"@{old}"): one for key, one in state.tiers.items() if key.endswith(f"@{old}")}
    if not tiers and any(one.tier is None and (one.old, one.new) == (old, new) for one in state.renamed):
        return finish(site)
    if not tiers:
        known = ", ".join(sorted({key.partition("@")[2] for key in state.tiers if "@" in key})) or "none"
        raise NotFound(f"the ledger knows no node {old!r}; it knows {known}", advice="See `lakemark log site`.")
    for name, seen in tiers.items():
        if seen.retired:
            continue
        found = site.tiers[name].identity() if name in site.tiers else None
        if found is None or found.id != seen.id:
            shown = f"is tier {found.id[:8]}" if found else "has none" if name in site.tiers else "is not configured"
            raise Refused(
                f"{name} of {old} is tier {seen.id[:8]}; {name} here {shown}",
                advice="Only a node that has the old one's disk goes on under another name; else `tier init` a new one.",
            )

    def decide(now: SiteState) -> Draft | None:
        require_writable(now)
        for name, seen in tiers.items():
            _require_free(now, tier_name(name, new), seen.id)
        if not any(key.endswith(f"@{old}") for key in now.tiers):
            return None
        return NODE_RENAMED.draft(NodeRenamedBody(node=old, to=new))

    _append_site(site, decide, f"rename node:{old}:{new}:{state.sequence}")
    return finish(site)


def finish(site: Site) -> list[str]:
    """Lets the replicas of every run follow the renames of the site, the oldest rename first; answers the runs that did.

    A name that is another tier's by now is finished before that tier is registered, so nothing of the new one moves.
    """
    followed: dict[str, None] = {}
    state = site.ledger.site()
    for one in state.renamed:
        if _taken_again(state, one):
            continue
        for run in site.ledger.runs():
            if _follow(site, run, one):
                followed[run] = None
                site.progress.step("rename.followed")
    return list(followed)


def _append_site(site: Site, decide: Callable[[SiteState], Draft | None], request: str) -> None:
    if site.ledger.append_site(decide, site.stamp(request)).entry is None:
        return
    site.progress.step("rename.recorded")


def _require_free(state: SiteState, key: str, identity: str) -> None:
    """Raises Refused where the name is another tier's by now."""
    other = state.tiers.get(key)
    if other is not None and not other.retired and other.id != identity:
        raise Refused(
            f"{key} is the tier {other.id[:8]} already",
            advice="Choose another name in lakemark.yaml, or retire that one.",
        )


def _taken_again(state: SiteState, one: Renamed) -> bool:
    if one.tier is not None:
        return tier_name(one.old, one.node) in state.tiers
    return any(key.endswith(f"@{one.old}") for key in state.tiers)


def _follow(site: Site, run: str, one: Renamed) -> bool:
    """Whether the run had something at the old name, and follows now."""

    def decide(state: RunState) -> Draft | None:
        require_writable(state)
        items = tuple(
            RecordItem(record=found.record.id)
            for found in state.records.values()
            if any(_at(place, one) for place in (*found.replicas, *found.released, *found.refused))
        )
        if not items and not (one.tier is None and one.old in state.watch):
            return None
        if one.tier is None:
            return NODE_RENAMED.draft(NodeRenamedBody(node=one.old, to=one.new, items=items), timeline=state.timeline)
        body = TierRenamedBody(tier=one.old, to=one.new, node=one.node, items=items)
        return TIER_RENAMED.draft(body, timeline=state.timeline)

    # Asked without reading the run: `finish` comes by at each sweep, and nearly always nothing is to follow.
    outline = site.ledger.outline(run)
    if not any(_at(place, one) for place in outline.places) and not (one.tier is None and one.old in outline.watch):
        return False
    sequence = outline.sequence
    return site.ledger.append(run, decide, site.stamp(f"rename:{one.sequence}:{sequence}")).entry is not None


def _at(place: Place, one: Renamed) -> bool:
    return place.node == one.old if one.tier is None else place == Place(tier=one.old, node=one.node)
