"""Watch: what a node's service does. Kinds of work that may run beside each other, so that none waits for another's server.

announced   commits what trainers announced                          as soon as they do
found       looks through their directories                          when something changed there and was quiet, and in turn
tended      opens runs, keeps pins, rollbacks and hot in order       in turn
to TIER     replicates to that tier: a kind of work for each tier    after commits, and in turn
moved       reads back, releases, collects                           after those, and in turn

Each is what `sweep` does, in smaller pieces: whoever comes second finds it done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Final

from lakemark.errors import Corrupt, LakemarkError, StoreUnavailable
from lakemark.model.ledger.run import RunState
from lakemark.model.values.names import not_read, printable
from lakemark.ports import Site
from lakemark.ports.watching import Lookout
from lakemark.services.back.refresh_run_file import freshen
from lakemark.services.data.tend import data_pause
from lakemark.services.directories import directories, own_directories
from lakemark.services.ledger import require_identity
from lakemark.services.node.duties import collect
from lakemark.services.node.problems import Problems
from lakemark.services.node.rounds import Done, Work
from lakemark.services.node.sweep import sweep
from lakemark.services.node.swept import Swept
from lakemark.services.runs.open_watched import open_watched
from lakemark.services.saves.find import (
    commit_run,
    commit_unread,
    runs_of,
    to_be_looked_through,
)
from lakemark.services.saves.find_announced import commit_announced
from lakemark.services.saves.looks import Looks
from lakemark.services.saves.lost_ledger import for_saving_of
from lakemark.services.saves.outcomes import Saves
from lakemark.services.saves.waiting import (
    WaitingSave,
    keep_note,
    left_of,
    need_bytes,
    still_lost,
    unfinished_of,
    waiting_of,
)
from lakemark.services.site_facts import beat
from lakemark.services.tiers.demote import Pending, begin, plan, present, settle, sink, tier_of
from lakemark.services.tiers.store_note import note_stores

TEND_EVERY: Final = timedelta(minutes=5)
COLLECT_EVERY: Final = timedelta(minutes=15)
_AT_ONCE: Final = 4
_LOOKED_THROUGH_AT_ONCE: Final = 8
"""Most of them wait for files to be quiet."""
PATIENCE: Final = timedelta(minutes=10)
"""How long a save may be unfinished before that is said."""


@dataclass(slots=True, kw_only=True)
class Totals:
    """Since the service began."""

    opened: int = 0
    committed: int = 0
    replicated: int = 0
    released: int = 0
    last_committed_at: datetime | None = None


@dataclass(slots=True)
class _Turns:
    """One kind of work at a time for each run: two would hash the same save."""

    _busy: set[str] = field(default_factory=set)
    _lock: Lock = field(default_factory=Lock)

    @contextmanager
    def of(self, run: str) -> Iterator[bool]:
        """Whether it is the caller's turn."""
        with self._lock:
            # Who doesn't get it does not wait: its run comes again, and others are done meanwhile.
            mine = run not in self._busy
            self._busy.add(run)
        try:
            yield mine
        finally:
            # Only its own turn: who was refused must not end the other's.
            if mine:
                with self._lock:
                    self._busy.discard(run)


@dataclass(slots=True)
class _Turn:
    """Which runs one kind of work has done with, and as of which entry; all come again every five minutes."""

    all_at: datetime | None = None
    done: dict[str, int] = field(default_factory=dict)

    def due(self, sequences: Mapping[str, int], now: datetime) -> list[str]:
        """Those that changed, or are not done with."""
        if _due(self.all_at, now, TEND_EVERY):
            # Time alone makes things due (settling, retention, recheck), which no entry tells.
            self.all_at, self.done = now, {}
        self.done = {run: sequence for run, sequence in self.done.items() if run in sequences}
        return [run for run, sequence in sequences.items() if self.done.get(run) != sequence]

    def over(self, run: str, sequence: int) -> None:
        self.done[run] = sequence


class Watch:
    """stopping: set to begin no more work.

    say: told a line whenever something was done or changed for better or worse. Safe to be called by any thread.

    moving: called when there is something to move, freshly committed. settling: when something was replicated.
    """

    def __init__(
        self,
        site: Site,
        lookout: Lookout,
        *,
        say: Callable[[str], None],
    ) -> None:
        self.site = site
        self.lookout = lookout
        self.problems = Problems()
        self.totals = Totals()
        self.stopping = False
        self.say = say
        self.moving: Callable[[], None] = lambda: None
        self.settling: Callable[[], None] = lambda: None
        self._turns = _Turns()
        self._looks = Looks()
        self._listening = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="lakemark-announced")
        self._looking = ThreadPoolExecutor(_LOOKED_THROUGH_AT_ONCE, thread_name_prefix="lakemark-found")
        self._count = Lock()
        self._tended_at: datetime | None = None
        self._ended: set[str] = set()
        self._data_looked = self._data_next = datetime.min.replace(tzinfo=UTC)
        self._data_turn = 0
        self._unclaimed: frozenset[str] = frozenset()
        self._collected_at: datetime | None = None
        self._sinking = {name: _Turn() for name in site.tiers if name != site.hot.name}
        self._settling = _Turn()
        self._refusing: dict[str, str] = {}
        self._waiting: dict[str, dict[Path, WaitingSave]] = {}
        self._lost: dict[str, list[WaitingSave]] = {}

    # Saves

    def announced(self, runs: frozenset[str] | None) -> Done:
        """Commits the announced saves of these runs; None: of all that are open."""
        return self._each(runs, _announced, whole=False)

    def found(self, runs: frozenset[str] | None) -> Done:
        """Looks through the directories of these runs, and for what was announced; keeps their run files fresh."""
        return self._each(runs, partial(commit_run, looks=self._looks), whole=True)

    def _each(self, runs: frozenset[str] | None, work: Callable[[Site, RunState, Saves], None], *, whole: bool) -> Done:
        """A few runs at a time: one whose files must be quiet first, or that is large, does not keep the others waiting."""
        states, unread = runs_of(self.site)
        wanted = [run for run in (*(one.run for one in states), *unread) if runs is None or run in runs]
        pool = self._looking if whole else self._listening
        done = list(pool.map(partial(self._one, work=work, whole=whole), wanted))
        return Done(again=frozenset(run for run, mine in zip(wanted, done, strict=True) if not mine))

    def _one(self, run: str, *, work: Callable[[Site, RunState, Saves], None], whole: bool) -> bool:
        """False where another round is busy with the run."""
        with self._turns.of(run) as mine:
            if mine and not self.stopping:
                self._saves(run, work, whole=whole)
        return mine

    def _look_through(self, run: str, work: Callable[[Site, RunState, Saves], None], saves: Saves) -> None:
        """Where the ledger can't be read, only what is announced: where its trainers save is not known then."""
        site, why, _ = for_saving_of(self.site, run)
        outline = site.ledger.outline(run)
        if why is not None and not outline.exists:
            commit_unread(site, run, saves)
        elif to_be_looked_through(self.site, outline):
            # One that was closed is looked through as a whole, so that this need not be done again.
            (commit_run if outline.closed else work)(self.site, site.ledger.run(run), saves)

    def _at_rest(self, run: str) -> bool:
        """Closed, and looked through since: told by its outline, so that a site's finished runs are not read each time."""
        try:
            outline = self.site.ledger.outline(run)
        except (Corrupt, StoreUnavailable):
            return False
        return outline.exists and outline.closed and not to_be_looked_through(self.site, outline)

    def _saves(self, run: str, work: Callable[[Site, RunState, Saves], None], *, whole: bool) -> None:
        saves = Saves()
        pending: list[Pending] = []
        with _gathering(pending, f"saves of {run}"):
            if not self._at_rest(run):
                self._look_through(run, work, saves)
        with _gathering(pending, f"the run file of {run}"):
            # After a commit at once: what a trainer resumes from is what the file says.
            if whole or saves.committed:
                freshen(self.site, run)
        self._committed(saves)
        for path, why in saves.lost:
            self.say(f"lost {printable(path)}: {why}")
        pending += [Pending.of(printable(path), error) for path, error in saves.failed]
        pending += [Pending(what=not_read(path), why=why) for path, why in saves.unreadable]
        with _gathering(pending, f"the note of what waits of {run}"):
            self._note_waiting(run, saves, whole=whole)
        self._note(_scope(run), pending, whole=whole)
        waiting = [Pending(what=f"incomplete {printable(path)}", why=why) for path, why in saves.incomplete]
        self._note(f"{_scope(run)}, unfinished", waiting, whole=whole, patience=PATIENCE)
        left = [Pending(what=f"left {printable(one.path)}", why=f"{one.whose}: {one.whose.why}") for one in saves.left]
        self._note(f"{_scope(run)}, left", left, whole=whole)

    def _note_waiting(self, run: str, saves: Saves, *, whole: bool) -> None:
        """A pass that looked at announcements alone can't tell that others wait no more."""
        # None after a start: then what an earlier service noted is unknown, and is written anew.
        before = self._waiting.get(run)
        incomplete = saves.incomplete
        unfinished = unfinished_of(self.site, self.site.ledger.run(run), incomplete) if incomplete else {}
        found = left_of(self.site, saves.left) | unfinished | waiting_of(self.site, saves.failed)
        now = ({} if whole else before or {}) | found
        lost = still_lost(self.site, run)
        known = None if before is None else [*before.values(), *self._lost.get(run, ())]
        keep_note(self.site, run, [*now.values(), *lost], before=None if saves.lost else known)
        self._waiting[run], self._lost[run] = now, lost

    def _committed(self, saves: Saves) -> None:
        for done in saves.committed:
            for note in () if done.new else done.notes:
                self.say(f"{done.record.run}@{done.record.step}: {note}")
        new = [done for done in saves.committed if done.new]
        if not new:
            return
        with self._count:
            self.totals.committed += len(new)
            self.totals.last_committed_at = self.site.now()
        for done in new:
            shown = f"{done.record.run}@{done.record.step}"
            self.say(f"committed {shown} ({done.record.id[:12]})")
            for note in done.notes:
                self.say(f"{shown}: {note}")
        self.moving()

    # Everything else of this node that waits for lakeFS, or for nobody

    def tended(self, _: frozenset[str] | None) -> Done:
        """Opens runs whose directory appeared; every five minutes all of a sweep but saves and replicas."""
        site = self.site
        opened = open_watched(site, self.lookout)
        for one in opened.opened:
            self.say(f"opened {one.run}, timeline {one.timeline}, run file {one.run_file}")
        self.totals.opened += len(opened.opened)
        self._note("open", opened.pending)
        now = site.now()
        if _due(self._tended_at, now, TEND_EVERY):
            self._tended_at = now
            # Also where the clock was set back: else data would not be looked at until it has caught up.
            tend = now >= self._data_next or now < self._data_looked
            # Trees seen without an entry one pass before: any newer one may belong to a commit under way beside this round.
            swept = sweep(site, find=False, move=False, tend=tend, unclaimed=self._unclaimed)
            self._unclaimed = swept.unclaimed
            if tend:
                self._data_turn += 1
                wait = data_pause(site, wrong=not swept.data_as_it_was, turn=self._data_turn)
                # A little less: the round itself comes every five minutes.
                self._data_looked, self._data_next = now, now + wait.span - TEND_EVERY / 10
            self._swept(swept)
            self._note("tend", swept.pending)
            # Swapped, not cleared: other rounds add to it meanwhile.
            ended, self._ended = self._ended, set()
            beat(site, passes=ended)
        return Done(transient=any(one.transient for one in opened.pending))

    # Replicas

    def works(self) -> Mapping[str, Work]:
        """Each kind of work by its name: what may be done beside the others, and by whom it does not matter."""
        lanes = {f"to {name}": partial(self.sunk, name) for name in self._sinking}
        return {"tended": self.tended, "announced": self.announced, "found": self.found, **lanes, "moved": self.moved}

    def sunk(self, to: str, _: frozenset[str] | None) -> Done:
        """Replicates to one tier what it lacks of the runs that changed or wait; every five minutes of all."""
        turn = self._sinking[to]
        runs = turn.due(self._sequences(), self.site.now())
        if not runs:
            return Done()
        away: list[Pending] = []
        with _gathering(away, f"tier {to}"):
            require_identity(self.site, self.site.store(to))
        self._note(f"tier {to}", away)
        if away:
            self._refusing[to] = away[0].why
            return Done(transient=any(one.transient for one in away))
        tiers = [tier_of(self.site, name) for name in self.site.tiers]
        replicated, refusing, transient = False, "", False
        for run in sorted(runs, key=partial(_oldest_alone, self.site)):
            if self.stopping or refusing:
                break
            pending: list[Pending] = []
            planned_at, own = self.site.ledger.run(run).sequence, 0
            with _gathering(pending, f"replicas of {run}"):
                done = sink(self.site, plan(self.site, run, tiers), to=to)
                own = len(done.replicated)
                refusing = done.away.get(to, "")
                replicated = replicated or bool(done.replicated)
                self._swept(Swept(replicated=done.replicated))
                pending += done.pending
            self._note(f"replicas of {run} in {to}", pending)
            if any(one.transient for one in pending):
                transient = True
            else:
                # What others appended meanwhile was not planned with: then the run comes again.
                now_at = self.site.ledger.run(run).sequence
                turn.over(run, now_at if now_at - planned_at == own else planned_at)
        if refusing:
            self._refusing[to] = refusing
        else:
            self._refusing.pop(to, None)
        if replicated:
            self.settling()
        return Done(transient=transient or bool(refusing))

    def moved(self, _: frozenset[str] | None) -> Done:
        """Reads back and releases, of the runs that changed or wait; every five minutes of all; every fifteen it collects."""
        now = self.site.now()
        transient = self._released(now)
        if _due(self._collected_at, now, COLLECT_EVERY) and not self.stopping:
            self._collected_at = now
            swept = Swept()
            collect(self.site, swept)
            self._swept(swept)
            self._note("collect", swept.pending)
        return Done(transient=transient)

    def _released(self, now: datetime) -> bool:
        """Whether something was out of reach."""
        runs = self._settling.due(self._sequences(), now)
        if not runs:
            return False
        tiers, away = present(self.site)
        refusing = dict(self._refusing)
        with _gathering(away, "the note of stores"):
            note_stores(self.site, [tier.name for tier in tiers], refusing=refusing)
        self._note("tiers", away)
        transient = any(one.transient for one in away)
        for run in sorted(runs, key=partial(_oldest_alone, self.site)):
            if self.stopping:
                break
            pending: list[Pending] = []
            planned_at = self.site.ledger.run(run).sequence
            with _gathering(pending, f"replicas of {run}"):
                due = plan(self.site, run, tiers)
                done = begin(self.site, due)
                if any(one.ok for one in done.rechecked):
                    self.moving()  # what was suspect may be a source again
                done.add(settle(self.site, due, need_bytes=self._need_bytes(), away=refusing))
                self._swept(Swept(released=done.released, thinned=done.thinned))
                pending += done.pending
            self._note(f"replicas of {run}", pending)
            if any(one.transient for one in pending):
                transient = True
            # What an absent tier might have needed is not done with; the run comes again with it.
            elif not away:
                self._settling.over(run, planned_at)
        return transient

    def _need_bytes(self) -> int:
        return need_bytes(one for waiting in list(self._waiting.values()) for one in waiting.values())

    def _sequences(self) -> dict[str, int]:
        return {run: self.site.ledger.outline(run).sequence for run in self.site.ledger.runs()}

    # What was done, and what is wrong

    def _swept(self, swept: Swept) -> None:
        with self._count:  # lanes of several tiers end side by side
            self.totals.replicated += len(swept.replicated)
            self.totals.released += len(swept.released)
        for move in swept.replicated:
            self.say(f"replicated {move.record[:12]} to {move.tier}")
        for release in swept.released:
            self.say(f"released {release.record[:12]} from {release.place.tier}")
        for identity in swept.thinned:
            self.say(f"DROPPED the last copy of {identity[:12]}: hot is full")
        for line in swept.said:
            self.say(line)

    def ended(self, name: str, error: Exception | None) -> None:
        """A round, or a chore of the service, ended well, or by something that no part of it explains."""
        self._note(f"round {name}", [_unexpected(f"{name!r} of the service", error)] if error else [])
        if error is None:
            self._ended.add(name)

    def _note(
        self, scope: str, found: Iterable[Pending], *, whole: bool = True, patience: timedelta = timedelta(0)
    ) -> None:
        for line in self.problems.note(scope, found, at=self.site.now(), whole=whole, patience=patience):
            self.say(line)

    # Where to look

    def places(self) -> Mapping[Path, str | None]:
        """Folders whose changes are of interest, the most important first, with their run; None: of more than one."""
        site = self.site
        states = [one for run in site.ledger.runs() if not (one := site.ledger.outline(run)).closed]
        found: dict[Path, str | None] = {site.home / "runs": None, site.home / "spool": None}
        # Spools before directories: the kernel grants so many watches, and announcements tell most.
        found.update({site.spool_of(state.run): state.run for state in states})
        for watched in site.watch:
            found[_above(watched.path)] = None
        for state in states:
            for directory in directories(site, state):
                found.setdefault(directory, state.run)
        return found


def _above(pattern: Path) -> Path:
    """Where a directory of that pattern appears."""
    starred = [index for index, part in enumerate(pattern.parts) if "*" in part]
    return Path(*pattern.parts[: starred[0]]) if starred else pattern.parent


def _due(last: datetime | None, now: datetime, every: timedelta) -> bool:
    """Also where the clock was set back: an instant of the future must not put work off."""
    return last is None or not timedelta(0) <= now - last < every


def _oldest_alone(site: Site, run: str) -> tuple[bool, float]:
    """Runs that would lose most go first: those with the oldest record that is nowhere but in hot."""
    alone = [found.known_at for found in site.ledger.run(run).live() if set(found.replicas) == {site.hot.place}]
    return not alone, min(alone).timestamp() if alone else 0.0


@contextmanager
def _gathering(pending: list[Pending], what: str) -> Iterator[None]:
    """An error is noted; whatever it is, it is that run's alone."""
    try:
        yield
    except LakemarkError as error:
        pending.append(Pending.of(what, error))
    except Exception as error:  # noqa: BLE001 - one run's trouble must not keep the others out
        pending.append(_unexpected(what, error))


def _unexpected(what: str, error: Exception) -> Pending:
    if isinstance(error, LakemarkError):
        return Pending.of(what, error)
    return Pending(what=what, why=f"unexpected {type(error).__name__}: {error}")


def _scope(run: str) -> str:
    return f"run {run}"


def _announced(site: Site, state: RunState, saves: Saves) -> None:
    commit_announced(site, state.run, saves, inside=own_directories(site, state))
