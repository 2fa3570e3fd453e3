"""Which machines the site has, and what they know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from lakemark.model.entries.kind import EntryBody, Kind, OnBranch
from lakemark.model.ledger.entry import Entry, Means
from lakemark.model.ledger.site import NodeSeen, SiteState
from lakemark.model.values.outside import bounded

# A level counts kinds of entries: one beyond this is no version's.
_HIGHEST: Final = 10_000


def _level(value: int) -> int:
    return bounded(value, least=0, most=_HIGHEST, what="it")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSeenBody(EntryBody):
    node: str | None = None
    version: str | None = None
    level: Annotated[int, _level] | None = None
    address: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRetiredBody(EntryBody):
    node: str = ""


def _seen(state: SiteState, entry: Entry, body: NodeSeenBody) -> None:
    state.nodes[body.node or entry.node] = NodeSeen(
        seen_at=entry.recorded_at, version=body.version or None, level=body.level, address=body.address or None
    )


def _retired(state: SiteState, _entry: Entry, body: NodeRetiredBody) -> None:
    state.retired_nodes.add(body.node)


NODE_SEEN: Final = Kind(
    name="node_seen",
    body=NodeSeenBody,
    branch=OnBranch.SITE,
    on_site=_seen,
    unknown_means=Means.IGNORE,
    note="only when one of them is another than before",
)
NODE_RETIRED: Final = Kind(name="node_retired", body=NodeRetiredBody, branch=OnBranch.SITE, on_site=_retired)

KINDS: Final = (NODE_SEEN, NODE_RETIRED)
