"""Close a run: nothing more is committed to it, and its pins are needed only by its records. Reopening undoes it."""

from __future__ import annotations

from contextlib import suppress

from lakemark.model.entry import Draft
from lakemark.model.ledger import RunState
from lakemark.ports import Site
from lakemark.services.appending import Settled, opened, require_writable


def close_run(site: Site, run: str, *, reason: str) -> RunState:
    """Raises NotFound. Closing a closed run changes nothing."""
    return _turn(site, run, "closed", reason=reason)


def reopen_run(site: Site, run: str, *, reason: str) -> RunState:
    """Raises NotFound. Reopening an open run changes nothing."""
    return _turn(site, run, "reopened", reason=reason)


def _turn(site: Site, run: str, kind: str, *, reason: str) -> RunState:
    opened(site, run)

    def decide(state: RunState) -> Draft:
        require_writable(state)
        if state.closed == (kind == "closed"):
            raise Settled(None)
        return Draft(kind=kind, timeline=state.timeline, reason=reason)

    with suppress(Settled):
        site.ledger.append(run, decide, site.stamp(f"{kind}:{site.ledger.run(run).sequence}"))
    return site.ledger.run(run)
