"""Observe data branches: note where each head is, so that "what was main on Monday" has an answer of our own."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from datetime import datetime
from operator import itemgetter

from lakemark.errors import LakemarkError, NotFound
from lakemark.model.checkpoints.record import DataKind
from lakemark.model.entries.data_versions import BRANCH_OBSERVED, BranchObservedBody
from lakemark.model.ledger.entry import Draft
from lakemark.model.ledger.site import SiteState
from lakemark.model.values.data_ids import is_commit_id
from lakemark.model.values.wording import instant as told
from lakemark.ports import DataCommits, HeadAt, Mark, MarkKind, Site
from lakemark.services.data.pins import versions


@dataclass(slots=True, kw_only=True)
class Observed:
    """said: what moved, in words. failed: (branch, why) of those that could not be looked at. judged: the others."""

    said: list[str] = field(default_factory=list)
    judged: set[str] = field(default_factory=set)
    failed: list[tuple[str, LakemarkError]] = field(default_factory=list)


def observe(site: Site) -> Observed:
    """Looks at every branch an open run was opened on, by one list of each repository; appends the heads that moved.

    That a branch is where it is, or gone, is said by the repository's own list: a 404 may be anybody's on the way.
    """
    data, result = versions(site), Observed()
    wanted: dict[str, list[str]] = {}
    for repository, branch in sorted(watched(site)):
        wanted.setdefault(repository, []).append(branch)
    # In another order each time: where patience ends before the last, it is not always the same ones.
    for repository, names in secrets.SystemRandom().sample(list(wanted.items()), len(wanted)):
        try:
            # One list instead of a request a branch; with one branch the list is asked for that name.
            heads = data.branches(repository, prefix=names[0] if len(names) == 1 else "")
        except LakemarkError as error:
            result.failed.extend((f"the data branch {repository}/{name}", error) for name in names)
            continue
        for name in names:
            what = f"the data branch {repository}/{name}"
            try:
                result.said.extend(_look(site, data, repository, name, head=heads.get(name)))
            except LakemarkError as error:
                result.failed.append((what, error))
            else:
                result.judged.add(what)
    result.failed.sort(key=itemgetter(0))
    return result


def watched(site: Site) -> set[tuple[str, str]]:
    """(repository, branch) of the runs that are not closed. A commit's id names no branch."""
    found: set[tuple[str, str]] = set()
    for run in site.ledger.runs():
        outline = site.ledger.outline(run)
        for interval in () if outline.closed else outline.intervals:
            found.update(
                (ref.repository, ref.branch)
                for ref in interval.data
                if ref.kind == DataKind.LAKEFS and ref.branch and not is_commit_id(ref.branch)
            )
    return found


def stands_still(site: Site, repository: str, name: str) -> bool:
    """Whether what data was asked for by is a commit's id or a tag: where it is, it was at any time.

    What we saw as a branch ourselves is one, and the server need not be asked.
    """
    if is_commit_id(name):
        return True
    if any(seen.commit for seen in site.ledger.site().heads.get((repository, name), ())):
        return False
    return versions(site).head(repository, name) is None and _is_tag(versions(site), repository, name)


def branch_mark(repository: str, branch: str) -> Mark:
    """Of this node's looks at the branch."""
    return Mark(MarkKind.BRANCH, f"{repository}/{branch}")


def head_at(site: Site, repository: str, branch: str, at: datetime) -> HeadAt:
    """A branch's head at the instant `at`: our own observation where there is one, with its gap, else an estimate."""
    seen = site.ledger.site().head_at(repository, branch, at)
    if seen is None:
        return versions(site).head_at(repository, branch, at)
    looked = site.journal.marks.get(branch_mark(repository, branch))
    later = [one for one in site.ledger.site().heads[repository, branch] if one.observed_at > at]
    # Up to that look it was there; between it and the next head nobody knows when it moved.
    until = later[0].last_looked_at if later else looked
    if until is not None and at <= until:
        return HeadAt(commit=seen.commit, precision="observed")
    end = told(later[0].observed_at) if later else "now"
    start = told(until or seen.observed_at)
    return HeadAt(commit=seen.commit, precision=f"observed; may have moved between {start} and {end}")


def _look(site: Site, data: DataCommits, repository: str, branch: str, *, head: str | None) -> list[str]:
    if head is None and _is_tag(data, repository, branch):
        return []
    commit, now = head, site.now()
    # The look before this one: a move fell between the two.
    before = site.journal.marks.get(branch_mark(repository, branch))

    def decide(state: SiteState) -> Draft | None:
        last = state.head_at(repository, branch, now)
        if last is not None and last.commit == commit:
            return None
        return BRANCH_OBSERVED.draft(
            BranchObservedBody(
                repository=repository,
                branch=branch,
                commit=commit,
                previous=last.commit if last else None,
                observed_at=now,
                last_looked_at=before,
            )
        )

    # With the sequence: a branch that goes back to where it was is news again.
    sequence = site.ledger.site().sequence
    appended = site.ledger.append_site(decide, site.stamp(f"head:{site.node}:{repository}/{branch}:{sequence}"))
    # After the entry: a look that is noted and a head that is not would hide the move from `head_at`.
    site.journal.marks.set(branch_mark(repository, branch), at=now)
    if appended.entry is None:
        return []
    return [f"{repository}/{branch} is at {commit[:12]}" if commit else f"{repository}/{branch} is gone"]


def _is_tag(data: DataCommits, repository: str, name: str) -> bool:
    """Whether the name stands for a commit without being a branch: it never moves, and nothing observes it."""
    try:
        data.resolve(repository, name)
    except NotFound:
        return False
    return True
