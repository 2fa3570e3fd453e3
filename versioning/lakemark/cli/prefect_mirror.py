"""Prefect's flow run of a rollback mirrors the ledger: made after the request, told after the decision.

The entry always comes first. Whatever goes wrong here leaves the decision as it is, and `lakemark sweep` or the
scheduled flow catches up.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from lakemark.cli.prefect_api import PrefectApi
from lakemark.cli.session import Session
from lakemark.errors import LakemarkError

if TYPE_CHECKING:
    from lakemark.model.ledger.run import RollbackState

# A flow that has just been started needs some seconds until it suspends and can be told.
_PATIENCE_SECONDS: Final = 12.0
_PAUSE_SECONDS: Final = 0.4
# Somebody looks at a rollback: its page is a convenience, and not worth a wait.
_SOON_SECONDS: Final = 2.0
_WAITING: Final = ("SCHEDULED", "PENDING")
# CANCELLING too: such a run reads no answer any more.
_TERMINAL: Final = ("COMPLETED", "FAILED", "CANCELLED", "CRASHED", "CANCELLING")
_MODEL: Final = ("model_only", "data_only", "move_branch", "while_running")


def begin(here: Session, state: RollbackState) -> tuple[str | None, str | None]:
    """The flow run that waits for the decision, and its page; both None where there is no Prefect, or none to reach."""
    api = PrefectApi.of(here.parts.keys)
    if api is None:
        return None, None
    target = state.plan.get("target")
    record = target.get("record") if isinstance(target, dict) else None
    flags = state.plan.get("flags")
    parameters: dict[str, Any] = {
        "run": state.plan.get("run"),
        # The record, not what was typed: `3d` would mean another one by the time the flow starts.
        "to": f"id:{record}",
        "reason": state.reason or "",
        "requester": state.requester,
        "rollback": state.id,
        **({name: bool(flags.get(name)) for name in _MODEL} if isinstance(flags, dict) else {}),
    }
    try:
        flow_run = api.create_rollback(rollback=state.id, parameters=parameters)
    except LakemarkError as error:
        here.warn(f"no flow run: {error}")
        here.warn(f"The request stands. Approve it with `lakemark rollback approve {state.id}`, then apply it.")
        return None, None
    return flow_run, api.page_of(flow_run)


def found(here: Session, state: RollbackState) -> tuple[str | None, str | None]:
    """The newest flow run of a rollback and its page; a request made by the command line names none itself.

    Both None where there is none, and where no Prefect answers soon: showing a rollback works without it.
    """
    api = PrefectApi.of(here.parts.keys)
    if api is None:
        return state.flow_run, None
    api = replace(api, timeout_seconds=_SOON_SECONDS)
    try:
        # The newest: whoever made the flow run anew in Prefect's page copied its tags, too.
        runs = sorted(api.runs_of(state.id, state.flow_run), key=lambda run: str(run.get("created") or ""))
    except LakemarkError:
        runs = []
    flow_run = str(runs[-1]["id"]) if runs else state.flow_run
    return flow_run, api.page_of(flow_run) if flow_run else None


def tell(here: Session, state: RollbackState, *, approver: str) -> str | None:
    """Lets the waiting flow run go on with what was decided; answers its id, or None where none waits."""
    api = PrefectApi.of(here.parts.keys)
    if api is None:
        return None
    try:
        return _tell(api, here, state, approver=approver)
    except LakemarkError as error:
        here.warn(f"Prefect was not told: {error}")
        here.warn(f"The decision stands: `lakemark rollback show {state.id}`.")
        return None


def _tell(api: PrefectApi, here: Session, state: RollbackState, *, approver: str) -> str | None:
    runs = [run for run in api.runs_of(state.id, state.flow_run) if _state(run) not in _TERMINAL]
    if not runs:
        return None
    flow_run = str(runs[0]["id"])
    # `applied`: the flow may have been told by nobody while the command line went on.
    decision = "approve" if state.state in ("approved", "applied") else "refuse"
    # Prefect checks these against the flow's form; the flow compares them with the ledger, which alone decides.
    run_input = {"decision": decision, "approver": approver, "plan_digest": state.digest[:12]}
    ends = time.monotonic() + _PATIENCE_SECONDS
    reason = ""
    while time.monotonic() < ends:
        now = next((_state(run) for run in api.runs_of(state.id, flow_run) if str(run["id"]) == flow_run), "")
        if now in _TERMINAL or now in _WAITING:
            # It has ended, or will read the ledger when it starts.
            return flow_run
        # Suspended and paused runs have the same type. Any other, such as RUNNING, has not come to its question yet.
        if now == "PAUSED":
            accepted, reason = api.resume(flow_run, run_input)
            if accepted:
                return flow_run
        time.sleep(_PAUSE_SECONDS)
    here.warn(f"the flow run {api.page_of(flow_run)} did not go on: {reason or 'it is still running'}")
    here.warn("The next scheduled sweep tells it again.")
    return flow_run


def _state(run: dict[str, Any]) -> str:
    # Filters answer `state_type`; where it is empty, the state carries its type itself.
    return str(run.get("state_type") or (run.get("state") or {}).get("type") or "")
