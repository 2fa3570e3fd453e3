"""What this node remembers of its own disk, in SQLite."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from threading import RLock
from typing import Final, TypeAlias

from lakemark.adapters.disk.files import is_shared, make_directories, open_shared, os_errors
from lakemark.errors import Conflict, Corrupt, Denied, LakemarkError, Misconfigured, NoRoom, StoreUnavailable, quoted
from lakemark.model.ledger.soundness import Seen
from lakemark.model.values.instants import from_text, to_text
from lakemark.ports import Directory, Kept, KnownFile, Mark, MarkKind

VERSION: Final = 3
_WAIT_SECONDS: Final = 30.0
_LOOK_AGAIN_SECONDS: Final = 0.01
_KEPT_DIGESTS: Final = 100_000
"""About 150 bytes each. One that is gone costs a reading of its file."""
_SIGN: Final = 2**63
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS known_files (
    device INTEGER, inode INTEGER, size_bytes INTEGER, mtime_ns INTEGER, mark TEXT, record TEXT NOT NULL, why TEXT NOT NULL,
    ctime_ns INTEGER NOT NULL, digest TEXT NOT NULL, place BLOB NOT NULL, seen_day INTEGER NOT NULL,
    PRIMARY KEY (device, inode, size_bytes, mtime_ns, mark)
) WITHOUT ROWID, STRICT;
CREATE INDEX IF NOT EXISTS known_files_seen ON known_files (seen_day);
CREATE TABLE IF NOT EXISTS directories (
    path BLOB PRIMARY KEY, run TEXT NOT NULL, timeline INTEGER NOT NULL, attempt TEXT NOT NULL, sequence INTEGER NOT NULL
) WITHOUT ROWID, STRICT;
CREATE TABLE IF NOT EXISTS known_digests (
    device INTEGER, inode INTEGER, size_bytes INTEGER, mtime_ns INTEGER, mark TEXT, digest TEXT NOT NULL,
    ctime_ns INTEGER NOT NULL,
    PRIMARY KEY (device, inode, size_bytes, mtime_ns, mark)
) WITHOUT ROWID, STRICT;
CREATE TABLE IF NOT EXISTS tips (
    source TEXT, branch TEXT, revision TEXT NOT NULL, PRIMARY KEY (source, branch)
) WITHOUT ROWID, STRICT;
CREATE TABLE IF NOT EXISTS looks (key TEXT PRIMARY KEY, at TEXT NOT NULL) WITHOUT ROWID, STRICT;
"""
# A row without a mark is of an older version's journal, which had none: one that has it comes first.
_KNOWN: Final = (
    "SELECT record, ctime_ns, digest, seen_day, mark, why FROM known_files "
    "WHERE device = ? AND inode = ? AND size_bytes = ? AND mtime_ns = ? AND mark IN (?, '') ORDER BY mark DESC"
)
_TWINS: Final = "SELECT device, inode, size_bytes, mtime_ns, mark, ctime_ns FROM known_files WHERE digest = ?"
_DIGEST: Final = (
    "SELECT digest FROM known_digests "
    "WHERE device = ? AND inode = ? AND size_bytes = ? AND mtime_ns = ? AND mark = ? AND ctime_ns = ?"
)
_FORGET: Final = (
    "DELETE FROM known_files WHERE device = ? AND inode = ? AND size_bytes = ? AND mtime_ns = ? AND mark = ?"
)
_FORGET_THERE: Final = (
    "DELETE FROM known_files WHERE device = ? AND inode = ? AND size_bytes = ? AND mtime_ns = ? AND mark = ? "
    "AND place = ?"
)
_SEE: Final = (
    "UPDATE known_files SET seen_day = ?, place = ? "
    "WHERE device = ? AND inode = ? AND size_bytes = ? AND mtime_ns = ? AND mark = ?"
)
_CONFIRM: Final = (
    "UPDATE known_files SET ctime_ns = ? "
    "WHERE device = ? AND inode = ? AND size_bytes = ? AND mtime_ns = ? AND mark = ?"
)
_REMEMBER: Final = "INSERT OR REPLACE INTO known_files VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
# An inode's number is one file's at a time. Numbers that don't stay (0) say nothing.
_OTHERS: Final = "DELETE FROM known_files WHERE device = ? AND inode = ? AND inode <> 0"
# On from the last key, not by an offset: rows come and go between two pages.
_UNSEEN: Final = (
    "SELECT seen_day, device, inode, size_bytes, mtime_ns, mark, place FROM known_files WHERE seen_day < ? AND place <> x'' "
    "AND (seen_day, device, inode, size_bytes, mtime_ns, mark) > (?, ?, ?, ?, ?, ?) "
    "ORDER BY seen_day, device, inode, size_bytes, mtime_ns, mark LIMIT 1000"
)
_SEEN_AGAIN_DAYS: Final = 7
"""A file that lies there is noted as seen once in so many days: a look that finds nothing new costs no write."""
_OLDEST_DIGESTS: Final = """
DELETE FROM known_digests WHERE (device, inode, size_bytes, mtime_ns, mark) IN (
    SELECT device, inode, size_bytes, mtime_ns, mark FROM known_digests ORDER BY mtime_ns
    LIMIT max(0, (SELECT count(*) FROM known_digests) - ?))
"""
_FROM_1: Final = """
INSERT OR IGNORE INTO known_files SELECT device, inode, size_bytes, mtime_ns, '', record, why, 0, '', x'', 0 FROM files;
DROP TABLE files;
DROP TABLE digests
"""
_FROM_2: Final = """
INSERT OR IGNORE INTO known_files SELECT device, inode, size_bytes, mtime_ns, mark, record, why, 0, '', x'', 0 FROM files_of_2;
DROP TABLE files_of_2;
DROP TABLE digests_of_2
"""
_ASIDE_2: Final = """
ALTER TABLE known_files RENAME TO files_of_2;
ALTER TABLE known_digests RENAME TO digests_of_2
"""
"""Journals of version 1 had no marks, those of 2 no ctimes: their files are known without. Their digests are read anew."""


_TAKES_NOTHING: Final = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)


_Transaction: TypeAlias = Callable[[], AbstractContextManager[sqlite3.Connection]]


class SqliteJournal:
    """`ports.Journal` in one file, for any number of threads and processes of one node. Every write is durable on return."""

    def __init__(
        self,
        path: Path,
        *,
        now: Callable[[], datetime] | None = None,
        kept_digests: int = _KEPT_DIGESTS,
        at_first_use: bool = False,
    ) -> None:
        """Makes the file if need be. Raises Misconfigured for one of a newer version, Corrupt, Denied.

        at_first_use: not before somebody asks or tells it something; what is raised then, is raised again until it opens.

        now: when files are remembered; without it they count as never seen until a look says when it was.
        kept_digests: so many, or a few more, of the files written last; what `note_digest` was told of others is forgotten.
        """
        self._path = path
        self._now = now
        self._kept_digests = kept_digests
        self._lock = RLock()
        self._process = os.getpid()
        self._only_read = False
        self._connection: sqlite3.Connection | None = None
        self.marks = SqliteMarks(self._reading, self._writing)
        if not at_first_use:
            with self._reading():
                pass

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()

    def remember(self, files: Iterable[KnownFile], *, record: str, why: str) -> None:
        today = _day(self._now()) if self._now is not None else 0
        rows = [
            (*_key(file), record, why, _signed(file.ctime_ns), file.digest, os.fsencode(file.place), today)
            for file in files
        ]
        with self._writing() as connection:
            # What had these inodes before goes first: a number given again must not make a new file pass for one that was kept.
            connection.executemany(_OTHERS, [row[:2] for row in rows])
            connection.executemany(_REMEMBER, rows)

    def known(self, file: KnownFile) -> str | None:
        found = self.kept(file)
        return None if found is None else found.record

    def kept(self, file: KnownFile) -> Kept | None:
        with self._reading() as connection:
            row = connection.execute(_KNOWN, _key(file)).fetchone()
        return None if row is None or _in_doubt(file, row) else Kept(record=row[0], why=row[5], digest=row[2])

    def twins(self, digest: str) -> tuple[KnownFile, ...]:
        with self._reading() as connection:
            rows = connection.execute(_TWINS, (digest,)).fetchall()
        return tuple(
            KnownFile(
                # Back from what `_signed` made of it.
                device=device % (2 * _SIGN),
                inode=inode % (2 * _SIGN),
                size_bytes=size_bytes,
                mtime_ns=mtime_ns,
                mark=mark,
                ctime_ns=ctime_ns,
                digest=digest,
            )
            for device, inode, size_bytes, mtime_ns, mark, ctime_ns in rows
        )

    def all_known(self, files: Iterable[KnownFile], *, at: datetime | None = None) -> bool:
        today = 0 if at is None else _day(at)
        long_ago: list[tuple[object, ...]] = []
        with self._reading() as connection:
            cursor = connection.cursor()
            for file in files:
                row = cursor.execute(_KNOWN, _key(file)).fetchone()
                if row is None or _in_doubt(file, row):
                    return False
                if today - row[3] >= _SEEN_AGAIN_DAYS:
                    long_ago.append((today, os.fsencode(file.place), *_key(file)[:4], row[4]))
            if long_ago:
                # A disk that takes nothing now: they are noted with a later look.
                with suppress(NoRoom, Denied, StoreUnavailable), self._writing() as writing:
                    writing.executemany(_SEE, long_ago)
        return True

    def doubtful(self, files: Iterable[KnownFile]) -> tuple[KnownFile, ...]:
        with self._reading() as connection:
            cursor = connection.cursor()
            rows = ((file, cursor.execute(_KNOWN, _key(file)).fetchone()) for file in files)
            return tuple(file for file, row in rows if row is not None and _in_doubt(file, row))

    def confirm(self, file: KnownFile) -> None:
        with self._writing() as connection:
            row = connection.execute(_KNOWN, _key(file)).fetchone()
            if row is None or not _in_doubt(replace(file, digest=""), row):
                return  # somebody else was faster
            # With the row's own mark, which an older journal left empty.
            this = (*_key(file)[:4], row[4])
            if row[2] == file.digest:
                connection.execute(_CONFIRM, (_signed(file.ctime_ns), *this))
            else:
                connection.execute(_FORGET, this)

    def unseen_files(self, before: datetime) -> Iterator[KnownFile]:
        after: tuple[object, ...] = (-1, -_SIGN, -_SIGN, -_SIGN, -_SIGN, "")
        while True:
            # A page at a time: nothing stays locked while its files are looked at.
            with self._reading() as connection:
                rows = connection.execute(_UNSEEN, (_day(before), *after)).fetchall()
            for _, device, inode, size_bytes, mtime_ns, mark, place in rows:
                yield KnownFile(
                    # Back from what `_signed` made of it.
                    device=device % (2 * _SIGN),
                    inode=inode % (2 * _SIGN),
                    size_bytes=size_bytes,
                    mtime_ns=mtime_ns,
                    mark=mark,
                    place=os.fsdecode(place),
                )
            if not rows:
                return
            after = rows[-1][:6]

    def forget_files(self, files: Iterable[KnownFile]) -> None:
        rows = [(*_key(file), os.fsencode(file.place)) for file in files]
        with self._writing() as connection:
            connection.executemany(_FORGET_THERE, rows)

    def note_digest(self, file: KnownFile, digest: str) -> None:
        row = (*_key(file), digest, _signed(file.ctime_ns))
        with self._writing() as connection:
            connection.execute("INSERT OR REPLACE INTO known_digests VALUES (?, ?, ?, ?, ?, ?, ?)", row)
            # One in so many looks, whichever process it is: short ones leave as much as a long one.
            if digest[:2] == "00":
                connection.execute(_OLDEST_DIGESTS, (self._kept_digests,))

    def digest(self, file: KnownFile) -> str | None:
        with self._reading() as connection:
            row = connection.execute(_DIGEST, (*_key(file), _signed(file.ctime_ns))).fetchone()
        return None if row is None else str(row[0])

    def bind_directory(self, path: Path, directory: Directory) -> None:
        row = (_path(path), directory.run, directory.timeline, directory.attempt, directory.sequence)
        with self._writing() as connection:
            connection.execute("INSERT OR REPLACE INTO directories VALUES (?, ?, ?, ?, ?)", row)

    def directory(self, path: Path) -> Directory | None:
        with self._reading() as connection:
            row = connection.execute(
                "SELECT run, timeline, attempt, sequence FROM directories WHERE path = ?", (_path(path),)
            ).fetchone()
        return None if row is None else Directory(run=row[0], timeline=row[1], attempt=row[2], sequence=row[3])

    def saw(self, source: str, tips: Mapping[str, str]) -> None:
        rows = [(source, branch, revision) for branch, revision in tips.items()]
        with self._lock, self._writable() as connection:
            # It follows every append: without the fsync, which the next durable write brings. A kill loses nothing.
            connection.execute("PRAGMA synchronous = NORMAL")
            try:
                with self._writing():
                    connection.executemany("INSERT OR REPLACE INTO tips VALUES (?, ?, ?)", rows)
            finally:
                connection.execute("PRAGMA synchronous = FULL")

    def seen(self, branch: str | None = None) -> tuple[Seen, ...]:
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT source, branch, revision FROM tips WHERE ?1 IS NULL OR branch = ?1", (branch,)
            ).fetchall()
        return tuple(Seen(source=source, branch=name, revision=revision) for source, name, revision in rows)

    def forget_seen(self, seen: Iterable[Seen]) -> None:
        rows = [(one.source, one.branch, one.revision) for one in seen]
        with self._writing() as connection:
            connection.executemany("DELETE FROM tips WHERE source = ? AND branch = ? AND revision = ?", rows)

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._errors():
            if self._connection is None:
                self._make_file()
            connection = self._connection
            if connection is None or self._process != os.getpid():  # a forked child must not use its parent's
                connection = self._connection = self._opened()
                self._process = os.getpid()
            yield connection

    @contextmanager
    def _writable(self) -> Iterator[sqlite3.Connection]:
        """As `_reading`; one that was opened for reading alone is opened anew: there may be room again, or the right to write."""
        with self._reading() as connection:
            if self._only_read:
                anew = self._for_writing()
                connection.close()
                self._connection, self._only_read = anew, False
                yield anew
            else:
                yield connection

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it is there after a kill, or nothing."""
        with self._writable() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def _make_file(self) -> None:
        with os_errors(self._path):
            make_directories(self._path.parent)
            if is_shared(self._path.parent):
                # SQLite would give it the maker's umask; its log takes the rights that the file has.
                os.close(open_shared(self._path))

    def _opened(self) -> sqlite3.Connection:
        """For writing; where its disk takes nothing, for reading alone: who only asks needs no more, and a write says why."""
        try:
            return self._for_writing()
        except sqlite3.OperationalError as error:
            found = self._for_reading() if (error.sqlite_errorcode & 0xFF) in _TAKES_NOTHING else None
            if found is None:
                raise
            self._only_read = True
            return found

    def _for_reading(self) -> sqlite3.Connection | None:
        """None where that can't be had either, or the file is of another version."""
        # As an address, which alone can say `mode=ro`: a disk that takes nothing refuses to open it for writing.
        address = f"{self._path.absolute().as_uri()}?mode=ro"
        try:
            connection = sqlite3.connect(
                address, uri=True, timeout=_WAIT_SECONDS, isolation_level=None, check_same_thread=False
            )
        except sqlite3.OperationalError:
            return None
        try:
            # Another version's tables answer other questions, and a disk that takes nothing can't have them brought up to date.
            if connection.execute("PRAGMA user_version").fetchone() == (VERSION,):
                return connection
        except sqlite3.OperationalError:
            pass
        connection.close()
        return None

    def _for_writing(self) -> sqlite3.Connection:
        """Raises sqlite3.OperationalError where the disk takes nothing, or another process keeps the file."""
        connection = sqlite3.connect(self._path, timeout=_WAIT_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            # Before the transaction: within one SQLite does not change how it logs.
            _keep_a_log(connection)
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("BEGIN IMMEDIATE")
            self._make_tables(connection)
            connection.execute("COMMIT")
        except BaseException:
            connection.close()
            raise
        return connection

    def _make_tables(self, connection: sqlite3.Connection) -> None:
        """Brings the file to this version, inside the caller's transaction. Raises Misconfigured for a newer one."""
        # Under the write lock: of two processes that open a new or old file at once, the second finds it done.
        (found,) = connection.execute("PRAGMA user_version").fetchone()
        if found > VERSION:
            raise Misconfigured(
                f"{quoted(str(self._path))} is a journal of version {found}; this lakemark knows {VERSION}",
                advice="Use the newer lakemark on this node, or move the file away: it is not history.",
            )
        before, after = {1: ("", _FROM_1), 2: (_ASIDE_2 + ";", _FROM_2)}.get(found, ("", ""))
        for statement in (before + _TABLES + after).split(";"):
            if statement.strip():
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {VERSION}")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """What SQLite raises inside comes out as errors of our tree."""
        try:
            yield
        except sqlite3.ProgrammingError:
            raise  # our own mistake, as of a statement or of a connection that was closed
        except sqlite3.Error as error:
            raise self._ours(error) from error

    def _ours(self, error: sqlite3.Error) -> LakemarkError:
        text = f"{quoted(str(self._path))}: {error}"
        code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
        if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and self._is_full()):
            return NoRoom(text, advice="Make room on its file system.")
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR):
            return StoreUnavailable(text, advice="Try again; look at the disk's room and health if it stays.")
        if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
            return Denied(text, advice="Give lakemark's user the right to write it and its folder.")
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return Corrupt(text, advice="Move the file away: it is made anew, and no checkpoint is lost with it.")
        return Conflict(text, advice="Move the file away if it stays: it is made anew.")

    def _is_full(self) -> bool:
        """SQLite says `disk I/O error` where it finds no room for the file that its processes share."""
        with os_errors(self._path):
            return os.statvfs(self._path.parent).f_bavail == 0


class SqliteMarks:
    """`ports.Marks` in the journal's file, by its transactions for reading and for writing."""

    def __init__(self, reading: _Transaction, writing: _Transaction) -> None:
        self._reading = reading
        self._writing = writing

    def set(self, mark: Mark, *, at: datetime) -> datetime | None:
        with self._writing() as connection:
            before = _look(connection, mark)
            connection.execute("INSERT OR REPLACE INTO looks VALUES (?, ?)", (mark.key, to_text(at)))
        return before

    def get(self, mark: Mark) -> datetime | None:
        with self._reading() as connection:
            return _look(connection, mark)

    def forget(self, kind: MarkKind, *, before: datetime) -> None:
        # Instants as texts are in order of time. No key goes on with the last character of Unicode, so it ends the range.
        with self._writing() as connection:
            connection.execute(
                "DELETE FROM looks WHERE (key = ? OR key >= ? AND key < ?) AND at < ?",
                (str(kind), f"{kind}:", f"{kind}:\U0010ffff", to_text(before)),
            )


def _look(connection: sqlite3.Connection, mark: Mark) -> datetime | None:
    row = connection.execute("SELECT at FROM looks WHERE key = ?", (mark.key,)).fetchone()
    return None if row is None else from_text(row[0])


def seen_at(path: Path) -> tuple[Seen, ...]:
    """What `SqliteJournal.seen` answers, from a journal that is only looked at; none where there is no journal.

    Raises StoreUnavailable where it is not read within a second, Corrupt, Denied.
    """
    with os_errors(path):
        if not path.exists():
            return ()
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=1.0)) as connection:
            rows = connection.execute("SELECT source, branch, revision FROM tips").fetchall()
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):  # of a version that kept none
            return ()
        raise StoreUnavailable(f"{quoted(str(path))}: {error}", advice="Try again.") from error
    except sqlite3.DatabaseError as error:
        raise Corrupt(f"{quoted(str(path))}: {error}", advice="Move the file away: it is made anew.") from error
    return tuple(Seen(source=source, branch=branch, revision=revision) for source, branch, revision in rows)


def _key(file: KnownFile) -> tuple[int, int, int, int, str]:
    return _signed(file.device), _signed(file.inode), file.size_bytes, _signed(file.mtime_ns), file.mark


def _in_doubt(file: KnownFile, row: tuple[str, int, str, int, str, str]) -> bool:
    """Whether its ctime is another than when the bytes were read that `row` is of, and it does not come with their digest."""
    _, ctime_ns, digest, _, _, _ = row
    return bool(digest) and ctime_ns != _signed(file.ctime_ns) and file.digest != digest


def _day(at: datetime) -> int:
    return int(at.timestamp()) // 86_400


def _signed(number: int) -> int:
    """SQLite's integers have 64 bits with a sign, the kernel's have none."""
    return (number + _SIGN) % (2 * _SIGN) - _SIGN


def _path(path: Path) -> bytes:
    """Of a directory that has several names, the one with no link in it."""
    return os.fsencode(os.path.realpath(path))


def _keep_a_log(connection: sqlite3.Connection) -> None:
    """Turns to write-ahead logging, in which readers and a writer don't wait for each other.

    Raises sqlite3.OperationalError where somebody else keeps the file locked for longer than any other wait here.
    """
    ends = time.monotonic() + _WAIT_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            # Two that turn a new file at once would wait for each other: SQLite refuses both, its own patience unasked.
            if (error.sqlite_errorcode & 0xFF) != sqlite3.SQLITE_BUSY or time.monotonic() > ends:
                raise
            time.sleep(_LOOK_AGAIN_SECONDS)
        else:
            return
