"""Which files are a checkpoint, and whose."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol, TypeAlias

from lakemark.model.checkpoints.manifest import Manifest
from lakemark.ports.pointers import Pointer


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

    members: the files and directories it consists of where that is not `path` itself (TensorFlow's `ckpt-50` is a prefix
    of names); all lie beneath the parent of `path`. step: None where neither name nor content says.

    roles: path inside it (beneath `path`, or beneath the parent of members) -> the role of that file.
    present: roles it is known to hold; in formats that keep several in one file these are more than `roles` says.
    possible: roles that it may hold and neither names nor headers tell. resumable, gaps: as in a manifest.

    ranks: name of a per-rank set of files -> how many ranks it has. ranks_told: its own headers say how many model and data
    ranks there are, and it has them. unfinished: temporary files inside it.
    counted: its framework names no step, and `step` is the number of the save, report or epoch.
    fewer: all that is against it is that files of ranks are fewer than of the step beside it.
    unlisted: nothing in it says which files it has: no index, no marker written last, no count.
    metrics: what its framework itself wrote of that very step, in names or texts.
    target: what a pointer names, as it is written there. notes: findings that do not change the verdict.
    rolling: by its name the next save is written over it; `step` is what it says itself, where it is the only save of it; else
    `also` is: another save of that step lies there.
    pointed: names of links and one-line files beside it that name a step -> their form, as `Placed.kept` takes it; told by
    `judge` alone. part_of: the whole that it is only a part of, as other folders beside its own hold the rest; of `judge` alone.
    """

    path: Path
    framework: str
    step: int | None
    verdict: Verdict
    why: str
    members: tuple[Path, ...] = ()
    roles: Mapping[str, str] = field(default_factory=dict)
    present: tuple[str, ...] = ()
    possible: tuple[str, ...] = ()
    resumable: bool | None = None
    gaps: tuple[str, ...] = ()
    ranks: Mapping[str, int] = field(default_factory=dict)
    ranks_told: bool = False
    unfinished: tuple[str, ...] = ()
    counted: bool = False
    fewer: bool = False
    unlisted: bool = False
    target: str | None = None
    notes: tuple[str, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    pointed: Mapping[str, str] = field(default_factory=dict)
    part_of: Path | None = None
    rolling: bool = False
    also: int | None = None

    @property
    def paths(self) -> tuple[Path, ...]:
        """Where its bytes lie: its members, else `path`."""
        return self.members or (self.path,)


Skip: TypeAlias = Callable[[tuple[Path, ...]], bool]
"""Asked with the paths of a candidate before anything in it is read; True: it is passed over."""


Unreadable: TypeAlias = Callable[[Path, str], object]
"""Told of a directory that can't be listed, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A checkpoint in the directory that is resumed into. path: as a trainer names it; of members it may be a prefix.

    root: that directory. aside: where this job moves things of it, under the same relative paths. step: the record's.
    kept: links and lines that the run keeps beside its checkpoints, by name, each with its form.
    """

    path: Path
    framework: str
    root: Path
    aside: Path
    members: tuple[Path, ...] = ()
    step: int | None = None
    kept: Mapping[str, str] = field(default_factory=dict)

    @property
    def paths(self) -> tuple[Path, ...]:
        return self.members or (self.path,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Baked:
    """A place, as `file` says it; `now`: where what it means lies, if it came along."""

    file: Path
    path: str
    now: Path


Range: TypeAlias = tuple[int, int]
"""Offset and length, in bytes."""


class Recogniser(Protocol):
    """Tells checkpoints by file rules only: it reads names and headers, never imports a framework, never unpickles."""

    def find(self, root: Path, *, skip: Skip = ..., unreadable: Unreadable | None = None) -> Iterator[Found]:
        """What lies in `root`, at any depth, in order of step then path; checkpoints themselves are not entered.

        unreadable: told of each directory that can't be listed, but for checkpoints, which say so themselves. Nothing is
        followed out of `root`, and `.lakemark` and `.lakemark-aside` are passed over. Never raises for unreadable things.
        """

    def judge(self, path: Path) -> Found:
        """What `path` itself is, compared with the earlier steps beside it. Raises NotFound where there is nothing."""

    def pointers(self, placed: Placed) -> tuple[Pointer, ...]:
        """The framework's own pointers as they must be once `placed` is what training goes on from, changed or not."""

    def unset(self, placed: Placed) -> tuple[str, ...]:
        """What its framework goes by and can neither be set nor made here, a sentence each."""

    def baked(self, placed: Placed) -> tuple[Baked, ...]:
        """Places written into files of the checkpoint, or beside it, that no pointer repairs. Pickles are not read."""

    def of_world(self, manifest: Manifest, world: int) -> tuple[str, ...]:
        """What to know before `world` processes go on from it, a sentence each; empty where any number will do."""

    def ranges(self, tree: Path, manifest: Manifest, roles: Collection[str]) -> Mapping[str, tuple[Range, ...]]:
        """Which bytes of the files that mix roles are of `roles`, by path, as the manifest's `index_files` say.

        tree: a folder where the manifest's `index_files` lie; nothing else of it need be there. Raises Corrupt for an
        index that can't be read or names what is not there, NotFound where nothing in it is of `roles`.
        """

    def index_files(self, manifest: Manifest) -> Mapping[str, tuple[str, ...]]:
        """Files that say which bytes of others are of which role -> those others; empty where its format has none."""
