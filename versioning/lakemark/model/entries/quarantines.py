"""Do not use: a record, or data and with it what was trained with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from lakemark.model.entries.kind import EntryBody, Kind, OnBranch, RecordItem, change, named
from lakemark.model.ledger.entry import Entry
from lakemark.model.ledger.run import RunState
from lakemark.model.ledger.site import SiteState


@dataclass(frozen=True, slots=True, kw_only=True)
class DataCommitBody(EntryBody):
    repository: str = ""
    commit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedRecord(RecordItem):
    relation: str | None = None
    why: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedBody(EntryBody):
    items: Annotated[tuple[QuarantinedRecord, ...], "none: the record that the entry names"] = ()
    data: Annotated[DataCommitBody | None, "where it is what a data quarantine leads to"] = None

    @property
    def cause(self) -> str | None:
        """`repository@commit` of the data that it follows from; None where the records themselves are meant."""
        if self.data is None or self.data == DataCommitBody():
            return None
        return f"{self.data.repository}@{self.data.commit}"


def _quarantined(state: RunState, entry: Entry, body: QuarantinedBody) -> None:
    cause, why = body.cause, entry.reason or "quarantined"
    for identity in named(entry, body.items):
        found = state.records.get(identity)
        if found is not None and found.quarantined is not None and found.quarantined_by is None and cause is not None:
            continue  # somebody meant this very record: lifting the data's quarantine must not lift that
        change(state, identity, quarantined=why, quarantined_at=entry.recorded_at, quarantined_by=cause)


def _lifted(state: RunState, entry: Entry, body: QuarantinedBody) -> None:
    cause = body.cause
    for identity in named(entry, body.items):
        found = state.records.get(identity)
        # Lifting a data quarantine lifts only what it led to; lifting one record's lifts it whatever led to it.
        if found is not None and cause in (None, found.quarantined_by):
            change(state, identity, quarantined=None, quarantined_at=None, quarantined_by=None)


def _data_quarantined(state: SiteState, entry: Entry, body: DataCommitBody) -> None:
    state.bad_data[body.repository, body.commit] = entry.reason or "quarantined"


def _data_lifted(state: SiteState, _entry: Entry, body: DataCommitBody) -> None:
    state.bad_data.pop((body.repository, body.commit), None)


QUARANTINED: Final = Kind(name="quarantined", body=QuarantinedBody, on_run=_quarantined, of_records=True)
QUARANTINE_LIFTED: Final = Kind(
    name="quarantine_lifted",
    body=QuarantinedBody,
    on_run=_lifted,
    of_records=True,
    note="of many, only what that data quarantine had led to",
)
DATA_QUARANTINED: Final = Kind(
    name="data_quarantined", body=DataCommitBody, branch=OnBranch.SITE, on_site=_data_quarantined
)
DATA_QUARANTINE_LIFTED: Final = Kind(
    name="data_quarantine_lifted", body=DataCommitBody, branch=OnBranch.SITE, on_site=_data_lifted
)

KINDS: Final = (QUARANTINED, QUARANTINE_LIFTED, DATA_QUARANTINED, DATA_QUARANTINE_LIFTED)
