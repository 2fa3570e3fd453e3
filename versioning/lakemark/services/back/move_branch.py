"""Set shared data branches back after a rollback was applied: all that its plan names, or none."""

from __future__ import annotations

from dataclasses import dataclass

from lakemark.errors import Conflict, LakemarkError, Refused
from lakemark.model.back.rollback_plan import PlanData, RollbackPlan
from lakemark.model.entries.rollbacks import BRANCH_MOVED, BranchMovedBody
from lakemark.model.ledger.entry import Draft
from lakemark.model.ledger.run import RollbackState, RunState
from lakemark.model.values.canonical import JSON
from lakemark.ports import DataBranches, DataCommits, DataVersions, Site
from lakemark.services.back.rollback_request import find, unreadable
from lakemark.services.data.pins import versions
from lakemark.services.ledger import require_deletable, still

_DIGITS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchMove:
    """A branch whose head was `before`, and is `made` now: a commit with the tree of `commit`."""

    repository: str
    branch: str
    before: str
    commit: str
    made: str

    def as_json(self) -> dict[str, JSON]:
        return {
            "repository": self.repository,
            "branch": self.branch,
            "from": self.before,
            "commit": self.commit,
            "made": self.made,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """What `move_branches` did, or had done before."""

    rollback: str
    run: str
    state: RollbackState
    moves: tuple[BranchMove, ...]


def move_branches(site: Site, identity: str, *, digest: str) -> Moved:
    """Moves every branch that the plan names from the head it was planned at, by a new commit, and appends `branch_moved`.

    All are looked at before the first is touched. Where one fails after others moved, those are set back, and the error
    says so. Asked again, also after a crash in its middle, it finishes the same.

    Raises NotFound, Refused (another plan's digest, a plan that moves nothing, not applied yet, a head that is another
    than planned, a branch that is gone, has uncommitted changes or is protected, unreadable data), Conflict,
    StoreUnavailable.
    """
    run, standing = find(site, identity)
    made = RollbackPlan.from_json(dict(standing.plan))
    _require_asked(standing, made, digest)
    if standing.moves:
        return Moved(rollback=standing.id, run=run, state=standing, moves=_recorded(standing))
    # Only what the plan saw is moved: its heads are part of what people approved.
    data = versions(site)
    items = [item for item in made.data if item.branch is not None and item.moves_from is not None]
    _require_ready(site, data, made, items)
    moves = _all_or_none(data, made, items)
    site.progress.step("branches.moved")
    _append(site, run, standing, moves)
    return Moved(
        rollback=standing.id,
        run=run,
        state=still(site.ledger.run(run).rollbacks, standing.id, what="rollback"),
        moves=moves,
    )


def require_movable(site: Site, identity: str, *, digest: str) -> RollbackPlan:
    """The plan, where `move_branches` would go on now; raises as that does, and changes nothing."""
    _, standing = find(site, identity)
    made = RollbackPlan.from_json(dict(standing.plan))
    _require_asked(standing, made, digest)
    items = [item for item in made.data if item.branch is not None and item.moves_from is not None]
    if not standing.moves:
        _require_ready(site, versions(site), made, items)
    return made


def _require_asked(standing: RollbackState, made: RollbackPlan, digest: str) -> None:
    """Raises Refused: another plan than was seen, one that moves nothing, or one that is not applied."""
    given = digest.strip().lower()
    if len(given) < _DIGITS or not standing.digest.startswith(given):
        raise Refused(
            f"the plan {digest[:12]} is not that of {standing.id} ({standing.digest[:12]})",
            advice=f"Look at it first: lakemark rollback show {standing.id}",
        )
    if not made.flags.move_branch or not any(item.moves_from for item in made.data):
        raise Refused(
            f"the plan of {standing.id} moves no branch", advice="Ask for it: lakemark rollback request … --move-branch"
        )
    if standing.state != "applied":
        raise Refused(
            f"the rollback {standing.id} is {standing.state}: branches are moved after it was applied",
            advice=f"lakemark rollback apply {standing.id}",
        )


def _require_ready(site: Site, data: DataVersions, made: RollbackPlan, items: list[PlanData]) -> None:
    """The preflight: raises Refused with everything that speaks against any of the moves."""
    # All of what speaks against it at once: who mends one thing must not meet the next after each try.
    reasons = [f"its data {lost}" for lost in unreadable(site, made)[0]]
    for item in items:
        shown = f"{item.repository}/{item.branch}"
        head = data.head(item.repository, str(item.branch))
        if head is not None and head != item.moves_from and not _same_tree(data, item, head):
            reasons.append(
                f"{shown} is at {head[:12]}, and the plan was made when it was at {str(item.moves_from)[:12]}"
            )
            continue
        why = data.movable(item.repository, str(item.branch))
        if why is not None:
            reasons.append(f"{shown}: {why}")
    if reasons:
        record = made.target.record[:12]
        raise Refused(
            f"no branch was moved: {'; '.join(reasons)}",
            advice=f"Look at what changed there; then plan it anew: lakemark rollback request {made.run} --to id:{record} "
            "--data-only --move-branch --reason …",
        )


def _all_or_none(data: DataVersions, made: RollbackPlan, items: list[PlanData]) -> tuple[BranchMove, ...]:
    done: list[BranchMove] = []
    message = f"Back to the data of step {made.target.step}: {made.reason}"
    for item in items:
        repository, branch, before = item.repository, str(item.branch), str(item.moves_from)
        try:
            head = data.head(repository, branch)
            # By what it holds, not by its id: a move is a commit of its own, and an earlier call may have made it.
            if head is not None and _same_tree(data, item, head):
                new = head  # moved already, by an earlier call or another rollback to the same data
            else:
                new = data.move_branch(repository, branch, item.commit, message=message, only_at=before)
        except LakemarkError as error:
            raise _set_back(data, done, error, branch=f"{repository}/{branch}") from error
        done.append(BranchMove(repository=repository, branch=branch, before=before, commit=item.commit, made=new))
    return tuple(done)


def _set_back(data: DataBranches, done: list[BranchMove], error: LakemarkError, *, branch: str) -> LakemarkError:
    """Undoes the moves so far, each by a commit on top of it; answers the error, which says what became of them."""
    stay: list[str] = []
    # What another call had moved before is not this one's to undo.
    for move in (one for one in done if one.made != one.before):
        shown = f"{move.repository}/{move.branch}"
        try:
            message = f"Undo a move: {branch} could not be moved too"
            data.move_branch(move.repository, move.branch, move.before, message=message, only_at=move.made)
        except LakemarkError as failed:
            stay.append(f"{shown} stays at {move.made[:12]} ({failed})")
    outcome = "; ".join(stay) if stay else "no branch stays moved"
    # Of the same kind: whether to try again, and the exit code, go by what stopped it.
    return type(error)(f"{branch} could not be moved: {error}; {outcome}", advice=error.advice)


def _same_tree(data: DataCommits, item: PlanData, head: str) -> bool:
    diff = data.diff(item.repository, item.commit, head, limit=1)
    # A listing that broke off says nothing of the rest: it is no proof of sameness.
    return diff.complete and not (diff.added or diff.removed or diff.changed)


def _append(site: Site, run: str, standing: RollbackState, moves: tuple[BranchMove, ...]) -> None:
    """Raises Conflict where the rollback is in another state than when its branches were moved."""

    def decide(state: RunState) -> Draft | None:
        require_deletable(state)
        now = still(state.rollbacks, standing.id, what="rollback")
        if now.state != "applied":
            raise Conflict(f"the rollback {standing.id} is {now.state} now", advice="lakemark rollback show it.")
        # Somebody moved them meanwhile, from the same heads to the same data: that is this move.
        if now.moves:
            return None
        body = BranchMovedBody(
            rollback=standing.id, digest=standing.digest, moves=tuple(move.as_json() for move in moves)
        )
        return BRANCH_MOVED.draft(body, timeline=now.timeline or state.timeline, reason=standing.reason)

    site.ledger.append(run, decide, site.stamp(f"branch_moved:{standing.id}"))


def _recorded(standing: RollbackState) -> tuple[BranchMove, ...]:
    return tuple(
        BranchMove(
            repository=str(one.get("repository")),
            branch=str(one.get("branch")),
            before=str(one.get("from")),
            commit=str(one.get("commit")),
            made=str(one.get("made")),
        )
        for one in standing.moves
    )
