"""Questions to the index, in SQL; the answers are those of `model.timeline` on the whole state."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from lakemark.errors import NoRecordAsOf, NotFound, Usage, quoted
from lakemark.index.states import from_row, micros
from lakemark.model.ledger.run import RecordState, RunState
from lakemark.model.runs.timeline import forked_from, segments
from lakemark.model.values import outside
from lakemark.model.values.wording import instant as told

_STATES: Final = (
    "SELECT r.state, e.record, r.recorded, r.branch, r.sequence FROM records r "
    "LEFT JOIN entries e ON e.branch = r.branch AND e.sequence = r.origin "
)
_SHOWN_CANDIDATES: Final = 10
# Above every instant and sequence, and within SQLite's 64 bits.
_FOREVER: Final = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which records to list, newest first. since, until: bounds of the instant as-of compares, both included.

    run: None lists all runs', by time. all_timelines: else only the current lineage. pruned: list those too.
    limit: at least 1. after: `Page.next` of the page before.
    """

    run: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    tier: str | None = None
    all_timelines: bool = False
    pruned: bool = False
    limit: int = 50
    after: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """`next` continues the listing; None: this was the last page."""

    records: tuple[RecordState, ...]
    next: str | None


def records(connection: sqlite3.Connection, wanted: Selection) -> Page:
    """A page of `wanted`. Raises Usage for a cursor of another listing."""
    clauses: list[str] = []
    values: list[Any] = []

    def where(clause: str, *given: object) -> None:
        clauses.append(clause)
        values.extend(given)

    if wanted.run is not None:
        where("r.branch = ?", wanted.run)
    if wanted.since is not None:
        where("r.instant >= ?", micros(wanted.since))
    if wanted.until is not None:
        where("r.instant <= ?", micros(wanted.until))
    if wanted.tier is not None:
        # Framed on both sides: `warm` must not be found in `warm-2`.
        where("instr(r.tiers, ?) > 0", f"\n{wanted.tier}\n")
    if not wanted.all_timelines:
        where("r.current")
    if not wanted.pruned:
        where("r.pruned IS NULL")
    if wanted.after is not None:
        recorded, sequence, branch = _cursor(wanted.after)
        if wanted.run is not None:
            where("r.sequence < ?", sequence)
        else:
            where("(r.recorded, r.branch, r.sequence) < (?, ?, ?)", recorded, branch, sequence)
    order = "r.sequence DESC" if wanted.run is not None else "r.recorded DESC, r.branch DESC, r.sequence DESC"
    chosen = " AND ".join(clauses) or "1"
    rows = connection.execute(
        f"{_STATES} WHERE {chosen} ORDER BY {order} LIMIT ?",
        # One more than is shown tells whether there is a next page.
        (*values, wanted.limit + 1),
    ).fetchall()
    shown = rows[: wanted.limit]
    more = len(rows) > len(shown)
    return Page(
        records=tuple(from_row(row[0], row[1]) for row in shown),
        next=f"{shown[-1][2]}.{shown[-1][4]}.{shown[-1][3]}" if more and shown else None,
    )


def held_in(connection: sqlite3.Connection, tier: str, *, but: Collection[str]) -> tuple[int, int]:
    """Unpruned records with a replica in `tier`, and how many of them have none in any tier that is not in `but`, or it.

    Reads one column of every record: for questions that are asked where something is wrong.
    """
    rest = "tiers"
    lines = [f"\n{name}\n" for name in dict.fromkeys((tier, *but))]
    for _ in lines:
        # Taken out one by one: what is empty in the end lies in no other tier.
        rest = f"replace({rest}, ?, '')"
    row = connection.execute(
        f"SELECT count(*), sum({rest} = '') FROM records WHERE pruned IS NULL AND instr(tiers, ?) > 0",  # noqa: S608
        (*lines, f"\n{tier}\n"),
    ).fetchone()
    return int(row[0]), int(row[1] or 0)


def find(connection: sqlite3.Connection, prefix: str, run: str | None) -> RecordState:
    """The record whose id begins with `prefix` (hex). Raises NotFound; Usage, with candidates, where several do."""
    text = prefix.lower()
    if not text or set(text).difference("0123456789abcdef"):
        raise Usage(
            f"{quoted(prefix)} is no record id: it has other characters than hex digits", advice="See `lakemark ls`."
        )
    rows = connection.execute(
        f"{_STATES} WHERE r.record >= ? AND r.record < ? AND (? IS NULL OR r.branch = ?) LIMIT ?",
        # `g` is the first character behind hex digits: so the index by id serves.
        (text, text + "g", run, run, _SHOWN_CANDIDATES + 1),
    ).fetchall()
    if not rows:
        place = f"{run} has" if run else "there is"
        raise NotFound(f"{place} no record {text[:64]}", advice="See `lakemark ls --all-timelines --pruned`.")
    found = [from_row(row[0], row[1]) for row in rows]
    if len(found) > 1:
        named = [f"{one.record.id[:16]} ({one.record.run}@{one.record.step})" for one in found[:_SHOWN_CANDIDATES]]
        more = ", …" if len(found) > _SHOWN_CANDIDATES else ""
        raise Usage(f"{text} begins several record ids: {', '.join(named)}{more}", advice="Give more digits.")
    return found[0]


@dataclass(frozen=True, slots=True)
class Line:
    """A lineage to look along: `RunState` without records, and the timeline it begins at (None: the current)."""

    state: RunState
    timeline: int | None = None


def as_of(connection: sqlite3.Connection, line: Line, at: datetime, *, known_then: bool) -> RecordState:
    """As `model.timeline.as_of`. Raises NoRecordAsOf."""
    instant = micros(at)
    found = _first(connection, line, instant, known=instant if known_then else None)
    if found is not None:
        return found
    run = line.state.run
    oldest = _oldest(connection, line)
    tail = f"the oldest is step {oldest.record.step} of {told(oldest.instant)}" if oldest else "it has none at all"
    raise NoRecordAsOf(
        f"{run} has no record at or before {told(at)} in its lineage; {tail}",
        advice=f"List what there is with `lakemark ls {run} --all-timelines`.",
    )


def latest(connection: sqlite3.Connection, line: Line) -> RecordState | None:
    """As `model.timeline.latest`."""
    return _first(connection, line, _FOREVER, known=None)


def _first(connection: sqlite3.Connection, line: Line, instant: int, *, known: int | None) -> RecordState | None:
    """The lineage's first record with an instant up to `instant`, not quarantined or pruned (up to `known`, or at all)."""
    forks = json.dumps(sorted(forked_from(line.state, line.timeline)))
    for number, bound in segments(line.state, line.timeline):
        # Above this one every instant is later.
        top = connection.execute(
            "SELECT step, sequence FROM records WHERE branch = ? AND timeline = ? AND earliest <= ? "
            "ORDER BY earliest DESC, step DESC, sequence DESC LIMIT 1",
            (line.state.run, number, instant),
        ).fetchone()
        if top is None:
            continue
        found = connection.execute(
            f"{_STATES} WHERE r.branch = :run AND r.timeline = :timeline AND (r.step, r.sequence) <= (:step, :sequence) "  # noqa: S608
            "AND r.instant <= :instant "
            "AND (:bound IS NULL OR r.step < :bound "
            "  OR (r.step = :bound AND r.record IN (SELECT value FROM json_each(:forks)))) "
            "AND (r.stands OR r.record IN (SELECT value FROM json_each(:forks))) "
            "AND (r.quarantined IS NULL OR r.quarantined > :known) AND (r.pruned IS NULL OR r.pruned > :known) "
            "ORDER BY r.step DESC, r.sequence DESC LIMIT 1",
            {
                "run": line.state.run,
                "timeline": number,
                "step": top[0] if bound is None else min(top[0], bound),
                "sequence": top[1] if bound is None or top[0] <= bound else _FOREVER,
                "instant": instant,
                "bound": bound,
                "forks": forks,
                "known": known,
            },
        ).fetchone()
        if found is not None:
            return from_row(found[0], found[1])
    return None


def _oldest(connection: sqlite3.Connection, line: Line) -> RecordState | None:
    forks = json.dumps(sorted(forked_from(line.state, line.timeline)))
    oldest: RecordState | None = None
    for number, bound in segments(line.state, line.timeline):
        row = connection.execute(
            f"{_STATES} WHERE r.branch = ? AND r.timeline = ? "  # noqa: S608
            "AND (? IS NULL OR r.step < ? OR (r.step = ? AND r.record IN (SELECT value FROM json_each(?)))) "
            "AND (r.stands OR r.record IN (SELECT value FROM json_each(?))) "
            "ORDER BY r.instant, r.step DESC, r.sequence DESC LIMIT 1",
            (line.state.run, number, bound, bound, bound, forks, forks),
        ).fetchone()
        found = None if row is None else from_row(row[0], row[1])
        if found is not None and (oldest is None or found.instant < oldest.instant):
            oldest = found
    return oldest


def _cursor(text: str) -> tuple[int, int, str]:
    """What `Page.next` holds. Raises Usage."""
    recorded, _, rest = text.partition(".")
    sequence, _, branch = rest.partition(".")
    try:
        return outside.decimal(recorded), outside.decimal(sequence), branch
    except ValueError:
        raise Usage(f"{quoted(text)} is no cursor of a listing", advice="Give `next` of the page before.") from None
