"""Late saves: what a trainer that goes on writes after its run was closed. It is named, and stays where it is.

Nobody commits it, as somebody said that the run is over; but nobody told the trainer. Only runs that were closed within a
week are asked, and only where no other run saves into the directory by now.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from lakemark.errors import LakemarkError
from lakemark.model.ledger.outline import Outline
from lakemark.model.values.names import printable
from lakemark.ports import Site, Spooled, Verdict
from lakemark.services.directories import bound, directories
from lakemark.services.ledger import announced
from lakemark.services.saves.announcements import written_over
from lakemark.services.saves.complete import complete, recorded_before
from lakemark.services.saves.find import find_new
from lakemark.services.saves.outcomes import is_there
from lakemark.services.saves.waiting import LATE, LOST, WaitingSave, keep_note, noted

FOR: Final = timedelta(days=7)
_WHY: Final = "it was saved after its run was closed, and is kept nowhere"


@dataclass(frozen=True, slots=True, kw_only=True)
class LateSave:
    """since: when it was saved."""

    run: str
    path: Path
    since: datetime

    @property
    def why(self) -> str:
        return _WHY

    @property
    def next(self) -> str:
        return f"If the run goes on: lakemark run reopen {self.run} --reason …; else stop its trainer."


def late_saves(site: Site) -> list[LateSave]:
    """Those of every run that was closed lately; each run's note says them to `status`, beside what it said before."""
    found: list[LateSave] = []
    for run in site.ledger.runs():
        outline = site.ledger.outline(run)
        if not outline.closed or outline.closed_at is None or site.now() - outline.closed_at > FOR:
            continue
        mine = list(_of(site, outline, outline.closed_at))
        before = noted(site, run)
        # Others note there, too: what waits for room is not over because it was not looked for here.
        late = {
            printable(one.path): WaitingSave(
                path=printable(one.path), since=one.since, why=one.why, advice=one.next, sort=LATE
            )
            for one in mine
        }
        kept = [one for one in before if one.sort == LOST or (one.sort != LATE and one.path not in late)]
        keep_note(site, run, [*kept, *late.values()], before=before)
        found.extend(mine)
    return found


def _of(site: Site, outline: Outline, closed_at: datetime) -> Iterator[LateSave]:
    seen: set[Path] = set()
    for spooled in announced(site, outline.run):
        if spooled.saved_at > closed_at and not _completes(site, outline.run, spooled):
            seen.add(spooled.path)
            yield LateSave(run=outline.run, path=spooled.path, since=spooled.saved_at)
    # Files are stamped by the machine's own clock, whatever a simulated one says.
    for directory in () if site.simulated_clock else directories(site, outline):
        known = bound(site, directory)
        if known is None or known.run != outline.run:
            continue
        with suppress(LakemarkError):  # that one can't be looked into is said of an open run; this one is over
            for one in find_new(site, directory):
                written = site.files.last_change(one.members or [one.path])
                if one.verdict is Verdict.COMPLETE and one.path not in seen and written and written > closed_at:
                    yield LateSave(run=outline.run, path=one.path, since=written)


def _completes(site: Site, run: str, spooled: Spooled) -> bool:
    """Whether it only said late what a record is: that is added to it, and nothing of it is late."""
    with suppress(LakemarkError):
        lies = is_there(site, spooled.path) and written_over(site, spooled) is None
        found = recorded_before(site, site.ledger.run(run), spooled, lies=lies)
        if found is not None:
            complete(site, found.record, spooled)
            site.spool.unspool(spooled)
            return True
    return False
