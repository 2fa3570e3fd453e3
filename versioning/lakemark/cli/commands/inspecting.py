"""`inspect`."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakemark.cli.options import absolute, is_directory
from lakemark.cli.output import table
from lakemark.cli.session import Answer, session
from lakemark.errors import Denied, LakemarkError, Refused
from lakemark.model.checkpoints.judging import EARLIER, lost, no_more
from lakemark.model.values.names import not_read, printable

if TYPE_CHECKING:
    from lakemark.ports import Found, Recogniser

_HEADS = ("verdict", "step", "framework", "roles", "path", "why")
_NO_FRAMEWORK = "generic"
_COMPLETE = "complete"


def inspect(path: Path, /, *, run: str | None = None) -> Answer:
    """Say what lies at a path, by file rules only: nothing is opened with a framework, nothing is changed.

    Parameters
    ----------
    path: Path
        A checkpoint, or a directory with checkpoints.
    run: str
        Say also whose each save is, as a pass over this run's directories would judge it.
    """
    from lakemark.site import recogniser

    # Without a session's site: it works where there is no configuration, on files that anybody sent.
    judged, closed = _found(recogniser(), path)
    found = [_kept(one) for one in _compared(judged)]
    whose = _whose(run, found) if run is not None else {}
    document = {
        "found": [found_view(one) | whose.get(one.path, {}) for one in found],
        "unreadable": [{"path": printable(inside), "why": why} for inside, why in closed],
    }
    lines = table(_HEADS, map(_row, found)) or [f"no checkpoint in {printable(path)}"]
    told = [f"{printable(inside)}: {one['whose']}: {one['whose_why']}" for inside, one in whose.items()]
    return Answer(document=document, lines=[*lines, *told, *(f"{not_read(inside)}: {why}" for inside, why in closed)])


def _whose(run: str, found: Iterable[Found]) -> dict[Path, dict[str, Any]]:
    """Whose each whole save is, and why, by path."""
    from lakemark.services.whose import asked_whose

    here = session()
    state = here.site.ledger.run(here.history.name(run))
    told = {one.path: asked_whose(here.site, state, replace(one, path=absolute(one.path))) for one in found}
    return {path: {"whose": str(one), "whose_why": printable(one.why)} for path, one in told.items() if one is not None}


def found_view(found: Found) -> dict[str, Any]:
    """What was found, as documents show it. Bytes of names that are not UTF-8 come out as escapes."""
    return {
        "path": printable(found.path),
        "framework": found.framework,
        "step": found.step,
        "verdict": str(found.verdict),
        "roles": _roles(found),
        "possible": [str(role) for role in found.possible],
        "resumable": found.resumable,
        "gaps": list(found.gaps),
        "why": printable(found.why),
        "members": [printable(member) for member in found.members],
        "ranks": {printable(name): count for name, count in found.ranks.items()},
        "unfinished": [printable(name) for name in found.unfinished],
        "target": None if found.target is None else printable(found.target),
        "notes": [printable(note) for note in found.notes],
    }


def _found(known: Recogniser, path: Path) -> tuple[list[Found], list[tuple[Path, str]]]:
    """The checkpoint at `path`; of a directory that is none, what lies in it, and what can't be read. Raises NotFound, Denied."""
    try:
        whole = known.judge(path)
    # What is closed inside says so of itself; the rest of the directory can be shown.
    except Denied:
        found, closed = _inside(known, path) if is_directory(path) else ([], [])
        if found:
            return found, closed
        raise
    # A directory in which only the generic rule sees something, without a step in its name, is rather one of many checkpoints.
    itself = is_directory(path) and not os.path.islink(path)  # noqa: PTH114 - the method raises where the disk fails
    if whole.framework == _NO_FRAMEWORK and whole.step is None and itself:
        return _inside(known, path)
    return [whole], []


def _inside(known: Recogniser, path: Path) -> tuple[list[Found], list[tuple[Path, str]]]:
    closed: list[tuple[Path, str]] = []
    return list(known.find(path, unreadable=lambda inside, why: closed.append((inside, why)))), closed


def _compared(found: Iterable[Found]) -> Iterator[Found]:
    """Each with what it lost: roles that the earlier saves beside it have. found: in order of step."""
    # By folder and framework: weights beside full saves are not to be compared with these.
    earlier: dict[tuple[Path, str], deque[set[str]]] = {}
    for one in found:
        if one.step is None or one.verdict != _COMPLETE:
            yield one
            continue
        before = earlier.setdefault((one.path.parent, one.framework), deque(maxlen=EARLIER))
        # "other" is what no rule named: that it is gone means nothing.
        mine = set(_roles(one)) - {"other"}
        gone = lost(mine, [str(role) for role in one.possible], before)
        # After the comparison: a save is compared only with those before it.
        before.append(mine)
        yield replace(one, notes=(*one.notes, *map(no_more, gone))) if gone else one


def _kept(found: Found) -> Found:
    """With what a commit would refuse of a whole one: names, links that lead out, files of other sorts."""
    from lakemark.ports import Verdict
    from lakemark.site import require_keepable

    if found.verdict != _COMPLETE:
        return found
    try:
        require_keepable(found.path, found.members)
    except Refused as error:
        # Whoever reads `complete` counts on it that a commit takes it.
        return replace(found, verdict=Verdict.INCOMPLETE, why=f"a commit refuses it: {error}. {error.advice}")
    except LakemarkError:
        return found  # it is going, or closed to this user: `unreadable` says so
    return found


def _row(found: Found) -> tuple[object, ...]:
    roles = ",".join([*_roles(found), *(f"{role}?" for role in found.possible)])
    step = "-" if found.step is None else found.step
    notes = "".join(f"; {note}" for note in found.notes)
    return found.verdict, step, found.framework, roles or "-", printable(found.path), f"{printable(found.why)}{notes}"


def _roles(found: Found) -> list[str]:
    return sorted({str(role) for role in (*found.present, *found.roles.values())})
