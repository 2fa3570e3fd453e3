"""Saves that a pass found and could not commit: noted after each, so that `status` can tell without looking for them itself.

`<home>/waiting/<run>.json`:

    {"format": "lakemark.waiting/1", "saves": [{"path": "/train/out/step-300", "since": "…Z", "why": "…", "advice": "…",
                                                "sort": "room", "size_bytes": 5}]}

sort: `room` (whole, and hot is full), `refused` (something in it, or about this node, has to be mended first), `unfinished`
(not whole yet; only of a run that has no record at all), `stepless` (whole, and nothing says its step), `late` (saved after the
run was closed), `lost` (announced, and gone before it was committed; until a later save is a record; with `step`), `left`
(whole, and not taken because of whose it is). Notes of older versions say `room` alone, by leaving it out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Self

from lakemark.errors import InDistress, LakemarkError, NoRoom
from lakemark.model.ledger.run import RunState
from lakemark.model.runs.timeline import latest
from lakemark.model.runs.whose import Owner
from lakemark.model.values.canonical import JSON
from lakemark.model.values.fields import Fields
from lakemark.model.values.instants import to_text
from lakemark.model.values.names import printable
from lakemark.ports import Site
from lakemark.services.whose import Left

FORMAT: Final = "lakemark.waiting/1"
ROOM: Final = "room"
REFUSED: Final = "refused"
UNFINISHED: Final = "unfinished"
STEPLESS: Final = "stepless"
STEP_UNKNOWN: Final = "step unknown"
LATE: Final = "late"
LOST: Final = "lost"
LEFT: Final = "left"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingSave:
    """One of them. since: when it was saved, as far as its files tell. advice: what helps, in one sentence.

    size_bytes: the room it needs; 0 where that is not known, or room is not what it waits for. step: of a lost one.
    """

    path: str
    since: datetime
    why: str
    advice: str = ""
    sort: str = ROOM
    size_bytes: int = 0
    step: int | None = None

    @classmethod
    def read(cls, document: JSON) -> tuple[Self, ...]:
        """Of a note; raises ValueError."""
        read = Fields(document, "a note of waiting saves")
        read.format(FORMAT)
        rows = [Fields(item, "a waiting save") for item in read.items("saves")]
        return tuple(
            cls(
                path=row.text("path"),
                since=row.instant("since"),
                why=row.text("why"),
                advice=row.text("advice", default=""),
                sort=row.text("sort", default=ROOM),
                size_bytes=row.integer("size_bytes", default=0),
                step=row.optional_integer("step"),
            )
            for row in rows
        )


def noted(site: Site, run: str) -> tuple[WaitingSave, ...]:
    """What the run's note says; nothing where it can't be read, or there is none."""
    try:
        return WaitingSave.read(site.notes.load(place_of(site.home, run)))
    except ValueError:
        return ()


def place_of(home: Path, run: str) -> Path:
    """Where the note of a run lies."""
    return home / "waiting" / f"{run}.json"


def waiting_of(site: Site, failed: Iterable[tuple[Path, LakemarkError]]) -> dict[Path, WaitingSave]:
    """What could not be committed. What is sealed and waits for the ledger's recovery is kept, and is not among them."""
    found: dict[Path, WaitingSave] = {}
    for path, error in failed:
        if isinstance(error, InDistress):
            continue
        sort = ROOM if isinstance(error, NoRoom) else REFUSED
        found[path] = _waiting(site, path, str(error), sort=sort, advice=error.advice)
    return found


def unfinished_of(site: Site, state: RunState, incomplete: Iterable[tuple[Path, str]]) -> dict[Path, WaitingSave]:
    """What is not whole yet, of a run without any record: it may never become so. Of any run what says no step."""
    command = f"lakemark commit PATH --run {state.run} --step N, or let its trainer announce it."
    return {
        path: _waiting(site, path, why, sort=STEPLESS, advice=command)
        if why == STEP_UNKNOWN
        else _waiting(site, path, why, sort=UNFINISHED)
        for path, why in incomplete
        if why == STEP_UNKNOWN or not state.records
    }


def left_of(site: Site, left: Iterable[Left]) -> dict[Path, WaitingSave]:
    """What is not taken because of whose it is. What lakemark brought there itself is no news."""
    return {
        one.path: _waiting(site, one.path, f"{one.whose}: {one.whose.why}", sort=LEFT, advice=one.next)
        for one in left
        if one.whose.owner is not Owner.RESTORED
    }


def _waiting(site: Site, path: Path, why: str, *, sort: str, advice: str = "") -> WaitingSave:
    return WaitingSave(
        path=printable(path),
        since=_since(site, path),
        why=printable(why),
        advice=printable(advice),
        sort=sort,
        size_bytes=_size_bytes(site, path) if sort == ROOM else 0,
    )


def note_lost(site: Site, run: str, path: Path, *, why: str, since: datetime, step: int) -> None:
    """Adds one that was announced and is gone to the run's note."""
    lost = WaitingSave(path=printable(path), since=min(since, site.now()), why=printable(why), sort=LOST, step=step)
    keep_note(site, run, [*noted(site, run), lost], before=None)


def still_lost(site: Site, run: str) -> list[WaitingSave]:
    """What is noted as lost of the run, as long as no later save of it is a record."""
    lost = [one for one in noted(site, run) if one.sort == LOST]
    newest = latest(site.ledger.run(run)) if lost else None
    if newest is None:
        return lost
    record = newest.record
    # By either: clocks are set back, and a process that goes back saves lower steps later.
    return [one for one in lost if record.saved_at <= one.since and record.step <= (one.step or 0)]


def keep_note(site: Site, run: str, waiting: Iterable[WaitingSave], *, before: Collection[WaitingSave] | None) -> None:
    """Writes the note of a run, unless `before` is what it says already; None: nobody knows what it says."""
    path = place_of(site.home, run)
    rows = _in_order(waiting)
    same = before is not None and rows == _in_order(before)
    if same or not (rows or site.files.exists(path)):
        return
    saves: list[JSON] = [
        {
            "path": one.path,
            "since": to_text(one.since),
            "why": one.why,
            "advice": one.advice,
            "sort": one.sort,
            "size_bytes": one.size_bytes,
            **({} if one.step is None else {"step": one.step}),
        }
        for one in rows
    ]
    site.notes.save(path, {"format": FORMAT, "saves": saves})


def need_bytes(waiting: Iterable[WaitingSave]) -> int:
    """The most that one of them needs: what hot must have room for; 0 where none waits."""
    return max((one.size_bytes for one in waiting), default=0)


def _size_bytes(site: Site, path: Path) -> int:
    try:
        return sum(one.file.size_bytes for one in site.files.regular(path, site.recogniser.judge(path).members))
    except LakemarkError:
        return 0


def _in_order(rows: Iterable[WaitingSave]) -> list[WaitingSave]:
    return sorted(rows, key=lambda one: (one.since, one.path))


def _since(site: Site, path: Path) -> datetime:
    written = None if site.simulated_clock else site.files.last_change([path])
    return site.now() if written is None else min(written, site.now())
