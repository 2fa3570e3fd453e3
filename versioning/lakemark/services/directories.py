"""Directories of runs: where their trainers save on this node, and whose saves are found there now.

Whose they are stands in the node's journal and in a mark beside the directory, `<parent>/.lakemark/whose/<name>.json`; where
nothing may be written there, in the directory, `.lakemark/whose.json`, once something lies in it: some trainers stop at an
output directory that is not empty. Finders pass `.lakemark` over.

    {"format": "lakemark.whose/1", "ledger": "…", "run": "llama", "timeline": 1, "attempt": "6f6f…", "sequence": 7}
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from lakemark.errors import LakemarkError
from lakemark.model.ledger.outline import Outline
from lakemark.model.ledger.run import Attempt, RunState
from lakemark.model.runs.whose import Seat
from lakemark.model.values import outside
from lakemark.model.values.canonical import JSON
from lakemark.model.values.fields import Fields
from lakemark.ports import Directory, Site

MARKS: Final = ".lakemark"
FORMAT: Final = "lakemark.whose/1"
_MOST: Final = 2**53


def directories(site: Site, state: RunState | Outline) -> Iterator[Path]:
    """Where the run's trainers save on this node: as `run open --watch` registered it, then as `watch:` says."""
    seen: set[Path] = set()
    named = state.watch.get(site.node)
    wanted = [Path(named)] if named else []
    wanted.extend(path for one in site.watch if (path := one.directory(state.run)) is not None)
    for path in wanted:
        if path not in seen:
            seen.add(path)
            yield path


def own_directories(site: Site, state: RunState) -> list[Path]:
    """Where trainers of the run save or saved, here or, by attempts that moved, elsewhere; empty where nobody ever said."""
    earlier = (Path(one.directory) for one in state.attempts.values() if one.directory)
    return [*directories(site, state), *earlier]


def watched_by(site: Site, path: Path) -> tuple[str | None, Path] | None:
    """Where `path` lies in a directory of an open run on this node, or is one: the run and the directory; None where in none.

    Also in one that `watch:` would find, of no run yet.
    """
    real = site.files.resolved(path)
    for run in site.ledger.runs():
        with suppress(LakemarkError):  # a run that can't be read keeps nobody from another
            outline = site.ledger.outline(run)
            for directory in () if outline.closed else directories(site, outline):
                if site.files.resolved(directory) in (real, *real.parents):
                    return run, directory
    closed = {one for run in site.ledger.runs() for one in _closed(site, run)}
    for one in site.watch:
        found = one.finds(real) or one.finds(path)
        if found is not None and found not in closed:
            return None, found
    return None


def _closed(site: Site, run: str) -> Iterator[Path]:
    with suppress(LakemarkError):
        outline = site.ledger.outline(run)
        if outline.closed:
            yield from directories(site, outline)


def bind(site: Site, path: Path, directory: Directory) -> None:
    """From now on finds in `path` belong to this attempt: in the journal, and in a mark beside it where one can be made."""
    site.journal.bind_directory(path, directory)
    _mark(site, path, directory)


def bound(site: Site, path: Path) -> Directory | None:
    """Whose finds in `path` are; by its mark where the journal does not know it."""
    return site.journal.directory(path) or _marked(site, path)


def keep_mark(site: Site, path: Path, directory: Directory) -> None:
    """Makes the mark of a directory where it is not there: nothing could be written then, or somebody cleared it away."""
    if not any(site.files.exists(place) for place in _places(path)):
        _mark(site, path, directory)


def seat_of(site: Site, state: RunState, path: Path) -> tuple[Seat, list[Attempt]]:
    """Whose saves are found in `path`, one of the run's directories, and the attempts that were open there, the oldest first."""
    here, others = _attempts(site, state, path)
    entries = [one for one in site.watch if one.directory(state.run) == path]
    # An open that names no directory counts in all that the run has on its node; before one was named, in none.
    others = [one for one in others if entries or not here or one.sequence > here[0].sequence]
    known = bound(site, path)
    attempts = {one.id: one for one in (*here, *others)}
    if known is not None and known.run == state.run:
        attempts |= {one.id: one for one in [state.attempts.get(known.attempt)] if one is not None}
    else:
        known = None
    rows = sorted(attempts.values(), key=lambda one: one.sequence)
    newest = next(reversed(here or rows), None)
    seat = Seat(
        run=state.run,
        attempt=known.attempt if known else newest.id if newest else None,
        timeline=known.timeline if known else newest.timeline if newest else None,
        since=min((one.started_at for one in rows), default=None),
        watched=_found_itself(entries_named=any(_finds(one.run, one.data) for one in entries), here=here, rows=rows),
        sure=known is not None or bool(here),
    )
    return seat, rows


def _attempts(site: Site, state: RunState, path: Path) -> tuple[list[Attempt], list[Attempt]]:
    """Those that named the directory, on any node, and this node's that named none. An approved rollback is no process."""
    rows = sorted(state.attempts.values(), key=lambda one: one.sequence)
    processes = [one for one in rows if one.id.rpartition("-")[0] not in state.rollbacks]
    real = site.files.resolved(path)
    here = [one for one in processes if one.directory and site.files.resolved(Path(one.directory)) == real]
    nowhere = [one for one in processes if not one.directory]
    return here, [one for one in nowhere if one.node == site.node] or nowhere


def _finds(run: str, data: str | None) -> bool:
    """Whether an entry of `watch:` finds directories that nobody opened."""
    return "{name}" in run or data is not None


def _found_itself(*, entries_named: bool, here: list[Attempt], rows: list[Attempt]) -> bool:
    # Who opened it by name first was told what lay there.
    return entries_named and not (here and here[0] == rows[0])


def _mark(site: Site, path: Path, directory: Directory) -> None:
    """Never raises: the journal has it, and a trainer's folder may be closed to us."""
    if site.reads_only:
        return
    with suppress(LakemarkError):
        beside, inside = _places(path)
        said: dict[str, JSON] = {
            "format": FORMAT,
            "ledger": site.ledger.id,
            "run": directory.run,
            "timeline": directory.timeline,
            "attempt": directory.attempt,
            "sequence": directory.sequence,
        }
        # Never the folder above as well: that may be a mount point whose disk is away.
        if site.files.exists(path.parent):
            with suppress(LakemarkError):
                site.notes.save(beside, said)
                return
        if site.files.exists(path) and site.files.identities(path):
            site.notes.save(inside, said)


def _marked(site: Site, path: Path) -> Directory | None:
    """As a mark says, where it is of this ledger, of an attempt that it knows."""
    for place in _places(path):
        with suppress(LakemarkError, ValueError):
            document = site.notes.load(place)
            if document is None:
                continue
            read = Fields(document, "a mark beside a directory")
            read.format(FORMAT)
            if outside.ledger_id(read.text("ledger")) != site.ledger.id:
                continue
            found = Directory(
                run=outside.run_name(read.text("run")),
                timeline=outside.bounded(read.integer("timeline"), least=1, most=_MOST, what="timeline"),
                attempt=outside.attempt_id(read.text("attempt")),
                sequence=outside.bounded(read.integer("sequence"), least=0, most=_MOST, what="sequence"),
            )
            state = site.ledger.run(found.run)
            # Anybody who saves there may have written it: it can only say what the ledger has.
            if found.attempt in state.attempts and found.timeline in state.timelines:
                return found
    return None


def _places(path: Path) -> tuple[Path, Path]:
    """Beside it, and in it."""
    return path.parent / MARKS / "whose" / f"{path.name}.json", path / MARKS / "whose.json"
