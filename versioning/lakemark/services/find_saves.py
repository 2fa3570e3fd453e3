"""Find saves: what trainers announced, and what lies in their directories unannounced."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path

from lakemark.errors import Incomplete, LakemarkError, NotFound
from lakemark.model.judging import STATE, whole_state
from lakemark.model.ledger import RunState
from lakemark.ports import Directory, Found, Site, Spooled, Unreadable, Verdict
from lakemark.services.abandoned import AGE, Abandoned, Unfinished, sort_out
from lakemark.services.announcements import newest, written_over
from lakemark.services.appending import announced
from lakemark.services.commit import Commit, Committed, commit
from lakemark.services.copies import Copies
from lakemark.services.no_room import keep_note, place_of, waiting_of
from lakemark.services.taking import held


@dataclass(slots=True, kw_only=True)
class Saves:
    """incomplete: found and not committed, with why; judged anew at each pass. failed: (path, error) of complete ones.

    lost: announced and not there any more. abandoned: what nobody goes on with; it is left where it is.
    unreadable: directories that can't be looked into, with why.
    """

    committed: list[Committed] = field(default_factory=list)
    incomplete: list[tuple[Path, str]] = field(default_factory=list)
    unreadable: list[tuple[Path, str]] = field(default_factory=list)
    lost: list[tuple[Path, str]] = field(default_factory=list)
    abandoned: list[Abandoned] = field(default_factory=list)
    failed: list[tuple[Path, LakemarkError]] = field(default_factory=list)


def commit_found(site: Site) -> Saves:
    """Commits every announced save of every open run, then every complete checkpoint found in watched directories.

    What the node committed, restored or moved aside before is known by its files and left alone, unread. One save that
    fails does not keep the others out.
    """
    saves = Saves()
    for run in site.ledger.runs():
        state = site.ledger.run(run)
        if state.closed:
            continue
        before = len(saves.failed)
        _announced(site, run, saves)
        for directory in directories(site, state):
            _directory(site, run, directory, saves)
        _note_waiting(site, run, saves, saves.failed[before:])
    return saves


def commit_directory(site: Site, run: str, directory: Path) -> Saves:
    """The same for the announced saves of one run and one directory of it."""
    saves = Saves()
    _announced(site, run, saves)
    bound = site.journal.directory(directory)
    if (bound is not None and bound.run == run) or directory in directories(site, site.ledger.run(run)):
        _directory(site, run, directory, saves)
    return saves


def find_new(site: Site, directory: Path, *, unreadable: Unreadable | None = None) -> Iterator[Found]:
    """What lies in the directory and is not known yet, in order of step. Nothing of what is known is read."""
    yield from site.recogniser.find(directory, skip=lambda paths: known(site, paths), unreadable=unreadable)


def known(site: Site, paths: Sequence[Path]) -> bool:
    """Whether every regular file of it is one this node committed, restored or moved aside."""
    try:
        files = [file for path in paths for file in site.workspace.identities(path)]
    except LakemarkError:
        return False
    return bool(files) and site.journal.all_known(files)


def waiting(site: Site) -> list[tuple[str, Path]]:
    """(run, path) of announced saves not yet committed: what `status` shows."""
    return [(run, spooled.path) for run in site.ledger.runs() for spooled in announced(site, run)]


def directories(site: Site, state: RunState) -> Iterator[Path]:
    """Where the run's trainers save on this node: as `run open --watch` registered it, then as `watch:` says."""
    seen: set[Path] = set()
    named = state.watch.get(site.node)
    wanted = [Path(named)] if named else []
    wanted.extend(path for one in site.watch if (path := one.directory(state.run)) is not None)
    for path in wanted:
        if path not in seen:
            seen.add(path)
            yield path


def _announced(site: Site, run: str, saves: Saves) -> None:
    here = list(announced(site, run))
    why_not = {one.file: written_over(site, one) for one in here}
    last, overtaken = newest(here, why=why_not)
    for spooled in overtaken:
        site.workspace.unspool(spooled)
    for spooled in last:
        why = why_not[spooled.file]
        if site.workspace.exists(spooled.path.parent) and not _is_there(site, spooled.path):
            if spooled.identity == {} and site.now() - spooled.saved_at < AGE:
                saves.incomplete.append((spooled.path, f"step {spooled.step} was announced before anything lay there"))
            else:
                _lost(site, spooled, saves, why="gone before it was committed")
        elif why is not None:
            said = f"step {spooled.step} was overwritten before it was committed ({why})"
            _overwritten(site, run, spooled, saves, said=said)
        else:
            _try(site, Commit(path=spooled.path, run=run, step=spooled.step, spooled=spooled, found=True), saves)


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
    _try(site, Commit(path=path, run=run, step=found.step, found=True, notes=(said,)), mine)
    saves.committed.extend(mine.committed)
    saves.failed.extend(mine.failed)
    saves.incomplete.extend((path, f"{said}, and now {why}") for path, why in mine.incomplete)
    if mine.committed:
        site.workspace.unspool(spooled)


def _note_waiting(site: Site, run: str, saves: Saves, failed: Sequence[tuple[Path, LakemarkError]]) -> None:
    try:
        keep_note(site, run, waiting_of(site, failed), before=None)
    except LakemarkError as error:
        saves.failed.append((place_of(site.home, run), error))


def _lost(site: Site, spooled: Spooled, saves: Saves, *, why: str) -> None:
    saves.lost.append((spooled.path, why))
    site.workspace.unspool(spooled)


def _is_there(site: Site, path: Path) -> bool:
    """Also where the path is only what the names of several files begin with."""
    if site.workspace.exists(path):
        return True
    try:
        return bool(site.recogniser.judge(path).members)
    except NotFound:
        return False


def _directory(site: Site, run: str, directory: Path, saves: Saves) -> None:
    if _is_another_s(site, run, directory):
        return
    found = list(find_new(site, directory, unreadable=lambda path, why: saves.unreadable.append((path, why))))
    whole = [one for one in found if one.verdict is Verdict.COMPLETE]
    tried = {path for path, _ in (*saves.incomplete, *saves.failed)}
    mine, dropped = Saves(), _dropped(whole)
    for one in whole:
        if one.step is not None and one.path not in tried:
            asked = Commit(path=one.path, run=run, step=one.step, found=True, directory=directory)
            _try(site, replace(asked, dropped=dropped[one.path]), mine)
    copies = Copies(site, run)
    for one in whole:
        if one.step is None and one.path not in tried:
            _without_step(site, copies, one, mine)
    saves.committed.extend(mine.committed)
    saves.failed.extend(mine.failed)
    left = [one for one in found if one.verdict is Verdict.COMPLETE or one.path not in tried]
    _sort(site, run, left, mine.incomplete, saves=saves)
    _bind(site, run, directory)


def _dropped(whole: Sequence[Found]) -> dict[Path, frozenset[str]]:
    """Of each: roles that every later save beside it lacks too; none where there is no later one."""
    dropped: dict[Path, frozenset[str]] = {}
    later: dict[str, set[str]] = {}
    for _, group in groupby(sorted(whole, key=_backwards), key=_backwards):
        same = list(group)
        for one in same:
            roles = later.get(one.framework)
            dropped[one.path] = frozenset() if roles is None else frozenset(STATE).difference(roles)
        for one in same:
            if whole_state(held(one)):
                later.setdefault(one.framework, set()).update(held(one), one.possible)
    return dropped


def _backwards(found: Found) -> int:
    return -(found.step or 0)


def _sort(site: Site, run: str, found: Sequence[Found], refused: list[tuple[Path, str]], *, saves: Saves) -> None:
    """What is not whole goes to `incomplete`, or to `abandoned`."""
    why = dict(refused)
    rows = [
        Unfinished(path=one.path, paths=one.paths, step=one.step, why=why.get(one.path, one.why), temporary=temporary)
        for one in found
        if (temporary := one.verdict is Verdict.TEMPORARY) or one.verdict is Verdict.INCOMPLETE or one.path in why
    ]
    steps = [
        one.step for one in found if one.verdict is Verdict.COMPLETE and one.path not in why and one.step is not None
    ]
    sorted_out = sort_out(site, site.ledger.run(run), rows, newest_step=max(steps, default=None))
    saves.incomplete.extend(sorted_out.incomplete)
    saves.abandoned.extend(sorted_out.abandoned)


def _is_another_s(site: Site, run: str, directory: Path) -> bool:
    """Whether another open run was opened on it, or resumed into it, since: what lies there belongs to that one now."""
    bound = site.journal.directory(directory)
    if bound is None or bound.run == run:
        return False
    state = site.ledger.run(bound.run)
    return state.exists and not state.closed and directory in directories(site, state)


def _bind(site: Site, run: str, directory: Path) -> None:
    """Whoever saves here now goes on to do so: a directory nobody bound belongs to the newest attempt from now on."""
    state = site.ledger.run(run)
    if state.attempt is None or not site.workspace.exists(directory):
        return
    bound = site.journal.directory(directory)
    if bound is None or bound.run != run:
        attempt = state.attempt
        made = Directory(run=run, timeline=attempt.timeline, attempt=attempt.id, sequence=state.sequence)
        site.journal.bind_directory(directory, made)


def _without_step(site: Site, copies: Copies, found: Found, saves: Saves) -> None:
    try:
        if not copies.is_one(found):
            saves.incomplete.append((found.path, "step unknown"))
    except LakemarkError as error:
        if _is_there(site, found.path):
            saves.failed.append((found.path, error))


def _try(site: Site, asked: Commit, saves: Saves) -> None:
    try:
        saves.committed.append(commit(site, asked))
    except LakemarkError as error:
        if isinstance(error, Incomplete):
            saves.incomplete.append((asked.path, str(error)))
        elif isinstance(error, NotFound) and not _is_there(site, asked.path):
            saves.incomplete.append((asked.path, "gone before it was committed"))
        else:
            saves.failed.append((asked.path, error))
