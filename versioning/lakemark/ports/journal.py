"""What a node remembers of its own disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from lakemark.model.ledger.soundness import Seen
from lakemark.ports.files import KnownFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """How a file is known: the record it is of, why it is (`model.runs.whose.Known`), and its bytes' digest; empty: not read."""

    record: str
    why: str
    digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Directory:
    """What was last resumed or opened in a directory: whose saves are found there."""

    run: str
    timeline: int
    attempt: str
    sequence: int


class MarkKind(StrEnum):
    """What a mark is of, and what `Mark.of` names then. The values are in nodes' journals: they stay as they are."""

    ANSWERED = "answered"
    """A save older than its run, of which somebody said that a resume may go on beside it: the run and the path."""
    AUDITED = "audited"
    """A tier looked through for what nothing uses: its identity."""
    BRANCH = "branch"
    """A data branch looked at: repository/branch."""
    CLOSED = "closed"
    """A closed run's directories looked through: the run, and when it was closed."""
    COPY = "copy"
    """Records compared with a file beside saves: the run and the file."""
    LEDGER_CHECKED = "ledger check"
    """Entries of the ledger read through."""
    LEDGER_KEPT = "ledger"
    """The ledger copied to a tier: the tier."""
    LEDGER_NEXT = "ledger-next"
    """When that is due again: the tier."""
    LEFTOVER = "leftover"
    """A data branch of a rollback that was not applied, removed: the rollback."""
    OLDER = "older"
    """A save that was there before its run was opened: the run and the path; when it was written."""
    RELEASE_BEGUN = "release begun"
    """A release from a shared tier: the tier."""
    RELEASE_ENDED = "release ended"
    """The same, come to its end: the tier."""
    THINNED = "thinned"
    """A record dropped from hot for room: the record."""
    TIDIED = "journal:tidied"
    """The journal rid of files that are gone."""
    UNPINNED = "unpinned"
    """A pin's branch taken away: the branch."""


@dataclass(frozen=True, slots=True)
class Mark:
    """What a node notes an instant of. key: as the journal keeps it."""

    kind: MarkKind
    of: str = ""

    @property
    def key(self) -> str:
        return f"{self.kind}:{self.of}" if self.of else str(self.kind)


class Marks(Protocol):
    """When this node did or looked at something last. Losing one costs doing it again."""

    def set(self, mark: Mark, *, at: datetime) -> datetime | None:
        """Answers at what instant it was before."""

    def get(self, mark: Mark) -> datetime | None: ...

    def forget(self, kind: MarkKind, *, before: datetime) -> None:
        """Those of the kind that were set to an instant before: what was found out by these is found out anew."""


class KnownFiles(Protocol):
    """Which files are of a record already, and the digests of others."""

    def remember(self, files: Iterable[KnownFile], *, record: str, why: str) -> None:
        """These files are of a record: committed, restored, its pointer or a copy (`why`). They are never committed again.

        Never of files that are in no record: whoever remembered those would make them be lost. Other files that had an inode's
        number before are forgotten: there is one at a time.
        """

    def known(self, file: KnownFile) -> str | None:
        """The record a file belongs to, or None. None, too, of one that is `doubtful`, unless it comes with the digest it had."""

    def kept(self, file: KnownFile) -> Kept | None:
        """The same, with how the journal knows it."""

    def twins(self, digest: str) -> tuple[KnownFile, ...]:
        """Files of records that had these bytes when they were remembered. It looks through all of them: ask it seldom."""

    def all_known(self, files: Iterable[KnownFile], *, at: datetime | None = None) -> bool:
        """Whether every one belongs to a record; True of none. Cheap for many. at: notes that they were seen then."""

    def doubtful(self, files: Iterable[KnownFile]) -> tuple[KnownFile, ...]:
        """Those that a record had, and whose ctime moved on since their bytes were read: they may have been written in place.

        One that was remembered without a digest is never among them.
        """

    def confirm(self, file: KnownFile) -> None:
        """`file` was read just now, and comes with its digest: it is known as it is now, or forgotten where the bytes differ."""

    def unseen_files(self, before: datetime) -> Iterator[KnownFile]:
        """Files that no look came upon since, with the place where they were last. Drawn from while others write."""

    def forget_files(self, files: Iterable[KnownFile]) -> None:
        """They are proven to be gone. One that was seen or remembered since it was answered by `unseen_files` stays."""

    def note_digest(self, file: KnownFile, digest: str) -> None:
        """Its digest, so that it need not be read again. Of very many, those of the oldest files may be forgotten."""

    def digest(self, file: KnownFile) -> str | None:
        """What `note_digest` was told of this very file, its ctime included."""


class BoundDirectories(Protocol):
    """Whose saves are found where."""

    def bind_directory(self, path: Path, directory: Directory) -> None:
        """From now on finds in `path` belong to this attempt. Links are followed: it is the same under another name."""

    def directory(self, path: Path) -> Directory | None: ...


class SeenTips(Protocol):
    """What this node knows that others know of the ledger."""

    def saw(self, source: str, tips: Mapping[str, str]) -> None:
        """That `source` knows these tips of the ledger: branch -> revision, each in place of what it knew of that branch.

        Survives kill -9 at once and power loss a moment later: it stands in the way of no append.
        """

    def seen(self, branch: str | None = None) -> tuple[Seen, ...]:
        """All that `saw` was told, of one branch or of all."""

    def forget_seen(self, seen: Iterable[Seen]) -> None:
        """What is known to be lost for good, or to be part of the ledger by now."""


class Journal(KnownFiles, BoundDirectories, SeenTips, Protocol):
    """What this node remembers of its own disk; not history. Durable before it returns. Losing it loses no checkpoint."""

    @property
    def marks(self) -> Marks: ...
