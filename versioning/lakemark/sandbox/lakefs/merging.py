"""Three-way comparison and merge of trees."""

from __future__ import annotations

from dataclasses import dataclass

from lakemark.sandbox.lakefs import trees
from lakemark.sandbox.lakefs.entries import ObjectEntry
from lakemark.sandbox.lakefs.faults import CONFLICT, Fault, no_changes
from lakemark.sandbox.lakefs.scope import Scope
from lakemark.sandbox.lakefs.trees import TreeChange

__all__ = ["DEFAULT", "DESTINATION_WINS", "SOURCE_WINS", "Outcome", "compare", "merge"]

DEFAULT = ""
DESTINATION_WINS = "dest-wins"
SOURCE_WINS = "source-wins"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A path that the source changed since the base, and whether the destination changed it otherwise."""

    change: TreeChange
    conflict: bool


def compare(scope: Scope, *, destination: str, source: str, base: str) -> list[Outcome]:
    """What a merge of one tree into another would bring, in path order."""
    # Against the base, as on both sides: what only the destination changed is no part of a merge.
    theirs = {change.path: change for change in trees.changes(scope, base, destination)}
    outcomes = []
    for change in trees.changes(scope, base, source):
        other = theirs.get(change.path)
        if other is None:
            outcomes.append(Outcome(change, conflict=False))
        # The same change on both sides is no conflict, and nothing to do.
        elif not trees.same(TreeChange(change.path, other.after, change.after)):
            outcomes.append(Outcome(change, conflict=True))
    return outcomes


def merge(scope: Scope, *, destination: str, source: str, base: str, strategy: str, allow_empty: bool = False) -> str:
    """The merged tree's id; raises Fault 409 on a conflict left undecided, 400 when the source has no changes."""
    # An older ancestor of the destination: merging it is no way back, lakeFS answers 400.
    if source == base and not allow_empty:
        raise no_changes()
    patch: dict[str, ObjectEntry | None] = {}
    for outcome in compare(scope, destination=destination, source=source, base=base):
        if outcome.conflict and strategy == DEFAULT:
            raise Fault(CONFLICT, "conflict found")
        if not (outcome.conflict and strategy == DESTINATION_WINS):
            patch[outcome.change.path] = outcome.change.after
    return trees.apply(scope, destination, patch) if patch else destination
