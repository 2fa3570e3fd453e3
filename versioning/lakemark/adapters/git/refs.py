"""A Git repository's references, without Git: reading them, and moving one durably by compare-and-swap.

The protocol is Git's own: `<ref>.lock` is made exclusively, filled and renamed over the reference, so that git programs
and these functions exclude each other. Standard library only: a reader that just compares tips loads nothing else.
"""

from __future__ import annotations

import mmap
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from lakemark.adapters.disk.files import fsync_directory, make_directories, os_errors, share
from lakemark.adapters.git.file_lock import Locked, acquired
from lakemark.errors import Corrupt, quoted

RUNS: Final = "refs/heads/runs/"
SITE: Final = "refs/heads/site"
TAGS: Final = "refs/tags/records/"
_STALE_SECONDS: Final = 60
_PATIENCE_SECONDS: Final = 40.0
_TRIES: Final = 10
_WAIT_SECONDS: Final = 0.05
_WAITS: Final = 1500
_COMMIT: Final = re.compile(r"[0-9a-f]{40}", re.ASCII)


class ReferenceMoved(Exception):
    """The reference is not where it was expected."""


def reference(branch: str) -> str:
    """The full name of a run's branch, or of `site`."""
    return SITE if branch == "site" else RUNS + branch


def tips(repository: Path) -> Mapping[str, str]:
    """Commit ids by branch: every run's, and `site`'s. Raises Denied, Corrupt."""
    found: dict[str, str] = {}
    folder = repository / RUNS
    with os_errors(repository):
        names = [RUNS + entry.name for entry in os.scandir(folder)] if folder.is_dir() else []
        for name in (*names, SITE):
            commit = None if name.endswith(".lock") else _loose(repository, name)
            if commit is not None:
                found[name] = commit
        for name, commit in _packed(repository):
            if name == SITE or name.startswith(RUNS):
                found.setdefault(name, commit)
    return {"site" if name == SITE else name.removeprefix(RUNS): found[name] for name in sorted(found)}


def under(repository: Path, folder: str) -> list[tuple[str, str]]:
    """References right below `folder`, which ends in a slash, with what they name; damaged ones are left out."""
    names = {name for name, _ in _packed(repository) if name.startswith(folder)}
    with os_errors(repository):
        if (repository / folder).is_dir():
            names |= {folder + entry.name for entry in os.scandir(repository / folder)}
    found: list[tuple[str, str]] = []
    for name in sorted(names):
        with suppress(Corrupt):
            oid = None if name.endswith(".lock") else read(repository, name)
            if oid is not None:
                found.append((name, oid))
    return found


def read(repository: Path, name: str) -> str | None:
    """The commit `name` points to; None where there is no such reference. A damaged one is Corrupt."""
    loose = _loose(repository, name)
    # Whoever packs a reference writes it to packed-refs before it removes the file: a miss there means there is none.
    return loose or _packed_one(repository, name)


def move(repository: Path, name: str, old: str | None, new: str) -> None:
    """Points `name` from `old` (None: nothing) to `new`; durable when it returns.

    Raises Moved where it is elsewhere, Locked where it can't be locked; both leave everything as it was.
    """
    path = repository / name
    lock = Path(f"{path}.lock")
    descriptor = _locked(lock)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(f"{new}\n".encode())
            file.flush()
            os.fsync(file.fileno())
        if read(repository, name) != old:
            raise ReferenceMoved(name)
        os.rename(lock, path)
    except BaseException:
        lock.unlink(missing_ok=True)
        raise
    fsync_directory(path.parent)


def _locked(lock: Path) -> int:
    for _ in range(_TRIES):
        try:
            descriptor = os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666)
        except FileExistsError:
            raise Locked(str(lock)) from None
        except FileNotFoundError:
            # Git removes folders that packing references left empty.
            make_directories(lock.parent)
        else:
            share(descriptor, folder=lock.parent)
            return descriptor
    raise Locked(str(lock))


class Turn:
    """A writer's turn on one branch and the tags of its records: holds its `flock`.

    So a `<ref>.lock` met meanwhile is a git program's, or stale. The kernel ends the turn with the process. The side file
    keeps what the last writer was about to point a reference to. Waits for its turn, in order of arrival; Locked where
    another process keeps it for `patience_seconds`, as a stopped one does: hold no lock of this process meanwhile.
    """

    def __init__(self, repository: Path, branch: str, *, patience_seconds: float = _PATIENCE_SECONDS) -> None:
        self._repository = repository
        self._descriptor = acquired(repository / "lakemark" / "locks" / branch, seconds=patience_seconds)
        try:
            self._last = os.pread(self._descriptor, 40, 0)
        except BaseException:
            os.close(self._descriptor)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def move(self, name: str, old: str | None, new: str) -> None:
        """As the function `move`, once its lock is free: Locked only after 75 seconds, longer than a stale one stays."""
        for _ in range(_WAITS):
            os.pwrite(self._descriptor, new.encode(), 0)
            try:
                return move(self._repository, name, old, new)
            except Locked:
                if not self._drop_stale_lock(name):
                    time.sleep(_WAIT_SECONDS)
        raise Locked(name)

    def _drop_stale_lock(self, name: str) -> bool:
        """Removes `<ref>.lock` where a killed writer left it, or where it is older than a minute; False: it stays.

        Ages are compared by the file system's own clock.
        """
        lock = self._repository / f"{name}.lock"
        os.utime(self._descriptor)
        try:
            ours = lock.read_bytes()[:40] == self._last and read(self._repository, name) != self._last.decode()
            old = os.fstat(self._descriptor).st_mtime - lock.stat().st_mtime > _STALE_SECONDS
            if not ours and not old:
                return False
            lock.unlink()
        except FileNotFoundError:
            return True
        return True


def _loose(repository: Path, name: str) -> str | None:
    try:
        text = (repository / name).read_text(encoding="ascii", errors="replace").strip()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return None
    return _commit(name, text)


def _packed(repository: Path) -> Iterator[tuple[str, str]]:
    try:
        with (repository / "packed-refs").open(encoding="utf-8", errors="surrogateescape") as lines:
            for line in lines:
                commit, _, name = line.rstrip("\n").partition(" ")
                if line[0] not in "#^":
                    yield name, _commit(name, commit)
    except FileNotFoundError:
        return


def _packed_one(repository: Path, name: str) -> str | None:
    """By bisection: Git keeps packed-refs sorted, and there may be a tag for each of 100,000 records."""
    try:
        with (repository / "packed-refs").open("rb") as file:
            if b" sorted" not in file.readline():
                return next((commit for found, commit in _packed(repository) if found == name), None)
            low = file.tell()
            if os.fstat(file.fileno()).st_size == low:
                return None
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                line = _bisected(data, low, name.encode())
    except FileNotFoundError:
        return None
    return None if line is None else _commit(name, line[:40].decode(errors="replace"))


def _bisected(data: mmap.mmap, low: int, name: bytes) -> bytes | None:
    high = len(data)
    while low < high:
        start = data.rfind(b"\n", low, (low + high) // 2)
        start = low if start < 0 else start + 1
        if data[start : start + 1] == b"^":  # what the tag object of the line before points to
            start = data.rfind(b"\n", low, start - 1) + 1 or low
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        line = data[start:end]
        if line[41:] == name:
            return line
        if line[41:] > name:
            high = start
        else:
            low = end + 1
            if data[low : low + 1] == b"^":
                low = data.find(b"\n", low) + 1 or len(data)
    return None


def _commit(name: str, text: str) -> str:
    if not _COMMIT.fullmatch(text):
        raise Corrupt(
            f"the ledger's reference {name} holds {quoted(text)}, not a commit id",
            advice="Restore the ledger from a tier's ledger.bundle or another node.",
        )
    return text
