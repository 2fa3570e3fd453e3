"""Close a run: what is saved afterwards is none of its own, and its pins are needed only by its records. Reopening undoes it."""

from __future__ import annotations

from collections.abc import Collection

from lakemark.errors import Refused, quoted
from lakemark.model.entries.kind import Kind, Nothing
from lakemark.model.entries.opened import CLOSED, REOPENED
from lakemark.model.ledger.entry import Draft
from lakemark.model.ledger.run import Cause, RunState
from lakemark.ports import Site
from lakemark.services.ledger import opened, require_writable
from lakemark.services.runs.attempts import end_newest
from lakemark.services.saves.find import commit_run
from lakemark.services.saves.outcomes import Saves


def close_run(
    site: Site, run: str, *, reason: str, without_steps: Collection[int] = (), because: Cause = Cause.UNKNOWN
) -> Saves:
    """Takes what lies in the run's directories of this node first, and answers that. Closing a closed run changes nothing.

    What is not whole, and what was announced and is not there, does not keep it open: it is in the answer.

    Other nodes look through theirs once more after the close. without_steps: of saves that can't be taken, to close without
    them. because: why its last attempt ended. Raises NotFound, Refused (a save that can't be taken: it is named).
    """
    state, saves = opened(site, run), Saves()
    if not state.closed:
        # Before the close: who closes a run may delete its directory next.
        commit_run(site, state, saves)
        site.progress.step("close.taken")
        _require_taken(run, saves, without_steps)
        end_newest(site, run, noticed_by="closed", cause=because)
    _turn(site, run, CLOSED, reason=reason)
    return saves


def _require_taken(run: str, saves: Saves, without: Collection[int]) -> None:
    """Raises Refused, naming the first save that could not be taken and how to close without it."""
    left = [(path, error) for path, error in (*saves.failed, *saves.unsteady) if saves.steps.get(path) not in without]
    if not left:
        return
    path, error = left[0]
    step = saves.steps.get(path)
    named = f"step {step} at {quoted(str(path))}" if step is not None else quoted(str(path))
    more = f" (and {len(left) - 1} more)" if len(left) > 1 else ""
    close = f"lakemark run close {run} --reason …"
    wanted = " ".join(f"--without-step {saves.steps[path]}" for path, _ in left if path in saves.steps)
    raise Refused(
        f"{run} is not closed: {named} is not committed{more}: {error}",
        advice=f"{error.advice} Then: {close}" + (f"; without it: {close} {wanted}" if wanted else ""),
    )


def reopen_run(site: Site, run: str, *, reason: str) -> RunState:
    """Raises NotFound. Reopening an open run changes nothing."""
    return _turn(site, run, REOPENED, reason=reason)


def _turn(site: Site, run: str, kind: Kind[Nothing], *, reason: str) -> RunState:
    opened(site, run)

    def decide(state: RunState) -> Draft | None:
        require_writable(state)
        # Decided where it is appended: two that close at once make one entry.
        if state.closed == (kind is CLOSED):
            return None
        return kind.draft(Nothing(), timeline=state.timeline, reason=reason)

    # With the sequence: a run may be closed, reopened and closed again.
    return site.ledger.append(run, decide, site.stamp(f"{kind.name}:{site.ledger.run(run).sequence}")).state
