"""Which unfinished saves nobody goes on with. They are listed apart, and never touched or counted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from lakemark.model.ledger.run import RunState
from lakemark.model.runs.timeline import latest
from lakemark.ports import Site

AGE: Final = timedelta(hours=24)
"""Nothing in an abandoned save has changed for so long, and a newer step is whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """What was found and can't be committed. paths: where its files are. temporary: its name says that it is unfinished."""

    path: Path
    paths: tuple[Path, ...]
    step: int | None
    why: str
    temporary: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Abandoned:
    """since: when anything in it changed last."""

    path: Path
    why: str
    since: datetime


@dataclass(slots=True, kw_only=True)
class SortedOut:
    """incomplete: may still become whole, or somebody should look at it."""

    incomplete: list[tuple[Path, str]] = field(default_factory=list)
    abandoned: list[Abandoned] = field(default_factory=list)


def sort_out(site: Site, state: RunState, rows: Iterable[Unfinished], *, newest_step: int | None) -> SortedOut:
    """newest_step: of what was found whole and is not of the ledger yet.

    Something temporary is what a trainer at work leaves for a moment: it is listed only once it is old. Where the clock is
    simulated nothing is ever old, for files are stamped by another one.
    """
    newest = latest(state)
    steps = [step for step in (newest_step, newest.record.step if newest else None) if step is not None]
    result = SortedOut()
    for one in rows:
        since = None if site.simulated_clock else site.files.last_change(one.paths)
        # A large save may take hours from its first file to its last: only what no file of it changed in is given up.
        if since is None or site.now() - since < AGE:
            if not one.temporary:
                result.incomplete.append((one.path, one.why))
        elif _overtaken(one, since, steps, newest.instant if newest else None):
            result.abandoned.append(Abandoned(path=one.path, why=one.why, since=since))
        else:
            result.incomplete.append((one.path, one.why))
    return result


def _overtaken(one: Unfinished, since: datetime, steps: list[int], newest: datetime | None) -> bool:
    """Whether a newer step is whole; where its step is not known, whether a later save is."""
    if one.step is None:
        return newest is not None and newest > since
    return max(steps, default=-1) > one.step
