"""Saves: what became of those that a pass found, and whether one lies there or is known already."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Self

from lakemark.errors import Incomplete, InDistress, LakemarkError, NotFound, Unsteady
from lakemark.model.runs.whose import Lying, Seat, whose
from lakemark.ports import Found, Site
from lakemark.services.saves.abandoned import Abandoned
from lakemark.services.saves.commit import Commit, Committed, commit
from lakemark.services.saves.known_files import records_of
from lakemark.services.soundness import RECOVER
from lakemark.services.whose import Left, Owners


@dataclass(slots=True, kw_only=True)
class Saves:
    """incomplete: found and not committed, with why; judged anew at each pass. failed: (path, error) of complete ones.

    lost: announced and not there any more. abandoned: what nobody goes on with; it is left where it is.
    unreadable: directories that can't be looked into, with why. unsteady: those of `incomplete` that looked whole and were
    being written. passed_over: (path, record) of what is known already, unread.
    left: whole, and not taken because of whose it is.
    steps: of what is in `failed` and `incomplete`, where it is known. began: the run's last entry when the pass began.
    """

    committed: list[Committed] = field(default_factory=list)
    incomplete: list[tuple[Path, str]] = field(default_factory=list)
    unreadable: list[tuple[Path, str]] = field(default_factory=list)
    lost: list[tuple[Path, str]] = field(default_factory=list)
    abandoned: list[Abandoned] = field(default_factory=list)
    failed: list[tuple[Path, LakemarkError]] = field(default_factory=list)
    unsteady: list[tuple[Path, LakemarkError]] = field(default_factory=list)
    passed_over: list[tuple[Path, str]] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    steps: dict[Path, int] = field(default_factory=dict)
    began: int | None = None

    def extend(self, more: Self) -> None:
        """With what became of other saves."""
        for name in (one.name for one in fields(self) if one.name not in ("steps", "began")):
            getattr(self, name).extend(getattr(more, name))
        self.steps |= more.steps


def take(site: Site, asked: Commit, saves: Saves) -> None:
    """Commits it; `saves` gets what came of it."""
    try:
        done = commit(site, replace(asked, pass_began=saves.began))
        if done.copy is not None:
            told = whose(Lying(step=asked.step, written_at=None, same=done.copy), (), (), Seat(run=asked.run))
            saves.left.append(Left(path=asked.path, run=asked.run, step=asked.step, whose=told))
        elif done.pending is None:
            saves.committed.append(done)
        else:
            shown = f"{asked.run}@{asked.step} is sealed in {site.hot.name} and waits for its entry"
            saves.failed.append((asked.path, InDistress(f"{shown}: {done.pending}", advice=RECOVER)))
    except LakemarkError as error:
        saves.steps[asked.path] = asked.step
        # Kept apart: who closes or resumes a run must not go on as if what is being written were no save.
        if isinstance(error, Unsteady):
            saves.unsteady.append((asked.path, error))
        if isinstance(error, Incomplete):
            saves.incomplete.append((asked.path, str(error)))
        # Trainers delete old checkpoints: one that goes between a look and its commit is no error.
        elif isinstance(error, NotFound) and not is_there(site, asked.path):
            saves.incomplete.append((asked.path, "gone before it was committed"))
        else:
            saves.failed.append((asked.path, error))


def take_found(site: Site, asked: Commit, found: Found, saves: Saves) -> None:
    """The same of one that nobody announced, as whose it is now: what was committed a moment ago may have opened a timeline."""
    try:
        owners = Owners.of(site, site.ledger.run(asked.run), asked.directory or asked.path.parent)
        same = owners.same_as(found.paths)
        left = owners.left(found, same=same)
        told = owners.whose(found, same=same)
    except LakemarkError:  # it is going, or not readable: the commit says so
        take(site, asked, saves)
        return
    if left is not None:
        saves.left.append(left)
        return
    linked = same is not None and same.run == asked.run and same.step != asked.step
    notes = (f"its files are those of step {same.step}, under names of its own",) if same and linked else ()
    take(site, replace(asked, whose=told, notes=(*asked.notes, *notes)), saves)


def known(site: Site, paths: Sequence[Path], *, but: Collection[str] = ()) -> bool:
    """Whether every regular file of it is one this node committed, restored or moved aside.

    but: ids of records whose files don't count as known.
    """
    return known_as(site, paths, but=but) is not None


def known_as(site: Site, paths: Sequence[Path], *, but: Collection[str] = ()) -> str | None:
    """The same, as the record that the first of its files is of; None where one of them is not known."""
    try:
        records = records_of(site, paths)
    except LakemarkError:
        return None
    if records is None or not set(but).isdisjoint(records):
        return None
    return records[0]


def is_there(site: Site, path: Path) -> bool:
    """Also where the path is only what the names of several files begin with."""
    if site.files.exists(path):
        return True
    try:
        return bool(site.recogniser.judge(path).members)
    except NotFound:
        return False
