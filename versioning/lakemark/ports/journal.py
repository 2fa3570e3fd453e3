"""What a node remembers of its own disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from lakemark.model.ledger.soundness import Seen
from lakemark.ports.files import KnownFile


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
        """These files are of a record: committed, restored, its pointer or a copy (`why`). They are never committed again.

        Never of files that are in no record: whoever remembered those would make them be lost. Other files that had an inode's
        number before are forgotten: there is one at a time.
        """

    def known(self, file: KnownFile) -> str | None:
        """The record a file belongs to, or None. None, too, of one that is `doubtful`, unless it comes with the digest it had."""

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

    def bind_directory(self, path: Path, directory: Directory) -> None:
        """From now on finds in `path` belong to this attempt. Links are followed: it is the same under another name."""

    def directory(self, path: Path) -> Directory | None: ...

    def looked(self, key: str, *, at: datetime) -> datetime | None:
        """Notes a look at `key` (a branch, a tier) and answers when the previous one was."""

    def last_looked(self, key: str) -> datetime | None: ...

    def forget_looks(self, prefix: str, *, before: datetime) -> None:
        """Of keys that begin with `prefix` those looked at last before then: what was found out by these is found out anew."""

    def saw(self, source: str, tips: Mapping[str, str]) -> None:
        """That `source` knows these tips of the ledger: branch -> revision, each in place of what it knew of that branch.

        Survives kill -9 at once and power loss a moment later: it stands in the way of no append.
        """

    def seen(self, branch: str | None = None) -> tuple[Seen, ...]:
        """All that `saw` was told, of one branch or of all."""

    def forget_seen(self, seen: Iterable[Seen]) -> None:
        """What is known to be lost for good, or to be part of the ledger by now."""
