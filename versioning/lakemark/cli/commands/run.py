"""`run open`, `ls`, `show`, `close`, `reopen`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from lakemark.cli.options import Reason, Whole, absolute, require_kept
from lakemark.cli.output import ago, instant, pairs, plain, short, table, told
from lakemark.cli.rehearsing import rehearsed
from lakemark.cli.session import Answer, Session, session, would
from lakemark.cli.watchable import require_alone, require_watchable
from lakemark.errors import Usage
from lakemark.model.ledger.run import Cause, RecordState, RunState
from lakemark.model.runs.starts import Start
from lakemark.model.values.instants import to_text
from lakemark.model.values.names import original, printable, run_for
from lakemark.model.views import data_view, pin_views, timeline_view

if TYPE_CHECKING:
    from lakemark.services.runs import open_run as service_opening
    from lakemark.services.whose import Left

_MANY = Parameter(consume_multiple=True)


@dataclass(frozen=True, kw_only=True)
class OpeningOptions:
    """How a run is opened."""

    data: Annotated[tuple[str, ...], _MANY] = ()
    """REPOSITORY/BRANCH, one or more; by default the site's, or the run's."""

    parent: str | None = None
    """RECORD this run goes on from."""

    parts: Whole = 1
    """Of how many parts a checkpoint is made; this version keeps checkpoints of one part."""

    repin: bool = False
    """Take the branches' present heads from now on: a new interval of an open run."""

    at_step: Whole | None = None
    """With --repin: the step from which on the trainer reads them."""

    watch: Path | None = None
    """Directory on this node in which the trainer saves."""

    job: str | None = None
    """The scheduler's job id, by default as the environment has it: the same start of a job is the same attempt."""

    needs_no: Annotated[tuple[str, ...], _MANY] = ()
    """Roles that this run's trainer has not got, such as scheduler or rng: nothing is missing without them."""

    adopt: bool = False
    """Take what lies in its directory and is older than the run, with the times of its files and without data."""


def open_run(
    run: str, /, *, asked: Annotated[OpeningOptions | None, Parameter(name="*")] = None, dry_run: bool = False
) -> Answer:
    """Open a run: resolve its data branches once, pin the commits, and write the run file the trainer reads.

    Opening an open run starts another attempt on the same data.

    Parameters
    ----------
    run: str
        Its name. Names that are no run names are mapped to one, reversibly.
    dry_run: bool
        Say what would be done, and change nothing.
    """
    from lakemark.services.runs import open_run as service

    here = session()
    name = _named(run)
    wish = asked or OpeningOptions()
    # A scheduler that starts a job again gives the same id; with its count of restarts the starts can be told apart.
    start = Start.of(wish.job, here.environ)
    _require_sense(here, name, wish)
    opening = service.Opening(
        run=name,
        data=wish.data,
        # Resolved now: `RUN@latest` must mean the record of this moment in the entry.
        parent=here.history.found(wish.parent, now=here.now).record.id if wish.parent else None,
        parts=wish.parts,
        repin=wish.repin,
        at_step=wish.at_step,
        # The ledger keeps it, and other processes have other working directories.
        watch=absolute(wish.watch) if wish.watch else None,
        job=start.job,
        restart=start.restart,
        needs_no=wish.needs_no,
        adopt=wish.adopt,
    )
    if dry_run:
        here.require_sound()
        return _would_open(here, opening)
    return _opened(here, service.open_run(here.site, opening))


def _require_sense(here: Session, name: str, wish: OpeningOptions) -> None:
    if wish.parts != 1:
        raise Usage(f"--parts {wish.parts}: this version keeps checkpoints of one part", advice="Leave --parts out.")
    if wish.at_step is not None and not wish.repin:
        raise Usage("--at-step is given without --repin", advice="Add --repin, or leave --at-step out.")
    if wish.watch is not None:
        require_kept("--watch", wish.watch)
        require_watchable(here, wish.watch)
        require_alone(here, name, wish.watch)


def _opened(here: Session, done: service_opening.Opened) -> Answer:
    pins = {(made.repository, made.commit): made for made in done.pins}
    data: list[dict[str, Any]] = []
    for ref in done.data:
        made = pins.get((ref.repository, ref.commit))
        row = {"repository": ref.repository, "branch": ref.branch, "commit": ref.commit}
        data.append(
            {**row, "pin": made.branch if made else None, "strength": str(made.strength) if made else "none"}
            | {"uri": ref.uri}
        )
        # A weaker pin than the strongest: whoever opens the run should know why.
        if made is not None and made.why_plain:
            here.note(f"the pin of {ref.repository}@{short(ref.commit)} is {made.strength}: {made.why_plain}")
    document = {"run": done.run, "timeline": done.timeline, "attempt": done.attempt, "data": data}
    for path, why in done.not_adopted:
        here.warn(f"{printable(path)} is not adopted: {why}")
    if done.older:
        here.note(f"what is older than the run is not taken; to take it: lakemark run open {done.run} --adopt")
    # The one thing a trainer needs to be told.
    export = f"export LAKEMARK_RUN_FILE={shlex.quote(str(done.run_file))}"
    lines = pairs(
        [
            ("run", f"{done.run}, timeline {done.timeline}, attempt {done.attempt}"),
            *(("data", f"{row['uri']} ({_pinned(row)})") for row in data),
            ("run file", done.run_file),
            ("for the trainer", export),
            *(("adopted", f"step {one.step} ({short(one.id)})") for one in done.adopted),
            *(("older", f"{printable(one.path)}: {one.whose.why}") for one in done.older),
            *(("mind", note) for note in done.notes),
        ]
    )
    # Said aloud: whoever starts the trainer next may lose what it saves.
    for note in done.notes:
        here.warn(note)
    found = {"older": [_older_view(one) for one in done.older], "adopted": [one.id for one in done.adopted]}
    document |= {"run_file": str(done.run_file), **found, "export": export, "notes": list(done.notes)}
    return Answer(document=document, lines=lines)


def _older_view(one: Left) -> dict[str, Any]:
    written_at = None if one.written_at is None else to_text(one.written_at)
    return {"path": printable(one.path), "step": one.step, "written_at": written_at}


def _pinned(row: Mapping[str, Any]) -> str:
    """What is known of a data reference: a tag or a commit has no branch, and a site may do without pins."""
    branch = f"branch {row['branch']}" if row["branch"] else "a fixed commit"
    return f"{branch}, pin {row['pin']}, {row['strength']}" if row["pin"] else f"{branch}, not pinned"


def list_runs() -> Answer:
    """List runs: timeline, records, the newest one, and whether they are open."""
    here = session()
    # Without records: of a long run they are many, and only the newest is shown.
    states = [(here.history.structure(run), here.history.index.latest(run)) for run in here.history.runs()]
    rows = [
        (state.run, "closed" if state.closed else "open", state.timeline, here.history.index.count(state.run))
        + ((newest.record.step, instant(newest.instant)) if newest else ("-", "-"))
        for state, newest in states
    ]
    document = {"runs": [_summary(here, state, newest) for state, newest in states]}
    return Answer(
        document=document, lines=table(("run", "", "timeline", "records", "step", "saved"), rows) or ["no run"]
    )


def show_run(run: str, /) -> Answer:
    """Show a run: timelines, pins, last record, recovery point.

    Parameters
    ----------
    run: str
        Its name.
    """
    here = session()
    state = here.history.run(run)
    newest = here.history.index.latest(state.run)
    # Of all intervals: records of earlier ones need their pins as well.
    commits = frozenset((ref.repository, ref.commit) for one in state.intervals for ref in one.data)
    pins = pin_views(here.history.site(), commits=commits)
    timelines = [timeline_view(one, state) for one in state.timelines.values()]
    document = {
        **_summary(here, state, newest),
        "written_as": original(state.run),
        "parent": state.parent,
        "parts": state.parts,
        "timelines": timelines,
        "data": [data_view(ref) for ref in (state.interval.data if state.interval else ())],
        "pins": pins,
        "last": here.history.view(newest) if newest else None,
        "attempts": [
            {
                "attempt": one.id,
                "timeline": one.timeline,
                "node": one.node,
                "started_at": to_text(one.started_at),
                "job": one.job,
                "record": one.record,
            }
            for one in state.attempts.values()
        ],
        "rollbacks": [
            {"rollback": one.id, "state": one.state, "requested_at": to_text(one.requested_at)}
            for one in state.rollbacks.values()
        ],
        "watch": dict(state.watch),
    }
    return Answer(document=document, lines=_run_lines(here, state, newest, timelines=timelines, pins=pins))


def close_run(
    run: str,
    /,
    *,
    reason: Reason,
    without_step: Annotated[tuple[Whole, ...], _MANY] = (),
    because: Literal["preempted", "node", "software", "unknown"] = "unknown",
    dry_run: bool = False,
) -> Answer:
    """Close a run: what lies in its directories is committed first, nothing that is saved afterwards.

    Its pins are needed only by its records from then on.

    Parameters
    ----------
    run: str
        Its name.
    reason: str
        Why; it stays in the history.
    without_step: tuple[int, ...]
        Steps of saves that can't be committed, to close the run without them.
    because: str
        Why its last attempt ended, where it did not end as it should.
    dry_run: bool
        Say what would be done, and change nothing.
    """
    from lakemark.services.runs import close_run as service

    here = session()
    name = here.history.name(run)
    if dry_run:
        here.require_sound()
        closed = here.history.structure(name).closed
        return would(*(["change nothing: it is closed"] if closed else would_close(here, name)), run=name)
    saves = service.close_run(here.site, name, reason=reason, without_steps=without_step, because=Cause(because))
    left = [*saves.incomplete, *saves.lost]
    for path, why in left:
        # On stderr, also with --quiet: whoever closes a run may delete its directory next.
        here.warn(f"{path} is not committed: {why}")
    taken = [one.record for one in saves.committed]
    answer = _after(here, name)
    said = [plain(f"committed {name}@{one.step} ({short(one.id)}) first") for one in taken]
    document = {
        "committed": [one.id for one in taken],
        "incomplete": [{"path": printable(path), "why": printable(why)} for path, why in left],
    }
    return Answer(document={**answer.document, **document}, lines=[*said, *answer.lines])


def would_close(here: Session, run: str) -> list[str]:
    """The saves it would take first, then the close; where one of them can't be taken, that it would be refused."""
    from lakemark.cli.commands.commits import saves_foreseen
    from lakemark.services.ledger import announced

    site, state = here.site, here.site.ledger.run(run)
    announced_paths = [one.path for one in announced(site, run)]
    said = [f"commit the announced save {path} of {run}" for path in announced_paths]
    # An announced save lies in a directory that is looked through, too, and is committed once.
    said += [one for one in saves_foreseen(site, state) if not any(f" {path} " in one for path in announced_paths)]
    # Closing would lose it: that wants `--without-step`.
    refused = any(one.startswith("not take ") for one in said)
    return [*said, f"refuse to close {run}: what can't be taken is named above" if refused else f"close {run}"]


def reopen_run(run: str, /, *, reason: Reason, dry_run: bool = False) -> Answer:
    """Reopen a closed run.

    Parameters
    ----------
    run: str
        Its name.
    reason: str
        Why; it stays in the history.
    dry_run: bool
        Say what would be done, and change nothing.
    """
    from lakemark.services.runs import close_run as service

    here = session()
    name = here.history.name(run)
    if dry_run:
        return rehearsed(
            here,
            lambda site: service.reopen_run(site, name, reason=reason),
            {"reopened": lambda _: f"reopen {name}"},
            otherwise="it is open",
            run=name,
        )
    service.reopen_run(here.site, name, reason=reason)
    return _after(here, name)


def _named(written: str) -> str:
    try:
        return run_for(written)
    except ValueError as error:
        raise Usage(str(error), advice="Use lower-case letters, digits and single . _ - between them.") from None


def _would_open(here: Session, asked: service_opening.Opening) -> Answer:
    from lakemark.services.runs.open_run import directories_of, goes_on_in, older_in, would_read

    site = here.site
    state = site.ledger.run(asked.run)
    # Another attempt reads the data of the interval that is open: those pins stand.
    fresh = not state.exists or asked.repin
    data = would_read(site, asked)
    said = [f"{'open' if not state.exists else 're-pin' if asked.repin else 'start another attempt of'} {asked.run}"]
    said += [f"pin {ref.repository}@{short(ref.commit)}, now the head of {ref.branch}" for ref in data if fresh]
    for one in older_in(site, asked.run, asked.watch) if asked.watch and site.files.exists(asked.watch) else ():
        what = f"adopt {printable(one.path)} as step {one.step}" if asked.adopt else f"leave {printable(one.path)}"
        said.append(f"{what}: it is older than the run")
    said.append(f"write {site.run_file(asked.run)}")
    where = goes_on_in(site, state, directories_of(site, asked))
    said += [f"mind: {note}" for note in where.notes]
    return would(*said, run=asked.run, timeline=where.timeline, data=[data_view(ref) for ref in data])


def _after(here: Session, name: str) -> Answer:
    state = here.site.ledger.run(name)
    # The entry just appended is to be in the answer.
    here.history.index.catch_up(here.parts.ledger)
    newest = here.history.index.latest(name)
    word = "closed" if state.closed else "open"
    return Answer(document=_summary(here, state, newest), lines=[plain(f"{name} is {word}")])


def _summary(here: Session, state: RunState, newest: RecordState | None) -> dict[str, Any]:
    from lakemark.model.views import safe_at

    context = here.history.context(state.run)
    safe = safe_at(newest, context.domains, copies=context.copies) if newest else None
    return {
        **here.history.run_view(state, newest),
        "recovery_point": {
            "at": to_text(newest.instant) if newest else None,
            "seconds_ago": _seconds(here.now, newest.instant) if newest else None,
            "safe_at": to_text(safe) if safe else None,
        },
    }


def _seconds(now: datetime, then: datetime) -> float:
    # A record from a node whose clock is ahead lies in the future.
    return max(0.0, round((now - then).total_seconds(), 3))


def _run_lines(
    here: Session,
    state: RunState,
    newest: RecordState | None,
    *,
    timelines: list[dict[str, Any]],
    pins: list[dict[str, Any]],
) -> list[str]:
    head = pairs(
        [
            ("run", f"{state.run} ({'closed' if state.closed else 'open'}), timeline {state.timeline}"),
            ("branch in Git", f"runs/{state.run}"),
            ("records", str(here.history.index.count(state.run))),
            *(
                ("data", f"{ref.uri} (branch {ref.branch})" if ref.branch else ref.uri)
                for ref in (state.interval.data if state.interval else ())
            ),
            ("last record", f"{short(newest.record.id)}, step {newest.record.step}" if newest else "none yet"),
            ("recovery point", f"{instant(newest.instant)}, {ago(here.now - newest.instant)} ago" if newest else None),
            *(("watched", f"{path} on {node}") for node, path in state.watch.items()),
        ]
    )
    rows = [
        (
            one["timeline"],
            _fork_text(one["fork"]),
            f"{one['opened_by']}, inferred" if one["inferred"] else one["opened_by"],
            told(one["opened_at"]),
            one["records"],
        )
        for one in timelines
    ]
    pinned = [
        (f"{one['repository']}@{short(one['commit'])}", one["pin"], one["state"], told(one["since"])) for one in pins
    ]
    return [
        *head,
        "",
        *table(("timeline", "leaves", "opened by", "at", "records"), rows),
        *(["", *table(("data", "pin", "", "since"), pinned)] if pinned else []),
    ]


def _fork_text(fork: dict[str, Any] | None) -> str:
    return f"{fork['timeline']} after step {fork['step']}" if fork else "-"
