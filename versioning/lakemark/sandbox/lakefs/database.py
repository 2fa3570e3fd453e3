"""The metadata: one SQLite database, many readers, one writer at a time."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["Database"]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS namespace (id TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS repository (
    id TEXT PRIMARY KEY, namespace TEXT NOT NULL, default_branch TEXT NOT NULL, created_s INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS branch (
    repository TEXT NOT NULL, id TEXT NOT NULL, commit_id TEXT NOT NULL, hidden INTEGER NOT NULL,
    PRIMARY KEY (repository, id)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tag (
    repository TEXT NOT NULL, id TEXT NOT NULL, commit_id TEXT NOT NULL, PRIMARY KEY (repository, id)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS commits (
    repository TEXT NOT NULL, id TEXT NOT NULL, created_ns INTEGER NOT NULL, document TEXT NOT NULL,
    PRIMARY KEY (repository, id)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS staged (
    repository TEXT NOT NULL, branch TEXT NOT NULL, path TEXT NOT NULL, entry TEXT,
    PRIMARY KEY (repository, branch, path)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tree (
    repository TEXT NOT NULL, id TEXT NOT NULL, ranges TEXT NOT NULL, PRIMARY KEY (repository, id)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS range (
    repository TEXT NOT NULL, id TEXT NOT NULL, entries TEXT NOT NULL, PRIMARY KEY (repository, id)
);
CREATE TABLE IF NOT EXISTS setting (
    repository TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (repository, name)
) WITHOUT ROWID;
"""


class Database:
    """Readers see one state throughout; a writer's changes are on disk when its block ends, or undone if it raised."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._pool: list[sqlite3.Connection] = []
        self._pool_lock = threading.Lock()
        self._writer = self._connect()
        # Readers go on with the state they began with while the one writer writes.
        self._writer.execute("PRAGMA journal_mode=WAL")
        self._writer.executescript(_SCHEMA)

    def _connect(self) -> sqlite3.Connection:
        # isolation_level None: transactions are begun and ended here, and nowhere by Python.
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        # What was answered must survive power loss; with NORMAL, WAL is synced at checkpoints only.
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA busy_timeout=30000")
        return connection

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            # The write lock at once: a transaction that read first could not get it later.
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield self._writer
            except BaseException:
                self._writer.execute("ROLLBACK")
                raise
            self._writer.execute("COMMIT")

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        with self._pool_lock:
            connection = self._pool.pop() if self._pool else None
        connection = connection or self._connect()
        connection.execute("BEGIN")
        try:
            yield connection
        finally:
            # Nothing was written; it ends the state that was seen.
            connection.execute("ROLLBACK")
            with self._pool_lock:
                self._pool.append(connection)

    def close(self) -> None:
        with self._lock, self._pool_lock:
            for connection in (*self._pool, self._writer):
                connection.close()
            self._pool.clear()
