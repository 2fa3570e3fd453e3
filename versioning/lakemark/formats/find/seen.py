"""The folder in which saves are judged one after the other: listed once, and anew when it changes.

Each of 20,000 saves is compared with what lies beside it; to list that for each takes hours.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from lakemark.formats.pointers.links_and_lines import NEWEST
from lakemark.formats.readers.folder import Folder
from lakemark.formats.rules.family import Family, Loose

_State: TypeAlias = tuple[int, int, int]


@dataclass(slots=True)
class SeenFolder:
    """loose: path, or that of a member -> candidate directly in it. steps: of its folders, by family, in order.

    states: of each folder that was listed for it, as it was before.
    """

    folder: Folder
    states: dict[str, _State | None]
    loose: dict[Path, Loose] | None = None
    steps: dict[int, list[tuple[int, str]]] = field(default_factory=dict)
    newest: tuple[str, ...] | None = None

    def note(self, candidates: Iterable[Loose]) -> dict[Path, Loose]:
        """The first has a path. Folders in it that are listed for them count as it does."""
        loose: dict[Path, Loose] = {}
        for one in candidates:
            for path in (one.path, *one.members):
                loose.setdefault(path, one)
        # Taken after they were listed; the folder's own was taken before, so a change during the listing shows.
        self.states |= {at: _state(at) for at in self.folder.listed()}
        self.loose = loose
        return loose

    def steps_of(self, family: Family, passed_over: Iterable[str]) -> list[tuple[int, str]]:
        """(step, name) of all folders in it whose names say a step to the family, whether or not it claims them."""
        # By identity: families need not be hashable, and live as long as the recogniser.
        rows = self.steps.get(id(family))
        if rows is None:
            names = (name for name in self.folder.folders if name not in passed_over)
            rows = sorted(
                (step, name)
                for name in names
                if (step := family.step(Folder(f"{self.folder.at.rstrip('/')}/{name}", 1))) is not None
            )
            self.steps[id(family)] = rows
        return rows

    def called_newest(self) -> tuple[str, ...]:
        """Those of its names that say which checkpoint is the newest."""
        if self.newest is None:
            self.newest = tuple(name for name in self.folder.kinds if NEWEST.fullmatch(name))
        return self.newest

    def holds(self) -> bool:
        """Whether nothing came, went or changed its name since; False also where a folder in it was looked into."""
        inside = self.folder.listed()
        return all(one in self.states for one in inside) and all(
            before is not None and _state(at) == before for at, before in self.states.items()
        )


class LastSeen:
    """Keeps one."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: SeenFolder | None = None

    def forget(self) -> None:
        self._seen = None

    def of(self, folder: Path, *, anew: bool = False) -> SeenFolder:
        """anew: also where it seems to be the same."""
        at, known = os.fspath(folder), self._seen
        if known is not None and not anew and known.folder.at == at and known.holds():
            return known
        made = SeenFolder(Folder(at), {at: _state(at)})
        self._seen = made
        return made


def _state(at: str) -> _State | None:
    """What of a folder changes with the names in it."""
    try:
        found = os.lstat(at)
    except OSError:
        return None
    # ctime too: a tool that sets mtime back, as rsync and tar do, can't hide a change.
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns
