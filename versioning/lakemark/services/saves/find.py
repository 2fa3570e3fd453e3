"""Find saves: what trainers announced, then what lies in their directories unannounced."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from pathlib import Path

from lakemark.errors import Corrupt, LakemarkError, Refused, RunClosed, StoreUnavailable
from lakemark.model.checkpoints.judging import STATE, whole_state
from lakemark.model.ledger.outline import Outline
from lakemark.model.ledger.run import RunState
from lakemark.model.runs.whose import Known, Same
from lakemark.model.tiers.sharing import names_step
from lakemark.model.values.instants import to_text
from lakemark.model.values.names import printable
from lakemark.ports import Directory, Found, Mark, MarkKind, Site, Verdict
from lakemark.services.directories import bind, bound, directories, keep_mark, own_directories, seat_of
from lakemark.services.ledger import announced, committed
from lakemark.services.saves.abandoned import Unfinished, sort_out
from lakemark.services.saves.accept import held
from lakemark.services.saves.commit import Commit
from lakemark.services.saves.find_announced import commit_announced
from lakemark.services.saves.looks import Looked, Looks
from lakemark.services.saves.lost_ledger import for_saving
from lakemark.services.saves.outcomes import Saves, is_there, known_as, take_found
from lakemark.services.saves.side_copies import Copies
from lakemark.services.saves.waiting import (
    STEP_UNKNOWN,
    keep_note,
    left_of,
    place_of,
    still_lost,
    unfinished_of,
    waiting_of,
)
from lakemark.services.whose import Left, Owners, as_same, lies_there, record_of


def commit_found(site: Site) -> Saves:
    """Commits every announced save of every open run, then every complete checkpoint found in watched directories.

    A closed run is looked through once more after the close, before any other: what was saved while it was open is its own.

    What the node committed, restored or moved aside before is known by its files and left alone, unread. One save that
    fails does not keep the others out.
    """
    saves = Saves()
    outlines, unread = runs_of(site)
    for run in unread:
        commit_unread(site, run, saves)
    # Closed ones first: the directory may be another run's next, and what lies there was saved while this one was open.
    for one in sorted(outlines, key=lambda one: not one.closed):
        if not to_be_looked_through(site, one):
            continue
        mine = Saves()
        try:
            state = site.ledger.run(one.run)
        except (Corrupt, StoreUnavailable):  # its outline was known from before
            commit_unread(site, one.run, saves)
            continue
        commit_run(site, state, mine)
        _note_waiting(site, one.run, mine)
        saves.extend(mine)
    return saves


def runs_of(site: Site) -> tuple[list[Outline], list[str]]:
    """The runs that the ledger has, and names of those of which it can't say anything now, and trainers announce saves."""
    outlines: list[Outline] = []
    unread: set[str] = set()
    _, why = for_saving(site)
    for run in site.ledger.runs():
        try:
            outlines.append(site.ledger.outline(run))
        except (Corrupt, StoreUnavailable):
            unread.add(run)
    if why is not None:
        unread |= set(site.spool.announcing(site.home / "spool")) - {one.run for one in outlines}
    return outlines, sorted(unread)


def commit_unread(site: Site, run: str, saves: Saves) -> None:
    """Seals the announced saves of a run that the ledger can't say anything of: where its trainers save is not known then."""
    try:
        commit_announced(site, run, saves, inside=())
    except LakemarkError as error:
        saves.failed.append((site.spool_of(run), error))


def commit_run(site: Site, state: RunState, saves: Saves, *, looks: Looks | None = None) -> None:
    """The same for one run; `saves` gets what came of it. Of a run `to_be_looked_through` alone.

    looks: earlier ones of this process, so that directories in which nothing changed are not read again.
    """
    saves.began = state.sequence
    try:
        commit_announced(site, state.run, saves, inside=own_directories(site, state))
    except LakemarkError as error:
        saves.failed.append((site.spool_of(state.run), error))
    for directory in directories(site, state):
        # What is looked through once more after its close is read, whatever an earlier look came to.
        _directory(site, state.run, directory, saves, looks=None if state.closed else looks)
    if state.closed:
        # Until nothing is left that only lacks room, rights or quiet: who closed it may have thought that it was kept.
        left = [error for _, error in (*saves.failed, *saves.unsteady) if not isinstance(error, RunClosed)]
        saves.failed[:] = [(path, error) for path, error in saves.failed if not isinstance(error, RunClosed)]
        if not left:
            site.journal.marks.set(_after_close(state), at=site.now())


def to_be_looked_through(site: Site, state: RunState | Outline) -> bool:
    """Whether it is open, or was closed and this node has not looked through its directories since."""
    return state.exists and (not state.closed or site.journal.marks.get(_after_close(state)) is None)


def _after_close(state: RunState | Outline) -> Mark:
    return Mark(MarkKind.CLOSED, f"{state.run}:{to_text(state.closed_at) if state.closed_at else ''}")


def commit_directory(site: Site, run: str, directory: Path) -> Saves:
    """The same for the announced saves of one run and one directory of it; answers what came of them."""
    saves, state = Saves(), site.ledger.run(run)
    saves.began = state.sequence
    commit_announced(site, run, saves, inside=[*own_directories(site, state), directory])
    if is_looked_through(site, site.ledger.run(run), directory):
        _directory(site, run, directory, saves)
    return saves


def is_looked_through(site: Site, state: RunState, directory: Path) -> bool:
    """Whether the run's saves are looked for there: it is bound to the run, or one of its directories."""
    known = bound(site, directory)
    return (known is not None and known.run == state.run) or directory in directories(site, state)


def find_new(site: Site, directory: Path) -> Iterator[Found]:
    """What lies in the directory and is not known yet, in order of step. Nothing of what is known is read."""
    looked = Looked()
    look = _Look(site=site, state=None, looked=looked)
    return iter(site.recogniser.find(directory, skip=look.skip, unreadable=look.unreadable))


def find_of(site: Site, state: RunState, directory: Path) -> tuple[list[Found], list[Left]]:
    """The same of one of the run's directories, and what lies there and is not taken because of whose it is."""
    looked = _read(site, state.run, directory, lost=())
    return looked.found, looked.left


def _read(site: Site, run: str, directory: Path, *, lost: Collection[str]) -> Looked:
    """lost: ids of records of which no sound replica is left; what lies there of them may be all that there is."""
    looked = Looked()
    state = site.ledger.run(run)
    look = _Look(site=site, state=state, looked=looked, lost=lost)
    found = list(site.recogniser.find(directory, skip=look.skip, unreadable=look.unreadable))
    owners = Owners.of(site, state, directory)
    for one in found:
        if not look.settled(owners, one):
            looked.found.append(one)
    return looked


@dataclass(slots=True, kw_only=True)
class _Look:
    """One look through a directory. linked: what has files of a record whose step its name does not say, all known.

    state: of the run whose directory it is; None: nobody said.
    """

    site: Site
    state: RunState | None
    looked: Looked
    lost: Collection[str] = ()
    linked: dict[tuple[Path, ...], Same] = field(default_factory=dict)

    def skip(self, paths: Sequence[Path]) -> bool:
        """Whether it is of a record already: nothing of it is read then."""
        record = known_as(self.site, paths, but=self.lost)
        if record is None:
            return False
        same = None if self.state is None else self._other(self.state, record, tuple(paths))
        if same is not None:
            self.linked[tuple(paths)] = same
            return False
        self._known(paths, record)
        return True

    def settled(self, owners: Owners, found: Found) -> bool:
        """Whether nothing more is to be done about it: it is of a record, or of somebody else."""
        same = self.linked.get(found.paths)
        try:
            if same is not None and _is_that(owners, found, same):
                self._known(found.paths, same.record)
                return True
            left = owners.left(found, same=same) if found.step is not None or same is not None else None
        except LakemarkError:  # it is going, or not readable: whoever takes it says so
            return False
        if left is not None:
            self.looked.left.append(left)
            self.looked.known.extend(found.paths)
        return left is not None

    def unreadable(self, path: Path, why: str) -> None:
        self.looked.unreadable.append((path, why))

    def _known(self, paths: Sequence[Path], record: str) -> None:
        self.looked.passed_over.append((paths[0], record))
        self.looked.known.extend(paths)

    def _other(self, state: RunState, record: str, paths: tuple[Path, ...]) -> Same | None:
        """The record that it is, where it may be more than that: a save of another step, or a copy of another run's."""
        own = state.records.get(record)
        # The usual case, by its name alone.
        if own is not None and names_step((path.name for path in paths), own.record.step):
            return None
        kept = next((self.site.journal.kept(file) for path in paths for file in self.site.files.identities(path)), None)
        if kept is None or (own is not None and kept.why != Known.COMMITTED):
            return None
        found = own or record_of(self.site, state, record)
        if found is None or lies_there(self.site, found, paths[0]):
            return None
        return as_same(found, known=Known(kept.why) if kept.why in set(Known) else None)


def _is_that(owners: Owners, found: Found, same: Same) -> bool:
    """Whether it is no save of its own: not of another step, or that step's is recorded already."""
    if found.verdict is not Verdict.COMPLETE:
        return True
    return same.run == owners.state.run and (found.step in (None, same.step) or owners.is_recorded(found))


def waiting(site: Site) -> list[tuple[str, Path]]:
    """(run, path) of announced saves not yet committed: what `status` shows."""
    return [(run, spooled.path) for run in site.ledger.runs() for spooled in announced(site, run)]


def _note_waiting(site: Site, run: str, saves: Saves) -> None:
    try:
        unfinished = unfinished_of(site, site.ledger.run(run), saves.incomplete)
        rows = left_of(site, saves.left) | unfinished | waiting_of(site, saves.failed)
        keep_note(site, run, [*rows.values(), *still_lost(site, run)], before=None)
    except LakemarkError as error:
        saves.failed.append((place_of(site.home, run), error))


def lying_in(site: Site, directory: Path) -> frozenset[str]:
    """Ids of the records that lie in the directory, by what the node knows of their files."""
    looked = Looked()
    look = _Look(site=site, state=None, looked=looked, lost=())
    list(site.recogniser.find(directory, skip=look.skip, unreadable=look.unreadable))
    return frozenset(record for _, record in looked.passed_over)


def _directory(site: Site, run: str, directory: Path, saves: Saves, *, looks: Looks | None = None) -> None:
    if _is_another_s(site, run, directory):
        return
    lost = _lost(site.ledger.run(run))
    read = partial(_read, site, run, directory, lost=lost)
    looked = read() if looks is None else looks.through(site, directory, run=run, lost=lost, read=read)
    found = looked.found
    saves.unreadable.extend(looked.unreadable)
    saves.passed_over.extend(looked.passed_over)
    told = {one.path for one in saves.left}
    saves.left.extend(one for one in looked.left if one.path not in told)
    whole = [one for one in found if one.verdict is Verdict.COMPLETE]
    # What was announced was judged a moment ago, by more than its files: it is not judged again without that.
    tried = {path for path, _ in (*saves.incomplete, *saves.failed)}
    mine = Saves(began=saves.began)
    lying = frozenset(record for _, record in looked.passed_over)
    dropped, following = _after(whole)
    for one in whole:
        if one.step is not None and not one.rolling and one.path not in tried:
            asked = Commit(path=one.path, run=run, step=one.step, found=True, directory=directory, lying=lying)
            asked = replace(asked, dropped=dropped[one.path], later=following[one.path])
            take_found(site, asked, one, mine)
    # After those with a step: what they are copies of may have become a record just now.
    copies = Copies(site, run)
    for one in whole:
        if (one.step is None or one.rolling) and one.path not in tried:
            _without_step(site, copies, one, mine, directory=directory)
    left = [one for one in found if one.verdict is Verdict.COMPLETE or one.path not in tried]
    _refuse(site, [one for one in left if one.verdict is Verdict.INCOMPLETE], mine)
    saves.committed.extend(mine.committed)
    saves.failed.extend(mine.failed)
    saves.unsteady.extend(mine.unsteady)
    saves.left.extend(mine.left)
    saves.steps |= mine.steps
    refused = {path for path, _ in mine.failed}
    _sort(site, run, [one for one in left if one.path not in refused], mine.incomplete, saves=saves)
    _bind(site, run, directory)


def _lost(state: RunState) -> frozenset[str]:
    """Records that nobody removed on purpose and of which the ledger knows no sound replica."""
    return frozenset(
        found.record.id for found in state.live() if not any(replica.sound for replica in found.replicas.values())
    )


def _after(whole: Sequence[Found]) -> tuple[dict[Path, frozenset[str]], dict[Path, tuple[Path, ...]]]:
    """By what lies beside it of later steps. Of each: roles that all these saves lack too, and where the next one lies.

    Nothing where there is no later one of its framework.
    """
    dropped: dict[Path, frozenset[str]] = {}
    following: dict[Path, tuple[Path, ...]] = {}
    later: dict[str, set[str]] = {}
    nearest: dict[str, tuple[Path, ...]] = {}
    for _, group in groupby(sorted(whole, key=_backwards), key=_backwards):
        same = list(group)
        for one in same:
            roles = later.get(one.framework)
            dropped[one.path] = frozenset() if roles is None else frozenset(STATE).difference(roles)
            following[one.path] = nearest.get(one.framework, ())
        for one in same:
            if whole_state(held(one)):
                later.setdefault(one.framework, set()).update(held(one), one.possible)
        # Of several at one step the first that was found.
        nearest |= {one.framework: one.paths for one in reversed(same)}
    return dropped, following


def _backwards(found: Found) -> int:
    return -(found.step or 0)


def _refuse(site: Site, unfinished: Sequence[Found], saves: Saves) -> None:
    """Those that could not be kept either once they are whole: waiting does not help, so that is said at once."""
    for one in unfinished:
        try:
            site.files.require_keepable(one.path, one.members)
        except Refused as error:
            saves.failed.append((one.path, error))
            if one.step is not None:
                saves.steps[one.path] = one.step
        except LakemarkError:
            continue  # it is going, or not readable: `why` says so already


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
    """Whether another run was opened on it, or resumed into it, since: what lies there belongs to that one now.

    Also to one that was closed a moment ago, until it was looked through once more.
    """
    known = bound(site, directory)
    if known is None or known.run == run:
        return False
    other = site.ledger.outline(known.run)
    places = directories(site, other)
    return to_be_looked_through(site, other) and any(bound(site, place) == known for place in places)


def _is_taken(site: Site, run: str, found: Found) -> bool:
    """Whether a save of that step is a record that lay elsewhere: what is written over each time is no other state of it."""
    same = [one for one in site.ledger.run(run).records.values() if one.stands and one.record.step == found.step]
    return any(committed(site, one).source != printable(found.path) for one in same)


def _bind(site: Site, run: str, directory: Path) -> None:
    """Whoever saves here now goes on to do so: a directory nobody bound belongs to the newest attempt from now on."""
    state = site.ledger.run(run)
    if state.attempt is None or not site.files.exists(directory):
        return
    known = site.journal.directory(directory)
    if known is not None and known.run == run:
        keep_mark(site, directory, known)
        return
    # Only where nobody else said: an opening or a resume knows whose it is, this look only guesses.
    seat, attempts = seat_of(site, state, directory)
    mine = next((one for one in attempts if one.id == seat.attempt), None)
    # With one life alone there is nothing to mistake.
    if mine is not None and (seat.sure or len(state.timelines) <= 1):
        made = Directory(run=run, timeline=seat.timeline or mine.timeline, attempt=mine.id, sequence=state.sequence)
        bind(site, directory, made)


def _without_step(site: Site, copies: Copies, found: Found, saves: Saves, *, directory: Path) -> None:
    """Of what its name says no step: a copy, a save of the step that it says itself, or nobody knows."""
    try:
        if copies.is_one(found):
            return
        if found.step is None:
            # Beside a save of its step it is kept for the trainer's own use, as the best or the last.
            why = STEP_UNKNOWN if found.also is None else f"it says step {found.also}, of which another save lies there"
            saves.incomplete.append((found.path, why))
        elif not _is_taken(site, copies.run, found):
            asked = Commit(path=found.path, run=copies.run, step=found.step, found=True, directory=directory)
            take_found(site, asked, found, saves)
    except LakemarkError as error:
        if is_there(site, found.path):
            saves.failed.append((found.path, error))
