"""Sealed saves: where a save goes that is sealed while the ledger is in distress, and that the recovery makes a record.

The ledger at hand may be old, so what the trainer, its directory and the run file say of the save goes before it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from lakemark.errors import LakemarkError
from lakemark.model.checkpoints.record import DataRef, Evidence
from lakemark.model.runs.placing import Placement, Save, place, standing, timeline_of
from lakemark.ports import RunFile, Site

WAITS: Final = "waits"
"""In a sealed tree's marker: somebody was told that the save is kept, and no entry says so yet."""


def waiting_placement(site: Site, save: Save, run: str) -> Placement:
    """Where the save goes as far as can be told: of no timeline that would have to be opened now, and never refused.

    Its data is what its process is known to have opened; where only the old ledger could say, it is ambiguous.
    """
    state, said = site.ledger.run(run), _run_file(site, run)
    placed = place(state, save)
    if placed.known is not None:
        return placed
    told = [save.resumed_timeline, save.directory_timeline, said.timeline if said else None]
    timeline = max([number for number in told[:2] if number] or [number for number in told if number] or [1])
    if timeline in state.timelines:
        timeline = timeline_of(state, save)
    other = standing(state, timeline, save.step)
    return replace(
        placed,
        timeline=timeline,
        fork=None,
        collides=None,
        supersedes=placed.supersedes,
        conflicts=other.record.id if other and placed.supersedes is None else None,
        data=_data(save, said, placed.data),
    )


def _data(save: Save, said: RunFile | None, guessed: tuple[DataRef, ...]) -> tuple[DataRef, ...]:
    if save.announced:
        return save.data
    if said is not None and said.attempt == save.attempt:
        return said.data
    return tuple(replace(ref, evidence=Evidence.AMBIGUOUS) for ref in guessed)


def _run_file(site: Site, run: str) -> RunFile | None:
    try:
        return site.workspace.read_run_file(site.run_file(run))
    except LakemarkError:  # there may be none, on a node where nobody opened the run
        return None
