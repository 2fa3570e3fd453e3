"""Never prune this one, for a while or for good."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Final

from lakemark.model.entries.kind import EntryBody, Kind, Nothing, change
from lakemark.model.ledger.entry import Entry
from lakemark.model.ledger.run import RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBody(EntryBody):
    until: Annotated[datetime | None, "null: for good"] = None


def _held(state: RunState, entry: Entry, body: HeldBody) -> None:
    change(state, entry.record, held=entry.reason or "held", held_until=body.until)


def _released_hold(state: RunState, entry: Entry, _body: Nothing) -> None:
    change(state, entry.record, held=None, held_until=None)


HELD: Final = Kind(name="held", body=HeldBody, on_run=_held, of_records=True)
RELEASED_HOLD: Final = Kind(name="released_hold", body=Nothing, on_run=_released_hold, of_records=True)

KINDS: Final = (HELD, RELEASED_HOLD)
