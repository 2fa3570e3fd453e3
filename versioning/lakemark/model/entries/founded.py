"""The ledger itself: what it was founded as, and what it was recovered from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from lakemark.model.entries.kind import EntryBody, Kind, OnBranch
from lakemark.model.ledger.entry import Entry, Means
from lakemark.model.ledger.site import SiteState
from lakemark.model.values.codec import Size
from lakemark.model.values.outside import ledger_id


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundedBody(EntryBody):
    id: Annotated[str | None, "of the ledger, for good: what a tier's identity file names as its owner"] = None
    site: Annotated[str | None, "its name"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRecoveredBody(EntryBody):
    from_: tuple[str, ...] = ()
    entries: Size | None = None
    records: Size | None = None
    missing: tuple[str, ...] = ()


def _founded(state: SiteState, _entry: Entry, body: FoundedBody) -> None:
    # The first one holds: a ledger is what it was founded as, whatever is appended to it.
    if state.id is None:
        state.id, state.name = ledger_id(body.id), body.site or None


FOUNDED: Final = Kind(name="founded", body=FoundedBody, branch=OnBranch.SITE, on_site=_founded)
LEDGER_RECOVERED: Final = Kind(
    name="ledger_recovered",
    body=LedgerRecoveredBody,
    branch=OnBranch.BOTH,
    history=True,
    unknown_means=Means.IGNORE,
    note="its commit has the copies that it took in as further parents",
)

KINDS: Final = (FOUNDED, LEDGER_RECOVERED)
