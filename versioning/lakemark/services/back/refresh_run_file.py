"""Freshen: the run file names the newest record of the run's current timeline, whoever moved either, and wherever."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from lakemark.errors import Corrupt, NotFound
from lakemark.model.ledger.run import RecordState, RunState
from lakemark.model.runs.timeline import usable
from lakemark.model.values.canonical import JSON
from lakemark.ports import RunFile, Site
from lakemark.services.back.resume import newest_resumable
from lakemark.services.directories import directories
from lakemark.services.runs.open_run import write_run_file
from lakemark.services.saves.known_files import records_of
from lakemark.services.saves.layout import layout_of
from lakemark.services.saves.roles import role_of

_LOOKS = 4


def freshen(site: Site, run: str) -> bool:
    """Writes the run file anew where it says something else than the ledger; True where it did.

    Only of runs whose trainers are on this node: that have a run file here, or a directory. Where the ledger moves
    meanwhile, it looks again.
    """
    if site.ledger.outline(run).closed:
        return False
    written = False
    # Bounded: while a run's entries come faster than its file is written, the next look has it.
    for _ in range(_LOOKS):
        state = site.ledger.run(run)
        if state.closed or state.attempt is None:
            return written
        old, damaged = _read(site, run)
        if old is None and not damaged and next(directories(site, state), None) is None:
            return written
        resume = _resume(site, state, old)
        if old is None or _differs(old, state, resume):
            write_run_file(site, run, attempt=state.attempt.id, resume=resume)
            written = True
        # Where the ledger moved while this wrote, the file may have taken the place of a newer one.
        if site.ledger.run(run).sequence == state.sequence:
            return written
    return written


def _read(site: Site, run: str) -> tuple[RunFile | None, bool]:
    """The file, and whether it is damaged: a damaged one is written anew, one that was never made may be nobody's."""
    try:
        return site.spool.read_run_file(site.run_file(run)), False
    except Corrupt:
        return None, True


def _differs(old: RunFile, state: RunState, resume: dict[str, JSON] | None) -> bool:
    interval, attempt = state.interval, state.attempt
    data = [(ref.repository, ref.branch, ref.commit) for ref in (interval.data if interval else ())]
    said = [(ref.repository, ref.branch, ref.commit) for ref in old.data]
    here = (state.timeline, attempt.id if attempt else None, data)
    before = None if old.resume is None else dict(old.resume)
    return (old.timeline, old.attempt, said) != here or before != resume


def _resume(site: Site, state: RunState, old: RunFile | None) -> dict[str, JSON] | None:
    """Where to go on from; None where the current timeline has nothing to go on from."""
    found = _newest(site, state)
    if found is None:
        return None
    told: dict[str, JSON] = {"step": found.record.step, "record": found.record.id, "timeline": state.timeline}
    known = old.resume if old is not None else None
    if known is not None and {**known, "path": None} == {**told, "path": None}:
        # A path that is told stays while it is there: a trainer may be about to open it.
        path = site.here(state.run, Path(str(known["path"])))
        if site.files.exists(path):
            return {**told, "path": known["path"]}
    return {**told, "path": str(site.there(state.run, _path(site, state, found)))}


def _newest(site: Site, state: RunState) -> RecordState | None:
    """What was decided for the newest attempt, for all its nodes alike, until that attempt itself saved something newer."""
    attempt = state.attempt
    without = {role for gap in (attempt.accepted_gaps if attempt else ()) if (role := role_of(gap)) is not None}
    try:
        newest = newest_resumable(state, without=without)
    except NotFound:
        return None
    decided = state.records.get(attempt.record or "") if attempt is not None else None
    if attempt is None or decided is None or not usable(decided):
        return newest
    bound = site.journal.directory(Path(attempt.directory)) if attempt.directory else None
    begun = bound.sequence if bound is not None and bound.attempt == attempt.id else attempt.sequence
    own = newest.record.attempt == attempt.id and newest.sequence > begun
    return newest if own else decided


def _path(site: Site, state: RunState, found: RecordState) -> Path:
    """Where the record lies for a trainer of this node; where it lies nowhere here, where `resume` would put it."""
    folders = list(_folders(site, state))
    for folder in folders:
        layout = layout_of(site, state, found, to=folder)
        if all(_is_of(site, piece, found.record.id) for piece in layout.pieces):
            return layout.path
    # In a container only what is mounted there can be opened; hot's own folder need not be.
    inside = any(one.seen_as is not None and one.directory(state.run) is not None for one in site.watch)
    hot = found.replicas.get(site.hot.place)
    if hot is not None and hot.sound and not inside:
        with suppress(NotFound):
            return _sealed(site, state, found)
    folder = folders[0] if folders else site.restore_root / state.run
    return layout_of(site, state, found, to=folder).path


def _sealed(site: Site, state: RunState, found: RecordState) -> Path:
    """In hot, by the name that the trainer knows it by where that is one inside the tree. Raises NotFound."""
    tree = site.hot.path(found.record)
    layout = layout_of(site, state, found, to=tree)
    return tree / layout.path.name if layout.beside else tree


def _folders(site: Site, state: RunState) -> Iterator[Path]:
    """The newest attempt's directory, then those that are watched."""
    attempt = state.attempt
    if attempt is not None and attempt.directory is not None and attempt.node == site.node:
        yield Path(attempt.directory)
    yield from directories(site, state)


def _is_of(site: Site, path: Path, record: str) -> bool:
    """Whether every file there is of the record, by what the node remembers of its bytes."""
    if not site.files.exists(path):
        return False
    return set(records_of(site, [path]) or ()) == {record}
