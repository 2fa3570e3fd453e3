"""The index as others use it: the ledger's `EntryCache`, and a reader's questions."""

from __future__ import annotations

import re
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, Protocol, TypeVar

from lakemark.errors import Corrupt, Denied, LakemarkError, NoRoom, NotFound, StoreUnavailable
from lakemark.index import database, filling, reading
from lakemark.index.filling import Row
from lakemark.index.private import private_folders
from lakemark.index.reading import Line, Page, Selection
from lakemark.model.entries.fold import apply_site
from lakemark.model.ledger.entry import SITE, Entry, parsed
from lakemark.model.ledger.run import RecordState, RunState
from lakemark.model.ledger.site import SiteState
from lakemark.ports.ledger import KnownRun

T = TypeVar("T")

_REPLACED: Final = re.compile(r"(?P<branch>\S+): the history was replaced; entry \d+ was (?P<revision>\S+)")
_CHUNK: Final = 2000
_TRIES: Final = 20
_ASIDE_SECONDS: Final = 60.0


class _LockedError(Exception):
    """Another process kept the file to itself."""


class Source(Protocol):
    """What the index is derived from: a ledger that can say where its branches are."""

    def tips(self) -> Mapping[str, str]:
        """Revision of the newest entry of each branch."""

    def rows(self, branch: str, *, onto: str | None) -> Iterator[Row] | None:
        """(revision, entry.json, record.json or None) after `onto`; None where `onto` is not of the branch's history."""


class Index:
    """An index file. Safe to use from several threads and processes; what it answers is as of the last `catch_up`.

    read_only: asks what another process fills, and raises NotFound where nobody did yet. A file found damaged is made
    anew: from the source of the last `catch_up`, else it is Corrupt this once. Where another process keeps the file locked
    for a second, a private one takes its place for a while, filled from the ledger anew.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        self._shared = path
        self._again_at = 0.0
        self._connection: sqlite3.Connection | None = None
        self._private: weakref.finalize[..., Index] | None = None
        self._read_only = read_only
        self._guard = threading.RLock()
        self._source: Source | None = None
        self._structures: dict[str, tuple[str, RunState]] = {}
        self._site: tuple[str | None, SiteState] = None, SiteState()
        self._open()

    def close(self) -> None:
        """Ends it; nothing can be asked afterwards."""
        with self._guard:
            self._open_one.close()

    # What the ledger keeps here between processes: a failure costs time, never an append.

    def tip(self, branch: str) -> tuple[str, int] | None:
        return self._tried(lambda connection: filling.tip(connection, branch), None)

    def rows(self, branch: str) -> Iterator[Row]:
        sequence = 0
        while True:
            nothing: list[Row] = []
            found = self._tried(partial(_rows, branch=branch, after=sequence), nothing)
            yield from found
            if len(found) < _CHUNK:
                return
            sequence += len(found)

    def extend(self, branch: str, rows: Iterable[Row], *, onto: str | None) -> bool:
        return self._tried(partial(_extend, branch=branch, rows=rows, onto=onto), False)  # noqa: FBT003

    def known(self, run: str) -> KnownRun | None:
        return self._tried(partial(_known, run=run), None)

    def forget(self, branch: str) -> None:
        self._tried(partial(_forget, branch=branch), None)

    # Filling it.

    def is_current(self, tips: Mapping[str, str]) -> bool:
        """Whether it holds exactly what a ledger with these tips holds."""
        return self._asked(_tips) == dict(tips)

    def catch_up(self, source: Source) -> None:
        """Takes in what `source` has more. A history that is no continuation is taken in anew, with an alarm.

        Where it can't be written any more, a private one takes its place. Raises StoreUnavailable where others keep filling
        it; where that one can't be written either, NoRoom or Denied.
        """
        self._source = source
        for _ in range(_TRIES):
            # In rounds: the ledger goes on while what it had is taken in.
            tips, known = source.tips(), self._asked(_tips)
            if known == dict(tips):
                return
            try:
                self._fill(source, tips, known)
            except _LockedError:
                # Whoever holds the file may be filling it with the same: only where nothing came of that, go elsewhere.
                if self._asked(_tips) == known:
                    self._go_aside()
            except (Denied, NoRoom):
                # Opened before its disk was full or read-only: readers need it, and it is worth nothing of its own.
                if self._read_only or self.path != self._shared:
                    raise
                self._go_aside()
        raise StoreUnavailable(f"the index {self.path} can't keep up with its ledger", advice="Try again.")

    def _fill(self, source: Source, tips: Mapping[str, str], known: Mapping[str, str]) -> None:
        for branch in known.keys() - tips.keys():
            self._changed(partial(_forget, branch=branch))
        for branch, revision in tips.items():
            if known.get(branch) != revision:
                self._catch_up(source, branch, known.get(branch))

    def _catch_up(self, source: Source, branch: str, onto: str | None) -> None:
        """Takes in one branch, some rows at a time, so that no other process waits long for the file."""
        rows = source.rows(branch, onto=onto)
        if rows is None:
            self._changed(partial(_forget, branch=branch))
            rows, onto = source.rows(branch, onto=None), None
        while rows is not None and (chunk := list(islice(rows, _CHUNK))):
            # Another process took them in meanwhile; `catch_up` looks again at how far that one is.
            if not self._changed(partial(_extend, branch=branch, rows=chunk, onto=onto)):
                return
            onto = chunk[-1][0]

    # What readers ask.

    def alarms(self) -> tuple[str, ...]:
        """What was found wrong with the ledger while taking it in, in words; kept until the file is made anew."""
        return self._asked(_alarms)

    def replaced(self) -> tuple[tuple[str, str, str], ...]:
        """(branch, tip as it was, in words) of histories that were replaced by others while they were taken in."""
        found = (_REPLACED.fullmatch(alarm) for alarm in self.alarms())
        return tuple((one["branch"], one["revision"], one[0]) for one in found if one is not None)

    def forget_alarms(self) -> None:
        """A recovery said what became of what they told."""
        self._asked(_forget_alarms)

    def runs(self) -> tuple[str, ...]:
        """Names of all runs, sorted."""
        return tuple(branch for branch in sorted(self._asked(_tips)) if branch != SITE)

    def count(self, run: str) -> int:
        """How many records the run has, in all timelines, pruned or not."""
        return self._asked(partial(_count, run=run))

    def structure(self, run: str) -> RunState:
        """The run's state without its records and their entries' `requests`. Do not change it."""
        with self._guard:
            now = self._asked(lambda connection: filling.tip(connection, run))
            revision = now[0] if now else ""
            known = self._structures.get(run)
            if known is None or known[0] != revision:
                known = (revision, self._asked(lambda connection: filling.structure(connection, run)))
                self._structures[run] = known
            return known[1]

    def site(self) -> SiteState:
        """The site's state; only entries that came since it was asked for are read. Do not change it."""
        with self._guard:
            revision, state = self._site
            after = partial(_site_after, revision=revision, sequence=state.sequence)
            goes_on, rows = self._asked(after)
            if not goes_on:
                revision, state = None, SiteState()
            if rows:
                # Whoever has the old one must not see what came since.
                revision, state = rows[-1][0], state.snapshot()
                for _, data in rows:
                    apply_site(state, *parsed(data, None))
            self._site = revision, state
            return state

    def records(self, wanted: Selection) -> Page:
        """A page of records, newest first."""
        return self._asked(lambda connection: reading.records(connection, wanted))

    def held_in(self, tier: str, *, but: Collection[str] = ()) -> tuple[int, int]:
        """How many unpruned records have a replica in `tier`, and how many of them only there, or in those of `but`."""
        return self._asked(lambda connection: reading.held_in(connection, tier, but=but))

    def find(self, prefix: str, *, run: str | None = None) -> RecordState:
        """The record whose id begins with `prefix`. Raises NotFound, and Usage with candidates where several do."""
        return self._asked(lambda connection: reading.find(connection, prefix, run))

    def as_of(self, run: str, at: datetime, *, timeline: int | None = None, known_then: bool = False) -> RecordState:
        """As `model.timeline.as_of`. Raises NoRecordAsOf."""
        line = Line(self.structure(run), timeline)
        return self._asked(lambda connection: reading.as_of(connection, line, at, known_then=known_then))

    def latest(self, run: str, *, timeline: int | None = None) -> RecordState | None:
        """As `model.timeline.latest`."""
        line = Line(self.structure(run), timeline)
        return self._asked(lambda connection: reading.latest(connection, line))

    def log(self, branch: str, *, limit: int | None = None) -> tuple[Entry, ...]:
        """The newest `limit` entries (None: all) of a run or of `site`, in order of sequence."""
        return tuple(self._asked(partial(_entries, branch=branch, newest=limit)))

    def revision(self, branch: str, sequence: int) -> str:
        """The entry's commit. Raises NotFound."""
        found = self._asked(partial(_revision, branch=branch, sequence=sequence))
        if found is None:
            raise NotFound(f"{branch} has no entry {sequence}", advice=f"See `lakemark log {branch}`.")
        return found

    # How it asks.

    def _asked(self, ask: Callable[[sqlite3.Connection], T]) -> T:
        """What only reads; of a file that somebody keeps to himself, the answer of a private one."""
        with self._guard:
            try:
                return self._changed(ask)
            except _LockedError:
                self._go_aside()
            return self._changed(ask)

    def _changed(self, ask: Callable[[sqlite3.Connection], T]) -> T:
        """The answer; of a damaged file once it was made anew. Raises _LockedError where another process keeps it."""
        with self._guard, database.translated(self.path):
            try:
                return ask(self._present())
            except (sqlite3.DatabaseError, ValueError) as error:
                if database.is_locked(error):
                    raise _LockedError from error
                if isinstance(error, sqlite3.Error) and not database.is_damage(error):
                    raise
                self._make_anew(error)
            return ask(self._open_one)

    def _tried(self, ask: Callable[[sqlite3.Connection], T], otherwise: T) -> T:
        """The answer, or `otherwise` where the file or its disk fails: an append must not fail for a cache."""
        with self._guard:
            try:
                return ask(self._present())
            except sqlite3.Error as error:
                with suppress(LakemarkError, OSError):
                    if database.is_locked(error):
                        self._go_aside()
                    elif database.is_damage(error) and not self._read_only:
                        self._replace()
                return otherwise
            except (LakemarkError, OSError):
                return otherwise

    def _go_aside(self) -> None:
        """A private file, empty, takes the place of the one that is locked. Raises StoreUnavailable where there is none."""
        for folder in () if self._read_only or self.path != self._shared else private_folders():
            try:
                made = database.opened(folder.path / "index.sqlite", read_only=False)
            except LakemarkError:
                folder.remove()
                continue
            # It goes with this index, or with the process: nobody else knows of it.
            self._private = weakref.finalize(self, folder.remove)
            if self._connection is not None:
                self._connection.close()
            self._structures.clear()
            self.path, self._connection = folder.path / "index.sqlite", made
            self._opened = self._identity()
            self._again_at = time.monotonic() + _ASIDE_SECONDS
            return
        raise StoreUnavailable(
            f"the index {self._shared} is locked by another process",
            advice="See which one works there, or is stopped; try again.",
        )

    def _come_back(self) -> None:
        """To the shared file, where its time has come."""
        self._open_one.close()
        self._structures.clear()
        if self._private is not None:
            self._private()
        self.path = self._shared
        self._open()

    def _present(self) -> sqlite3.Connection:
        """The connection; a new one where another process made the file anew."""
        if self.path != self._shared and time.monotonic() > self._again_at:
            self._come_back()
        # By inode: a damaged file is replaced by a new one, and who has the old one open would go on with that.
        if self._identity() != self._opened:
            self._open_one.close()
            self._open()
        return self._open_one

    @property
    def _open_one(self) -> sqlite3.Connection:
        if self._connection is None:
            message = "the index was never opened"
            raise sqlite3.ProgrammingError(message)
        return self._connection

    def _open(self) -> None:
        try:
            self._connection = database.opened(self.path, read_only=self._read_only)
        except StoreUnavailable:
            self._go_aside()
        self._opened = self._identity()

    def _identity(self) -> tuple[int, int] | None:
        try:
            found = self.path.stat()
        except OSError:  # gone, or its disk fails: opening it anew says which
            return None
        return found.st_dev, found.st_ino

    def _make_anew(self, error: Exception) -> None:
        """Raises Corrupt where there is nothing to fill it from, or where this process may not write."""
        if self._read_only:
            raise Corrupt(
                f"the index {self.path} is damaged: {error}",
                advice="Any lakemark command that may write makes it anew.",
            ) from error
        self._replace()
        if self._source is None:
            raise Corrupt(
                f"the index {self.path} was damaged ({error}) and is made anew", advice="Give the same command again."
            ) from error
        # Taken away meanwhile: a disk that damages the new file too must not have us begin for ever.
        source, self._source = self._source, None
        self.catch_up(source)

    def _replace(self) -> None:
        self._open_one.close()
        self._structures.clear()
        database.remove(self.path)
        self._open()


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _tips(connection: sqlite3.Connection) -> dict[str, str]:
    return dict(connection.execute("SELECT branch, revision FROM branches"))


def _alarms(connection: sqlite3.Connection) -> tuple[str, ...]:
    return tuple(row[0] for row in connection.execute("SELECT alarm FROM alarms"))


def _forget_alarms(connection: sqlite3.Connection) -> None:
    with _transaction(connection):
        connection.execute("DELETE FROM alarms")


def _rows(connection: sqlite3.Connection, *, branch: str, after: int) -> list[Row]:
    return connection.execute(
        "SELECT revision, entry, record FROM entries WHERE branch = ? AND sequence > ? ORDER BY sequence LIMIT ?",
        (branch, after, _CHUNK),
    ).fetchall()


def _extend(connection: sqlite3.Connection, *, branch: str, rows: Iterable[Row], onto: str | None) -> bool:
    with _transaction(connection):
        known = filling.tip(connection, branch)
        # Inside the transaction: of two processes that read the same rows, one adds them.
        if (known[0] if known else None) != onto:
            return False
        filling.add(connection, branch, rows)
    return True


def _known(connection: sqlite3.Connection, *, run: str) -> KnownRun | None:
    # One view of all tables, whatever another process writes between the questions.
    connection.execute("BEGIN")
    try:
        return filling.known(connection, run)
    finally:
        connection.execute("COMMIT")


def _forget(connection: sqlite3.Connection, *, branch: str) -> None:
    with _transaction(connection):
        known = filling.tip(connection, branch)
        for table in ("entries", "records", "branches"):
            connection.execute(f"DELETE FROM {table} WHERE branch = ?", (branch,))  # noqa: S608 - the names above
        if known is not None:
            text = f"{branch}: the history was replaced; entry {known[1]} was {known[0]}"
            connection.execute("INSERT OR IGNORE INTO alarms VALUES (?)", (text,))


def _count(connection: sqlite3.Connection, *, run: str) -> int:
    return int(connection.execute("SELECT count(*) FROM records WHERE branch = ?", (run,)).fetchone()[0])


def _entries(connection: sqlite3.Connection, *, branch: str, newest: int | None) -> list[Entry]:
    rows = connection.execute(
        "SELECT entry FROM entries WHERE branch = ? ORDER BY sequence DESC LIMIT ?",
        (branch, -1 if newest is None else newest),
    ).fetchall()
    return [parsed(row[0], None)[0] for row in reversed(rows)]


def _site_after(
    connection: sqlite3.Connection, *, revision: str | None, sequence: int
) -> tuple[bool, list[tuple[str, bytes]]]:
    """Whether the entry `sequence` of the site still is `revision`, and those after it; all, where it is not."""
    # One view of both questions, whatever another process writes in between.
    connection.execute("BEGIN")
    try:
        goes_on = _revision(connection, branch=SITE, sequence=sequence) == revision
        rows = connection.execute(
            "SELECT revision, entry FROM entries WHERE branch = ? AND sequence > ? ORDER BY sequence",
            (SITE, sequence if goes_on else 0),
        ).fetchall()
    finally:
        connection.execute("COMMIT")
    return goes_on, rows


def _revision(connection: sqlite3.Connection, *, branch: str, sequence: int) -> str | None:
    found = connection.execute(
        "SELECT revision FROM entries WHERE branch = ? AND sequence = ?", (branch, sequence)
    ).fetchone()
    return None if found is None else str(found[0])
