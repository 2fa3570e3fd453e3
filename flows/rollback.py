"""Roll a run back: plan, wait for approval, apply. The ledger decides; the suspended run mirrors it either way round.

A run that waited starts from the top again, in a new process. Its tag says which rollback it is about.
"""

from __future__ import annotations

from typing import Any, Final, Literal, Self
from uuid import UUID

from prefect import flow, get_run_logger
from prefect.client.orchestration import get_client
from prefect.flow_runs import suspend_flow_run
from prefect.input import RunInput
from prefect.runtime import flow_run
from pydantic import BaseModel, ConfigDict, Field, model_validator

from flows import _edge
from lakemark.errors import Refused, Usage
from lakemark.model.ledger import RollbackState
from lakemark.model.rollback_plan import Flags, RollbackPlan
from lakemark.model.selectors import parse_target, resolve_target
from lakemark.services import rollback_apply, rollback_decide, rollback_request
from lakemark.services.appending import opened

_SHORTEST_WAIT_SECONDS: Final = 60


class Request(BaseModel):
    """What is asked for. Nothing here is a path, an address or a secret."""

    model_config = ConfigDict(extra="forbid")
    run: str = Field(max_length=63, description="The run to roll back")
    to: str = Field(
        min_length=1, max_length=200, description="How far: 3d, 2026-11-26T12:00:00Z, a step, id:HEX, best:METRIC"
    )
    reason: str = Field(min_length=3, max_length=1000, description="Why; it stays in the history")
    requester: str = Field(min_length=2, max_length=100, description="Your name or account; another one approves")
    model_only: bool = Field(default=False, description="Leave data as it is; recorded as such")
    data_only: bool = Field(default=False, description="Leave the model as it is")
    move_branch: bool = Field(default=False, description="Also set the data branch back, by a new commit")
    while_running: bool = Field(default=False, description="Although the run seems to be written still")
    rollback: str | None = Field(default=None, pattern="^rb-[0-9a-f]{10}$", description="A request made already")

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        self.flags()
        return self

    def flags(self) -> Flags:
        """What of the rollback is done. Raises ValueError for what excludes each other."""
        return Flags(
            model_only=self.model_only,
            data_only=self.data_only,
            move_branch=self.move_branch,
            while_running=self.while_running,
        )


class Approval(RunInput):
    """No defaults: an empty answer is refused by the form itself."""

    decision: Literal["approve", "refuse"]
    approver: str = Field(min_length=2, max_length=100, description="Your name or account; it is recorded")
    plan_digest: str = Field(min_length=8, max_length=64, description="The first 12 digits of the plan shown above")


@_edge.step
def ask(request: Request, identity: str) -> str:
    """Appends the request, or finds it: the same flow run asks for the same rollback."""
    here = _edge.site(actor=request.requester)
    if request.rollback is not None:
        run, standing = rollback_request.find(here, request.rollback)
        if run != request.run:
            raise Usage(f"{request.rollback} is of the run {run}, not of {request.run}", advice="Name its own run.")
        return standing.id
    selector = parse_target(request.to, request.run, now=here.now())
    wish = rollback_request.Wish(
        run=request.run,
        record=resolve_target(selector, opened(here, request.run)).record.id,
        reason=request.reason,
        requester=request.requester,
        at=getattr(selector, "instant", None),
        flags=request.flags(),
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
def decide(rollback: str, decision: str, approver: str, plan_digest: str) -> str:
    """Appends what was answered in the form; the person who answered is the actor."""
    if approver == _edge.THE_LEDGER:
        raise Refused(
            f"the ledger of this node does not show a decision on {rollback}",
            advice=f"lakemark rollback show {rollback}, where it was decided",
        )
    here = _edge.site(actor=approver)
    if decision == "approve":
        return rollback_decide.approve(here, rollback, digest=plan_digest.strip()).state
    return rollback_decide.refuse(here, rollback, reason=f"refused by {approver} in Prefect").state


@flow(
    name="rollback",
    flow_run_name="rollback-{request.run}",
    log_prints=False,
    persist_result=False,
    result_serializer="json",
)
def roll_back(request: Request) -> dict[str, Any]:
    """Both the checkpoint and the data of that day come back, or neither."""
    rollback = remembered() or remember(ask(request, str(flow_run.id)))
    state = _state(rollback)
    plan = RollbackPlan.from_json(dict(state.plan))
    if state.state == "requested" and _edge.site().policies.approval.required:
        _edge.markdown(f"rollback-plan-{rollback}", plan_lines(state, plan))
        answer = suspend_flow_run(wait_for_input=question(state, plan), key="approval", timeout=waits_seconds(state))
        if _state(rollback).state == "requested":
            decide(rollback, answer.decision, answer.approver, answer.plan_digest)
    state = _state(rollback)
    if state.state in ("refused", "expired"):
        raise Refused(f"the rollback {rollback} was {state.state}", advice=f"lakemark rollback show {rollback}")
    result: dict[str, Any] = apply(rollback)
    get_run_logger().info("%s is back at step %s in timeline %s", plan.run, plan.target.step, result["timeline"])
    _edge.markdown(f"rollback-result-{rollback}", _result_lines(plan, result))
    return result


def remembered() -> str | None:
    """The rollback this flow run asked for, or was made for; None: it did not ask yet."""
    return next(
        (tag.removeprefix(_edge.ROLLBACK_TAG) for tag in flow_run.tags if tag.startswith(_edge.ROLLBACK_TAG)), None
    )


def remember(rollback: str) -> str:
    """Tags this flow run with its rollback."""
    with get_client(sync_client=True) as client:
        client.update_flow_run(UUID(flow_run.id), tags=[*flow_run.tags, _edge.ROLLBACK_TAG + rollback])
    return rollback


def question(state: RollbackState, plan: RollbackPlan) -> type[Approval]:
    """The approval form, with the plan as its text."""
    return Approval.with_initial_data(description="\n".join(plan_lines(state, plan)))


def waits_seconds(state: RollbackState) -> int:
    """How long the form stays open: as long as the request does."""
    left = state.expires_at - _edge.site().now()
    return max(_SHORTEST_WAIT_SECONDS, int(left.total_seconds()))


def plan_lines(state: RollbackState, plan: RollbackPlan) -> list[str]:
    """The plan for people: target, data, what is given up, from where, how long, and what to type to approve."""
    took = "how long is not known" if plan.estimated_seconds is None else f"about {plan.estimated_seconds:g} s"
    return [
        f"## Roll **{plan.run}** back to step **{plan.target.step}**",
        f"- record `{plan.target.record[:12]}`, saved {plan.target.saved_at:%Y-%m-%d %H:%M:%S} UTC",
        f"- {plan.size_bytes:,} bytes from {plan.source_tier or 'nowhere'}, {took}",
        *[
            f"- data {_edge.plain(item.repository)} at commit `{item.commit[:12]}`, as branch `{item.opens_branch}`"
            for item in plan.data
        ],
        f"- gives up {len(plan.gives_up.records)} record(s), {plan.gives_up.steps} steps, {plan.gives_up.hours:g} hours",
        *[f"- affects {_edge.plain(one.run)} `{one.record[:12]}`: {_edge.plain(one.why)}" for one in plan.affected],
        *[f"- {name.replace('_', '-')}" for name, is_set in plan.flags.as_json().items() if is_set],
        *[f"- {_edge.plain(note)}" for note in plan.notes],
        f"- why: {_edge.plain(plan.reason)} ({_edge.plain(plan.requester)})",
        "",
        f"plan digest: `{plan.digest[:12]}`",
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
    ]
