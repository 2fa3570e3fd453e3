"""`commit`, `bind`, `sweep`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from lakemark.cli.commands.inspecting import found_view
from lakemark.cli.commands.records import record_lines
from lakemark.cli.options import Reason, Whole, absolute
from lakemark.cli.output import instant, plain, short, size
from lakemark.cli.rehearsing import rehearsed
from lakemark.cli.session import Answer, Session, session, would
from lakemark.errors import Corrupt, Denied, LakemarkError, StoreUnavailable, Usage
from lakemark.model.values.instants import to_text
from lakemark.model.values.names import is_run, not_read, printable

if TYPE_CHECKING:
    from lakemark.model.checkpoints.record import Record
    from lakemark.model.ledger.entry import Entry
    from lakemark.model.ledger.run import RecordState, RunState
    from lakemark.ports import Found, Site
    from lakemark.services.node.swept import Swept
    from lakemark.services.whose import Left

# Below 2**53: a step is written as a JSON number, and some readers keep those as doubles.
_LARGEST_STEP = 10**15 - 1
_MANY = Parameter(consume_multiple=True)


def commit(
    path: Path,
    /,
    *,
    run: str,
    step: Whole,
    metric: Annotated[tuple[str, ...], _MANY] = (),
    part: str | None = None,
    wait: str | None = None,
    supersede: bool = False,
    dry_run: bool = False,
) -> Answer:
    """Commit a checkpoint: seal it in hot and append its record. The same bytes again are the same record.

    Parameters
    ----------
    path: Path
        The checkpoint: a directory or a file.
    run: str
        Its name.
    step: int
        The step it was saved at.
    metric: tuple[str, ...]
        NAME=NUMBER, one or more.
    part: str
        The node this is a part of; this version keeps checkpoints of one part.
    wait: str
        Return only when a replica is in this tier.
    supersede: bool
        Replace the record that holds this step with other bytes; that one stays listed.
    dry_run: bool
        Say what would be done, and change nothing.
    """
    from lakemark.services.saves.commit import Commit, commit as commit_checkpoint
    from lakemark.services.tiers.replicate import replicate

    here = session()
    if part is not None:
        raise Usage("--part: this version keeps checkpoints of one part", advice="Leave --part out.")
    if not 0 <= step <= _LARGEST_STEP:
        raise Usage(f"--step {step} is not from 0 to {_LARGEST_STEP}", advice="Give the trainer's step.")
    metrics = _metrics(metric)
    name = _run_of(here, run)
    # Before anything is sealed: a tier that there is not must not be found out after the commit.
    if wait is not None:
        here.site.store(wait)
    where = absolute(path)
    if dry_run:
        return _would_commit(here, where, name, step)
    asked = Commit(path=where, run=name, step=step, metrics=metrics, supersede=supersede)
    done = commit_checkpoint(here.site, asked)
    # The ledger can't take its entry now. The save is safe, and `--wait` for a replica can't be done without a record.
    if done.pending is not None:
        return _pending(here, name, step, done.pending)
    if not done.new and not done.landed_again:
        here.note(f"nothing new: {done.why or 'it is a record already'}")
    # Of a new record the notes are in its entry; of one that was there before, only here.
    for note in () if done.new else done.notes:
        here.warn(f"{name}@{step}: {note}")
    if wait is not None:
        replicate(here.site, name, done.record.id, to=wait)
    # It is recorded, durably: that it can't be read back now takes nothing away.
    try:
        answer = record_answer(here, done.record.id, name)
    except (Corrupt, StoreUnavailable) as error:
        answer = _unread(here, done.record, error)
    return replace(answer, document={**answer.document, "landed_again": True}) if done.landed_again else answer


def _run_of(here: Session, written: str) -> str:
    """The run's name; as it is written where the ledger can't be read, or lacks entries: it may have been opened in one."""
    from lakemark.services.saves.lost_ledger import for_saving_of

    try:
        return here.history.name(written)
    # What was typed is wrong, or rights lack: that is said, and not taken for a lost ledger.
    except (Usage, Denied):
        raise
    except LakemarkError:
        # Saving goes on without a ledger, and needs a name that is one already: mapping others asks for the runs that there are.
        if not is_run(written):
            raise
        if for_saving_of(here.site, written)[1] is None:
            return here.history.name(written)  # it fails again where it never was the ledger that failed
        return written


def _pending(here: Session, run: str, step: int, why: str) -> Answer:
    here.warn(why)
    document = {"pending": True, "record": None, "run": run, "step": step, "why": why}
    return Answer(
        document=document,
        lines=[
            plain(f"{run}@{step} is sealed and durable, and waits for its entry: lakemark ledger recover --dry-run")
        ],
    )


def _unread(here: Session, record: Record, error: LakemarkError) -> Answer:
    why = f"recorded, and the ledger can't be read back now: {error}"
    here.warn(why)
    document = {
        "record": record.id,
        "run": record.run,
        "timeline": record.timeline,
        "step": record.step,
        "saved_at": to_text(record.saved_at),
        "size_bytes": record.size_bytes,
        "why": why,
    }
    return Answer(document=document, lines=[plain(f"{record.run}@{record.step} is {short(record.id)}")])


def metric(
    record: str,
    given: Annotated[tuple[str, ...], _MANY],
    /,
    *,
    reason: Reason,
    dry_run: bool = False,
) -> Answer:
    """Add metrics to a record: what an evaluation found later. Selectors and retention's `best` go by the newest value.

    Parameters
    ----------
    record: str
        Which: id:HEX, RUN@STEP, RUN@latest, RUN@WHEN, RUN@best:METRIC.
    given: tuple[str, ...]
        NAME=NUMBER, one or more.
    reason: str
        Why; it stays in the history.
    dry_run: bool
        Say what would be done, and change nothing.
    """
    from lakemark.services.saves.complete import add_metrics

    here = session()
    metrics = _metrics(given, option="metric")
    found = here.history.found(record, now=here.now)
    run, identity = found.record.run, found.record.id
    if dry_run:
        return rehearsed(
            here,
            lambda site: add_metrics(site, run, identity, metrics, reason=reason),
            {"metric_added": lambda entry: f"add {_given(entry)} to {run}@{found.record.step} ({short(identity)})"},
            otherwise="the record says so already",
            record=identity,
        )
    add_metrics(here.site, run, identity, metrics, reason=reason)
    return record_answer(here, identity, run)


def _given(entry: Entry) -> str:
    said = entry.body["metrics"]
    # Only what the record does not say yet.
    return ", ".join(f"{name}={value:g}" for name, value in said.items()) if isinstance(said, Mapping) else ""


def bind(
    target: str,
    /,
    *,
    data: str,
    reason: Reason,
    from_: Annotated[Whole | None, Parameter(name="--from")] = None,
    to: Whole | None = None,
    dry_run: bool = False,
) -> Answer:
    """Say what data a record was trained with, or many of a run. The commit is pinned first.

    Of a RUN: the records of its current lineage whose data nobody knows, and what it saves from now on; with --from or
    --to all records of those steps, and later saves only where --to is left out.

    Parameters
    ----------
    target: str
        RECORD or RUN.
    data: str
        REPOSITORY/COMMIT, the commit with all its 64 digits.
    reason: str
        Why; it stays in the history.
    from_: int
        Of a RUN: the first step.
    to: int
        Of a RUN: the last step.
    dry_run: bool
        Say what would be done, and change nothing.
    """
    from lakemark.services.data import pins
    from lakemark.services.runs.bind import Steps, bind as bind_data, bind_run, to_bind

    here = session()
    run, found = here.history.run_or_record(target, now=here.now)
    steps = Steps(first=from_, last=to)
    # One record has one step; a range with it is a mistake.
    if found is not None and not steps.open:
        raise Usage("--from and --to are steps of a RUN", advice=f"lakemark bind {run} --from {from_ or to} …")
    repository, _, commit = data.rpartition("/")
    if dry_run:
        here.require_sound()
        # Asks the server, as the pin would: a commit that there is not is refused by the dry run as well.
        commit = pins.versions(here.site).resolve(repository, commit).id
        of = [found] if found else to_bind(here.site.ledger.run(run), steps)
        said = [f"say that {run}@{one.record.step} was trained with it" for one in of]
        said += [f"say it of what {run} saves from now on"] if found is None and to is None else []
        return would(f"pin {repository}@{short(commit)}", *said, run=run)
    if found is not None:
        bind_data(here.site, run, found.record.id, data=data, reason=reason)
        return record_answer(here, found.record.id, run)
    bound = bind_run(here.site, run, data=data, reason=reason, steps=steps)
    views = [dict(record_answer(here, one.id, run).document) for one in bound]
    document = {"run": run, "record": None, "records": views, "data": [{"repository": repository, "commit": commit}]}
    lines = [f"{len(bound)} record(s) of {run} are bound to {repository}@{short(commit)}"]
    lines += [f"{run} is bound to it from now on"] if to is None else []
    return Answer(document=document, lines=[plain(line) for line in lines])


def sweep(*, dry_run: bool = False) -> Answer:
    """One pass: commit finds and announced saves, finish what was interrupted, move replicas as residence says.

    Parameters
    ----------
    dry_run: bool
        Say what would be done, and change nothing.
    """
    here = session()
    if dry_run:
        return _would_sweep(here.site)
    swept = _swept(here)
    # What was committed is shown as the index has it.
    if swept.committed:
        here.history.index.catch_up(here.parts.ledger)
    return Answer(document=_swept_view(here, swept), lines=_swept_lines(swept))


def _swept(here: Session) -> Swept:
    """Where no service watches, nobody else says which directories wait to be opened."""
    from lakemark.background import lookout, watch_holder
    from lakemark.services.node.sweep import sweep as sweep_site

    # The service opens runs of watched directories itself, and two would race for the same name.
    if watch_holder(here.settings) is not None:
        return sweep_site(here.site)
    looking = lookout(hints=False)
    try:
        return sweep_site(here.site, lookout=looking)
    finally:
        looking.close()


def record_answer(here: Session, record: str, run: str) -> Answer:
    """The answer of whatever ends with a record: the record as the ledger has it now."""
    here.history.index.catch_up(here.parts.ledger)
    found = here.history.index.find(record, run=run)
    view = here.history.view(found)
    return Answer(document=view, lines=record_lines(found, view))


def _metrics(given: tuple[str, ...], *, option: str = "--metric") -> dict[str, float]:
    metrics: dict[str, float] = {}
    for text in given:
        name, mark, number = text.partition("=")
        try:
            value = float(number)
        except ValueError:
            # Refused below with inf and nan, which JSON has no number for.
            value = math.nan
        # `float` takes digits of other scripts.
        if not (name and mark and math.isfinite(value) and number.isascii()):
            raise Usage(f"{option} {text!r} is not NAME=NUMBER", advice=f"Write {option} val_loss=1.9.")
        metrics[name] = value
    return metrics


def _would_commit(here: Session, path: Path, run: str, step: int) -> Answer:
    from lakemark.services.saves.lost_ledger import for_saving_of
    from lakemark.services.tiers.register import require_named

    site, why, state = for_saving_of(here.site, run)
    # A renamed node or tier refuses the commit: so its dry run is, too.
    require_named(site)
    found = here.site.recogniser.judge(path)
    here.site.files.require_keepable(path, found.members)
    files = here.site.files.regular(path, found.members)
    size_bytes = sum(one.file.size_bytes for one in files)
    # Other bytes at a step that is taken need `--supersede`.
    taken = [one for one in state.records.values() if one.record.step == step and one.stands]
    said = [f"seal {len(files)} file(s), {size(size_bytes)}, of {path} in {here.site.hot.name}"]
    said.append(
        f"append the record of {run}@{step}, or find that it is one already"
        if why is None
        else f"leave it waiting for its entry, as {why}"
    )
    # Nothing else would be done.
    if found.verdict != "complete":
        said = [f"raise Incomplete: {path} is {found.verdict}: {found.why}"]
    facts = {"run": run, "step": step, "size_bytes": size_bytes, "files": len(files), "taken_by": _ids(taken)}
    return would(*said, found=found_view(found), **facts)


def _ids(records: list[RecordState]) -> list[str]:
    return [found.record.id for found in records]


def _would_sweep(site: Site) -> Answer:
    from lakemark.services.saves.find import runs_of, waiting
    from lakemark.services.saves.lost_ledger import for_saving
    from lakemark.services.tiers.demote import in_words, plan, present
    from lakemark.services.tiers.register import require_named

    site, why = for_saving(site)
    require_named(site)
    said = [] if why is None else [f"seal saves, append and move nothing: {why}: lakemark ledger recover --dry-run"]
    tiers, away = present(site)
    # Tiers out of reach first: moves to and from them are left out of the plan below.
    said += [f"pass {one.what} by: {one.why}" for one in away]
    said += [f"commit the announced save {path} of {run}" for run, path in waiting(site)]
    outlines, unread = runs_of(site)
    said += [f"seal announced saves of {run} alone: the ledger can't say anything of it now" for run in unread]
    for run in (one.run for one in outlines):
        state = site.ledger.run(run)
        said += saves_foreseen(site, state, sealed=why is not None)
        # Without all entries nobody knows what may be moved or released.
        if why is not None:
            continue
        said += in_words(site, plan(site, run, tiers))
    return would(*said)


def saves_foreseen(site: Site, state: RunState, *, sealed: bool = False) -> list[str]:
    """What a pass would take of what lies in the run's directories, or why not."""
    from lakemark.services.directories import directories
    from lakemark.services.saves.find import find_of, to_be_looked_through

    # A closed run is looked through once more after its close: the trainer may have saved while that was decided.
    watched = directories(site, state) if to_be_looked_through(site, state) else []
    looks = [find_of(site, state, path) for path in watched]
    found = [one for finds, _ in looks for one in finds if one.verdict == "complete"]
    left = [f"leave {printable(one.path)}: {one.whose}: {one.whose.why}" for _, lying in looks for one in lying]
    # A find without a step can't be a record: a pass leaves it, too.
    return [*(_would_take(site, state.run, one, sealed=sealed) for one in found if one.step is not None), *left]


def _would_take(site: Site, run: str, found: Found, *, sealed: bool) -> str:
    try:
        site.files.require_keepable(found.path, found.members)
    except LakemarkError as error:
        return f"not take {found.path}: {error}"
    return f"{'seal' if sealed else 'commit'} {found.path} as {run}@{found.step}"


def _swept_view(here: Session, swept: Swept) -> dict[str, Any]:
    # The others were records before: the same bytes found again.
    new = [done.record for done in swept.committed if done.new]
    return {
        "committed": [here.history.view(here.history.index.find(record.id, run=record.run)) for record in new],
        "replicated": [
            {"record": one.record, "run": one.run, "tier": one.tier, "why": one.why} for one in swept.replicated
        ],
        "released": [
            {"record": one.record, "tier": one.place.tier, "survivor": one.survivor.tier, "why": one.why}
            for one in swept.released
        ],
        "thinned": list(swept.thinned),
        "incomplete": [{"path": printable(path), "why": printable(why)} for path, why in swept.incomplete],
        "abandoned": [
            {"path": printable(one.path), "why": printable(one.why), "since": to_text(one.since)}
            for one in swept.abandoned
        ],
        "known": [{"path": printable(path), "record": record} for path, record in swept.passed_over],
        "left": [left_view(one) for one in swept.left],
        "unreadable": [{"path": printable(path), "why": why} for path, why in swept.unreadable],
        "pending": [
            {"what": one.what, "why": one.why, "transient": one.transient, "next": one.next or None}
            for one in swept.pending
        ],
        "said": list(swept.said),
    }


def left_view(one: Left) -> dict[str, Any]:
    """A whole save that is not taken because of whose it is."""
    return {
        "path": printable(one.path),
        "run": one.run,
        "step": one.step,
        "written_at": None if one.written_at is None else to_text(one.written_at),
        "whose": str(one.whose),
        "why": one.whose.why,
        "next": one.next,
    }


def _waiting_lines(swept: Swept) -> Iterator[str]:
    """Of several things that wait for the same, it is said once what to do."""
    said = {""}
    planned = [one for one in swept.pending if one.planned]
    if planned:
        # Nothing is wrong with them, and there may be one for each record and tier: `--json` has all.
        more = f"; and {len(planned) - 1} more that wait for their time" if planned[1:] else ""
        yield f"later {planned[0].what}: {planned[0].why}{more}"
    for one in swept.pending:
        if one.planned:
            continue
        yield f"waits {one.what}: {one.why}"
        if one.next not in said and not one.transient:
            yield f"  {one.next}"
        said.add(one.next)


def _swept_lines(swept: Swept) -> list[str]:
    lines = [
        *(
            f"committed {done.record.run}@{done.record.step} ({short(done.record.id)})"
            for done in swept.committed
            if done.new
        ),
        *(f"replicated {short(one.record)} to {one.tier}" for one in swept.replicated),
        *(f"released {short(one.record)} from {one.place.tier}" for one in swept.released),
        *(f"DROPPED the last copy of {short(identity)}: hot is full" for identity in swept.thinned),
        *swept.said,
        *(f"incomplete {path}: {why}" for path, why in swept.incomplete),
        *(f"abandoned {one.path} since {instant(one.since)}: {one.why}" for one in swept.abandoned),
        *(f"left {one.path}: {one.whose}: {one.whose.why}" for one in swept.left),
        *(f"{not_read(path)}: {why}" for path, why in swept.unreadable),
        *_waiting_lines(swept),
    ]
    return [plain(line) for line in lines] or ["nothing to do"]
