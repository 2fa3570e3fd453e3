"""What in a trainer's directory is later than the step it goes on from, and would be taken for the newest."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from lakemark.errors import Denied, NotFound
from lakemark.model.ledger.run import RecordState, RunState
from lakemark.ports import Found, Site, Verdict
from lakemark.services.saves.known_files import records_of

_UNFINISHED = "-unfinished"


def later_than(
    site: Site, state: RunState, found: RecordState, finds: Sequence[Found], *, native: Found | None
) -> list[Found]:
    """Whole and half-written checkpoints of later steps, temporary ones that are not surely older, and their markers.

    native: the checkpoint itself as the recogniser sees it: frameworks that count saves instead of steps (Accelerate)
    are compared by their own number, and what the node committed by its record. A half-written one of the same framework
    that nobody knows the step of goes aside too: its trainer would take it for the newest.
    """
    step = found.record.step
    framework = native.framework if native is not None else found.record.framework
    # A counter of saves is compared with counters of its own framework alone; a step with steps.
    own = framework if native is not None and native.step is not None else None
    later: list[Found] = []
    for one in finds:
        mine = native.step if native is not None and native.step is not None and one.framework == own else step
        if one.verdict in (Verdict.COMPLETE, Verdict.INCOMPLETE):
            known = _step_known(site, state, one)
            begun = one.verdict is Verdict.INCOMPLETE and one.step is None and one.framework == framework
            if (known is not None and known > step) or (one.step is not None and one.step > mine) or begun:
                later.append(one)
        elif one.verdict is Verdict.TEMPORARY:
            # A temporary one of this very step is what the trainer was writing when it died: it is not whole.
            if one.step is None or one.step >= mine:
                later.append(one)
        elif one.verdict is Verdict.MARKER and one.step is not None and one.step > mine:
            later.append(one)
    later.extend(_unfinished(site, finds, step=step))
    return [*later, *_markers(finds, later)]


def links_to(site: Site, finds: Sequence[Found], moving: Sequence[Path]) -> list[Found]:
    """Links that name one of `moving`, or another such link."""
    gone = set(moving)
    found: list[Found] = []
    links = [one for one in finds if _is_link(site, one) and one.path not in gone]
    more = True
    # Links to links: each round may find one that names what the last round found.
    while more:
        more = False
        for one in links:
            meant = _meant(one)
            if one not in found and (meant in gone or gone.intersection(meant.parents)):
                found.append(one)
                gone.add(one.path)
                more = True
    return found


def said_of_moved(site: Site, finds: Sequence[Found], moved: Sequence[Path]) -> Iterator[str]:
    """Texts that still name what was moved aside: whose they are is not known, so they stay as they are."""
    names = {path.name for path in moved}
    for one in finds:
        target = (one.target or "").strip()
        if one.verdict is Verdict.POINTER and target and Path(target).name in names and site.files.exists(one.path):
            yield f"{one.path} names {target!r}, which was moved aside"


def _step_known(site: Site, state: RunState, one: Found) -> int | None:
    """The step it was committed as, where all its files are of one record of the run; None also where it can't be read."""
    try:
        records = set(records_of(site, one.paths) or ())
    except (Denied, NotFound):
        return None
    record = state.records.get(next(iter(records))) if len(records) == 1 else None
    return record.record.step if record is not None else None


def _unfinished(site: Site, finds: Iterable[Found], *, step: int) -> Iterator[Found]:
    """What a marker beside it (NeMo's `<name>-unfinished`) says is not whole, unless it is surely of an older step."""
    for one in finds:
        beside = one.path.with_name(one.path.name.removesuffix(_UNFINISHED))
        if one.verdict is Verdict.MARKER and beside != one.path and site.files.exists(beside):
            judged = site.recogniser.judge(beside)
            if judged.step is None or judged.step > step:
                yield judged


def _markers(finds: Iterable[Found], later: Sequence[Found]) -> Iterator[Found]:
    """Markers whose names begin with that of something later."""
    names = {(path.parent, path.name) for one in later for path in (one.path, *one.members)}
    for one in finds:
        if one.verdict is Verdict.MARKER and one not in later:
            parent, name = one.path.parent, one.path.name
            if any(parent == folder and name.startswith(other) and name != other for folder, other in names):
                yield one


def _is_link(site: Site, one: Found) -> bool:
    """Whether it is a link that is there; of a text its files are known, of a link none."""
    there = one.verdict is Verdict.POINTER and one.target is not None and site.files.exists(one.path)
    return there and not site.files.identities(one.path)


def _meant(one: Found) -> Path:
    """Where the pointer points, by its text alone: what it names may be moved already."""
    return Path(os.path.normpath(one.path.parent / (one.target or "")))
