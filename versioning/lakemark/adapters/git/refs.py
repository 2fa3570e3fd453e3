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
# A writer holds a reference's lock for moments: one this old is taken for a killed program's.
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
        # Loose ones first, then packed-refs: Git packs a reference before it removes the file, so one of the readings finds it.
        for name in (*names, SITE):
            commit = None if name.endswith(".lock") else _loose(repository, name)
            if commit is not None:
                found[name] = commit
        for name, commit in _packed(repository):
            if name == SITE or name.startswith(RUNS):
                # A packed line stays behind when its reference moves on: the loose file, where there is one, is the newer.
                found.setdefault(name, commit)
    return {"site" if name == SITE else name.removeprefix(RUNS): found[name] for name in sorted(found)}


def under(repository: Path, folder: str) -> list[tuple[str, str]]:
    """References right below `folder`, which ends in a slash, with what they name; damaged ones are left out."""
    names: set[str] = set()
    # Loose ones first: Git writes packed-refs before it removes a file, so what goes meanwhile is found there.
    with os_errors(repository):
        if (repository / folder).is_dir():
            names = {folder + entry.name for entry in os.scandir(repository / folder)}
        names |= {name for name, _ in _packed(repository) if name.startswith(folder)}
    found: list[tuple[str, str]] = []
    for name in sorted(names):
        with suppress(Corrupt):
            oid = None if name.endswith(".lock") else read(repository, name)
            if oid is not None:
                found.append((name, oid))
    return found


def read(repository: Path, name: str) -> str | None:
    """The commit `name` points to; None where there is no such reference. A damaged one is Corrupt; also raises Denied."""
    # What a read raises does not say of which file.
    with os_errors(repository / name):
        loose = _loose(repository, name)
        # Whoever packs a reference writes it to packed-refs before it removes the file: a miss there means there is none.
        return loose or _packed_one(repository, name)


def move(repository: Path, name: str, old: str | None, new: str) -> None:
    """Points `name` from `old` (None: nothing) to `new`; durable when it returns.

    Raises ReferenceMoved where it is elsewhere, Locked where it can't be locked; both leave everything as it was.
    """
    path = repository / name
    lock = Path(f"{path}.lock")
    descriptor = _locked(lock)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(f"{new}\n".encode())
            file.flush()
            # Before the rename: power loss would else leave the reference's name on an empty file.
            os.fsync(file.fileno())
        # Under the lock, which by Git's protocol every other writer must hold: nothing moves it before the rename.
        if read(repository, name) != old:
            raise ReferenceMoved(name)
        # The lock itself becomes the reference: a kill before this line leaves a lock, never half a reference.
        os.rename(lock, path)
    except BaseException:
        lock.unlink(missing_ok=True)
        raise
    fsync_directory(path.parent)


def _locked(lock: Path) -> int:
    """Makes the lock file and answers its descriptor. Raises Locked where it is there already."""
    for _ in range(_TRIES):
        try:
            descriptor = os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666)
        except FileExistsError:
            # A git program's, or one that a kill left: `Turn` tells them apart, here nobody can.
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
    keeps what the last writer was about to point a reference to. Turns come in order of
    arrival. Raises Locked where another process keeps its own for `patience_seconds`, as a stopped one does: so hold no
    lock of this process while you wait. Also raises what the disk does, in our words.
    """

    def __init__(self, repository: Path, branch: str, *, patience_seconds: float = _PATIENCE_SECONDS) -> None:
        self._repository = repository
        self._side_file = repository / "lakemark" / "locks" / branch
        with os_errors(self._side_file):
            self._descriptor = acquired(self._side_file, seconds=patience_seconds)
            try:
                # Read before the first `move` writes over it: it is the writer before who may have been killed.
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
            # Before the lock is made: should this process be killed with it, the next writer knows the lock by what it holds.
            with os_errors(self._side_file):
                os.pwrite(self._descriptor, new.encode(), 0)
            try:
                with os_errors(self._repository / name):
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
        with os_errors(lock), suppress(FileNotFoundError):  # it went meanwhile: so it is free
            os.utime(self._descriptor)
            # Filled and never renamed, by the writer before; where the reference is already there, the lock is somebody else's.
            ours = lock.read_bytes()[:40] == self._last and read(self._repository, name) != self._last.decode()
            old = os.fstat(self._descriptor).st_mtime - lock.stat().st_mtime > _STALE_SECONDS
            if not ours and not old:
                return False
            lock.unlink()
        return True


def _loose(repository: Path, name: str) -> str | None:
    """What the reference's own file says; None where there is none. Raises Corrupt."""
    try:
        # `replace`: bytes that are no ASCII are a damaged reference, which `_commit` says in our words.
        text = (repository / name).read_text(encoding="ascii", errors="replace").strip()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return None
    return _commit(name, text)


def _packed(repository: Path) -> Iterator[tuple[str, str]]:
    """Every line of packed-refs that names a reference. Raises Corrupt."""
    try:
        with (repository / "packed-refs").open(encoding="utf-8", errors="surrogateescape") as lines:
            for line in lines:
                commit, _, name = line.rstrip("\n").partition(" ")
                # `#` is the head line, `^` says what the tag object of the line before points to.
                if line[0] not in "#^":
                    yield name, _commit(name, commit)
    except FileNotFoundError:
        return


def _packed_one(repository: Path, name: str) -> str | None:
    """By bisection: Git keeps packed-refs sorted, and there may be a tag for each of 100,000 records."""
    try:
        with (repository / "packed-refs").open("rb") as file:
            # Git says in the head line whether it sorted them; others who write the file may not.
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
    """The line of `name` among sorted lines of `<40 hex> <name>`, from `low` on; None where there is none."""
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
    """`text`, if it has a commit id's form. Raises Corrupt."""
    if not _COMMIT.fullmatch(text):
        raise Corrupt(
            f"the ledger's reference {name} holds {quoted(text)}, not a commit id",
            advice="Restore the ledger from a tier's ledger.bundle or another node.",
        )
    return text
