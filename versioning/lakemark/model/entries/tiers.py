"""Which places the site has."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from lakemark.model.entries.kind import EntryBody, Kind, OnBranch
from lakemark.model.ledger.entry import Entry
from lakemark.model.ledger.site import SiteState, TierSeen


@dataclass(frozen=True, slots=True, kw_only=True)
class TierRegisteredBody(EntryBody):
    tier: str = ""
    id: str = ""
    class_: str = ""
    tier_kind: str = ""
    domain: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierRetiredBody(EntryBody):
    tier: str = ""
    id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TierMovedBody(EntryBody):
    tier: str = ""
    id: str | None = None
    node: str | None = None


def _registered(state: SiteState, entry: Entry, body: TierRegisteredBody) -> None:
    state.tiers[body.tier] = TierSeen(
        name=body.tier,
        id=body.id,
        tier_class=body.class_,
        kind=body.tier_kind,
        domain=body.domain,
        registered_at=entry.recorded_at,
    )


def _retired(state: SiteState, _entry: Entry, body: TierRetiredBody) -> None:
    seen = state.tiers.get(body.tier)
    if seen is not None:
        # Under the name it has by now, which is the key's.
        state.tiers[seen.name] = replace(seen, retired=True)


TIER_REGISTERED: Final = Kind(
    name="tier_registered", body=TierRegisteredBody, branch=OnBranch.SITE, on_site=_registered
)
TIER_RETIRED: Final = Kind(name="tier_retired", body=TierRetiredBody, branch=OnBranch.SITE, on_site=_retired)
TIER_MOVED: Final = Kind(
    name="tier_moved",
    body=TierMovedBody,
    branch=OnBranch.SITE,
    note="its place is another; nothing there counts until it was read again",
)

KINDS: Final = (TIER_REGISTERED, TIER_RETIRED, TIER_MOVED)
