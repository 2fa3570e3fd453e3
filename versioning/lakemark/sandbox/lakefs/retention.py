"""Which commits keep their objects under the retention rules, as the server would hand them to a collector."""

from __future__ import annotations

import csv
import io
import json

from lakemark.sandbox.lakefs import branches, rules
from lakemark.sandbox.lakefs.scope import Scope

__all__ = ["active_commits", "listed"]

_DAY_NS = 86_400 * 1_000_000_000


def active_commits(scope: Scope, now_ns: int) -> dict[str, str]:
    """From commit id to tree. Branch heads, hidden ones too, are active, tags make nothing so.

    A first parent is active while its child is younger than the retention of the branch it was
    reached from; a commit that is neither a head nor anyone's first parent counts as the first
    parent of a child made in the same instant. Raises Fault 404 where no rules are set.
    """
    known = rules.retention(scope)
    days = {rule["branch_id"]: rule["retention_days"] for rule in known["branches"] or []}
    graph = _graph(scope)
    first_parents = {parent for _, parent, _ in graph.values()}
    # Tags are not looked at, which is why pins are branches.
    heads = {branch.commit_id: branch.id for branch in branches.list_branches(scope, hidden_too=True)}
    active = set(heads)
    for branch in branches.list_branches(scope, hidden_too=True):
        # Counted by the commits' own dates, which whoever commits may give.
        threshold = now_ns - days.get(branch.id, known["default_retention_days"]) * _DAY_NS
        active |= _kept(graph, branch.commit_id, threshold)
    threshold = now_ns - known["default_retention_days"] * _DAY_NS
    # Tips of deleted branches, and sources of merges: by the default rule, whatever rule their branch had.
    for dangling in graph.keys() - first_parents - heads.keys():
        if graph[dangling][0] > threshold:
            active |= {dangling} | _kept(graph, dangling, threshold)
    return {name: graph[name][2] for name in sorted(active)}


def listed(commits: dict[str, str]) -> str:
    """The list as the collector reads it: one CSV line a commit, with a head line."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["commit_id", "expired", "metarange_id"])
    writer.writerows([name, "false", tree] for name, tree in commits.items())
    return text.getvalue()


def _graph(scope: Scope) -> dict[str, tuple[int, str, str]]:
    """From commit id to instant, first parent (or nothing) and tree."""
    rows = scope.db.execute("SELECT id, created_ns, document FROM commits WHERE repository = ?", (scope.repository.id,))
    graph = {}
    for name, created_ns, text in rows:
        document = json.loads(text)
        graph[name] = (created_ns, (document["parents"] or [""])[0], document["meta_range_id"])
    return graph


def _kept(graph: dict[str, tuple[int, str, str]], name: str, threshold: int) -> set[str]:
    kept = set()
    while parent := graph[name][1]:
        # The child is younger than the rule: its parent was the head until then, so within the time that is kept.
        if graph[name][0] > threshold:
            kept.add(parent)
        name = parent
    return kept
