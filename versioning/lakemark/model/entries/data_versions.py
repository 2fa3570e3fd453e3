"""Data commits that are kept alive, and where its branches were seen."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Final

from lakemark.model.entries.kind import EntryBody, Kind, OnBranch
from lakemark.model.ledger.entry import Entry, Means
from lakemark.model.ledger.site import HeadSeen, Pin, SiteState


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpinnedBody(EntryBody):
    repository: str = ""
    commit: str = ""
    pin: Annotated[str, "branch name"] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedBody(UnpinnedBody):
    nonce: str | None = None
    run: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchObservedBody(EntryBody):
    repository: str = ""
    branch: str = ""
    commit: Annotated[str | None, "null: gone"] = None
    previous: str | None = None
    observed_at: datetime | None = None
    last_looked_at: datetime | None = None


def _pinned(state: SiteState, entry: Entry, body: PinnedBody) -> None:
    _keep(state, entry, body, nonce=body.nonce, run=body.run)


def _unpinned(state: SiteState, entry: Entry, body: UnpinnedBody) -> None:
    """Also `unpinning`: the kind is the state that the pin is in from now on."""
    _keep(state, entry, body, nonce=None, run=None)


def _keep(state: SiteState, entry: Entry, body: UnpinnedBody, *, nonce: str | None, run: str | None) -> None:
    old = state.pins.get(body.pin)
    # Given up for good: the branch may be gone by now, and a late entry must not bring the pin back.
    if old is not None and old.state == "unpinned":
        return
    state.pins[body.pin] = Pin(
        repository=body.repository,
        commit=body.commit,
        branch=body.pin,
        # Later entries name the pin alone; what the first one said stays.
        nonce=nonce or (old.nonce if old else ""),
        state=entry.kind,
        pinned_at=old.pinned_at if old else entry.recorded_at,
        changed_at=entry.recorded_at,
        run=run or (old.run if old else None),
    )


def _observed(state: SiteState, entry: Entry, body: BranchObservedBody) -> None:
    key = (body.repository, body.branch)
    seen = HeadSeen(
        commit=body.commit or None,
        observed_at=body.observed_at or entry.recorded_at,
        last_looked_at=body.last_looked_at,
        sequence=entry.sequence,
    )
    state.heads[key] = [*state.heads.get(key, ()), seen]


BRANCH_OBSERVED: Final = Kind(
    name="branch_observed",
    body=BranchObservedBody,
    branch=OnBranch.SITE,
    on_site=_observed,
    unknown_means=Means.IGNORE,
)
PINNED: Final = Kind(name="pinned", body=PinnedBody, branch=OnBranch.SITE, on_site=_pinned)
UNPINNING: Final = Kind(name="unpinning", body=UnpinnedBody, branch=OnBranch.SITE, on_site=_unpinned)
UNPINNED: Final = Kind(name="unpinned", body=UnpinnedBody, branch=OnBranch.SITE, on_site=_unpinned)

KINDS: Final = (BRANCH_OBSERVED, PINNED, UNPINNING, UNPINNED)
