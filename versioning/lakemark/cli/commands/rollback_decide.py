"""`rollback approve`, `refuse`, `apply`, `move-branch`."""

from __future__ import annotations

import re
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from lakemark.cli import prefect_mirror as mirroring
from lakemark.cli.options import Reason
from lakemark.cli.output import pairs, short
from lakemark.cli.rehearsing import rehearsed
from lakemark.cli.session import Answer, Session, session, would
from lakemark.errors import Conflict, NotFound, Refused
from lakemark.model.back.rollback_plan import RollbackPlan
from lakemark.services.back.surroundings import around

if TYPE_CHECKING:
    from lakemark.model.ledger.run import RollbackState

# 8 digits, as for a record's id; hexadecimal alone, so that what is typed can be no pattern for `glob`.
_DIGEST: Final = re.compile(r"[0-9a-f]{8,64}", re.ASCII)


def approve(
    identity: str, /, *, digest: str, as_: Annotated[str | None, Parameter(name="--as")] = None, dry_run: bool = False
) -> Answer:
    """Approve a rollback. The plan's digest says that you have seen it.

    Parameters
    ----------
    identity: str
        The rollback.
    digest: str
        8 or more digits of the plan's digest, as `rollback show` prints it.
    as_: str
        Your name. It is only added: your account is what counts.
    dry_run: bool
        Say whether it could be approved, and change nothing.
    """
    from lakemark.services.back import rollback_decide
    from lakemark.services.back.rollback_request import find

    here = session()
    if dry_run:
        state = find(here.site, identity)[1]
        return rehearsed(
            here,
            lambda site: rollback_decide.approve(site, identity, digest=digest, by=as_),
            {"rollback_approved": lambda _: f"approve {state.id}"},
            otherwise=f"{here.site.actor} approved {state.id} already",
            rollback=state.id,
            state=state.state,
        )
    state = rollback_decide.approve(here.site, identity, digest=digest, by=as_)
    # After the entry, which alone decides: where Prefect is silent, the decision stands.
    flow_run = mirroring.tell(here, state, approver=as_ or here.site.actor)
    return _decided(here, state, flow_run)


def refuse(
    identity: str,
    /,
    *,
    reason: Reason,
    as_: Annotated[str | None, Parameter(name="--as")] = None,
    dry_run: bool = False,
) -> Answer:
    """Refuse a rollback.

    Parameters
    ----------
    identity: str
        The rollback.
    reason: str
        Why; it stays in the history.
    as_: str
        Your name. It is only added: your account is what counts.
    dry_run: bool
        Say what would be done, and change nothing.
    """
    from lakemark.services.back import rollback_decide
    from lakemark.services.back.rollback_request import find

    here = session()
    if dry_run:
        state = find(here.site, identity)[1]
        return rehearsed(
            here,
            lambda site: rollback_decide.refuse(site, identity, reason=reason, by=as_),
            {"rollback_refused": lambda _: f"refuse {state.id}, which is {state.state}"},
            otherwise=f"{state.id} is refused",
            rollback=state.id,
            state=state.state,
        )
    state = rollback_decide.refuse(here.site, identity, reason=reason, by=as_)
    flow_run = mirroring.tell(here, state, approver=as_ or here.site.actor)
    return _decided(here, state, flow_run)


def apply(
    identity: str, /, *, dir_: Annotated[Path | None, Parameter(name="--dir")] = None, dry_run: bool = False
) -> Answer:
    """Bring checkpoint and data back, as approved. Works without Prefect; applying again finishes the same rollback.

    Parameters
    ----------
    identity: str
        The rollback, or the digest of a plan.
    dir_: Path
        Where the checkpoint goes; by default a folder of restore_root named after the rollback.
    dry_run: bool
        Say what would be done, and change nothing.
    """
    from lakemark.services.back import rollback_apply
    from lakemark.services.saves.roles import role_of

    here = session()
    state = _standing(here, identity, dry_run=dry_run)
    if isinstance(state, Answer):
        return state
    # The entry names it, for whoever reads it elsewhere.
    where = dir_.absolute() if dir_ else None
    if dry_run:
        here.require_sound()
        return _would_apply(here, state, where or here.site.restore_root / state.id)
    done = rollback_apply.apply(here.site, state.id, directory=where)
    data = [{"repository": one[0], "branch": one[1], "commit": one[2]} for one in done.data]
    document: dict[str, Any] = {
        "rollback": done.rollback,
        "run": done.run,
        "timeline": done.timeline,
        "record": done.record,
        "checkpoint_dir": None if done.checkpoint_dir is None else str(done.checkpoint_dir),
        "data": data,
        "run_file": str(done.run_file),
        "gaps": list(done.gaps),
        "notes": list(done.notes),
    }
    # A resume of this record would be refused for these; the line that is proposed has to work.
    without = sorted({role for gap in done.gaps if (role := role_of(gap))})
    # Where its trainer saved last, so that the line can mostly be given as it is.
    into = quote(around(here.site, done.run).directory or "DIR")
    ready = " ".join(["lakemark resume", done.run, "--to", into, *(f"--without {role}" for role in without)])
    lines = pairs(
        [
            ("rolled back", f"{done.run} to {short(done.record)}, now timeline {done.timeline}"),
            ("checkpoint", done.checkpoint_dir),
            *(("data", f"{one['repository']}, branch {one['branch']} at {short(one['commit'])}") for one in data),
            ("run file", done.run_file),
            *(("note", note) for note in done.notes),
            ("next", ready),
        ]
    )
    return Answer(document=document, lines=lines)


def move_branch(identity: str, /, *, digest: str, dry_run: bool = False) -> Answer:
    """Set the shared data branches back that an applied rollback's plan names, each by a new commit: all of them, or none.

    Refused where one of them is not where it was when the plan was made.

    Parameters
    ----------
    identity: str
        The rollback; its plan was made with --move-branch, and it is applied.
    digest: str
        8 or more digits of the plan's digest, as `rollback show` prints it.
    dry_run: bool
        Say what would be moved, and change nothing.
    """
    from lakemark.services.back import move_branch as service

    here = session()
    if dry_run:
        made = service.require_movable(here.site, identity, digest=digest)
        return would(
            *(
                f"move {one.repository}/{one.branch} from {short(one.moves_from)} to the data of {short(one.commit)}"
                for one in made.data
                if one.moves_from is not None
            )
        )
    done = service.move_branches(here.site, identity, digest=digest)
    document: dict[str, Any] = {
        "rollback": done.rollback,
        "run": done.run,
        "timeline": done.state.timeline,
        "checkpoint_dir": done.state.checkpoint_dir,
        "data": [{"repository": one.repository, "branch": one.branch, "commit": one.made} for one in done.moves],
        "run_file": str(here.site.run_file(done.run)),
        "moved": [one.as_json() for one in done.moves],
    }
    lines = [
        f"{one.repository}/{one.branch} was at {short(one.before)}, and is at {short(one.made)} now:"
        f" the data of {short(one.commit)}"
        for one in done.moves
    ]
    return Answer(document=document, lines=lines)


def _standing(here: Session, identity: str, *, dry_run: bool) -> RollbackState | Answer:
    """The rollback; for a plan that nobody requested, the request of just that, where the site asks for no approval."""
    from lakemark.services.back import rollback_request

    try:
        return rollback_request.find(here.site, identity)[1]
    except NotFound:
        made = _kept(here, identity)
    # The id of a rollback comes from its request's key: of one plan there can be one rollback only.
    key = f"plan:{made.digest}"
    standing = here.site.ledger.run(made.run).rollbacks.get(rollback_request.identity_of(key))
    if standing is not None:
        # It was applied before, or begun: the same plan is the same rollback, and the same answer.
        return standing
    line = f"lakemark rollback request {made.run} --to id:{made.target.record[:16]} --reason {quote(made.reason)}"
    if here.site.policies.approval.required:
        raise Refused(f"the plan {made.digest[:12]} was never requested, and this site asks for approval", advice=line)
    if dry_run:
        here.require_sound()
        return would(f"request the plan {made.digest[:12]} and apply it: back to step {made.target.step} of {made.run}")
    wish = rollback_request.Wish(
        run=made.run,
        record=made.target.record,
        reason=made.reason,
        requester=here.site.actor,
        at=made.at,
        flags=made.flags,
        key=key,
    )
    # What the plan says is given up was counted on a timeline that is left now.
    if here.site.ledger.run(made.run).timeline != made.timeline:
        raise Conflict(f"{made.run} has moved to another timeline since the plan was made", advice="Plan again.")
    if here.site.now() >= made.expires_at:
        raise Refused(f"the plan {made.digest[:12]} has expired", advice="Plan again.")
    return rollback_request.request(here.site, wish)


def _kept(here: Session, identity: str) -> RollbackPlan:
    from lakemark.model.values.canonical import parse

    text = identity.lower()
    folder = here.site.home / "plans"
    files = sorted(folder.glob(f"{text}*.json")) if _DIGEST.fullmatch(text) and folder.is_dir() else []
    # Too few digits may name several: none is guessed.
    if len(files) != 1:
        what = "several plans begin with" if files else "there is no rollback or plan"
        raise NotFound(f"{what} {identity!r}", advice="See `lakemark rollback ls`, or plan again.")
    try:
        return RollbackPlan.from_json(parse(files[0].read_bytes()))
    except ValueError as error:
        raise NotFound(f"the plan {files[0]} can't be read: {error}", advice="Plan again.") from None


def _would_apply(here: Session, state: RollbackState, where: Path) -> Answer:
    from lakemark.services.back.rollback_request import require_holds

    made = RollbackPlan.from_json(dict(state.plan))
    if state.state == "requested" and here.site.policies.approval.required:
        raise Refused(
            f"the rollback {state.id} is not approved",
            advice=f"lakemark rollback approve {state.id} --digest {state.digest[:12]}",
        )
    if state.state in ("refused", "expired"):
        raise Refused(f"the rollback {state.id} is {state.state}", advice="Request it again.")
    # Its entry comes before the last of its work, such as the run file: that is done when it is applied again.
    if state.state == "applied":
        return would(f"finish what is missing of {state.id}, which was applied", rollback=state.id, state=state.state)
    require_holds(here.site, made)
    said = [] if made.flags.data_only else [f"restore step {made.target.step} of {made.run} to {where}"]
    said += [f"open {one.repository}/{one.opens_branch} at {short(one.commit)}" for one in made.data]
    return would(*said, f"open a new timeline of {made.run}", rollback=state.id, state=state.state)


def _decided(here: Session, state: RollbackState, flow_run: str | None) -> Answer:
    lines = [f"{state.id} is {state.state}"]
    if state.state == "approved" and flow_run is None:
        lines.append(f"to apply: lakemark rollback apply {state.id}")
    elif flow_run is not None:
        here.note(f"the flow run {flow_run} goes on")
    document = {"rollback": state.id, "state": state.state, "flow_run": flow_run}
    return Answer(document=document, lines=lines)
