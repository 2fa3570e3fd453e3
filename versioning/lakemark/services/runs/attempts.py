"""When attempts ended, and why: what tells how often training is interrupted. Noted by whoever notices; nothing waits for it."""

from __future__ import annotations

from contextlib import suppress

from lakemark.errors import LakemarkError
from lakemark.model.entries.attempts import ATTEMPT_ENDED, AttemptEndedBody
from lakemark.model.ledger.entry import Draft
from lakemark.model.ledger.run import Attempt, Cause, RunState
from lakemark.model.runs.activity import is_idle
from lakemark.ports import Site
from lakemark.services.ledger import require_writable


def end_newest(site: Site, run: str, *, noticed_by: str, cause: Cause = Cause.UNKNOWN) -> None:
    """Records that the run's newest attempt ended. Once; a cause that is known now completes one that was not.

    Raises what the ledger's `append` does.
    """
    _end(site, run, site.ledger.run(run).attempt, noticed_by=noticed_by, cause=cause)


def end_before(site: Site, run: str, attempt: str, *, cause: Cause = Cause.UNKNOWN) -> None:
    """Records that the attempt before `attempt` ended, as that one begins. Never raises: training must not wait for it.

    Where neither has a job and they are of two nodes, both may be of one start, and nothing is said.
    """
    with suppress(LakemarkError):
        attempts = site.ledger.run(run).attempts
        now = attempts.get(attempt)
        others = [one for one in attempts.values() if now is not None and one.sequence < now.sequence]
        before = max(others, key=lambda one: one.sequence, default=None)
        if now is None or before is None or (before.job is None and now.job is None and before.node != now.node):
            return
        _end(site, run, before, noticed_by="resumed", cause=cause)


def end_idle(site: Site) -> list[str]:
    """Records the end of attempts whose runs have been idle for as long as the site says; a sentence each."""
    after, said = site.policies.objectives.idle_after, []
    for run in site.ledger.runs() if after is not None else ():
        outline = site.ledger.outline(run)
        if outline.closed or after is None or not is_idle(outline, site.now(), after):
            continue
        end_newest(site, run, noticed_by="idle")
        said.append(f"{run} is idle: its attempt is taken to have ended")
    return said


def _end(site: Site, run: str, attempt: Attempt | None, *, noticed_by: str, cause: Cause) -> None:
    if attempt is None:
        return
    identity = attempt.id

    def decide(state: RunState) -> Draft | None:
        require_writable(state)
        now = state.attempts[identity]
        # A cause that is known is worth an entry also where the end was noted before without one.
        told = now.ended_at is not None and (cause is Cause.UNKNOWN or now.cause != Cause.UNKNOWN)
        if told:
            return None
        body = AttemptEndedBody(attempt=identity, cause=cause.value, noticed_by=noticed_by)
        return ATTEMPT_ENDED.draft(body, timeline=now.timeline)

    # One request for all nodes: whoever notices second finds it said.
    site.ledger.append(run, decide, site.stamp(f"ended:{identity}:{cause}"))
    site.progress.step("attempt.ended")
