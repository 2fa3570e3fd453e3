"""What lies in a directory from before its run: no resume counts or moves it, as a fine-tune's base may lie there."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from lakemark.errors import LakemarkError, Refused, quoted
from lakemark.model.ledger.run import RecordState, RunState
from lakemark.model.runs.whose import Owner
from lakemark.model.values.names import printable
from lakemark.ports import Found, Mark, MarkKind, Site, Verdict
from lakemark.services.whose import Owners


def without_older(site: Site, state: RunState, finds: Iterable[Found], *, to: Path) -> list[Found]:
    """`finds` without those that are older than the run."""
    finds = list(finds)
    older = {one.path for one in _older(site, state, finds, to=to)}
    return [one for one in finds if one.path not in older]


def require_answered(
    site: Site, state: RunState, found: RecordState, *, to: Path, without: Collection[int], keep: bool = True
) -> None:
    """Raises Refused where the framework would load an older save instead of the record that was decided, naming its step.

    Once: whoever names it in `without` has answered, and is not asked again. keep=False: the answer is not kept.
    """
    if not site.files.exists(to):
        return
    for one in _older(site, state, site.recogniser.find(to), to=to):
        # Trainers that look for themselves take the greatest number of their own kind.
        if one.step is None or one.step <= found.record.step or one.framework != found.record.framework:
            continue
        mark = Mark(MarkKind.ANSWERED, f"{state.run}:{printable(one.path)}")
        if one.step in without and keep:
            site.journal.marks.set(mark, at=site.now())
        elif one.step not in without and site.journal.marks.get(mark) is None:
            raise Refused(
                f"{state.run} would go on from step {found.record.step}, and a trainer that looks for itself would load "
                f"{quoted(str(one.path))}, which is older than the run",
                advice=f"Move it elsewhere, or, where the trainer is told what to load: lakemark resume {state.run} --to {to} "
                f"--without-step {one.step}",
            )


def _older(site: Site, state: RunState, finds: Iterable[Found], *, to: Path) -> list[Found]:
    """Those of them that are older than the run, and of none of its records."""
    owners = Owners.of(site, state, to)
    older = []
    for one in finds:
        try:
            told = owners.whose(one, same=owners.same_as(one.paths)) if one.verdict is Verdict.COMPLETE else None
        except LakemarkError:  # it goes, or can't be looked at: no reason to call it old
            continue
        if told is not None and told.owner is Owner.OLDER:
            older.append(one)
    return older
