"""This node's own disk outside the tiers: where trainers save, where checkpoints are brought back, what the node remembers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO, Protocol, TypeAlias

from lakemark.model.canonical import JSON
from lakemark.model.checkpoint import File, Manifest
from lakemark.model.ledger import Place
from lakemark.model.record import DataRef
from lakemark.ports.work import Progress


class Verdict(StrEnum):
    """What a recogniser says of a path."""

    COMPLETE = "complete"
    INCOMPLETE = "incomplete"
    TEMPORARY = "temporary"
    POINTER = "pointer"
    MARKER = "marker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A checkpoint, or something that belongs to one, at `path`.

    step: None where neither name nor content says. roles: path inside it -> role. resumable, gaps: as in a manifest.
    """

    path: Path
    framework: str
    step: int | None
    verdict: Verdict
    why: str
    roles: Mapping[str, str] = field(default_factory=dict)
    resumable: bool | None = None
    gaps: tuple[str, ...] = ()


class Recogniser(Protocol):
    """Tells checkpoints by file rules only: it reads names and headers, never imports a framework, never unpickles."""

    def find(self, root: Path) -> Iterator[Found]:
        """What lies in `root`, one level of checkpoints, in order of step then path. Never raises for unreadable things."""

    def judge(self, path: Path) -> Found:
        """What `path` itself is. Raises NotFound where there is nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spooled:
    """A save the trainer announced (`Run.saved`). `file`: the spool file; it goes once the save is committed.

    data: what the process had open. timeline: of `run.resume` if the process read it, else None.
    """

    file: Path
    run: str
    path: Path
    step: int
    saved_at: datetime
    attempt: str | None
    timeline: int | None
    data: tuple[DataRef, ...]
    metrics: Mapping[str, float] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)
    code: Mapping[str, JSON] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFile:
    """What a trainer reads before its loop. `resume`: path, step, record, timeline; None: start afresh.

    simulated: saves are stamped with LAKEMARK_CLOCK, as everything of such a site is.
    """

    run: str
    timeline: int
    attempt: str
    spool: Path
    data: tuple[DataRef, ...]
    resume: Mapping[str, JSON] | None = None
    simulated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """files_by_place: how many regular files came from where ("kept": they lay there already, verified)."""

    path: Path
    size_bytes: int
    files_by_place: Mapping[str, int]
    damaged: tuple[tuple[Place, str], ...] = ()


Fetch: TypeAlias = Callable[[File], Iterable[tuple[Place, AbstractContextManager[BinaryIO]]]]
"""Candidates for one file's bytes, nearest first. Entering one may raise: then the next is tried."""


class Workspace(Protocol):
    """Files of the user. Guarantees, each a check of `contract.workspace`.

    - `restore` shows the target whole or not at all, durably; every file's bytes were compared with the manifest. An
      interrupted one goes on when called again with the same checkpoint; a non-empty target that is not ours is Refused.
    - Every name is written beneath the target; a link is made as a link and never followed.
    - `write_run_file` and spool files appear by atomic rename.
    """

    def restore(self, target: Path, manifest: Manifest, fetch: Fetch, *, tag: str, progress: Progress) -> Restored:
        """Writes the checkpoint into `target`, which must be absent, empty, or our own interrupted restore of `tag`.

        A candidate whose bytes are wrong or that fails is noted in `damaged`, and the next one tried for that file; none
        left: NoReplica. Refused: no space, target not empty.
        """

    def matches(self, path: Path, manifest: Manifest, *, progress: Progress) -> bool:
        """Whether `path` holds exactly the manifest's files, every byte compared."""

    def move_aside(self, paths: Iterable[Path], into: Path) -> tuple[Path, ...]:
        """Renames each of `paths` into the directory `into` (made if need be), durably; answers where they are now."""

    def identities(self, path: Path) -> tuple[KnownFile, ...]:
        """Of the regular files at or under `path`."""

    def write_run_file(self, path: Path, run_file: RunFile) -> None: ...

    def read_run_file(self, path: Path) -> RunFile | None: ...

    def spooled(self, spool: Path) -> Iterator[Spooled]:
        """In order of step. A malformed spool file is moved to `rejected/` beside it, never lost, never in the way."""

    def unspool(self, spooled: Spooled) -> None: ...

    def exists(self, path: Path) -> bool: ...

    def save_json(self, path: Path, value: JSON) -> None:
        """By atomic rename, durable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFile:
    """A regular file's identity. A file keeps it under any name until it is written."""

    device: int
    inode: int
    size_bytes: int
    mtime_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Directory:
    """What was last resumed or opened in a directory: whose saves are found there."""

    run: str
    timeline: int
    attempt: str
    sequence: int


class Journal(Protocol):
    """What this node remembers of its own disk; not history. Durable before it returns. Losing it loses no checkpoint."""

    def remember(self, files: Iterable[KnownFile], *, record: str, why: str) -> None:
        """These files are ours: committed, restored or moved aside (`why`). They are never committed again."""

    def known(self, file: KnownFile) -> str | None:
        """The record a file belongs to, or None."""

    def bind_directory(self, path: Path, directory: Directory) -> None:
        """From now on finds in `path` belong to this attempt."""

    def directory(self, path: Path) -> Directory | None: ...

    def looked(self, key: str, *, at: datetime) -> datetime | None:
        """Notes a look at `key` (a branch observed) and answers when the previous one was."""

    def last_looked(self, key: str) -> datetime | None: ...
