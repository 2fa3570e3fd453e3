"""What somebody has to know to decide a rollback at three in the morning, and what became of it: pairs of label and text.

The command line aligns them, Prefect's form and artifact list them. All text is plain and of one line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import PurePath
from typing import Final

from lakemark.model.back.rollback_plan import RollbackPlan
from lakemark.model.ledger.run import RecordState, RollbackState, RunState
from lakemark.model.runs.timeline import latest
from lakemark.model.values.instants import from_text
from lakemark.model.values.wording import ago, instant, size

Line = tuple[str, str]
_LEAVES: Final = {
    "model_only": "data stay as they are",
    "data_only": "the model stays as it is",
    "move_branch": "the data branch is to be moved back afterwards, by `rollback move-branch`",
    "while_running": "although the run seems to be written still",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a briefing rests on beside ledger and plan. alone_after: None where nobody may approve alone.

    directory: the run's registered directory on this node, where there is one.
    """

    now: datetime
    approval_required: bool
    alone_after: timedelta | None
    restore_root: PurePath
    directory: str | None = None


def briefing(
    state: RunState, plan: RollbackPlan, around: Surroundings, *, standing: RollbackState | None = None
) -> tuple[Line, ...]:
    """The plan for people. standing: its request, where there is one."""
    return (
        ("roll back", f"{plan.run} (timeline {plan.timeline}) to step {plan.target.step}"),
        *_compared(state, plan, around.now),
        *([("asked for", f"as of {instant(plan.at)}")] if plan.at else []),
        *_data(plan),
        *_where(plan, around, standing),
        (
            "gives up",
            f"{len(plan.gives_up.records)} record(s), {plan.gives_up.steps} steps, {plan.gives_up.hours:g} hours",
        ),
        *((("affects", f"{one.run} {one.record[:12]}: {one.why}")) for one in plan.affected),
        *_flags(plan),
        *(("note", note) for note in plan.notes),
        ("why", f"{plan.reason} ({plan.requester})"),
        *_deadlines(plan, around, standing),
        ("before", f"stop the trainer of {plan.run}: applying does not stop it"),
        ("after", f"lakemark resume {plan.run} --to {around.directory or 'DIR'}"),
        ("plan", plan.digest[:12]),
    )


def became(standing: RollbackState) -> tuple[Line, ...]:
    """Who asked, approved and ended it, when and why, a line each."""
    lines = [
        ("requested", f"{instant(standing.requested_at)} by {standing.requester}: {standing.reason or 'no reason'}")
    ]
    for given in standing.approvals:
        by, actor = str(given.get("by") or ""), str(given.get("actor") or "")
        # A person's name, and the account that wrote the entry where that is another.
        who = actor if by in ("", actor) else f"{by} ({actor})"
        lines.append(("approved", f"{_given_at(given)} by {who}{', alone' if given.get('alone') else ''}"))
    if standing.ended_at is not None:
        said = f"{instant(standing.ended_at)} by {standing.ended_by}"
        lines.append((standing.state, f"{said}: {standing.ended_why}" if standing.ended_why else said))
    return tuple(lines)


def ended(standing: RollbackState) -> str:
    """Of a rollback that was not applied: what ended it, who and why, in one sentence."""
    why = f": {standing.ended_why}" if standing.ended_why else ""
    if standing.state == "refused":
        return f"{standing.id} was refused by {standing.ended_by}{why}"
    return f"{standing.id} is {standing.state}{why}"


def _compared(state: RunState, plan: RollbackPlan, now: datetime) -> Iterator[Line]:
    """Step, age and metrics of what is now beside those of the target."""
    newest, target = latest(state), state.records.get(plan.target.record)
    if newest is not None:
        yield "now", f"step {newest.record.step}, {_saved(newest.instant, now)}{_metrics(newest)}"
    then = _metrics(target) if target else ""
    which = f"record {plan.target.record[:12]} of timeline {plan.target.timeline}"
    at = target.instant if target else plan.target.saved_at
    yield "goes back to", f"step {plan.target.step}, {_saved(at, now)}{then}, {which}"


def _metrics(found: RecordState) -> str:
    return "".join(f", {name} {value:g}" for name, value in sorted(found.record.metrics.items()))


def _data(plan: RollbackPlan) -> Iterator[Line]:
    for one in plan.data:
        yield "data", f"{one.repository}@{one.commit[:12]}, opened as the branch {one.opens_branch}"
        if one.moves_from:
            # Said by both heads: it is done only if the branch is still there.
            yield "then moves", f"{one.repository}/{one.branch} from {one.moves_from[:12]} to {one.commit[:12]}"
    changes: Mapping[str, object] | None = plan.data_changes
    if changes:
        told = ", ".join(f"{changes.get(name)} {name}" for name in ("added", "removed", "changed"))
        yield "data changes", f"{told}, from the data in use to that"
    # Silence would read as no change.
    elif plan.data:
        yield "data changes", "not known"


def _where(plan: RollbackPlan, around: Surroundings, standing: RollbackState | None) -> Iterator[Line]:
    seconds = "how long is not known" if plan.estimated_seconds is None else f"about {plan.estimated_seconds:g} s"
    if plan.flags.data_only:
        yield "to", "no checkpoint is restored: data only"
        return
    yield "from", f"{plan.source_tier or 'nowhere'}, {size(plan.size_bytes)}, {seconds}"
    # Before it is requested it has no id yet.
    name = standing.id if standing else "<rollback>"
    yield "to", f"{(standing and standing.checkpoint_dir) or around.restore_root / name}, unless --dir says another"


def _flags(plan: RollbackPlan) -> Iterator[Line]:
    told = [said for name, said in _LEAVES.items() if plan.flags.as_json()[name]]
    if told:
        yield "asked", "; ".join(told)


def _deadlines(plan: RollbackPlan, around: Surroundings, standing: RollbackState | None) -> Iterator[Line]:
    left = plan.expires_at - around.now
    yield "expires", instant(plan.expires_at) + (f", in {ago(left)}" if left > timedelta(0) else ", which is over")
    if not around.approval_required:
        yield "approval", "this site asks for none"
    elif around.alone_after is None:
        yield "approval", f"by somebody else than {plan.requester}"
    else:
        since = standing.requested_at if standing else around.now
        yield (
            "approval",
            f"by somebody else than {plan.requester}, who may approve alone from {instant(since + around.alone_after)}",
        )


def _saved(at: datetime, now: datetime) -> str:
    return f"saved {instant(at)} ({ago(now - at)} ago)"


def _given_at(given: Mapping[str, object]) -> str:
    try:
        return instant(from_text(str(given.get("at"))))
    except ValueError:
        return "at a time that is not known"
