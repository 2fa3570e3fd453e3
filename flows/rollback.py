"""Roll a run back: plan, wait for approval, apply. The ledger decides; the suspended run mirrors it either way round.

A run that waited starts from the top again, in a new process. Its tag says which rollback it is about.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal
from uuid import UUID

from prefect import flow, get_run_logger
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.flow_runs import suspend_flow_run
from prefect.input import RunInput
from prefect.runtime import flow_run
from prefect.states import Completed
from pydantic import Field

from flows import _edge
from lakemark.errors import Refused, Usage
from lakemark.model.back.briefing import Line, briefing, ended
from lakemark.model.back.rollback_plan import Flags, RollbackPlan
from lakemark.model.ledger.run import RollbackState
from lakemark.model.selectors import parse_target, resolve_target
from lakemark.model.values import outside
from lakemark.services.back import rollback_apply, rollback_decide, rollback_request
from lakemark.services.back.surroundings import around
from lakemark.services.ledger import opened

ENDED: Final = ("refused", "expired", "overtaken")
ASKED: Final = "question:"
"""A flow run's tag: this and the number of the question that is open."""
_AFTER_EXPIRY_SECONDS: Final = 7 * 86_400


class Approval(RunInput):
    """No default decides anything: an empty answer is refused by the form itself."""

    decision: Literal["approve", "refuse"]
    approver: str = Field(min_length=2, max_length=100, description="Your name or account; it is recorded")
    plan_digest: str = Field(
        default="", max_length=64, description="To approve: the first 12 digits of the plan shown above"
    )
    reason: str = Field(
        default="", max_length=outside.REASON_MOST, description="To refuse: why; it stays in the history"
    )


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What this flow run was asked for."""

    run: str
    to: str
    reason: str
    requester: str
    flags: Flags
    rollback: str | None


@_edge.step
def ask(wanted: Wanted, identity: str) -> str:
    """Appends the request, or finds it: the same flow run asks for the same rollback."""
    here = _edge.site(actor=wanted.requester)
    if wanted.rollback is not None:
        run, standing = rollback_request.find(here, wanted.rollback)
        if run != wanted.run:
            raise Usage(f"{wanted.rollback} is of the run {run}, not of {wanted.run}", advice="Name its own run.")
        return standing.id
    selector = parse_target(wanted.to, wanted.run, now=here.now())
    wish = rollback_request.Wish(
        run=wanted.run,
        record=resolve_target(selector, opened(here, wanted.run)).record.id,
        reason=wanted.reason,
        requester=wanted.requester,
        at=getattr(selector, "instant", None),
        flags=wanted.flags,
        key=identity,
        flow_run=identity,
    )
    return rollback_request.request(here, wish).id


@_edge.step
def apply(rollback: str) -> dict[str, Any]:
    """Restores, opens the data branches, records: finishing whatever an earlier try left."""
    done = rollback_apply.apply(_edge.site(), rollback)
    return {
        "rollback": done.rollback,
        "run": done.run,
        "timeline": done.timeline,
        "record": done.record,
        "checkpoint_dir": None if done.checkpoint_dir is None else str(done.checkpoint_dir),
        "data": [{"repository": r, "branch": b, "commit": c} for r, b, c in done.data],
        "run_file": str(done.run_file),
    }


@_edge.step
def decide(rollback: str, answer: Approval) -> str | None:
    """Appends what was answered in the form; the person who answered is the actor. Answers why it does not count, if so."""
    if answer.approver == _edge.THE_LEDGER:
        return "the ledger of this node does not show a decision yet"
    here = _edge.site(actor=answer.approver)
    try:
        if answer.decision == "approve":
            rollback_decide.approve(here, rollback, digest=answer.plan_digest.strip())
        else:
            rollback_decide.refuse(here, rollback, reason=outside.reason(answer.reason))
    except (Refused, ValueError) as error:
        # Of a request that is still open, the next question says what was wrong with this answer.
        said = f"a refusal needs a reason; {error}" if isinstance(error, ValueError) else str(error)
        return f"the answer of {answer.approver} does not count: {said}"
    return None


def name_of_run() -> str:
    """Apart from every other: by run, target and rollback; before there is a request, by the flow run's id."""
    return _name(remembered() or str(flow_run.id)[:8])


def _name(which: str) -> str:
    given = flow_run.parameters
    return f"rollback-{given.get('run')}-to-{str(given.get('to'))[:20]}-{which}"


@flow(
    name="rollback",
    flow_run_name=name_of_run,
    log_prints=False,
    persist_result=False,
    result_serializer="json",
)
def roll_back(
    *,
    run: Annotated[str, Field(min_length=1, max_length=63, description="The run to roll back"), _edge.Typed()],
    to: Annotated[
        str,
        Field(
            min_length=1, max_length=200, description="How far: 3d, 2026-11-26T12:00:00Z, a step, id:HEX, best:METRIC"
        ),
        _edge.Typed(),
    ],
    reason: Annotated[
        str,
        Field(
            min_length=outside.REASON_LEAST,
            max_length=outside.REASON_MOST,
            description="Why; it stays in the history",
        ),
    ],
    requester: Annotated[
        str, Field(min_length=2, max_length=100, description="Your name or account; another one approves")
    ],
    model_only: Annotated[bool, Field(description="Leave data as it is; recorded as such")] = False,
    data_only: Annotated[bool, Field(description="Leave the model as it is")] = False,
    move_branch: Annotated[
        bool, Field(description="Plan to set the data branch back too, by `rollback move-branch` afterwards")
    ] = False,
    while_running: Annotated[bool, Field(description="Although the run seems to be written still")] = False,
    rollback: Annotated[str | None, Field(pattern="^rb-[0-9a-f]{10}$", description="A request made already")] = None,
) -> dict[str, Any] | State[Any]:
    """Both the checkpoint and the data of that day come back, or neither.

    Args:
        run: The run to roll back
        to: How far: 3d, 2026-11-26T12:00:00Z, a step, id:HEX, best:METRIC
        reason: Why; it stays in the history
        requester: Your name or account; another one approves
        model_only: Leave data as it is; recorded as such
        data_only: Leave the model as it is
        move_branch: Plan to set the data branch back too, by `rollback move-branch` afterwards
        while_running: Although the run seems to be written still
        rollback: A request made already
    """
    try:
        flags = Flags(model_only=model_only, data_only=data_only, move_branch=move_branch, while_running=while_running)
    except ValueError as error:
        raise Usage(str(error), advice="Leave one of them out.") from None
    wanted = Wanted(run=run, to=to, reason=reason, requester=requester, flags=flags, rollback=rollback)
    identity = remembered() or remember(ask(wanted, str(flow_run.id)))
    wait_for_decision(identity)
    state = settled(identity)
    if state.state in ENDED:
        # Nothing failed: somebody, or the time, said no. The run says who and why where people look first.
        return Completed(name=state.state.capitalize(), message=ended(state))
    result: dict[str, Any] = apply(identity)
    plan = RollbackPlan.from_json(dict(state.plan))
    get_run_logger().info("%s is back at step %s in timeline %s", plan.run, plan.target.step, result["timeline"])
    _edge.markdown(
        f"rollback-result-{identity}", _result_lines(plan, result), description=f"What the rollback of {plan.run} did"
    )
    return result


def wait_for_decision(rollback: str) -> None:
    """Until the ledger shows one: suspends this run with the form, and asks again after an answer that does not count.

    A run that goes on starts from the top: its tag says which question is the open one, so that an answer that did not
    count when it was given is never looked at again. By now it might count, and another one was given since.
    """
    said: str | None = None
    while (state := _state(rollback)).state == "requested" and _edge.site().policies.approval.required:
        plan = RollbackPlan.from_json(dict(state.plan))
        number = _edge.tagged(ASKED)
        if number is None:
            number = _edge.tag(ASKED, "1")
            _edge.markdown(
                f"rollback-plan-{rollback}",
                plan_lines(state, plan, told(state, plan)),
                description=f"What rolling {plan.run} back to step {plan.target.step} would do",
            )
        form = question(state, plan, told(state, plan), said=said)
        answer = suspend_flow_run(wait_for_input=form, key=f"approval-{number}", timeout=waits_seconds(state))
        if _state(rollback).state == "requested":
            said = decide(rollback, answer)
        if said is not None:
            get_run_logger().warning("%s: asking again", said)
            _edge.tag(ASKED, str(int(number) + 1))


def question(state: RollbackState, plan: RollbackPlan, lines: Iterable[Line], *, said: str | None) -> type[Approval]:
    """The approval form, with the plan as its text."""
    return Approval.with_initial_data(description="\n".join(plan_lines(state, plan, lines, said=said)))


@_edge.step
def settled(rollback: str) -> RollbackState:
    """What the ledger says now; a request whose time is over is ended by that."""
    here = _edge.site()
    rollback_decide.expire(here)
    return rollback_request.find(here, rollback)[1]


def remembered() -> str | None:
    """The rollback this flow run asked for, or was made for; None: it did not ask yet."""
    return next(
        (tag.removeprefix(_edge.ROLLBACK_TAG) for tag in flow_run.tags if tag.startswith(_edge.ROLLBACK_TAG)), None
    )


def remember(rollback: str) -> str:
    """Tags this flow run with its rollback, and names it by that."""
    _edge.tag(_edge.ROLLBACK_TAG, rollback)
    with get_client(sync_client=True) as client:
        client.update_flow_run(UUID(flow_run.id), name=_name(rollback))
    return rollback


def waits_seconds(state: RollbackState) -> int:
    """How long the form stays open: longer than the request, which the sweep ends; Prefect would only say `Failed`."""
    left = state.expires_at - _edge.site().now()
    return max(0, int(left.total_seconds())) + _AFTER_EXPIRY_SECONDS


def told(state: RollbackState, plan: RollbackPlan) -> tuple[Line, ...]:
    """What is to be known of the plan, as this node sees it now."""
    here = _edge.site()
    return briefing(here.ledger.run(plan.run), plan, around(here, plan.run), standing=state)


def plan_lines(
    state: RollbackState, plan: RollbackPlan, lines: Iterable[Line], *, said: str | None = None
) -> list[str]:
    """The plan as Markdown, and how to answer. said: what was wrong with the answer before."""
    again = [f"**{_edge.plain(said)}.** The question stands:", ""] if said else []
    return [
        *again,
        f"## Roll **{_edge.plain(plan.run)}** back to step **{plan.target.step}**?",
        *[f"- **{label}**: {_edge.code(text) if label == 'after' else _edge.plain(text)}" for label, text in lines],
        "",
        f"To approve, type `{plan.digest[:12]}` as plan digest. To refuse, say why as reason.",
        "",
        f"or: `lakemark rollback approve {state.id} --digest {plan.digest[:12]}`",
    ]


def _state(rollback: str) -> RollbackState:
    return rollback_request.find(_edge.site(), rollback)[1]


def _result_lines(plan: RollbackPlan, result: dict[str, Any]) -> list[str]:
    branches = [f"- {row['repository']}: branch `{row['branch']}` at `{row['commit'][:12]}`" for row in result["data"]]
    return [
        f"## {plan.run} is back at step {plan.target.step}",
        f"- timeline {result['timeline']}",
        f"- checkpoint in `{result['checkpoint_dir']}`",
        *branches,
        f"- next: `lakemark resume {plan.run} --to {around(_edge.site(), plan.run).directory or 'DIR'}`",
    ]
