"""What the site's branch adds up to: tiers and nodes seen, pins, observed branch heads, data quarantine, aliases."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Self

from lakemark.model.ledger.entry import Means
from lakemark.model.ledger.requests import Requests


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSeen:
    """A tier as it was registered. `id`: of its identity file; another id under the same name is another tier."""

    name: str
    id: str
    tier_class: str
    kind: str
    domain: str
    registered_at: datetime
    retired: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Renamed:
    """A tier or node that is called otherwise from `sequence` on. `tier` None: all tiers of the node `node`."""

    old: str
    new: str
    sequence: int
    tier: str | None
    node: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """A data commit kept alive by a branch. state: `pinned`, `unpinning` (grace since `changed_at`), `unpinned`."""

    repository: str
    commit: str
    branch: str
    nonce: str
    state: str
    pinned_at: datetime
    changed_at: datetime
    run: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadSeen:
    """A branch's head as we saw it: `commit` (None: gone) at `observed_at`.

    last_looked_at: when we had last looked before, and still seen the previous head. The head moved in between.
    """

    commit: str | None
    observed_at: datetime
    last_looked_at: datetime | None
    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSeen:
    """A node as it said of itself at `seen_at`, when one of these was another than before. level: of features it knows."""

    seen_at: datetime
    version: str | None = None
    level: int | None = None
    address: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySet:
    """What retention keeps from `set_at` on. policy: sha256 of `text`, canonical JSON."""

    policy: str
    text: str
    set_at: datetime
    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Muted:
    """A problem that somebody knows of, until `until`."""

    until: datetime
    by: str
    reason: str | None
    muted_at: datetime


@dataclass(slots=True, kw_only=True)
class SiteState:
    """Readers treat it as read-only; its ledger folds into it.

    id, name: of the ledger and its site, as its first `founded` entry says; None where there is none, as in a ledger that
    version 0.1 made. policies: the one in force last.
    """

    id: str | None = None
    name: str | None = None
    sequence: int = 0
    last_recorded_at: datetime | None = None
    requests: Requests = field(default_factory=Requests)
    tiers: dict[str, TierSeen] = field(default_factory=dict)
    nodes: dict[str, NodeSeen] = field(default_factory=dict)
    retired_nodes: set[str] = field(default_factory=set)
    renamed: list[Renamed] = field(default_factory=list)
    pins: dict[str, Pin] = field(default_factory=dict)
    heads: dict[tuple[str, str], list[HeadSeen]] = field(default_factory=dict)
    bad_data: dict[tuple[str, str], str] = field(default_factory=dict)
    aliases: dict[str, list[tuple[datetime, str, str]]] = field(default_factory=dict)
    policies: list[PolicySet] = field(default_factory=list)
    muted: dict[str, Muted] = field(default_factory=dict)
    blocked: Means = Means.IGNORE
    unknown: list[str] = field(default_factory=list)

    def snapshot(self) -> Self:
        """A copy that later entries do not reach. What it holds is shared: replaced, never changed."""
        return replace(
            self,
            requests=self.requests.copy(),
            tiers=dict(self.tiers),
            nodes=dict(self.nodes),
            retired_nodes=set(self.retired_nodes),
            renamed=list(self.renamed),
            pins=dict(self.pins),
            heads=dict(self.heads),
            bad_data=dict(self.bad_data),
            aliases=dict(self.aliases),
            policies=list(self.policies),
            muted=dict(self.muted),
            unknown=list(self.unknown),
        )

    def pin_of(self, repository: str, commit: str) -> Pin | None:
        """The pin that keeps `commit` (also while its grace runs), or None."""
        # A commit may have been pinned, given up and pinned anew: the last one that is not given up keeps it.
        found = [pin for pin in self.pins.values() if (pin.repository, pin.commit) == (repository, commit)]
        return next((pin for pin in reversed(found) if pin.state != "unpinned"), None)

    def known_as(self, identity: str) -> str | None:
        """The key under which the tier of this id is known now; None where it is not, or is retired."""
        return next((key for key, seen in self.tiers.items() if seen.id == identity and not seen.retired), None)

    def left_out(self, configured: Collection[str], *, node: str) -> tuple[TierSeen, ...]:
        """Tiers in use that the configuration of `node` should name and does not: shared ones, and its own hot.

        configured: the names there are. Other nodes' hot is theirs to name.
        """
        # The site knows a node's own tier as `hot@node`, the configuration as `hot`.
        keys = {*configured, *(tier_name(name, node) for name in configured)}
        return tuple(
            seen
            for key, seen in self.tiers.items()
            if not seen.retired and key not in keys and key.partition("@")[2] in ("", node)
        )

    def earlier_tiers(self, tier: str) -> tuple[str, ...]:
        """What the shared tier was called before, the latest name first."""
        names: list[str] = []
        # Backwards through the names: each renaming is looked at once, so a name that was used twice ends too.
        for one in reversed(self.renamed):
            if one.tier is not None and one.node is None and one.new == tier:
                tier = one.old
                names.append(tier)
        return tuple(names)

    def node_now(self, node: str) -> str:
        """What a node that once was called `node` is called now."""
        for one in self.renamed:
            if one.tier is None and one.old == node:
                node = one.new
        return node

    def head_at(self, repository: str, branch: str, at: datetime) -> HeadSeen | None:
        """The newest observation at or before `at`."""
        seen = self.heads.get((repository, branch), [])
        # At the very instant counts as seen.
        index = bisect_right([head.observed_at for head in seen], at)
        return seen[index - 1] if index else None


def tier_name(tier: str, node: str | None) -> str:
    """How the site's branch names a tier: a node's own carries the node's name."""
    return tier if node is None else f"{tier}@{node}"
