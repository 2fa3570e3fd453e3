"""Open a run: resolve the data once, pin it, and tell the trainer which commit to read."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lakemark.errors import Conflict, DataGone, NotFound, Refused, Usage, quoted
from lakemark.model.checkpoints.record import DataRef, Evidence, Record
from lakemark.model.entries.attempts import ATTEMPT, AttemptBody
from lakemark.model.entries.opened import OPENED, OpenedBody
from lakemark.model.ledger.entry import Draft
from lakemark.model.ledger.run import RunState
from lakemark.model.runs.lives import later_of_others
from lakemark.model.runs.starts import Start
from lakemark.model.runs.whose import Owner
from lakemark.model.values.canonical import JSON
from lakemark.model.values.names import is_run, original
from lakemark.ports import Directory, MadePin, RunFile, Site
from lakemark.services.data import pins
from lakemark.services.directories import bind, bound, directories
from lakemark.services.ledger import opened, require_writable
from lakemark.services.saves.commit import Commit
from lakemark.services.saves.find import commit_directory, find_of, lying_in
from lakemark.services.saves.outcomes import Saves, take
from lakemark.services.saves.roles import require_words
from lakemark.services.tiers.unshare import unshare
from lakemark.services.whose import Left, Owners, note_listed


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What is asked for. data: `REPOSITORY/BRANCH` texts; empty: the site's default.

    repin: take the branches' present heads as a new interval, from `at_step` on where that is known.
    parent: the record this run goes on from (another run's, for fine-tuning). job: the same start of a job is the same
    attempt; restart: which start of it this is, as `model.starts` has it. needs_no: roles that its trainer has not got.
    adopt: take what is older than the run, as the run's own.
    """

    run: str
    data: Sequence[str] = ()
    parent: str | None = None
    parts: int = 1
    repin: bool = False
    at_step: int | None = None
    watch: Path | None = None
    job: str | None = None
    restart: str | None = None
    needs_no: Sequence[str] = ()
    adopt: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """pins: one for each of `data`, in its order. older: saves in its directories that are older than the run, not taken.

    adopted: of those that were taken. not_adopted: (path, why) of those that could not be. notes: what a person should know
    before the trainer starts.
    """

    run: str
    timeline: int
    attempt: str
    data: tuple[DataRef, ...]
    pins: tuple[MadePin, ...]
    run_file: Path
    older: tuple[Left, ...] = ()
    adopted: tuple[Record, ...] = ()
    not_adopted: tuple[tuple[Path, str], ...] = ()
    notes: tuple[str, ...] = ()


def open_run(site: Site, asked: Opening) -> Opened:
    """Opens the run, or starts another attempt of it; what lies in a directory to watch is committed first, as what it was.

    Of several that open the same new run at once the ledger takes the first; the others read its data, and pin that.

    Raises Usage (name), NotFound (branch, re-pin of an unopened run),
    Refused (a new name that differs from a known one only in case, other data than the run is open on, data that is gone, a
    pin weaker than the site accepts, no room to un-share), StoreUnavailable.
    """
    if not is_run(asked.run):
        raise Usage(
            f"{asked.run!r} is not a run name",
            advice="Use lower-case letters, digits and single . _ - between them, at most 63.",
        )
    require_job(asked.job)
    require_words(asked.needs_no, option="--needs-no")
    state = site.ledger.run(asked.run)
    require_writable(state)
    _require_told_apart(site, state)
    if asked.repin and not state.exists:
        raise NotFound(
            f"the run {asked.run} was never opened: nothing to re-pin", advice=f"lakemark run open {asked.run}"
        )
    fresh = not state.exists or asked.repin
    # A run that is open reads what it was opened on, wherever the branch is by now.
    data = _resolve(site, asked) if fresh else _current(state, asked)
    # Pinned before the run says that it reads it: between the two the server may collect what nothing names.
    made = _kept(site, asked, data, known=not fresh)
    if fresh or _unwatched(site, state, asked) or _without_more(state, asked):
        told = _append_opened(site, asked, data, before=state)
        site.progress.step("open.recorded")
        if told != data:
            # Somebody opened it faster: all processes of a run read one commit.
            data, made = told, _kept(site, asked, told, known=True)
    watched = directories_of(site, asked)
    where = goes_on_in(site, site.ledger.run(asked.run), watched)
    attempt = _attempt(site, asked, where)
    # After the attempt's entry: a trainer that reads the file names an attempt that the ledger knows.
    run_file = write_run_file(site, asked.run, attempt=attempt)
    saves, older = Saves(), list[Left]()
    for watch in watched:
        _bind(site, asked.run, watch, attempt)
        older.extend(_older(site, asked, watch, saves))
    if not asked.repin:
        # Last thing before training: from now on somebody may write into files that hot shares.
        unshare(site, site.ledger.run(asked.run))
    timeline = site.ledger.run(asked.run).timeline
    return Opened(
        run=asked.run,
        timeline=timeline,
        attempt=attempt,
        data=data,
        pins=made,
        run_file=run_file,
        older=tuple(older),
        adopted=tuple(done.record for done in saves.committed),
        not_adopted=(*((path, str(error)) for path, error in saves.failed), *saves.incomplete),
        notes=where.notes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GoesOn:
    """The timeline that a trainer which starts now goes on in. notes: that it may load another life's steps, and what to do."""

    timeline: int
    notes: tuple[str, ...] = ()


def goes_on_in(site: Site, state: RunState, watched: Sequence[Path]) -> GoesOn:
    """By what lies where it saves: a trainer that is started by hand goes on from the newest step that it finds there.

    In the current timeline; in one that was only inferred where its saves lie there, and nothing later of another.
    """
    # Of a run that never went back nothing else can lie there.
    if len(state.timelines) < 2:  # noqa: PLR2004 - the first alone
        return GoesOn(timeline=max(state.timeline, 1))
    lying = {path: lying_in(site, path) for path in watched if site.files.exists(path)}
    for one in state.in_doubt:
        if any(_is_of(site, state, path, ids, number=one.number) for path, ids in lying.items()):
            return GoesOn(timeline=one.number)
    notes: list[str] = []
    for path, ids in lying.items():
        steps = sorted({found.record.step for found in later_of_others(state, ids)})
        if steps:
            notes.append(
                f"step {', '.join(map(str, steps))} of another life lies in {path}, and a trainer may load it: "
                f"lakemark resume {state.run} --to {path} first; what is saved without that is nobody's newest"
            )
    return GoesOn(timeline=state.timeline, notes=tuple(notes))


def _is_of(site: Site, state: RunState, path: Path, ids: Collection[str], *, number: int) -> bool:
    """Whether the newest that lies in a directory is of the timeline in doubt, and saves there were taken for its own."""
    bound = site.journal.directory(path)
    known = [state.records[one].record for one in ids if one in state.records]
    newest = max(known, key=lambda record: record.step, default=None)
    return bound is not None and bound.timeline == number and newest is not None and newest.timeline == number


def _kept(site: Site, asked: Opening, data: Sequence[DataRef], *, known: bool) -> tuple[MadePin, ...]:
    """A pin of each. known: the run reads it already; then that its repository has it no more is Refused."""
    made: list[MadePin] = []
    for ref in data:
        try:
            made.append(pins.keep(site, ref.repository, ref.commit, run=asked.run))
        except (NotFound, DataGone) as error:
            if not known:
                raise
            raise pins.data_gone(asked.run, ref, error) from error
    return tuple(made)


def older_in(site: Site, run: str, directory: Path) -> list[Left]:
    """Whole saves that lie in a directory and are older than the run, in order of step. Changes nothing.

    Of a run that was never open there: all that lies there.
    """
    state = site.ledger.run(run)
    found, left = find_of(site, state, directory)
    owners = Owners.of(site, state, directory)
    if owners.seat.since is None and not owners.seat.watched:
        owners = replace(owners, seat=replace(owners.seat, since=site.now()))
        left = [one for one in map(owners.left, found) if one is not None]
    return [one for one in left if one.whose.owner is Owner.OLDER]


def would_read(site: Site, asked: Opening) -> tuple[DataRef, ...]:
    """The data that opening would read. Changes nothing; raises as `open_run` does."""
    state = site.ledger.run(asked.run)
    _require_told_apart(site, state)
    return _resolve(site, asked) if not state.exists or asked.repin else _current(state, asked)


def write_run_file(site: Site, run: str, *, attempt: str, resume: dict[str, JSON] | None = None) -> Path:
    """Tells the next process of the run what it is: timeline, attempt, data to read, where to spool, what to resume.

    Without `resume`, what the file said of it stays where it still is of the current timeline.
    """
    state = opened(site, run)
    path = site.run_file(run)
    old = site.spool.read_run_file(path)
    # What another timeline was resumed from would send this one's trainer back to it.
    kept = old.resume if old is not None and resume is None and old.timeline == state.timeline else resume
    interval = state.interval
    data = tuple(replace(ref, evidence=Evidence.OPENED) for ref in (interval.data if interval else ()))
    fresh = RunFile(
        run=run,
        timeline=state.timeline,
        attempt=attempt,
        spool=site.spool_of(run),
        data=data,
        resume=kept,
        simulated=site.simulated_clock,
    )
    site.spool.write_run_file(path, fresh)
    return path


def new_attempt(state: RunState, start: Start) -> str:
    """Sixteen hex digits; the same for the same start of a job, until that start has saved. Raises Usage."""
    require_job(start.job)
    return start.attempt(state) or secrets.token_hex(8)


def require_job(job: str | None) -> None:
    """Raises Usage for an empty one: every job whose variable is not set would be the same job."""
    if job is not None and not job.strip():
        raise Usage("--job is empty", advice="Give the scheduler's job id, or leave --job out.")


def _require_told_apart(site: Site, state: RunState) -> None:
    """Names that differ in case are different runs, and people read them as one. Raises Refused for a new one."""
    # One that is there already was told apart once.
    if state.exists:
        return
    alike = alike_but_for_case(site, state.run)
    if alike is not None:
        raise Refused(
            f"there is a run {quoted(alike)}, which {quoted(original(state.run))} differs from only in case",
            advice="Open that one, or choose a name that people can tell from it.",
        )


def alike_but_for_case(site: Site, run: str) -> str | None:
    """The name of another run that differs from this one's only in case; None where there is none."""
    name = original(run).lower()
    return next((original(one) for one in site.ledger.runs() if one != run and original(one).lower() == name), None)


def _resolve(site: Site, asked: Opening) -> tuple[DataRef, ...]:
    if site.data is None and not asked.data:
        return ()
    found: list[DataRef] = []
    for text in asked.data or _defaults(site, asked):
        repository, branch = _branch(text)
        commit = pins.versions(site).resolve(repository, branch)
        found.append(DataRef(repository=repository, branch=branch, commit=commit.id, from_step=asked.at_step))
    return tuple(found)


def _defaults(site: Site, asked: Opening) -> list[str]:
    state = site.ledger.run(asked.run)
    if state.interval is not None and state.interval.data:
        return [f"{ref.repository}/{ref.branch or _read_before(state, ref)}" for ref in state.interval.data]
    watched = [one.data for one in site.watch if one.data and one.directory(asked.run) is not None]
    if watched:
        return watched[:1]
    return [f"{site.default_repository}/{site.default_branch}"] if site.default_repository else []


def _read_before(state: RunState, said: DataRef) -> str:
    """The branch that the run read before somebody said by hand which commit it was; without one, that commit."""
    refs = (ref for interval in reversed(state.intervals) for ref in interval.data if ref.repository == said.repository)
    return next((ref.branch for ref in refs if ref.branch), said.commit)


def _branch(text: str) -> tuple[str, str]:
    """(repository, branch): the first part is the repository, all the rest the branch, tag or commit. Raises Usage."""
    repository, _, branch = text.partition("/")
    if not repository or not branch:
        raise Usage(f"--data {text!r} is not REPOSITORY/BRANCH", advice="For example: --data data/main")
    return repository, branch


def _current(state: RunState, asked: Opening) -> tuple[DataRef, ...]:
    """What the open run reads. Refused where other data is asked for: that is a new interval, which is said on purpose."""
    interval = state.interval
    data = interval.data if interval else ()
    if asked.data and [_branch(text) for text in asked.data] != [(ref.repository, ref.branch) for ref in data]:
        shown = ", ".join(f"{ref.repository}/{ref.branch or ref.commit[:12]}" for ref in data) or "no data"
        wanted = " ".join(asked.data)
        raise Refused(
            f"the run {state.run} is open on {shown}, not on {', '.join(asked.data)}",
            advice=f"To read that from now on: lakemark run open {state.run} --repin --data {wanted}",
        )
    return data


def _unwatched(site: Site, state: RunState, asked: Opening) -> bool:
    return asked.watch is not None and state.watch.get(site.node) != str(asked.watch)


def _without_more(state: RunState, asked: Opening) -> bool:
    return not state.needs_no.issuperset(asked.needs_no)


def _append_opened(site: Site, asked: Opening, data: tuple[DataRef, ...], *, before: RunState) -> tuple[DataRef, ...]:
    """Appends the opening, and answers what the run reads: another's data where that was faster.

    before: the run as it was when `data` was decided; what was opened or re-pinned since then is the other's. Raises Conflict
    where the run is in another timeline by now.
    """
    body = OpenedBody(
        data=data,
        parent=asked.parent,
        parts=asked.parts,
        at_step=asked.at_step,
        watch={site.node: str(asked.watch)} if asked.watch else {},
        needs_no=tuple(sorted(asked.needs_no)),
    )

    def decide(state: RunState) -> Draft | None:
        interval, faster = state.interval, len(state.intervals) > len(before.intervals)
        if faster and state.timeline != max(before.timeline, 1):
            raise Conflict(f"{asked.run} went on to timeline {state.timeline} meanwhile", advice="Open it again.")
        same = interval is not None and [ref.commit for ref in interval.data] == [ref.commit for ref in data]
        if interval is None or not (faster or same):
            return OPENED.draft(body, timeline=max(state.timeline, 1))
        if not (_unwatched(site, state, asked) or _without_more(state, asked)):
            return None
        # Only where its trainer saves on this node, or what it does without, is new.
        again = replace(body, data=interval.data, at_step=interval.at_step)
        return OPENED.draft(again, timeline=max(state.timeline, 1))

    # A request of its own each time: opening again on purpose is no repetition.
    entry, state = site.ledger.append(asked.run, decide, site.stamp(f"open:{secrets.token_hex(8)}"))
    # By its own entry: the run may have been re-pinned since.
    mine = (one for one in state.intervals if entry is not None and one.sequence == entry.sequence)
    interval = next(mine, state.interval)
    return () if interval is None else interval.data


def _attempt(site: Site, asked: Opening, where: GoesOn) -> str:
    """A re-pin goes on in the running attempt: the process that asks for it has the old data open until it re-reads."""
    state = site.ledger.run(asked.run)
    if asked.repin and state.attempt is not None:
        return state.attempt.id
    attempt = new_attempt(state, Start(job=asked.job, restart=asked.restart))

    def decide(state: RunState) -> Draft | None:
        if attempt in state.attempts:
            return None
        interval = state.interval
        body = AttemptBody(
            attempt=attempt,
            job=asked.job,
            directory=str(asked.watch) if asked.watch else None,
            data=interval.data if interval else (),
            in_doubt=bool(where.notes),
        )
        doubted = any(one.number == where.timeline for one in state.in_doubt)
        return ATTEMPT.draft(body, timeline=where.timeline if doubted else state.timeline)

    # By the attempt: every node of one start of a job appends it, and it is one.
    site.ledger.append(asked.run, decide, site.stamp(f"attempt:{attempt}"))
    site.progress.step("open.attempt")
    return attempt


def directories_of(site: Site, asked: Opening) -> list[Path]:
    """Where this attempt's saves will be found: the named one, else all of the run's on this node that are its own still.

    A re-pin goes on in the running attempt, whose directories are bound to it.
    """
    if asked.watch is not None:
        return [asked.watch]
    if asked.repin:
        return []
    known = directories(site, site.ledger.run(asked.run))
    seats = ((path, bound(site, path)) for path in known if site.files.exists(path))
    return [path for path, directory in seats if directory is None or directory.run == asked.run]


def _older(site: Site, asked: Opening, watch: Path, saves: Saves) -> list[Left]:
    """What is older than the run and stays so; what is to be adopted is committed, and goes to `saves`."""
    older = older_in(site, asked.run, watch) if site.files.exists(watch) else []
    for one in older:
        note_listed(site, one)
    if not asked.adopt:
        return older
    for one in older:
        if one.step is None:
            saves.incomplete.append((one.path, f"step unknown: lakemark commit PATH --run {asked.run} --step N"))
            continue
        adopt = Commit(path=one.path, run=asked.run, step=one.step, found=True, directory=watch)
        take(site, replace(adopt, adopted=True, whose=one.whose), saves)
    return older_in(site, asked.run, watch)


def _bind(site: Site, run: str, watch: Path, attempt: str) -> None:
    """From now on finds are this attempt's; what lies there is committed first, as what it was until now."""
    before = bound(site, watch)
    # Once bound anew, what lies there would be taken for this attempt's, with this attempt's data.
    if before is not None and before.attempt != attempt and site.ledger.run(before.run).exists:
        commit_directory(site, before.run, watch)
    state = site.ledger.run(run)
    bind(
        site,
        watch,
        Directory(run=run, timeline=state.timeline, attempt=attempt, sequence=state.sequence),
    )
