"""Find announced saves: what trainers said they had saved, where those very bytes lie there still."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from lakemark.errors import Corrupt, LakemarkError, Refused, StoreUnavailable
from lakemark.ports import Site, Spooled
from lakemark.services.ledger import announced
from lakemark.services.saves.abandoned import AGE
from lakemark.services.saves.announcements import Told, newest, together, written_over
from lakemark.services.saves.commit import Commit, Committed
from lakemark.services.saves.complete import complete, recorded_before
from lakemark.services.saves.outcomes import Saves, is_there, known, take, take_found
from lakemark.services.saves.waiting import note_lost


def commit_announced(site: Site, run: str, saves: Saves, *, inside: Sequence[Path]) -> None:
    """Commits the announced saves of a run; `saves` gets what came of each. inside: the run's own directories, if it has any.

    One of what is a record already completes that record, also where its files have gone since.
    """
    here = list(announced(site, run))
    why_not = {one.file: written_over(site, one) for one in here}
    # What lies there now decides, not the clock that stamped the announcements.
    last, overtaken = newest(here, why=why_not)
    told, overtaken = together(last, overtaken)
    for one in overtaken:
        _overtaken(site, run, one, saves)
    for save in told:
        mine = Saves(began=saves.began)
        _commit(site, run, save, mine, why=why_not[save.spooled.file], inside=inside)
        saves.extend(mine)
        # Not before what they said is durable.
        for other in save.others if mine.committed else ():
            site.spool.unspool(other)


def _commit(site: Site, run: str, told: Told, saves: Saves, *, why: str | None, inside: Sequence[Path]) -> None:
    spooled = told.spooled
    path, foreign = spooled.path, _foreign(site, spooled, inside)
    if foreign is not None:
        saves.failed.append((path, foreign))
        return
    there = is_there(site, path)
    if _completes(site, run, told, saves, lies=there and why is None):
        return
    if not there and _may_be_there(site, path, inside):
        # It was announced before its files were made: that none is there yet is no loss.
        if spooled.identity == {} and site.now() - spooled.saved_at < AGE:
            saves.incomplete.append((path, f"step {spooled.step} was announced before anything lay there"))
        elif site.files.exists(path.parent) and _is_empty(site, path.parent):
            why = f"step {spooled.step} was announced, and {path.parent} is empty: is its disk mounted?"
            saves.incomplete.append((path, why))
        else:
            _lost(site, run, spooled, saves, why=f"step {spooled.step} was gone before it was committed")
    elif why is not None:
        said = f"step {spooled.step} was overwritten before it was committed ({why})"
        _overwritten(site, run, spooled, saves, said=said, inside=inside)
    else:
        whole = _whole(site, spooled)
        asked = Commit(path=whole.path, run=run, step=whole.step, spooled=whole, found=True, notes=told.notes)
        take(site, asked, saves)


def _completes(site: Site, run: str, told: Told, saves: Saves, *, lies: bool) -> bool:
    """Whether it was of a record, which has now what was said of it; or has not, as `saves` says, and is asked again."""
    spooled = told.spooled
    try:
        state = site.ledger.run(run)
        found = recorded_before(site, state, spooled, lies=lies)
    except (Corrupt, StoreUnavailable):  # what the ledger can't say now, it is asked where the save is committed
        return False
    if found is None:
        return False
    try:
        record, notes = complete(site, found.record, spooled)
    except LakemarkError as error:
        saves.failed.append((spooled.path, error))
        return True
    why = "it was a record before it was announced"
    saves.committed.append(Committed(record=record, new=False, why=why, notes=(*told.notes, *notes)))
    site.spool.unspool(spooled)
    return True


def _overtaken(site: Site, run: str, spooled: Spooled, saves: Saves) -> None:
    """What it was announced of was written over, by a save that was announced, too."""
    if not _completes(site, run, Told(spooled=spooled), saves, lies=False):
        _lost(site, run, spooled, saves, why=f"step {spooled.step} was overwritten before it was committed")


def _may_be_there(site: Site, path: Path, inside: Sequence[Path]) -> bool:
    """Whether the folder that it lay in can be looked into, or is gone from a directory of the run that can be."""
    if site.files.exists(path.parent):
        return True
    above = next((one for one in path.parents if site.files.exists(one)), None)
    return above is not None and any(above.is_relative_to(one) for one in inside) and not _is_empty(site, above)


def _whole(site: Site, spooled: Spooled) -> Spooled:
    """Of a part of a step, as one of several models' folders, the announcement of all of it: it waits for the others."""
    try:
        whole = site.recogniser.judge(spooled.path).part_of
    except LakemarkError:
        return spooled  # it is told when it is taken
    # Its files speak for themselves alone; of the others nobody said that they are whole.
    return spooled if whole is None else replace(spooled, path=whole, identity={})


def _is_empty(site: Site, folder: Path) -> bool:
    """Whether nothing is seen there: then a save's absence says nothing, as a mount point looks like that without its disk."""
    try:
        return not site.files.regular(folder)
    except LakemarkError:
        return True


def _foreign(site: Site, spooled: Spooled, inside: Sequence[Path]) -> LakemarkError | None:
    """That it is not the announcer's to have committed. The announcement stays, so that it is told until somebody looks."""
    paths: Sequence[Path] = (spooled.path,)
    if not site.files.exists(spooled.path):
        try:
            paths = site.recogniser.judge(spooled.path).members or paths
        except LakemarkError:
            return None  # nothing lies there
    why = site.spool.not_to_take(spooled.file, paths, inside=inside)
    if why is None:
        return None
    return Refused(
        f"the announced step {spooled.step} of {spooled.run} is not taken: {why}",
        advice=f"If it is right: `lakemark commit PATH --run {spooled.run} --step {spooled.step}`; then remove {spooled.file}.",
    )


def _overwritten(site: Site, run: str, spooled: Spooled, saves: Saves, *, said: str, inside: Sequence[Path]) -> None:
    """Other bytes than those announced lie there. They are of the step that they say; else they wait to be announced."""
    path = spooled.path
    if known(site, [path]):
        _lost(site, run, spooled, saves, why=f"{said}; what lies there now is committed")
        return
    try:
        found = site.recogniser.judge(path)
    except LakemarkError as error:
        saves.failed.append((path, error))
        return
    if found.step is None or found.counted:
        saves.incomplete.append((path, f"{said}, and what lies there now does not say its step"))
        return
    mine = Saves(began=saves.began)
    directory = next((one for one in inside if one in path.parents), path.parent)
    asked = Commit(path=path, run=run, step=found.step, found=True, directory=directory, notes=(said,))
    take_found(site, asked, found, mine)
    mine.incomplete = [(path, f"{said}, and now {why}") for path, why in mine.incomplete]
    saves.extend(mine)
    if mine.left or (mine.committed and found.step != spooled.step):
        _lost(site, run, spooled, saves, why=said)
    elif mine.committed:
        site.spool.unspool(spooled)


def _lost(site: Site, run: str, spooled: Spooled, saves: Saves, *, why: str) -> None:
    saves.lost.append((spooled.path, why))
    # Before the announcement goes, which is all that tells of it.
    note_lost(site, run, spooled.path, why=why, since=spooled.saved_at, step=spooled.step)
    site.spool.unspool(spooled)
