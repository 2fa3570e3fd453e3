"""A tier or a node is called otherwise from now on. A replica is where it was; only what its place is called changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Final

from lakemark.model.entries.kind import EntryBody, Kind, Nodes, OnBranch, RecordItem, change
from lakemark.model.ledger.entry import Entry
from lakemark.model.ledger.run import Place, RunState
from lakemark.model.ledger.site import Renamed, SiteState, tier_name
from lakemark.model.values.fields import shared


@dataclass(frozen=True, slots=True, kw_only=True)
class TierRenamedBody(EntryBody):
    tier: str = ""
    to: str = ""
    node: Nodes = None
    id: Annotated[str | None, "on the site"] = None
    items: Annotated[tuple[RecordItem, ...], "on a run whose replicas follow"] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRenamedBody(EntryBody):
    node: str = ""
    to: str = ""
    items: Annotated[tuple[RecordItem, ...], "on a run"] = ()


def _tier_of_run(state: RunState, _entry: Entry, body: TierRenamedBody) -> None:
    old = (body.tier, body.node)
    _follow(
        state,
        body.items,
        lambda place: shared(replace(place, tier=body.to)) if (place.tier, place.node) == old else place,
    )


def _node_of_run(state: RunState, _entry: Entry, body: NodeRenamedBody) -> None:
    if body.node in state.watch:
        state.watch[body.to] = state.watch.pop(body.node)
    _follow(state, body.items, lambda place: shared(replace(place, node=body.to)) if place.node == body.node else place)


def _tier_of_site(state: SiteState, entry: Entry, body: TierRenamedBody) -> None:
    node = body.node or None
    old, new = tier_name(body.tier, node), tier_name(body.to, node)
    if old in state.tiers:
        _call(state, old, new)
        state.renamed.append(Renamed(old=body.tier, new=body.to, sequence=entry.sequence, tier=body.tier, node=node))


def _node_of_site(state: SiteState, entry: Entry, body: NodeRenamedBody) -> None:
    old, new = body.node, body.to
    for key in [key for key in state.tiers if key.endswith(f"@{old}")]:
        _call(state, key, tier_name(key.removesuffix(f"@{old}"), new))
    if old in state.nodes:
        state.nodes[new] = state.nodes.pop(old)
    if old in state.retired_nodes:
        # The old name goes, the new one comes.
        state.retired_nodes.symmetric_difference_update({old, new})
    state.renamed.append(Renamed(old=old, new=new, sequence=entry.sequence, tier=None, node=old))


def _follow(state: RunState, items: Iterable[RecordItem], called: Callable[[Place], Place]) -> None:
    for item in items:
        found = state.records.get(item.record or "")
        if found is not None:
            copies = [replace(copy, place=called(place)) for place, copy in found.replicas.items()]
            change(
                state,
                item.record,
                replicas={copy.place: copy for copy in copies},
                released=shared(frozenset(map(called, found.released))),
                refused={called(place): why for place, why in found.refused.items()},
            )


def _call(state: SiteState, key: str, new: str) -> None:
    """Under the new name in the old one's place, as the order of tiers is that of their registration."""
    state.tiers = {
        new if name == key else name: replace(seen, name=new) if name == key else seen
        for name, seen in state.tiers.items()
        # Whatever had the new name before gives it up.
        if name != new
    }


def _always(_entry: Entry) -> bool:
    return True


TIER_RENAMED: Final = Kind(
    name="tier_renamed",
    body=TierRenamedBody,
    branch=OnBranch.BOTH,
    on_run=_tier_of_run,
    on_site=_tier_of_site,
    of_records=True,
)
NODE_RENAMED: Final = Kind(
    name="node_renamed",
    body=NodeRenamedBody,
    branch=OnBranch.BOTH,
    on_run=_node_of_run,
    on_site=_node_of_site,
    of_records=True,
    of_run_too=_always,  # where it watches follows, too
)

KINDS: Final = (TIER_RENAMED, NODE_RENAMED)
