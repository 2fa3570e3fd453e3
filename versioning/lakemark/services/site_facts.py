"""What the site says of itself, by entries that are appended when something turns, and by heartbeats that are replaced."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import fields, replace
from datetime import timedelta
from hashlib import sha256

from lakemark.errors import LakemarkError
from lakemark.model.entries.founded import FOUNDED, FoundedBody
from lakemark.model.entries.nodes import NODE_SEEN, NodeSeenBody
from lakemark.model.entries.site_wide import POLICY_SET, PolicySetBody
from lakemark.model.heartbeat import Heartbeat
from lakemark.model.ledger.entry import LEVEL, Draft
from lakemark.model.ledger.site import SiteState
from lakemark.model.tiers.retention import Best, RetentionPolicy
from lakemark.model.values.canonical import JSON, canonical
from lakemark.model.values.instants import duration_text
from lakemark.ports import Policies, Site
from lakemark.services.data.observe import branch_mark, watched
from lakemark.services.ledger import require_writable


def found_site(site: Site) -> bool:
    """Says on the site's branch what the ledger is, where that does not say it yet. Raises Refused; True: it does now."""

    def decide(state: SiteState) -> Draft | None:
        require_writable(state)
        if state.id is not None:
            return None
        return FOUNDED.draft(FoundedBody(id=identity, site=site.name))

    # Asked before it is appended: this comes by in each sweep.
    if site.ledger.site().id is not None:
        return False
    identity = site.ledger.id
    return site.ledger.append_site(decide, site.stamp(f"founded:{identity}")).entry is not None


def tell_site(site: Site) -> list[str]:
    """Appends what turned: the ledger's identity, the policy in force, this node. A sentence each. Raises Refused."""
    said = ["the site says now which ledger this is"] if found_site(site) else []
    if _set_policy(site):
        said.append("another retention policy is in force")
    _see_node(site)
    return said


def policy_text(policies: Policies) -> str:
    """What retention keeps, as canonical JSON: the same text is the same policy, however its file spells it."""
    rules: dict[str, JSON] = {pattern: _rule(one) for pattern, one in policies.retention.items()}
    kept: dict[str, JSON] = {"retention": rules, "zone": policies.retention_zone, "min_keep": policies.min_keep}
    return canonical(kept).decode()


def beat(site: Site, *, passes: Iterable[str] = ()) -> None:
    """Replaces this node's heartbeat: `passes` ended well just now. Never raises: nothing waits for it."""
    if site.reads_only:
        return
    with suppress(LakemarkError, ValueError):
        now = site.now()
        looked = {
            f"{repository}/{branch}": at
            for repository, branch in watched(site)
            if (at := site.journal.marks.get(branch_mark(repository, branch))) is not None
        }
        free = dict(_free(site))

        def change(before: Heartbeat | None) -> Heartbeat:
            # What other processes of this node noted of their passes stays.
            known = before or Heartbeat(node=site.node, at=now)
            done = {**known.passes, **dict.fromkeys(passes, now)}
            return replace(known, node=site.node, at=now, passes=done, looked=looked, free_bytes=free)

        site.ledger.beat(site.node, change)


def _set_policy(site: Site) -> bool:
    text = policy_text(site.policies)
    policy = sha256(text.encode()).hexdigest()

    def decide(state: SiteState) -> Draft | None:
        require_writable(state)
        if state.policies and state.policies[-1].policy == policy:
            return None
        return POLICY_SET.draft(PolicySetBody(policy=policy, text=text))

    known = site.ledger.site()
    if known.policies and known.policies[-1].policy == policy:
        return False
    appended = site.ledger.append_site(decide, site.stamp(f"policy:{policy}:{known.sequence}"))
    # The first one is where the site began, and no news.
    return appended.entry is not None and bool(known.policies)


def _see_node(site: Site) -> None:
    body = NodeSeenBody(node=site.node, version=site.version, level=LEVEL, address=site.address)

    def told(state: SiteState) -> bool:
        seen = state.nodes.get(site.node)
        return seen is not None and (seen.version, seen.level, seen.address) == (
            site.version,
            LEVEL,
            site.address,
        )

    def decide(state: SiteState) -> Draft | None:
        require_writable(state)
        if told(state):
            return None
        return NODE_SEEN.draft(body)

    known = site.ledger.site()
    if not told(known):
        site.ledger.append_site(decide, site.stamp(f"node:{site.node}:{known.sequence}"))


def _free(site: Site) -> Iterator[tuple[str, int]]:
    for name, store in site.tiers.items():
        with suppress(LakemarkError):  # one that is away says nothing; the others do
            free = store.free_space_bytes()
            if free is not None:
                yield name, free


def _rule(policy: RetentionPolicy) -> dict[str, JSON]:
    return {field.name: _shown(getattr(policy, field.name)) for field in fields(policy)}


def _shown(value: object) -> JSON:
    if isinstance(value, timedelta):
        return duration_text(value)
    if isinstance(value, tuple):
        return [_shown(one) for one in value]
    if isinstance(value, Best):
        return {"metric": value.metric, "mode": value.mode, "keep": value.keep}
    return value if isinstance(value, str | int | float) or value is None else str(value)
