"""A run is opened, again and again, closed and reopened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final

from lakemark.model.entries.kind import Data, EntryBody, Kind, Nothing, interval
from lakemark.model.ledger.entry import Entry
from lakemark.model.ledger.run import RunState, Timeline
from lakemark.model.values.codec import LEFT_OUT, Size


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedBody(EntryBody):
    """What the run reads from now on, and where which node watches."""

    data: Data = ()
    parent: str | None = None
    parts: Size | None = None
    watch: Annotated[Mapping[str, str], "node: directory"] = field(default_factory=dict)
    needs_no: tuple[str, ...] = ()
    at_step: Annotated[Size | None, "from the second on: a re-pin, a new interval"] = None
    recovered: bool = field(default=False, metadata=LEFT_OUT)


def _opened(state: RunState, entry: Entry, body: OpenedBody) -> None:
    if not state.timelines:
        state.timelines[1] = Timeline(
            number=1,
            fork=None,
            opened_by="opened",
            opened_at=entry.recorded_at,
            sequence=entry.sequence,
            current_since=entry.sequence,
            current_at=entry.recorded_at,
        )
        state.parent, state.parts = body.parent, body.parts or 1
    # An `opened` of a later day adds: each node says where it watches.
    state.watch |= body.watch
    state.needs_no |= set(body.needs_no)
    state.intervals.append(interval(state, entry, body.data, at_step=body.at_step))


def _closed(state: RunState, entry: Entry, _body: Nothing) -> None:
    state.closed, state.closed_at = True, entry.recorded_at


def _reopened(state: RunState, _entry: Entry, _body: Nothing) -> None:
    state.closed, state.closed_at = False, None


OPENED: Final = Kind(name="opened", body=OpenedBody, on_run=_opened)
CLOSED: Final = Kind(name="closed", body=Nothing, on_run=_closed)
REOPENED: Final = Kind(name="reopened", body=Nothing, on_run=_reopened)

KINDS: Final = (OPENED, CLOSED, REOPENED)
