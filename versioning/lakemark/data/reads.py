"""The read log: which objects of a data version the processes of an attempt read, in little room however many they are.

Each process keeps the 1024 objects whose digest is smallest: all of them where there are fewer, else an even sample. Such
lists unite exactly, however often and by whomever an object is read, tell how many different ones there were, and are equal
for equal sets. `<log>/<repository>@<commit>/<slot>.json`, `lakemark.reads/1`; a process takes a slot that no living one has
and goes on with what is in it, so that there are never more files than processes at once.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import heapq
import json
import os
import secrets
import sys
import time
from dataclasses import dataclass, field
from hashlib import blake2b
from multiprocessing.util import Finalize
from typing import Any, Final

from lakemark.data.forks import Lock
from lakemark.data.server import Object
from lakemark.trainer.together import make_folders, share

FORMAT: Final = "lakemark.reads/1"
KEPT: Final = 1024
_SLOTS: Final = 4096
_WRITTEN_EVERY_SECONDS: Final = 5.0


@dataclass(slots=True)
class _Version:
    """What this process knows of one data version. heap: negated digests, the largest kept one first."""

    repository: str
    commit: str
    reads: int = 0
    size_bytes: int = 0
    kept: dict[int, tuple[str, str, int]] = field(default_factory=dict)
    heap: list[int] = field(default_factory=list)
    path: str = ""
    written: float = 0.0
    dirty: bool = False

    def add(self, row: tuple[str, str, int]) -> None:
        digest = digest_of(*row)
        # Larger than the largest kept one of a full list: it can't be among the smallest.
        if digest in self.kept or (len(self.heap) >= KEPT and digest > -self.heap[0]):
            return
        self.kept[digest] = row
        heapq.heappush(self.heap, -digest)
        if len(self.heap) > KEPT:
            del self.kept[-heapq.heappop(self.heap)]


def digest_of(path: str, checksum: str, size_bytes: int) -> int:
    """128 bits of one object of a data version."""
    text = f"{path}\0{checksum}\0{size_bytes}".encode(errors="surrogateescape")
    return int.from_bytes(blake2b(text, digest_size=16).digest(), "big")


class ReadLog:
    """Never raises into a loader: what goes wrong is one line on stderr, once. After a fork, the child has a log of its own."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._lock = Lock()
        self._process = 0
        self._versions: dict[tuple[str, str], _Version] = {}
        self._slots: list[int] = []
        self._failed = False
        atexit.register(self.flush)
        os.register_at_fork(after_in_child=self._let_go)

    def note(self, repository: str, commit: str, found: Object, size_bytes: int) -> None:
        """`size_bytes` of the object were read, of the server or of the cache."""
        if self._failed:
            return
        try:
            with self._lock:
                self._note(repository, commit, found, size_bytes)
        except Exception as error:  # noqa: BLE001 - a full disk, a spool that is gone: reading goes on
            self._fail(error)

    def flush(self) -> None:
        """Writes what was not written yet."""
        try:
            with self._lock:
                for version in self._versions.values() if self._process == os.getpid() else ():
                    if version.dirty and not self._failed:
                        self._write(version)
        except Exception as error:  # noqa: BLE001 - as above
            self._fail(error)

    def _note(self, repository: str, commit: str, found: Object, size_bytes: int) -> None:
        if self._process != os.getpid():
            # The child of a fork: to go on in the parent's slot would write over what that one notes.
            self._process, self._versions = os.getpid(), {}
            # A worker of multiprocessing leaves without atexit, and forgets what its parent had registered here.
            Finalize(None, self.flush, exitpriority=10)
        version = self._versions.get((repository, commit))
        if version is None:
            version = self._versions[repository, commit] = self._begun(repository, commit)
        version.reads += 1
        version.size_bytes += size_bytes
        version.dirty = True
        version.add((found.path, found.checksum, found.size_bytes))
        if time.monotonic() - version.written > _WRITTEN_EVERY_SECONDS:
            self._write(version)

    def _let_go(self) -> None:
        """In the child of a fork: with its parent's descriptors it would hold the parent's slots, as long as it lives."""
        slots, self._slots = self._slots, []
        for descriptor in slots:
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _begun(self, repository: str, commit: str) -> _Version:
        folder = os.path.join(self._folder, f"{repository}@{commit}")
        make_folders(folder)
        version = _Version(repository, commit, written=-_WRITTEN_EVERY_SECONDS)
        version.path = os.path.join(folder, f"{self._slot(folder)}.json")
        with (
            contextlib.suppress(OSError, ValueError, TypeError, LookupError),
            open(version.path, encoding="utf-8") as file,
        ):
            before: Any = json.load(file)
            rows = [(str(path), str(checksum), int(size)) for path, checksum, size in before["objects"]]
            version.reads, version.size_bytes = int(before["reads"]), int(before["size_bytes"])
            for row in rows:
                version.add(row)
        return version

    def _slot(self, folder: str) -> str:
        """Locked as long as this process lives. Where the file system knows no locks, a name of its own."""
        for number in range(_SLOTS):
            lock = os.path.join(folder, f"{number}.lock")
            # Closed by the end of the process alone, however that comes: then the slot is the next one's.
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                # Trainers under several accounts may read in one run: without it the second could not open the lock.
                share(lock)
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
            # No locks here: a name that nobody else makes, at the price of one more file for each process.
            except OSError:
                os.close(descriptor)
                break
            else:
                self._slots.append(descriptor)
                return str(number)
        return f"{os.getpid()}-{secrets.token_hex(4)}"

    @staticmethod
    def _write(version: _Version) -> None:
        value = {
            "format": FORMAT,
            "repository": version.repository,
            "commit": version.commit,
            "reads": version.reads,
            "size_bytes": version.size_bytes,
            "objects": [version.kept[digest] for digest in sorted(version.kept)],
        }
        # Renamed, not flushed: a loader waits for no disk, and power loss takes a note alone.
        temporary = f"{version.path}.{os.getpid()}.tmp"
        with open(temporary, "w", encoding="utf-8", errors="surrogateescape") as file:
            share(temporary)
            json.dump(value, file)
        os.rename(temporary, version.path)
        version.written, version.dirty = time.monotonic(), False

    def _fail(self, error: Exception) -> None:
        if not self._failed:
            self._failed = True
            with contextlib.suppress(Exception):
                sys.stderr.write(
                    f"lakemark: what was read is not noted ({error!r}); reading goes on, and this is said once\n"
                )
