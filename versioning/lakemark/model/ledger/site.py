"""What the site's branch adds up to: tiers and nodes seen, pins, observed branch heads, data quarantine, aliases."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import sha256
from typing import Final, Self

from lakemark.model.ledger.entry import Attachments, Entry, Means
from lakemark.model.ledger.requests import Requests
from lakemark.model.values.canonical import JSON
from lakemark.model.values.instants import from_text
from lakemark.model.values.outside import bounded, digest, ledger_id

# A level counts kinds of entries: one beyond this is no version's.
_HIGHEST: Final = 10_000


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

    def apply(self, entry: Entry, contents: Attachments) -> None:  # noqa: ARG002 - the same shape as RunState.apply
        self.sequence = entry.sequence
        self.last_recorded_at = entry.recorded_at
        self.requests.add(entry.request, entry.sequence)
        handler = _HANDLERS.get(entry.kind)
        if handler is not None:
            try:
                handler(self, entry)
            except ValueError:
                self._unreadable(entry.kind, entry.means)
        else:
            self._unreadable(entry.kind, entry.means)

    def _unreadable(self, kind: str, means: Means) -> None:
        self.unknown.append(kind)
        self.blocked = max(self.blocked, means, key=list(Means).index)


def acts_on(kind: str) -> bool:
    """Whether this version does something with entries of the kind on the site's branch."""
    return kind in _HANDLERS


def fold_site(entries: Iterable[Entry]) -> SiteState:
    """The state after `entries`, in order of sequence."""
    state = SiteState()
    for entry in entries:
        state.apply(entry, Attachments())
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


def _tier_renamed(state: SiteState, entry: Entry) -> None:
    old, new, node = _text(entry.body, "tier"), _text(entry.body, "to"), _text(entry.body, "node") or None
    if tier_name(old, node) not in state.tiers:
        return
    _call(state, tier_name(old, node), tier_name(new, node))
    state.renamed.append(Renamed(old=old, new=new, sequence=entry.sequence, tier=old, node=node))


def _node_renamed(state: SiteState, entry: Entry) -> None:
    old, new = _text(entry.body, "node"), _text(entry.body, "to")
    for key in [key for key in state.tiers if key.endswith(f"@{old}")]:
        _call(state, key, tier_name(key.removesuffix(f"@{old}"), new))
    if old in state.nodes:
        state.nodes[new] = state.nodes.pop(old)
    if old in state.retired_nodes:
        # The old name goes, the new one comes.
        state.retired_nodes.symmetric_difference_update({old, new})
    state.renamed.append(Renamed(old=old, new=new, sequence=entry.sequence, tier=None, node=old))


def _call(state: SiteState, key: str, new: str) -> None:
    """Under the new name in the old one's place, as the order of tiers is that of their registration."""
    state.tiers = {
        new if name == key else name: replace(seen, name=new) if name == key else seen
        for name, seen in state.tiers.items()
        # Whatever had the new name before gives it up.
        if name != new
    }


def tier_name(tier: str, node: str | None) -> str:
    """How the site's branch names a tier: a node's own carries the node's name."""
    return tier if node is None else f"{tier}@{node}"


def _founded(state: SiteState, entry: Entry) -> None:
    """The first one holds: a ledger is what it was founded as, whatever is appended to it."""
    if state.id is None:
        state.id, state.name = ledger_id(entry.body.get("id")), _text(entry.body, "site") or None


def _told(_state: SiteState, _entry: Entry) -> None:
    """History, and nothing that a decision about the site asks for."""


def _node_seen(state: SiteState, entry: Entry) -> None:
    level = entry.body.get("level")
    state.nodes[_text(entry.body, "node") or entry.node] = NodeSeen(
        seen_at=entry.recorded_at,
        version=_text(entry.body, "version") or None,
        level=None if level is None else bounded(level, least=0, most=_HIGHEST, what="a node's level"),
        address=_text(entry.body, "address") or None,
    )


def _policy_set(state: SiteState, entry: Entry) -> None:
    policy, text = digest(entry.body.get("policy")), _text(entry.body, "text")
    # Raised as for any entry that can't be read: retention then deletes nothing.
    if sha256(text.encode()).hexdigest() != policy:
        raise ValueError(f"a policy's text is not that of its digest {policy[:12]}")
    found = PolicySet(policy=policy, text=text, set_at=entry.recorded_at, sequence=entry.sequence)
    state.policies.append(found)


def _muted(state: SiteState, entry: Entry) -> None:
    state.muted[_text(entry.body, "problem")] = Muted(
        until=from_text(_text(entry.body, "until")), by=entry.actor, reason=entry.reason, muted_at=entry.recorded_at
    )


def _node_retired(state: SiteState, entry: Entry) -> None:
    state.retired_nodes.add(_text(entry.body, "node"))


def _pin(state: SiteState, entry: Entry) -> None:
    branch = _text(entry.body, "pin")
    old = state.pins.get(branch)
    known = {"pinned": "pinned", "unpinning": "unpinning", "unpinned": "unpinned"}
    # Given up for good: the branch may be gone by now, and a late entry must not bring the pin back.
    if old is not None and old.state == "unpinned":
        return
    state.pins[branch] = Pin(
        repository=_text(entry.body, "repository"),
        commit=_text(entry.body, "commit"),
        branch=branch,
        # Later entries name the pin alone; what the first one said stays.
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
    seen = HeadSeen(
        commit=_text(entry.body, "commit") or None,
        observed_at=from_text(observed) if observed else entry.recorded_at,
        last_looked_at=from_text(looked) if looked else None,
        sequence=entry.sequence,
    )
    state.heads[key] = [*state.heads.get(key, ()), seen]


def _data_quarantined(state: SiteState, entry: Entry) -> None:
    state.bad_data[_text(entry.body, "repository"), _text(entry.body, "commit")] = entry.reason or "quarantined"


def _data_quarantine_lifted(state: SiteState, entry: Entry) -> None:
    state.bad_data.pop((_text(entry.body, "repository"), _text(entry.body, "commit")), None)


def _alias_set(state: SiteState, entry: Entry) -> None:
    named = (entry.recorded_at, _text(entry.body, "run"), _text(entry.body, "record"))
    alias = _text(entry.body, "alias")
    state.aliases[alias] = [*state.aliases.get(alias, ()), named]


_HANDLERS = {
    "founded": _founded,
    "ledger_recovered": _told,
    "policy_set": _policy_set,
    "muted": _muted,
    "data_quarantine_lifted": _data_quarantine_lifted,
    "tier_registered": _tier_registered,
    "tier_retired": _tier_retired,
    "tier_renamed": _tier_renamed,
    "node_renamed": _node_renamed,
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
