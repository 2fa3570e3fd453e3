"""`rollback plan`, `request`, `ls`, `show`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from lakemark.cli import prefect_mirror as mirroring
from lakemark.cli.options import Reason
from lakemark.cli.output import instant, pairs, table
from lakemark.cli.session import Answer, Session, session, would
from lakemark.errors import NotFound, Usage, quoted
from lakemark.model.back.briefing import became, briefing
from lakemark.model.back.rollback_plan import Flags
from lakemark.model.selectors import Prefix, TargetSelector, parse_target, resolve_target
from lakemark.model.views import PLAN_KEYS, rollback_view
from lakemark.services.back.surroundings import around

if TYPE_CHECKING:
    from lakemark.model.back.rollback_plan import RollbackPlan
    from lakemark.model.ledger.run import RollbackState
    from lakemark.services.back.rollback_request import Wish


@dataclass(frozen=True, kw_only=True)
class Ways:
    """What of a rollback is done."""

    model_only: bool = False
    """Leave data as it is; recorded as such."""

    data_only: bool = False
    """Leave the model as it is."""

    move_branch: bool = False
    """Plan to set the data branch back too, by a new commit: afterwards, by `rollback move-branch`."""

    while_running: bool = False
    """Although the run seems to be written still."""


def plan(
    run: str,
    /,
    *,
    to: str,
    reason: Reason,
    ways: Annotated[Ways | None, Parameter(name="*")] = None,
    dry_run: bool = False,
) -> Answer:
    """What going back would do: target, data, what is given up, from where, how long. Kept beside the ledger.

    Parameters
    ----------
    run: str
        Its name.
    to: str
        WHEN, STEP, RECORD, best:METRIC, before-data:COMMIT or before-quarantine:ID.
    reason: str
        Why; it is part of the plan.
    dry_run: bool
        Do not even keep the plan.
    """
    from lakemark.services.back import rollback_request

    here = session()
    wish = _wish(here, run, to, reason=reason, ways=ways)
    # Even the plan's file would change something: `rollback apply` takes plans by their digest.
    made = rollback_request.plan(here.site, wish, keep=not dry_run)
    shown = plan_view(here, made.as_json())
    if dry_run:
        answer = would(f"keep the plan {made.digest[:12]}: {made.run} back to step {made.target.step}", **shown)
        return replace(answer, lines=[*answer.lines, *told(here, made)])
    return Answer(document=shown, lines=told(here, made))


def request(
    run: str,
    /,
    *,
    to: str,
    reason: Reason,
    ways: Annotated[Ways | None, Parameter(name="*")] = None,
    dry_run: bool = False,
) -> Answer:
    """Ask to go back. The request is an entry of the ledger; Prefect, where there is one, shows it and waits.

    Parameters
    ----------
    run: str
        Its name.
    to: str
        WHEN, STEP, RECORD, best:METRIC, before-data:COMMIT or before-quarantine:ID.
    reason: str
        Why; it stays in the history.
    dry_run: bool
        Show the plan, and change nothing.
    """
    from lakemark.services.back import rollback_request

    here = session()
    wish = _wish(here, run, to, reason=reason, ways=ways)
    if dry_run:
        # The request would be refused; a plan alone changes nothing, and may be made of what is known.
        here.require_sound()
        made = rollback_request.plan(here.site, wish, keep=False)
        shown = plan_view(here, made.as_json())
        answer = would(f"request to roll {made.run} back to step {made.target.step}", **shown)
        return replace(answer, lines=[*answer.lines, *told(here, made)])
    state = rollback_request.request(here.site, wish)
    # A request given again may find a rollback that is decided already: nothing waits for that any more.
    flow_run, url = mirroring.begin(here, state) if state.open else (state.flow_run, None)
    # The request's entry came after what was read.
    here.history.renew()
    approve = f"lakemark rollback approve {state.id} --digest {state.digest[:12]}"
    document = {
        **rollback_document(here, state),
        "flow_run": flow_run or state.flow_run,
        "url": url,
        "approve": approve,
    }
    return Answer(document=document, lines=rollback_lines(here, state, url))


def list_rollbacks(run: str | None = None, /) -> Answer:
    """List rollbacks, the newest last.

    Parameters
    ----------
    run: str
        Of this run only.
    """
    here = session()
    names = [here.history.name(run)] if run else here.history.runs()
    found = [state for name in names for state in here.history.structure(name).rollbacks.values()]
    # Over all runs: each by itself is in order already.
    found.sort(key=lambda state: state.requested_at)
    rows = [
        (
            state.id,
            state.plan.get("run"),
            state.state,
            _step(state),
            instant(state.requested_at),
            state.requester,
            state.reason or "",
        )
        for state in found
    ]
    heads = ("rollback", "run", "state", "to step", "requested", "by", "reason")
    return Answer(
        document={"rollbacks": [rollback_view(state) for state in found]}, lines=table(heads, rows) or ["no rollback"]
    )


def show_rollback(identity: str, /) -> Answer:
    """Show a rollback: its plan, its state, and who decided.

    Parameters
    ----------
    identity: str
        The rollback's id, or 8 or more digits of its plan's digest.
    """
    from lakemark.services.back.rollback_request import find

    here = session()
    _, state = find(here.site, identity)
    flow_run, url = mirroring.found(here, state)
    document = {**rollback_document(here, state), "flow_run": flow_run, "url": url}
    return Answer(document=document, lines=rollback_lines(here, state, url))


def plan_view(here: Session, plan: Mapping[str, Any]) -> dict[str, Any]:
    """A plan as JSON: its target a whole record, as far as the ledger knows it."""
    shown = {key: plan.get(key) for key in PLAN_KEYS}
    target = plan.get("target")
    # A plan is kept in its entry as it was made; a newer version may have made it, so nothing of it is taken for granted.
    known = here.site.ledger.run(str(plan.get("run"))).records if isinstance(target, Mapping) else {}
    found = known.get(str(target.get("record"))) if isinstance(target, Mapping) else None
    return shown if found is None else shown | {"target": {**dict(target or {}), **here.history.view(found)}}


def told(here: Session, made: RollbackPlan, standing: RollbackState | None = None) -> list[str]:
    """A plan for people, with what surrounds it."""
    state = here.site.ledger.run(made.run)
    return pairs(briefing(state, made, around(here.site, made.run), standing=standing))


def rollback_document(here: Session, state: RollbackState) -> dict[str, Any]:
    """A rollback as JSON."""
    return {**rollback_view(state), **plan_view(here, state.plan)}


def rollback_lines(here: Session, state: RollbackState, url: str | None) -> list[str]:
    """A rollback for people: what became of it, its plan, and what can be done next."""
    rows = [("rollback", f"{state.id} is {state.state}"), *became(state), ("page", url or "")]
    lines = [*pairs(rows), "", *told(here, _made(state), state)]
    # An approval ends with its plan: data and records may have gone on since.
    ready = state.state == "approved" or (state.state == "requested" and not here.settings.approval.required)
    # By this clock: that it expired is no entry, so the state alone does not say it.
    if ready and here.now < state.expires_at:
        lines.append(here.advised(f"to apply: lakemark rollback apply {state.id}"))
    elif state.state == "requested" and here.now < state.expires_at:
        lines.append(here.advised(f"to approve: lakemark rollback approve {state.id} --digest {state.digest[:12]}"))
        lines.append(here.advised(f"to refuse: lakemark rollback refuse {state.id} --reason '…'"))
    return lines


def _wish(here: Session, run: str, to: str, *, reason: str, ways: Ways | None) -> Wish:
    from lakemark.services.back.rollback_request import Wish

    asked = ways or Ways()
    try:
        flags = Flags(
            model_only=asked.model_only,
            data_only=asked.data_only,
            move_branch=asked.move_branch,
            while_running=asked.while_running,
        )
    # Flags refuse two that exclude each other.
    except ValueError as error:
        raise Usage(str(error), advice="Leave one of them out.") from None
    # Before the target: a STEP or WHEN means nothing without its run.
    name = here.history.name(run)
    selector = parse_target(to, name, now=here.now)
    _require_its_own(here, selector, name)
    state = here.site.ledger.run(name)
    found = resolve_target(selector, state, modes=here.history.modes())
    # Only a WHEN has one: it is kept, as the plan says of what instant the target was the newest.
    at = getattr(selector, "instant", None)
    if at is not None:
        here.note(f"{to} is {instant(at)}")
    return Wish(run=name, record=found.record.id, reason=reason, requester=here.site.actor, at=at, flags=flags)


def _require_its_own(here: Session, selector: TargetSelector, run: str) -> None:
    """Raises Usage for a record of another run, also of one whose name differs from this one's only in case."""
    if isinstance(selector, Prefix) or selector.run == run:
        return
    # Among all runs: by this one alone the other's name would be taken for a way to write its own.
    with suppress(NotFound):
        meant = here.history.name(selector.run)
        if meant != run:
            raise Usage(f"{quoted(selector.run)} is not {run}", advice="A rollback stays within its run.")


def _made(state: RollbackState) -> RollbackPlan:
    from lakemark.model.back.rollback_plan import RollbackPlan

    return RollbackPlan.from_json(dict(state.plan))


def _step(state: RollbackState) -> object:
    target = state.plan.get("target")
    return target.get("step", "-") if isinstance(target, Mapping) else "-"
