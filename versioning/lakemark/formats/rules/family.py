"""What a framework's module offers: how its checkpoints look, and whether one is whole.

To recognise another framework, write a class with these methods and name it in the entry-point group `lakemark.formats`:

    [project.entry-points."lakemark.formats"]
    mine = "my_package.checkpoints:Mine"

It is asked before the built-in ones but the temporary names. It must read names and headers only, and never unpickle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from lakemark.formats.readers.folder import Folder
from lakemark.model.checkpoints.judging import resumes
from lakemark.model.checkpoints.manifest import Role
from lakemark.ports import Found, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Loose:
    """A candidate directly in a folder that is no checkpoint itself: a file, a set of files, a pointer, a marker.

    path: how it is spoken of; it need not exist where `members` (names in the folder) say what it consists of.
    names: what of the folder it accounts for; no other family looks at these. judge: reads it.
    """

    path: Path
    names: tuple[str, ...]
    judge: Callable[[], Found]
    step: int | None = None
    members: tuple[Path, ...] = ()

    @property
    def paths(self) -> tuple[Path, ...]:
        return self.members or (self.path,)


class Family(Protocol):
    """One framework's checkpoints, or those of a few that share a layout. No method raises for what it finds on disk."""

    def claims(self, folder: Folder) -> bool:
        """Whether the folder is one of its checkpoints, finished or not, by names alone: nothing is opened."""

    def step(self, folder: Folder) -> int | None:
        """The step that the name of a claimed folder says; the last component only, by an anchored pattern."""

    def judge(self, folder: Folder) -> Found:
        """Reads the headers in a claimed folder."""

    def loose(self, folder: Folder) -> Iterator[Loose]:
        """Its checkpoints, pointers, markers and leftovers directly in a folder that nobody claims, by names alone."""


@runtime_checkable
class Accompanied(Protocol):
    """A family of folders some of which are only whole with others that lie elsewhere."""

    def beside(self, folder: Folder) -> tuple[Path, ...]:
        """Folders beneath the parent of a claimed one that belong to the same checkpoint, by names alone; whole ones."""


class OfFolders:
    """What a family whose checkpoints are folders says of loose names: nothing."""

    def loose(self, folder: Folder) -> Iterator[Loose]:  # noqa: ARG002 - as the family's method
        return iter(())


class OfFiles:
    """What a family whose checkpoints are files says of folders: none is its own."""

    def claims(self, folder: Folder) -> bool:  # noqa: ARG002 - as the family's method
        return False

    def step(self, folder: Folder) -> int | None:  # noqa: ARG002 - as above
        return None

    def judge(self, folder: Folder) -> Found:
        """Of a folder that it never claims."""
        return found(folder.path, type(self).__name__.lower(), None, ["its checkpoints are files"])


def found(  # noqa: PLR0913 - a finding has that many sides
    path: Path,
    framework: str,
    step: int | None,
    problems: Sequence[str] = (),
    *,
    roles: Mapping[str, str] | None = None,
    present: Sequence[str] = (),
    possible: Sequence[str] = (),
    said: str = "",
    members: Sequence[Path] = (),
    ranks: Mapping[str, int] | None = None,
    ranks_told: bool = False,
    unfinished: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> Found:
    """A checkpoint: incomplete where there are problems, else complete with what is `said`.

    roles: file -> role. present: roles that files hold beyond those. possible: what nothing told.
    """
    # `other` is no role that anything could lack.
    have = ordered({*(roles or {}).values(), *present} - {Role.OTHER})
    maybe = ordered(set(possible) - set(have))
    resumable, gaps = resumes(have, maybe)
    return Found(
        path=path,
        framework=framework,
        step=step,
        verdict=Verdict.INCOMPLETE if problems else Verdict.COMPLETE,
        why="; ".join(problems) or _whole(have, maybe, gaps, said=said),
        members=tuple(members),
        roles=dict(roles or {}),
        present=have,
        possible=maybe,
        resumable=resumable,
        gaps=gaps,
        ranks=dict(ranks or {}),
        ranks_told=ranks_told,
        unfinished=tuple(unfinished),
        notes=tuple(notes),
    )


def temporary(
    path: Path, framework: str, step: int | None, why: str, *, roles: Mapping[str, str] | None = None
) -> Found:
    """Something whose name says that it is unfinished."""
    have = ordered(set((roles or {}).values()) - {Role.OTHER})
    return Found(
        path=path, framework=framework, step=step, verdict=Verdict.TEMPORARY, why=why, roles=roles or {}, present=have
    )


def pointer(
    path: Path, target: str, *, framework: str = "pointer-file", step: int | None = None, why: str = ""
) -> Found:
    """A file or link that names a checkpoint. target: as it is written there; empty where nothing is."""
    said = why or (f"it says {target[:200]!r}" if target else "it is empty")
    return Found(path=path, framework=framework, step=step, verdict=Verdict.POINTER, why=said, target=target)


def marker(path: Path, framework: str, why: str) -> Found:
    """A file whose being there says something of its sibling."""
    return Found(path=path, framework=framework, step=None, verdict=Verdict.MARKER, why=why)


def ordered(roles: set[str] | frozenset[str]) -> tuple[str, ...]:
    """In the order of `Role`, others after them by name."""
    return (
        *(role.value for role in Role if role.value in roles),
        *sorted(roles.difference(role.value for role in Role)),
    )


def _whole(present: Sequence[str], possible: Sequence[str], gaps: Sequence[str], *, said: str) -> str:
    # Said before what the family says: who restores it must know first that training can't go on from it.
    if set(present) - {Role.CONFIG, Role.TRAINER} == {Role.WEIGHTS} and not possible:
        return "whole; weights only: not resumable"
    if said:
        return said
    return f"whole; {', '.join(gaps)}" if gaps else "whole"
