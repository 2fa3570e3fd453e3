"""Taking entries in: each is stored, and the states of the records it mentions are folded on by `model.fold`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from typing import Final

from lakemark.errors import Corrupt
from lakemark.index.states import LazyRecords, Raw, from_row, micros, optional_micros, to_row
from lakemark.model.entries.committed import gains
from lakemark.model.entries.fold import apply, mark, mentions, structural, take
from lakemark.model.ledger.clocks import Clocks
from lakemark.model.ledger.entry import SITE, Attachments, Entry, parsed
from lakemark.model.ledger.requests import Requests
from lakemark.model.ledger.run import RecordState, RunState
from lakemark.model.runs.lives import Gain
from lakemark.model.runs.timeline import forked_from, segments
from lakemark.model.values.persistent import Layered, Rows
from lakemark.ports.ledger import KnownRun

Row = tuple[str, bytes, bytes | None]
_FORKING: Final = ("resumed", "rolled_back")
_FIRST_LINEAGE: Final = "[[[1,null]],[],[]]"
_GAINS: Final = {2: Gain.AHEAD, 3: Gain.CURRENT}


def tip(connection: sqlite3.Connection, branch: str) -> tuple[str, int] | None:
    """Revision and sequence of the newest entry of `branch`."""
    found = connection.execute("SELECT revision, sequence FROM branches WHERE branch = ?", (branch,)).fetchone()
    return None if found is None else (found[0], found[1])


def add(connection: sqlite3.Connection, branch: str, rows: Iterable[Row]) -> None:
    """Stores and folds the next entries of `branch`, inside the caller's transaction. Corrupt where they are not next."""
    revision, sequence = tip(connection, branch) or ("", 0)
    batch = _Batch(connection, branch)
    for revision, data, record in rows:
        entry, contents = parsed(data, record)
        sequence += 1
        if entry.branch != branch or entry.sequence != sequence:
            raise Corrupt(
                f"entry {sequence} of {branch} is said to be entry {entry.sequence} of {entry.branch}",
                advice="Run `git log` in the ledger: somebody wrote to it by hand.",
            )
        of_run = 1 if branch == SITE else batch.fold(entry, contents)
        tier = _tier(entry)
        connection.execute(
            "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (branch, sequence, revision, entry.kind, of_run, entry.record, tier, entry.request, data, record),
        )
    if sequence:
        connection.execute(
            "INSERT INTO branches VALUES (?, ?, ?, ?, ?) ON CONFLICT (branch) "
            "DO UPDATE SET revision = excluded.revision, sequence = excluded.sequence, clocks = excluded.clocks",
            (branch, revision, sequence, _FIRST_LINEAGE, json.dumps(batch.clocks.as_json())),
        )
    batch.finish()


def structure(connection: sqlite3.Connection, run: str) -> RunState:
    """The run's state without its records."""
    state = RunState(run=run)
    rows = connection.execute(
        "SELECT entry, record, structural FROM entries WHERE branch = ? AND structural ORDER BY sequence", (run,)
    )
    for data, carried, how in rows:
        entry, contents = parsed(data, carried)
        gained = _GAINS.get(how)
        # What a save brought its timeline was worked out when all records were at hand; here are none.
        if gained is not None and contents.record is not None:
            gains(state, entry, contents.record, gained)
        else:
            apply(state, entry, contents)
    newest = connection.execute(
        "SELECT entry FROM entries WHERE branch = ? ORDER BY sequence DESC LIMIT 1", (run,)
    ).fetchone()
    if newest is not None:
        entry, _ = parsed(newest[0], None)
        state.sequence, state.last_recorded_at = entry.sequence, entry.recorded_at
    # The few that structural entries mention are not all there are: none rather than some.
    state.records, state.unpruned, state.by_step = Layered(), Layered(), {}
    state.requests = Requests()
    state.clocks = _clocks(connection, run)
    return state


def known(connection: sqlite3.Connection, run: str) -> KnownRun | None:
    """The run as of its tip, inside the caller's transaction."""
    if tip(connection, run) is None:
        return None
    state = structure(connection, run)
    revisions: list[str] = []
    replicated: dict[tuple[str, str], int] = {}
    rows = connection.execute(
        "SELECT sequence, revision, request, of, tier FROM entries WHERE branch = ? ORDER BY sequence", (run,)
    )
    for sequence, revision, request, record, tier in rows:
        revisions.append(revision)
        state.requests.add(request, sequence)
        if tier is not None and record is not None:
            replicated[record, tier] = sequence
    raw: dict[str, Raw] = {}
    unpruned: dict[str, int] = {}
    by_step: dict[int, list[tuple[int, int, str]]] = {}
    rows = connection.execute(
        "SELECT r.record, r.timeline, r.step, r.sequence, r.pruned, r.state, e.record FROM records r "
        "LEFT JOIN entries e ON e.branch = r.branch AND e.sequence = r.origin WHERE r.branch = ? ORDER BY r.sequence",
        (run,),
    )
    for record, timeline, step, sequence, pruned, found, carried in rows:
        raw[record] = (found, carried)
        if pruned is None:
            unpruned[record] = sequence
        by_step.setdefault(timeline, []).append((step, sequence, record))
    state.records, state.unpruned = Layered(LazyRecords(raw)), Layered(unpruned)
    state.by_step = {timeline: Rows(steps) for timeline, steps in by_step.items()}
    return KnownRun(state=state, revisions=revisions, replicated=replicated)


def _tier(entry: Entry) -> str | None:
    tier = entry.body.get("tier")
    return tier if entry.kind == "replicated" and isinstance(tier, str) else None


def _clocks(connection: sqlite3.Connection, branch: str) -> Clocks:
    found = connection.execute("SELECT clocks FROM branches WHERE branch = ?", (branch,)).fetchone()
    return Clocks() if found is None else Clocks.from_json(json.loads(found[0]))


class _Batch:
    """The records that a batch of entries mentions, while they are folded on."""

    def __init__(self, connection: sqlite3.Connection, branch: str) -> None:
        self._connection = connection
        self._branch = branch
        self._state = RunState(run=branch, clocks=_clocks(connection, branch))
        self._origin: dict[str, int | None] = {}
        self._instants: dict[str, int] = {}
        self._touched: dict[str, None] = {}
        self._new: set[str] = set()
        self._forked = False
        found = connection.execute("SELECT lineage FROM branches WHERE branch = ?", (branch,)).fetchone()
        self._bounds, self._forks, doubted = json.loads(found[0] if found else _FIRST_LINEAGE)
        self._doubted: set[int] = set(doubted)
        self._whole: RunState | None = None

    @property
    def clocks(self) -> Clocks:
        return self._state.clocks

    def fold(self, entry: Entry, contents: Attachments) -> int:
        """Answers what the entry says of the run itself, as `structural` has it."""
        gained = self._gained(entry, contents)
        marks = self._state.clocks.add(entry)
        # Also those whose time is now doubted: a later entry can tell that a clock had jumped.
        named = mentions(entry, contents) | {one.record for one in marks}
        # Only the records that these entries mention: a run may have a hundred thousand.
        for record in named - self._state.records.keys():
            self._load(record)
        before, blocked = named & self._state.records.keys(), len(self._state.unknown)
        take(self._state, entry, contents)
        mark(self._state, marks)
        known = named & self._state.records.keys()
        new = known - before
        self._new |= new
        self._touched |= dict.fromkeys(sorted(known))
        # Their record.json lies in this entry's row, and need not be kept twice.
        self._origin |= dict.fromkeys(new, entry.sequence)
        if entry.kind in ("bound", "metric_added") and entry.record is not None and entry.record in self._state.records:
            self._origin[entry.record] = entry.sequence if contents.record else None
        self._forked = self._forked or entry.kind in _FORKING or gained is Gain.CURRENT
        # Who starts a process in a timeline in doubt makes it the current one.
        self._forked = self._forked or (entry.kind == "attempt" and bool(self._doubted))
        if gained is not None:
            return next(how for how, one in _GAINS.items() if one is gained)
        return int(structural(entry) or len(self._state.unknown) > blocked)

    def _gained(self, entry: Entry, contents: Attachments) -> Gain | None:
        """What the entry brings a timeline in doubt. Only for that all records of the run are asked."""
        if entry.kind == "resumed" and entry.body.get("inferred") is True:
            self._doubted.add(entry.timeline)
        if self._whole is None and entry.kind == "committed" and entry.timeline in self._doubted:
            self._whole = self._as_whole()
        if self._whole is None:
            return None
        before = self._whole.timelines.get(entry.timeline)
        take(self._whole, entry, contents)
        after = self._whole.timelines.get(entry.timeline)
        if entry.kind != "committed" or before is None or after is None or before == after:
            return None
        return Gain.AHEAD if after.current_since == before.current_since else Gain.CURRENT

    def _as_whole(self) -> RunState:
        """The run's state as of the entries before, with all its records."""
        found = known(self._connection, self._branch)
        state = structure(self._connection, self._branch) if found is None else found.state
        # What this batch brought is not written yet.
        state.records.update(self._state.records)
        for record in self._new:
            state.add(self._state.records[record])
        return state

    def finish(self) -> None:
        """Writes the records; where timelines were opened, decides anew which records the current lineage has."""
        for record in self._touched:
            state = self._state.records[record]
            current = any(
                number == state.record.timeline
                and (
                    bound is None or state.record.step < bound or (state.record.step == bound and record in self._forks)
                )
                for number, bound in self._bounds
            )
            self._write(record, state, current=current)
        # Once for the batch: it goes through all records of the run.
        if self._forked:
            self._decide_lineage()

    def _load(self, record: str) -> None:
        """What the index holds of the record, to be folded on; nothing where it is new."""
        found = self._connection.execute(
            "SELECT r.state, r.origin, e.record FROM records r "
            "LEFT JOIN entries e ON e.branch = r.branch AND e.sequence = r.origin WHERE r.record = ? AND r.branch = ?",
            (record, self._branch),
        ).fetchone()
        if found is not None:
            self._state.records[record] = from_row(found[0], found[2])
            self._origin[record] = found[1]
            self._instants[record] = micros(self._state.records[record].instant)

    def _write(self, record: str, state: RecordState, *, current: bool) -> None:
        origin, instant = self._origin[record], micros(state.instant)
        tiers = "".join(f"\n{tier}\n" for tier in sorted({place.tier for place in state.replicas}))
        changing = (
            origin,
            state.stands,
            instant,
            optional_micros(state.quarantined_at),
            optional_micros(state.pruned_at),
            tiers,
            to_row(state, whole=origin is None),
        )
        if record not in self._new:
            self._connection.execute(
                "UPDATE records SET origin = ?, stands = ?, instant = ?, quarantined = ?, pruned = ?, tiers = ?, state = ? "
                "WHERE record = ?",
                (*changing, record),
            )
            if instant < self._instants[record]:  # its clock had jumped ahead, as a later entry told
                self._connection.execute(
                    "UPDATE records SET earliest = ? WHERE record = ?", (self._lower(state, instant), record)
                )
            return
        timeline, step = state.record.timeline, state.record.step
        self._connection.execute(
            "INSERT INTO records (origin, stands, instant, quarantined, pruned, tiers, state, "
            "record, branch, sequence, timeline, step, current, recorded, earliest) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *changing,
                *(record, self._branch, state.sequence, timeline, step, current, micros(state.recorded_at)),
                self._lower(state, instant),
            ),
        )

    def _lower(self, state: RecordState, instant: int) -> int:
        """`earliest` of a record that is new or dated earlier than before, brought to those below it that it undercuts."""
        place = (self._branch, state.record.timeline, state.record.step, state.sequence)
        above = self._connection.execute(
            "SELECT earliest FROM records WHERE branch = ? AND timeline = ? AND (step, sequence) > (?, ?) "
            "ORDER BY step, sequence LIMIT 1",
            place,
        ).fetchone()
        earliest = instant if above is None else min(instant, int(above[0]))
        self._connection.execute(
            "UPDATE records SET earliest = ? WHERE branch = ? AND timeline = ? AND (step, sequence) < (?, ?) "
            "AND earliest > ?",
            (earliest, *place, earliest),
        )
        return earliest

    def _decide_lineage(self) -> None:
        state = structure(self._connection, self._branch)
        bounds, forks = list(segments(state)), sorted(forked_from(state))
        doubted = [one.number for one in state.in_doubt]
        self._connection.execute(
            "UPDATE branches SET lineage = ? WHERE branch = ?", (json.dumps([bounds, forks, doubted]), self._branch)
        )
        self._connection.execute("UPDATE records SET current = 0 WHERE branch = ?", (self._branch,))
        for number, bound in bounds:
            self._connection.execute(
                "UPDATE records SET current = 1 WHERE branch = ? AND timeline = ? "
                "AND (? IS NULL OR step < ? OR (step = ? AND record IN (SELECT value FROM json_each(?))))",
                (self._branch, number, bound, bound, bound, json.dumps(forks)),
            )
