"""The index's file: its schema, opened, and made anew where it is of another schema or damaged."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from lakemark.errors import Denied, LakemarkError, NoRoom, NotFound, StoreUnavailable
from lakemark.model.tiers.access import for_group, is_shared

VERSION: Final = 6
_SCHEMA: Final = """
CREATE TABLE branches (
    branch TEXT PRIMARY KEY, revision TEXT NOT NULL, sequence INTEGER NOT NULL, lineage TEXT NOT NULL, clocks TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE entries (
    branch TEXT NOT NULL, sequence INTEGER NOT NULL, revision TEXT NOT NULL, kind TEXT NOT NULL,
    structural INTEGER NOT NULL, of TEXT, tier TEXT, request TEXT NOT NULL, entry BLOB NOT NULL, record BLOB
);
CREATE UNIQUE INDEX entries_in_order ON entries (branch, sequence);
CREATE INDEX entries_of_runs ON entries (branch, sequence) WHERE structural;
CREATE INDEX entries_of_records ON entries (of, sequence) WHERE of IS NOT NULL;
CREATE TABLE records (
    record TEXT NOT NULL, branch TEXT NOT NULL, sequence INTEGER NOT NULL, origin INTEGER,
    timeline INTEGER NOT NULL, step INTEGER NOT NULL, current INTEGER NOT NULL, stands INTEGER NOT NULL,
    recorded INTEGER NOT NULL, instant INTEGER NOT NULL, earliest INTEGER NOT NULL,
    quarantined INTEGER, pruned INTEGER, tiers TEXT NOT NULL, state TEXT NOT NULL
);
CREATE UNIQUE INDEX records_by_id ON records (record);
CREATE INDEX records_in_order ON records (branch, sequence);
CREATE INDEX records_by_time ON records (recorded, branch, sequence);
CREATE INDEX records_by_step ON records (branch, timeline, step, sequence);
CREATE INDEX records_by_instant ON records (branch, timeline, earliest, step, sequence);
CREATE TABLE alarms (alarm TEXT PRIMARY KEY) WITHOUT ROWID;
"""
# lineage: of the current timeline its segments and forks, and the numbers of timelines in doubt. structural: 0 of records alone,
# 1 of the run itself, 2 and 3: a save by which a timeline in doubt came ahead, or became the current one.
# clocks: `model.clocks.Clocks` after the newest entry. of: the record the entry names as its own. origin: sequence of the entry
# whose record.json is the record's newest; null: `state` holds it. earliest: the least instant of the records at this step
# or a greater one of the timeline, so that it grows with the step.
_WAIT_SECONDS: Final = 1
"""For whoever holds the file: it is disposable, and the ledger can be read without it."""


def opened(path: Path, *, read_only: bool) -> sqlite3.Connection:
    """A connection to the index at `path`, with the present schema. Read-only, another schema is NotFound."""
    with translated(path):
        if not read_only:
            path.parent.mkdir(parents=True, exist_ok=True)
            _share(path)
        elif not path.exists():
            raise _not_there(path)
        try:
            return _connected(path, read_only=read_only)
        except sqlite3.DatabaseError as error:
            if read_only or not is_damage(error):
                raise
            remove(path)
            return _connected(path, read_only=False)


def _share(path: Path) -> None:
    """Makes it for its folder's group where several accounts keep that: SQLite would give it the maker's umask."""
    if not is_shared(path.parent.stat().st_mode):
        return
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o664)
    try:
        found = os.fstat(descriptor)
        if found.st_uid == os.geteuid():
            os.fchmod(descriptor, for_group(found.st_mode))
    finally:
        os.close(descriptor)


def remove(path: Path) -> None:
    """Removes the index's files; whoever has them open keeps the old ones to the end."""
    # The log too: SQLite would play an old one into the new file of that name.
    for suffix in ("", "-wal", "-shm", "-journal"):
        with suppress(FileNotFoundError):
            Path(f"{path}{suffix}").unlink()


def is_locked(error: BaseException) -> bool:
    """Whether another process, which may be stopped, kept the file to itself for the whole wait."""
    code = getattr(error, "sqlite_errorcode", None) or 0
    return isinstance(error, sqlite3.OperationalError) and code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def is_damage(error: sqlite3.Error) -> bool:
    """Whether making the index anew is the remedy."""
    if isinstance(error, sqlite3.ProgrammingError):
        return False  # our own mistake: a new file would have it too
    return isinstance(error, sqlite3.DatabaseError) and (
        # A table or column that is not there: of a file that was cut short, or made by somebody else.
        not isinstance(error, sqlite3.OperationalError) or "no such" in str(error)
    )


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """What SQLite and the system raise, but for damage, comes out as errors of our tree."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if is_damage(error):
            raise
        raise _as_ours(path, str(error)) from error
    except OSError as error:
        raise _as_ours(path, error.strerror or str(error)) from error


def _as_ours(path: Path, text: str) -> LakemarkError:
    if "full" in text or "No space" in text or ("I/O" in text and _is_full(path)):
        return NoRoom(f"the index {path}: {text}", advice="Make room on its file system.")
    if "locked" in text or "busy" in text:
        return StoreUnavailable(f"the index {path}: {text}", advice="Another process is filling it; try again.")
    if "I/O" in text or "Input/output" in text:
        return Denied(
            f"the index {path}: {text}", advice="Its disk fails: check its health. The index itself is disposable."
        )
    return Denied(f"the index {path}: {text}", advice="Give lakemark's user the right to write it, or remove it.")


def _is_full(path: Path) -> bool:
    """SQLite says `disk I/O error` where it finds no room for the file that its processes share."""
    try:
        return os.statvfs(path.parent).f_bavail == 0
    except OSError:
        return False


def _not_there(path: Path) -> NotFound:
    return NotFound(f"there is no index at {path} yet", advice="Any lakemark command that may write makes it.")


def _connected(path: Path, *, read_only: bool) -> sqlite3.Connection:
    """Raises sqlite3.DatabaseError for another schema; NotFound where the file may only be read."""
    address = f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rwc'}"
    connection = sqlite3.connect(
        address, uri=True, timeout=_WAIT_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        if not read_only:
            connection.execute("PRAGMA journal_mode = WAL")
            # What power loss takes of it comes from the ledger again.
            connection.execute("PRAGMA synchronous = NORMAL")
        # 256 MiB: pages are read where the system has them, without a copy for each process.
        connection.execute("PRAGMA mmap_size = 268435456")
        found = _version(connection)
        if found == 0 and not read_only:
            _create(connection)
        elif found != VERSION:
            if read_only:
                raise _not_there(path)
            message = f"schema {found}, not {VERSION}"
            raise sqlite3.DatabaseError(message)
    except BaseException:
        connection.close()
        raise
    return connection


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _create(connection: sqlite3.Connection) -> None:
    """Makes the tables, unless another process just did."""
    connection.execute("BEGIN IMMEDIATE")
    # Asked again under the write lock: another process may have made the tables meanwhile.
    if _version(connection) == 0:
        for statement in _SCHEMA.split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.execute("COMMIT")
