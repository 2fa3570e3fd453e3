"""Add metrics to a record: what evaluations find out later. The record keeps its id; retention's `best` goes by the newest."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from lakemark.errors import Usage
from lakemark.model.checkpoints.record import Record
from lakemark.model.entries.bound import METRIC_ADDED, MetricAddedBody
from lakemark.model.ledger.entry import Attachments, Draft
from lakemark.model.ledger.run import RunState
from lakemark.model.values.canonical import digest
from lakemark.ports import Site
from lakemark.services.ledger import opened, recorded, require_writable

_LONGEST_NAME = 200


def add_metrics(site: Site, run: str, record: str, metrics: Mapping[str, float], *, reason: str) -> Record:
    """The record with `metrics`, of which a new value takes an old one's place. What it says already is not said again.

    Raises Usage (none, a name that is empty or longer than 200 characters, no finite number), NotFound, Refused.
    """
    if not metrics:
        raise Usage("no metric is given", advice="Write NAME=NUMBER, such as mmlu=0.61.")
    require_numbers(metrics)
    recorded(opened(site, run), record)

    def decide(state: RunState) -> Draft | None:
        require_writable(state)
        found = state.records[record].record
        new: dict[str, float] = {name: value for name, value in metrics.items() if found.metrics.get(name) != value}
        if not new:
            return None
        return METRIC_ADDED.draft(
            MetricAddedBody(metrics=new),
            timeline=found.timeline,
            record=record,
            contents=Attachments(record=replace(found, metrics={**found.metrics, **new})),
            reason=reason,
        )

    # With the sequence: a value may go from one to another and back.
    sequence = site.ledger.run(run).sequence
    request = f"metric:{record}:{digest({**metrics})[:16]}:{sequence}"
    return site.ledger.append(run, decide, site.stamp(request)).state.records[record].record


def require_numbers(metrics: Mapping[str, float]) -> None:
    """Raises Usage for what is no metric's name or value."""
    for name, value in metrics.items():
        if not 0 < len(name) <= _LONGEST_NAME:
            raise Usage(f"a metric's name has {len(name)} characters, not 1 to {_LONGEST_NAME}", advice="Shorten it.")
        if not math.isfinite(value):
            raise Usage(
                f"the metric {name} is {value}, not a finite number", advice="Leave a metric that has no value out."
            )
