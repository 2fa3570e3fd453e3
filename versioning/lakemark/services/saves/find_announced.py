"""Find announced saves: what trainers said they had saved, where those very bytes lie there still."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lakemark.errors import LakemarkError, Refused
from lakemark.ports import Site, Spooled
from lakemark.services.ledger import announced
from lakemark.services.saves.abandoned import AGE
from lakemark.services.saves.announcements import newest, written_over
from lakemark.services.saves.commit import Commit
from lakemark.services.saves.outcomes import Saves, is_there, known, take


def commit_announced(site: Site, run: str, saves: Saves, *, inside: Sequence[Path]) -> None:
    """Commits the announced saves of a run; `saves` gets what came of each. inside: the run's own directories, if it has any."""
    here = list(announced(site, run))
    why_not = {one.file: written_over(site, one) for one in here}
    # What lies there now decides, not the clock that stamped the announcements.
    last, overtaken = newest(here, why=why_not)
    for spooled in overtaken:
        site.spool.unspool(spooled)
    for spooled in last:
        why = why_not[spooled.file]
        foreign = _foreign(site, spooled, inside)
        if foreign is not None:
            saves.failed.append((spooled.path, foreign))
        elif site.files.exists(spooled.path.parent) and not is_there(site, spooled.path):
            # It was announced before its files were made: that none is there yet is no loss.
            if spooled.identity == {} and site.now() - spooled.saved_at < AGE:
                saves.incomplete.append((spooled.path, f"step {spooled.step} was announced before anything lay there"))
            elif _is_empty(site, spooled.path.parent):
                why = f"step {spooled.step} was announced, and {spooled.path.parent} is empty: is its disk mounted?"
                saves.incomplete.append((spooled.path, why))
            else:
                _lost(site, spooled, saves, why="gone before it was committed")
        elif why is not None:
            said = f"step {spooled.step} was overwritten before it was committed ({why})"
            _overwritten(site, run, spooled, saves, said=said)
        else:
            take(site, Commit(path=spooled.path, run=run, step=spooled.step, spooled=spooled, found=True), saves)


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


def _overwritten(site: Site, run: str, spooled: Spooled, saves: Saves, *, said: str) -> None:
    """Other bytes than those announced lie there. They are of the step that they say; else they wait to be announced."""
    path = spooled.path
    if known(site, [path]):
        _lost(site, spooled, saves, why=f"{said}; what lies there now is committed")
        return
    try:
        found = site.recogniser.judge(path)
    except LakemarkError as error:
        saves.failed.append((path, error))
        return
    if found.step is None or found.counted:
        saves.incomplete.append((path, f"{said}, and what lies there now does not say its step"))
        return
    mine = Saves()
    take(site, Commit(path=path, run=run, step=found.step, found=True, notes=(said,)), mine)
    mine.incomplete = [(path, f"{said}, and now {why}") for path, why in mine.incomplete]
    saves.extend(mine)
    if mine.committed:
        site.spool.unspool(spooled)


def _lost(site: Site, spooled: Spooled, saves: Saves, *, why: str) -> None:
    saves.lost.append((spooled.path, why))
    site.spool.unspool(spooled)
