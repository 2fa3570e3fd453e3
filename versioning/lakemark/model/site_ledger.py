"""What the site's branch adds up to: tiers and nodes seen, pins, observed branch heads, data quarantine, aliases."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Self

from lakemark.model.canonical import JSON
from lakemark.model.entry import Contents, Entry, Means
from lakemark.model.instants import from_text


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


@dataclass(slots=True, kw_only=True)
class SiteState:
    """Readers treat it as read-only; its ledger folds into it."""

    sequence: int = 0
    last_recorded_at: datetime | None = None
    requests: dict[str, int] = field(default_factory=dict)
    tiers: dict[str, TierSeen] = field(default_factory=dict)
    nodes: dict[str, datetime] = field(default_factory=dict)
    retired_nodes: set[str] = field(default_factory=set)
    pins: dict[str, Pin] = field(default_factory=dict)
    heads: dict[tuple[str, str], list[HeadSeen]] = field(default_factory=dict)
    bad_data: dict[tuple[str, str], str] = field(default_factory=dict)
    aliases: dict[str, list[tuple[datetime, str, str]]] = field(default_factory=dict)
    blocked: Means = Means.IGNORE
    unknown: list[str] = field(default_factory=list)

    def snapshot(self) -> Self:
        """A copy that later entries do not reach."""
        return replace(
            self,
            requests=dict(self.requests),
            tiers=dict(self.tiers),
            nodes=dict(self.nodes),
            retired_nodes=set(self.retired_nodes),
            pins=dict(self.pins),
            heads={branch: list(seen) for branch, seen in self.heads.items()},
            bad_data=dict(self.bad_data),
            aliases={name: list(named) for name, named in self.aliases.items()},
            unknown=list(self.unknown),
        )

    def pin_of(self, repository: str, commit: str) -> Pin | None:
        """The pin that keeps `commit` (also while its grace runs), or None."""
        found = [pin for pin in self.pins.values() if (pin.repository, pin.commit) == (repository, commit)]
        return next((pin for pin in reversed(found) if pin.state != "unpinned"), None)

    def head_at(self, repository: str, branch: str, at: datetime) -> HeadSeen | None:
        """The newest observation at or before `at`."""
        seen = self.heads.get((repository, branch), [])
        index = bisect_right([head.observed_at for head in seen], at)
        return seen[index - 1] if index else None

    def apply(self, entry: Entry, contents: Contents) -> None:  # noqa: ARG002 - the same shape as RunState.apply
        self.sequence = entry.sequence
        self.last_recorded_at = entry.recorded_at
        self.requests[entry.request] = entry.sequence
        handler = _HANDLERS.get(entry.kind)
        if handler is not None:
            try:
                handler(self, entry)
            except ValueError:
                self._unreadable(entry.kind, Means.NO_DELETE)
        elif not entry.known:
            means = Means(entry.unknown_means) if entry.unknown_means in set(Means) else Means.READ_ONLY
            self._unreadable(entry.kind, means)

    def _unreadable(self, kind: str, means: Means) -> None:
        self.unknown.append(kind)
        self.blocked = max(self.blocked, means, key=list(Means).index)


def fold_site(entries: Iterable[Entry]) -> SiteState:
    """The state after `entries`, in order of sequence."""
    state = SiteState()
    for entry in entries:
        state.apply(entry, Contents())
    return state


def _tier_registered(state: SiteState, entry: Entry) -> None:
    name = _text(entry.body, "tier")
    state.tiers[name] = TierSeen(
        name=name,
        id=_text(entry.body, "id"),
        tier_class=_text(entry.body, "class"),
        kind=_text(entry.body, "tier_kind"),
        domain=_text(entry.body, "domain"),
        registered_at=entry.recorded_at,
    )


def _tier_retired(state: SiteState, entry: Entry) -> None:
    seen = state.tiers.get(_text(entry.body, "tier"))
    if seen is not None:
        state.tiers[seen.name] = TierSeen(
            name=seen.name,
            id=seen.id,
            tier_class=seen.tier_class,
            kind=seen.kind,
            domain=seen.domain,
            registered_at=seen.registered_at,
            retired=True,
        )


def _node_seen(state: SiteState, entry: Entry) -> None:
    state.nodes[_text(entry.body, "node") or entry.node] = entry.recorded_at


def _node_retired(state: SiteState, entry: Entry) -> None:
    state.retired_nodes.add(_text(entry.body, "node"))


def _pin(state: SiteState, entry: Entry) -> None:
    branch = _text(entry.body, "pin")
    old = state.pins.get(branch)
    known = {"pinned": "pinned", "unpinning": "unpinning", "unpinned": "unpinned"}
    if old is not None and old.state == "unpinned":
        return
    state.pins[branch] = Pin(
        repository=_text(entry.body, "repository"),
        commit=_text(entry.body, "commit"),
        branch=branch,
        nonce=_text(entry.body, "nonce") or (old.nonce if old else ""),
        state=known[entry.kind],
        pinned_at=old.pinned_at if old else entry.recorded_at,
        changed_at=entry.recorded_at,
        run=_text(entry.body, "run") or (old.run if old else None),
    )


def _branch_observed(state: SiteState, entry: Entry) -> None:
    key = (_text(entry.body, "repository"), _text(entry.body, "branch"))
    looked = _text(entry.body, "last_looked_at")
    observed = _text(entry.body, "observed_at")
    state.heads.setdefault(key, []).append(
        HeadSeen(
            commit=_text(entry.body, "commit") or None,
            observed_at=from_text(observed) if observed else entry.recorded_at,
            last_looked_at=from_text(looked) if looked else None,
            sequence=entry.sequence,
        )
    )


def _data_quarantined(state: SiteState, entry: Entry) -> None:
    state.bad_data[_text(entry.body, "repository"), _text(entry.body, "commit")] = entry.reason or "quarantined"


def _alias_set(state: SiteState, entry: Entry) -> None:
    named = (entry.recorded_at, _text(entry.body, "run"), _text(entry.body, "record"))
    state.aliases.setdefault(_text(entry.body, "alias"), []).append(named)


_HANDLERS = {
    "tier_registered": _tier_registered,
    "tier_retired": _tier_retired,
    "node_seen": _node_seen,
    "node_retired": _node_retired,
    "pinned": _pin,
    "unpinning": _pin,
    "unpinned": _pin,
    "branch_observed": _branch_observed,
    "data_quarantined": _data_quarantined,
    "alias_set": _alias_set,
}


def _text(body: Mapping[str, JSON], name: str) -> str:
    value = body.get(name)
    return value if isinstance(value, str) else ""
