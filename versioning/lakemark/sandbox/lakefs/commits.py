"""What makes new commits: commit, forward restore, merge, revert and cherry-pick."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from lakemark.sandbox.lakefs import merging, refs, rules, staging, trees
from lakemark.sandbox.lakefs.actions import Event, fire
from lakemark.sandbox.lakefs.faults import BAD_REQUEST, CONFLICT, FORBIDDEN, NOT_FOUND, Fault, dirty_branch, no_changes
from lakemark.sandbox.lakefs.history import CommitDraft, DataCommit, add_commit, find_commit, merge_base
from lakemark.sandbox.lakefs.scope import Scope

__all__ = ["COMMITTER", "MergeRequest", "Request", "cherry_pick", "commit", "merge", "revert"]

COMMITTER = "admin"
"""The one user's name."""

_NS = 1_000_000_000
_STRATEGY_KEY = ".lakefs.merge.strategy"


@dataclass(frozen=True, slots=True)
class Request:
    """A commit asked for. `date_s` is its instant in Unix seconds, None for now.

    `tree` takes the place of what is staged. It is not looked up: an id that names no tree
    gives a branch that cannot be read.
    """

    message: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    date_s: int | None = None
    allow_empty: bool = False
    tree: str | None = None


@dataclass(frozen=True, slots=True)
class MergeRequest:
    """A merge asked for; `squash` leaves the source out of the parents."""

    source: str
    message: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    strategy: str = merging.DEFAULT
    squash: bool = False
    allow_empty: bool = False


def commit(scope: Scope, branch: str, request: Request) -> DataCommit:
    """Commit everything staged on the branch; raises Fault 400, 403, 404, 410 or 412."""
    if rules.protects(scope, branch):
        raise Fault(FORBIDDEN, "cannot commit to protected branch")
    draft = CommitDraft(
        committer=COMMITTER,
        message=request.message,
        tree="",
        metadata=request.metadata,
        parents=[],
        generation=1,
        created_ns=None if request.date_s is None else request.date_s * _NS,
    )
    # Before the head is read, and before it is known whether there is anything to commit.
    fire(scope, Event("prepare-commit", branch, branch=branch, draft=draft))
    head = _head(scope, branch)
    # A given tree takes the place of what is staged, which would be lost without a word.
    if request.tree is not None and not staging.is_clean(scope, branch, head.tree):
        raise Fault(BAD_REQUEST, "cannot use source MetaRange on a branch with uncommitted changes")
    draft = replace(draft, parents=[head.id], generation=head.generation + 1)
    fire(scope, Event("pre-commit", branch, branch=branch, draft=draft))
    # Not looked up, as lakeFS does not: a tree that is not there leaves a branch that answers 410.
    tree = request.tree if request.tree is not None else _staged_tree(scope, branch, head, request)
    return _advance(scope, branch, replace(draft, tree=tree))


def merge(scope: Scope, destination: str, request: MergeRequest) -> DataCommit:
    """Merge a ref into a branch; raises Fault 400, 404, 409 or 412. The actions asked are the source's."""
    if request.strategy not in {merging.DEFAULT, merging.DESTINATION_WINS, merging.SOURCE_WINS}:
        raise Fault(BAD_REQUEST, "argument strategy: invalid value: validation error")
    head = _head(scope, destination)
    # Before the source is looked up: of two faults lakeFS tells this one.
    _require_clean(scope, destination, head)
    try:
        return _merge(scope, destination, head, request)
    except Fault as fault:
        raise fault.under(f"update branch {destination}") from fault


def revert(scope: Scope, branch: str, ref: str, *, parent_number: int = 0, allow_empty: bool = False) -> DataCommit:
    """Undo one commit on top of the branch; raises Fault 400, 404, 409 or 412."""
    undone = _commit_at(scope, ref)
    parents = undone.parents
    # Of a merge commit two ways back are right: it has to be said which.
    if len(parents) > 1 and parent_number <= 0:
        raise Fault(CONFLICT, "must specify 1-based parent number for reverting merge commit")
    if parent_number > len(parents):
        raise _no_such_parent(parent_number)
    head = _head(scope, branch)
    _require_clean(scope, branch, head)
    parent = find_commit(scope, parents[max(parent_number, 1) - 1]) if parents else None
    draft = CommitDraft(COMMITTER, f"Revert {ref}", "", {}, [head.id], head.generation + 1)
    try:
        between = (undone.tree, parent.tree if parent else trees.NO_TREE)
        return _transplant(scope, branch, event="pre-revert", draft=draft, between=between, allow_empty=allow_empty)
    except Fault as fault:
        raise fault.under("update branch") from fault


def cherry_pick(scope: Scope, branch: str, ref: str, *, parent_number: int | None = None) -> DataCommit:
    """Repeat one commit on top of the branch; raises Fault 400, 404, 409 or 412."""
    picked = _commit_at(scope, ref)
    parents = picked.parents
    if parent_number is None and len(parents) > 1:
        raise Fault(CONFLICT, "must specify 1-based parent number for cherry-picking merge commit")
    number = parent_number or 1
    if number > len(parents):
        raise _no_such_parent(number)
    head = _head(scope, branch)
    _require_clean(scope, branch, head)
    parent = find_commit(scope, parents[number - 1])
    # lakeFS's own keys.
    origin = {"cherry-pick-origin": picked.id, "cherry-pick-committer": str(picked.document["committer"])}
    draft = CommitDraft(COMMITTER, picked.message, "", picked.metadata | origin, [head.id], head.generation + 1)
    try:
        between = (parent.tree if parent else trees.NO_TREE, picked.tree)
        return _transplant(scope, branch, event="pre-cherry-pick", draft=draft, between=between, allow_empty=True)
    except Fault as fault:
        raise fault.under("update branch") from fault


def _merge(scope: Scope, destination: str, head: DataCommit, request: MergeRequest) -> DataCommit:
    try:
        source = refs.only_commit(refs.resolve(scope, request.source), request.source)
    except Fault as fault:
        raise fault.under(f"get commit by ref {request.source}") from fault
    tree = merging.merge(
        scope,
        destination=head.tree,
        source=source.tree,
        base=merge_base(scope, source.id, head.id).tree,
        strategy=request.strategy,
        allow_empty=request.allow_empty,
    )
    draft = CommitDraft(
        committer=COMMITTER,
        message=request.message or f"Merge '{request.source}' into '{destination}'",
        tree=tree,
        metadata=dict(request.metadata) | {_STRATEGY_KEY: request.strategy or "default"},
        parents=[head.id] if request.squash else [head.id, source.id],
        generation=max(head.generation, source.generation) + 1,
    )
    event = Event("pre-merge", source.id, branch=destination, merge_source=request.source, draft=draft)
    # The source's actions: a pin that is merged into carries no say of its own.
    fire(scope, event)
    return _advance(scope, destination, draft)


def _transplant(
    scope: Scope, branch: str, *, event: str, draft: CommitDraft, between: tuple[str, str], allow_empty: bool
) -> DataCommit:
    """Commit on top of the branch what leads from one tree to another."""
    base, source = between
    head = _head(scope, branch)
    tree = merging.merge(
        scope,
        destination=head.tree,
        source=source,
        base=base,
        strategy=merging.DEFAULT,
        allow_empty=allow_empty,
    )
    # The change is there already.
    if tree == head.tree and not allow_empty:
        raise no_changes()
    draft = replace(draft, tree=tree)
    fire(scope, Event(event, branch, branch=branch, draft=draft))
    return _advance(scope, branch, draft)


def _advance(scope: Scope, branch: str, draft: CommitDraft) -> DataCommit:
    made = add_commit(scope, draft)
    # With the new commit in one transaction: what is staged is committed, or still staged.
    staging.drop(scope, branch)
    refs.move_branch(scope, branch, made.id)
    return made


def _staged_tree(scope: Scope, branch: str, head: DataCommit, request: Request) -> str:
    tree = trees.apply(scope, head.tree, staging.staged(scope, branch))
    # A repository's first commit has no tree at all: it is compared with an empty one.
    if request.allow_empty or tree != (head.tree or trees.apply(scope, trees.NO_TREE, {})):
        return tree
    raise no_changes().under("commit")


def _head(scope: Scope, branch: str) -> DataCommit:
    found = find_commit(scope, refs.find_branch(scope, branch).commit_id)
    if found is None:
        raise Fault(NOT_FOUND, "commit not found")
    return found


def _commit_at(scope: Scope, ref: str) -> DataCommit:
    try:
        return refs.only_commit(refs.resolve(scope, ref), ref)
    except Fault as fault:
        raise fault.under(f"get commit from ref {ref}") from fault


def _no_such_parent(number: int) -> Fault:
    return Fault(BAD_REQUEST, f"given commit does not have the given parent number: parent {number}")


def _require_clean(scope: Scope, branch: str, head: DataCommit) -> None:
    if not staging.is_clean(scope, branch, head.tree):
        raise dirty_branch()
