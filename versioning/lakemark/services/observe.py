"""Observe data branches: note where each head is, so that "what was main on Monday" has an answer of our own."""

from __future__ import annotations

from datetime import datetime

from lakemark.model.entry import Draft
from lakemark.model.instants import to_text
from lakemark.model.record import DataKind
from lakemark.model.site_ledger import SiteState
from lakemark.ports import DataVersions, HeadAt, Site
from lakemark.services.appending import Settled
from lakemark.services.pins import versions


def observe(site: Site) -> list[str]:
    """Looks at every branch an open run was opened on; appends the heads that moved. Answers what moved, in words."""
    data = versions(site)
    moved: list[str] = []
    for repository, branch in sorted(watched(site)):
        moved.extend(_look(site, data, repository, branch))
    return moved


def watched(site: Site) -> set[tuple[str, str]]:
    """(repository, branch) of the runs that are not closed."""
    found: set[tuple[str, str]] = set()
    for run in site.ledger.runs():
        state = site.ledger.run(run)
        for interval in () if state.closed else state.intervals:
            found.update(
                (ref.repository, ref.branch) for ref in interval.data if ref.kind == DataKind.LAKEFS and ref.branch
            )
    return found


def head_at(site: Site, repository: str, branch: str, at: datetime) -> HeadAt:
    """A branch's head at the instant `at`: our own observation where there is one, with its gap, else an estimate."""
    seen = site.ledger.site().head_at(repository, branch, at)
    if seen is None:
        return versions(site).head_at(repository, branch, at)
    key = f"branch:{repository}/{branch}"
    looked = site.journal.last_looked(key)
    later = [one for one in site.ledger.site().heads[repository, branch] if one.observed_at > at]
    until = later[0].last_looked_at if later else looked
    if until is not None and at <= until:
        return HeadAt(commit=seen.commit, precision="observed")
    end = to_text(later[0].observed_at) if later else "now"
    start = to_text(until or seen.observed_at)
    return HeadAt(commit=seen.commit, precision=f"observed; may have moved between {start} and {end}")


def _look(site: Site, data: DataVersions, repository: str, branch: str) -> list[str]:
    commit = data.head(repository, branch)
    now = site.now()
    before = site.journal.last_looked(f"branch:{repository}/{branch}")

    def decide(state: SiteState) -> Draft:
        last = state.head_at(repository, branch, now)
        if last is not None and last.commit == commit:
            raise Settled(None)
        body = {
            "repository": repository,
            "branch": branch,
            "commit": commit,
            "previous": last.commit if last else None,
            "observed_at": to_text(now),
            "last_looked_at": to_text(before) if before else None,
        }
        return Draft(kind="branch_observed", body=body)

    sequence, moved = site.ledger.site().sequence, True
    try:
        site.ledger.append_site(decide, site.stamp(f"head:{site.node}:{repository}/{branch}:{sequence}"))
    except Settled:
        moved = False
    site.journal.looked(f"branch:{repository}/{branch}", at=now)
    if not moved:
        return []
    return [f"{repository}/{branch} is at {commit[:12]}" if commit else f"{repository}/{branch} is gone"]
