"""A node's own hot tier: what its fast disk does beyond a tier's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from lakemark.model.checkpoints.manifest import Manifest
from lakemark.model.checkpoints.record import Record
from lakemark.model.values.canonical import JSON
from lakemark.ports.files import KnownFile
from lakemark.ports.store import CheckpointStore, Damage
from lakemark.ports.work import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Landed:
    """A sealed tree that is durable in hot but not yet named: `Landings.adopt` names it.

    token: names the landing. linked: whether any file shares its inode with the trainer's.
    newest_mtime: of its files: a checkpoint nobody announced was saved then.
    taken: the trainer's files, as they were when their bytes were read.
    """

    token: str
    manifest: Manifest
    linked: bool
    newest_mtime: datetime
    taken: tuple[KnownFile, ...] = ()


class Landings(Protocol):
    """How saves get into hot. Guarantees, each a check of its contract.

    - `land` never changes, chmods or chowns the trainer's files, and hashes what it keeps, not what it saw.
    - A file that changes while it is landed or hashed raises Incomplete; one that vanishes too ("gone"); nothing stays behind.
    - Below `min_free` of the file system nothing new lands: NoRoom.
    """

    def land(
        self,
        source: Path,
        *,
        quiet_seconds: float,
        roles: Mapping[str, str],
        progress: Progress,
        members: Sequence[Path] = (),
        share: bool = True,
    ) -> Landed:
        """Takes the tree at `source` (a directory, or one file) over by reflink, hard link or copy, fsynced and hashed.

        members: files and directories beneath the folder that `source` is in; then the tree holds these under the paths they
        have there, and nothing else of that folder; `source` only says what they are called together.
        share: whether a hard link will do; without, what is kept is ours alone, whatever the trainer writes next.
        quiet_seconds: how long files must not have changed; 0 where the trainer said it is done.
        roles: path -> role. Raises Incomplete, Refused (paths, links outside), NoRoom, Denied, NotFound.
        """

    def adopt(
        self, landed: Landed, record: Record, *, entry: Mapping[str, JSON] | None = None, instead: bool = False
    ) -> bool:
        """Gives the landed tree the record's name, durably; True where it was new, False where it was there already.

        entry: kept with it, as `load` answers it: should this process end before the ledger has the entry, somebody else
        can append the same one.
        instead: whoever asks has read what stands under that name, and it is wrong: the landed tree takes its place,
        whatever it looks like.
        """

    def naming(self) -> AbstractContextManager[None]:
        """Held from `adopt` until an entry claims the tree, by any number of processes; it ends with its process."""

    def settled(self) -> AbstractContextManager[bool]:
        """Whether nobody holds `naming` now. While it is held nobody begins to: what has a name and no entry is left over."""

    def discard(self, landed: Landed) -> None:
        """Drops a landed tree that got no name."""

    def clean(self) -> int:
        """Removes landings whose process is gone; answers how many."""

    def full(self, need_bytes: int = 0) -> bool:
        """Whether nothing new lands, or nothing of `need_bytes` does.

        The file system is, or would be, below `min_free`; or that, or another like its largest, is beyond `capacity`.
        """


class SealedTrees(Protocol):
    """Trees that have their names, on this disk. Guarantees, each a check of its contract.

    A linked file that the trainer overwrote in place is found by `Replicas.verify` and by `changed` (suspect); one it
    unlinked or renamed is healthy.
    """

    def changed(self, record: str) -> tuple[Damage, ...]:
        """A cheap look at the identity of linked files; an empty answer where all are as sealed, or nothing tells how they were.

        Raises NotFound where there is no tree of that record id.
        """

    def unshare(self, record: str, *, progress: Progress) -> bool:
        """Copies linked files so that the trainer can overwrite its own; True if any was linked. Corrupt if one had changed."""

    def path(self, record: Record) -> Path:
        """The sealed tree. Read-only to whoever asks. Raises NotFound."""

    def note_recorded(self, records: Iterable[str]) -> None:
        """That an entry of some ledger holds these trees' records: whoever finds one that his ledger lacks must not undo it.

        Kept through kill -9; whoever is told of a tree that is not here does nothing.
        """

    def recorded(self) -> frozenset[str]:
        """Records of the trees here that `note_recorded` was told of."""


class HotStore(CheckpointStore, Landings, SealedTrees, Protocol):
    """A node's own hot tier, whole: sealed directory trees on its fast disk."""
