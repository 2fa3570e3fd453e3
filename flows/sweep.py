"""The safety net: find saves, finish what was interrupted, and let Prefect's suspended rollbacks follow the ledger."""

from __future__ import annotations

from typing import Any, Final

from prefect import flow, get_run_logger
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    FlowFilter,
    FlowFilterName,
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType as StateTypes,
    FlowRunFilterTags,
)
from prefect.client.schemas.objects import TERMINAL_STATES, FlowRun, StateType
from prefect.client.schemas.responses import SetStateStatus

from flows import _edge
from lakemark.model.ledger.run import RollbackState
from lakemark.model.values.names import not_read, printable
from lakemark.ports import Site
from lakemark.services.back import rollback_decide
from lakemark.services.back.rollback_request import open_rollbacks
from lakemark.services.node.sweep import sweep as sweep_site
from lakemark.services.node.swept import Swept

ROLLBACK_FLOW: Final = "rollback"
CANCELLED_IN_PREFECT: Final = "somebody-in-prefect"
_PAGE: Final = 200


@_edge.step
def find_and_finish(node: str | None) -> Swept:
    """Commits finds and announced saves; moves no replica."""
    here = _edge.site(background=True)
    _edge.require_node(here, node)
    return sweep_site(here, move=False)


@_edge.step
def follow_the_ledger() -> list[str]:
    """Resumes suspended rollback runs whose request was decided outside Prefect; the run then reads the ledger itself.

    Answers the names of those that go on.
    """
    decided = _decided(_edge.site())
    with get_client(sync_client=True) as client:
        return [
            run.name
            for run in _suspended(client)
            for tag in run.tags
            if (state := decided.get(tag)) is not None and _goes_on(client, run, state)
        ]


@_edge.step
def follow_prefect() -> list[str]:
    """Refuses the open requests whose flow run was cancelled in Prefect, and for which no other one waits.

    Answers what was refused, a sentence each. A person who cancels has said no; Prefect does not tell who that was.
    """
    here = _edge.site(actor=CANCELLED_IN_PREFECT)
    said: list[str] = []
    with get_client(sync_client=True) as client:
        for _, request in list(open_rollbacks(here)):
            runs = _of(client, request)
            ended = [run for run in runs if run.state_type == StateType.CANCELLED]
            if ended and all(run.state_type in TERMINAL_STATES for run in runs):
                reason = f"its flow run {ended[0].name} was cancelled in Prefect, which does not say by whom"
                rollback_decide.refuse(here, request.id, reason=reason)
                said.append(f"refused {request.id}: {reason}")
    return said


@flow(name="sweep", log_prints=False, persist_result=False, result_serializer="json")
def sweep(node: str | None = None, stale_after_minutes: int | None = None) -> dict[str, Any]:
    """One pass on this node. `node`: refuse on any other."""
    logger = get_run_logger()
    if _edge.late(stale_after_minutes):
        logger.info("scheduled too long ago: a newer run does this")
        return {"late": True}
    swept: Swept = find_and_finish(node)
    cancelled: list[str] = follow_prefect()
    resumed: list[str] = follow_the_ledger()
    for said in [*swept.said, *cancelled, *(f"{name} goes on" for name in resumed)]:
        logger.info(said)
    pending = [{"what": one.what, "why": one.why} for one in swept.pending]
    pending += [{"what": not_read(path), "why": why} for path, why in swept.unreadable]
    _edge.table("sweep-pending", pending, description="What waits, and for what")
    return {
        "committed": [done.record.id for done in swept.committed if done.new],
        "incomplete": [{"path": printable(path), "why": printable(why)} for path, why in swept.incomplete],
        "abandoned": [{"path": printable(one.path), "why": printable(one.why)} for one in swept.abandoned],
        "pending": pending,
        "resumed": resumed,
    }


def _decided(here: Site) -> dict[str, RollbackState]:
    """By the tag of their flow runs."""
    return {
        _edge.ROLLBACK_TAG + state.id: state
        for run in here.ledger.runs()
        for state in here.ledger.run(run).rollbacks.values()
        if state.state != "requested"
    }


def _of(client: SyncPrefectClient, request: RollbackState) -> list[FlowRun]:
    tag = FlowRunFilter(tags=FlowRunFilterTags(all_=[_edge.ROLLBACK_TAG + request.id]))
    found: list[FlowRun] = client.read_flow_runs(flow_run_filter=tag, limit=_PAGE)
    return found


def _suspended(client: SyncPrefectClient) -> list[FlowRun]:
    paused = FlowRunFilter(state=FlowRunFilterState(type=StateTypes(any_=[StateType.PAUSED])))
    named = FlowFilter(name=FlowFilterName(any_=[ROLLBACK_FLOW]))
    found: list[FlowRun] = client.read_flow_runs(flow_filter=named, flow_run_filter=paused, limit=_PAGE)
    return found


def _goes_on(client: SyncPrefectClient, run: FlowRun, state: RollbackState) -> bool:
    """The server says no where somebody was quicker, or where the form is not stored yet: the next sweep asks again."""
    answer = {
        "decision": "approve" if state.state in ("approved", "applied") else "refuse",
        "approver": _edge.THE_LEDGER,
        "plan_digest": state.digest[:12],
    }
    return client.resume_flow_run(run.id, run_input=answer).status == SetStateStatus.ACCEPT
