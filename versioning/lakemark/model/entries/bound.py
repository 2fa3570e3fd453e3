"""A record is told more: the data it was trained with, its metrics. The commit carries it as it is then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from lakemark.model.checkpoints.record import Record
from lakemark.model.entries.kind import Data, EntryBody, Kind, change, interval
from lakemark.model.ledger.entry import Entry
from lakemark.model.ledger.run import RunState
from lakemark.model.values.codec import Size


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundBody(EntryBody):
    data: Data = ()
    at_step: Size | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricAddedBody(EntryBody):
    metrics: Mapping[str, float] = field(default_factory=dict)


def _bound(state: RunState, entry: Entry, body: BoundBody, record: Record | None) -> None:
    found = state.records.get(entry.record or "")
    if found is not None:
        change(state, entry.record, record=record or found.record.with_data(body.data))
    elif entry.record is None:
        # A `bound` without a record is what somebody declares that the run reads.
        state.intervals.append(replace(interval(state, entry, body.data, at_step=body.at_step), declared=True))


def _metric_added(state: RunState, entry: Entry, body: MetricAddedBody, record: Record | None) -> None:
    found = state.records.get(entry.record or "")
    if found is not None:
        told = record or replace(found.record, metrics={**found.record.metrics, **body.metrics})
        change(state, entry.record, record=told)


def _of_the_run(entry: Entry) -> bool:
    return entry.record is None


BOUND: Final = Kind(
    name="bound",
    body=BoundBody,
    with_record=_bound,
    of_records=True,
    of_run_too=_of_the_run,
    note="its record.json is the record with that data. Without a record: what the run reads from now on, at_step",
)
METRIC_ADDED: Final = Kind(
    name="metric_added",
    body=MetricAddedBody,
    with_record=_metric_added,
    of_records=True,
    note="its record.json is the record with them",
)

KINDS: Final = (BOUND, METRIC_ADDED)
