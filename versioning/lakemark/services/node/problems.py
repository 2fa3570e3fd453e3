"""Problems: what a service that goes on for days has to say once, not at every pass."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import Lock
from typing import Final

from lakemark.services.tiers.demote import Pending

_VARYING: Final = re.compile(r"[0-9a-f]{8,}|\d+")
_LISTED: Final = 50


@dataclass(slots=True, kw_only=True)
class StandingProblem:
    """since: when it was first seen. patience: how long it may last before it is said."""

    what: str
    why: str
    since: datetime
    patience: timedelta
    said: bool = False


class Problems:
    """What is wrong now, by scope: whatever a pass over one thing finds. Safe to use from several threads."""

    def __init__(self) -> None:
        self._scopes: dict[str, dict[str, StandingProblem]] = {}
        self._lock = Lock()

    def note(
        self,
        scope: str,
        found: Iterable[Pending],
        *,
        at: datetime,
        whole: bool = True,
        patience: timedelta = timedelta(0),
    ) -> list[str]:
        """A line for each problem that is new, is another one now, or is over. What is planned is none.

        whole: the pass looked at everything of the scope: what it did not find is over.
        """
        now = {one.what: one.why for one in found if not one.planned}
        with self._lock:
            known = self._scopes.setdefault(scope, {})
            lines = [line for what, why in now.items() for line in self._seen(known, what, why, (at, patience))]
            if whole:
                over = [known.pop(what) for what in list(known) if what not in now]
                lines += [f"over: {problem.what}" for problem in over if problem.said and not self._elsewhere(problem)]
            if not known:
                del self._scopes[scope]
        return lines

    def _seen(
        self, known: dict[str, StandingProblem], what: str, why: str, when: tuple[datetime, timedelta]
    ) -> Iterator[str]:
        """The line to say, if it is time to: a problem younger than its patience is kept to ourselves."""
        at, patience = when
        problem = known.get(what)
        # Judged by its gist: an error that names another port or request each time is one problem, not hundreds.
        if problem is None or (problem.said and _gist(problem.why) != _gist(why)):
            problem = known[what] = StandingProblem(what=what, why=why, since=at, patience=patience)
        problem.why = why
        if not problem.said and at - problem.since >= problem.patience:
            said = self._elsewhere(problem)
            problem.said = True
            if not said:
                yield f"{what}: {why}"

    def _elsewhere(self, problem: StandingProblem) -> bool:
        """Whether another scope says the same: two kinds of work may come across one trouble."""
        found = (known.get(problem.what) for known in self._scopes.values())
        same = (one for one in found if one is not None and one is not problem and one.said)
        return any(_gist(one.why) == _gist(problem.why) for one in same)

    def listed(self) -> list[StandingProblem]:
        """The oldest of those that were said, at most fifty."""
        with self._lock:
            found = [problem for known in self._scopes.values() for problem in known.values() if problem.said]
        return sorted(found, key=lambda problem: problem.since)[:_LISTED]

    def count(self) -> int:
        with self._lock:
            return sum(problem.said for known in self._scopes.values() for problem in known.values())


def _gist(why: str) -> str:
    """Without what differs each time: numbers, ports, ids of requests."""
    return _VARYING.sub("#", why)
