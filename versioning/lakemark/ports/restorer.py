"""Checkpoints brought back into directories of the user."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Protocol, TypeAlias

from lakemark.model.checkpoints.manifest import File, Manifest
from lakemark.model.ledger.run import Place
from lakemark.ports.recogniser import Range
from lakemark.ports.work import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """files_by_place: how many regular files came from where ("kept": they lay there already, verified).

    sparse: path -> bytes of it that are there, of files that were restored in part; the rest are holes.
    """

    path: Path
    size_bytes: int
    files_by_place: Mapping[str, int]
    damaged: tuple[tuple[Place, str], ...] = ()
    sparse: Mapping[str, int] = field(default_factory=dict)


Fetch: TypeAlias = Callable[[File], Iterable[tuple[Place, AbstractContextManager[BinaryIO]]]]
"""Candidates for one file's bytes, nearest first. Entering one may raise: then the next is tried."""


FetchPart: TypeAlias = Callable[[File, int, int], Iterable[tuple[Place, AbstractContextManager[BinaryIO]]]]
"""The same for bytes of it: offset and length; the reader takes no more than that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sparse:
    """Files that are wanted in part, or not at all.

    wanted: asked once, with a tree where all other files are: path -> bytes wanted; what it does not name is left out.
    """

    paths: frozenset[str]
    wanted: Callable[[Path], Mapping[str, tuple[Range, ...]]]
    fetch: FetchPart


class Restorer(Protocol):
    """Brings checkpoints into directories of the user, and makes room for them. Guarantees, each a check of its contract.

    - `restore` shows the target whole or not at all, durably; every file's bytes were compared with the manifest. An
      interrupted one goes on when called again with the same checkpoint; a non-empty target that is not ours is Refused.
    - `restore_parts` does the same with holes in some files; every part that is there was compared with its own digest.
    - Every name is written beneath the target; a link is made as a link and never followed.
    """

    def restore(self, target: Path, manifest: Manifest, fetch: Fetch, *, tag: str, progress: Progress) -> Restored:
        """Writes the checkpoint into `target`, which must be absent, empty, or our own interrupted restore of `tag`.

        A candidate whose bytes are wrong or that fails is noted in `damaged`, and the next one tried for that file; `fetch`
        may offer one again. None left: StoreUnavailable where one may come back, SourceDamaged where one gave other bytes,
        else NoReplica. Refused: no space, target not empty.
        """

    def restore_parts(
        self, target: Path, manifest: Manifest, sparse: Sparse, *, fetch: Fetch, tag: str, progress: Progress
    ) -> Restored:
        """As `restore`, but the files of `sparse` get their full size and only the parts that hold what is wanted.

        A part is `part_size_bytes` of the manifest, as its digests are.
        """

    def matches(self, path: Path, manifest: Manifest, *, progress: Progress) -> bool:
        """Whether `path` holds exactly the manifest's files, every byte compared; `path` may be the one file itself."""

    def alone(self, directory: Path) -> AbstractContextManager[None]:
        """Held by one process at a time, which others wait for; the directory is made if need be."""

    def move_aside(self, paths: Iterable[Path], into: Path) -> tuple[Path, ...]:
        """Renames each of `paths` into the directory `into` (made if need be), durably; answers where they are now."""

    def tidy(self, path: Path) -> None:
        """Removes the directory `path` if it is empty, and then parents of it as far as `.lakemark-aside`."""
