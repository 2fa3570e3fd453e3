"""The node's service as it runs: rounds side by side, hints that wake them, and a file that says how it goes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from lakemark.model.values.canonical import JSON
from lakemark.model.values.instants import to_text
from lakemark.services.node.rounds import Backoff, Done, Round
from lakemark.services.node.watch import Watch

FORMAT: Final = "lakemark.watch/1"
_LOOK_SECONDS: Final = 10.0
_FINDING: Final = ("announced", "found", "tended")
"""Rounds that replicate and release nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pacemaker:
    """How often, and how long. every: between two looks at everything. most: the longest back-off.

    quiet: how long a directory where something changed must be quiet before it is looked through.
    grace: how long work under way may go on once the service is to stop.
    """

    every: timedelta = timedelta(seconds=30)
    most: timedelta = timedelta(minutes=5)
    quiet: timedelta = timedelta(seconds=5)
    grace: timedelta = timedelta(seconds=15)
    jitter: Callable[[], float] = lambda: 0.0


class Service:
    """state: the file that says how it goes. beat: called every few seconds with one line about it."""

    def __init__(
        self, watch: Watch, pace: Pacemaker, *, state: Path, beat: Callable[[str], None] = lambda _: None
    ) -> None:
        self.watch = watch
        self._pace = pace
        self._state = state
        self._beat = beat
        self._stopping = False
        self._started_at = watch.site.now()
        self._places: Mapping[Path, str | None] = {}
        self._trouble: str | None = None
        every = pace.every.total_seconds()
        backoff = Backoff(least=every, most=max(every, pace.most.total_seconds()), jitter=pace.jitter)
        rounds = {name: self._round(name, work, _backoff_of(name, backoff)) for name, work in watch.works().items()}
        self._announced, self._found = rounds["announced"], rounds["found"]
        self._tended, self._moved = rounds["tended"], rounds["moved"]
        self._followed = self._round("followed", self._follow)
        self._moving = [one for name, one in rounds.items() if name not in _FINDING]
        watch.moving, watch.settling = self._move, self._moved.ask
        self._rounds = (*rounds.values(), self._followed)

    def _move(self) -> None:
        for one in self._moving:
            one.ask()

    def _round(self, name: str, work: Callable[[frozenset[str] | None], Done], backoff: Backoff | None = None) -> Round:
        every = self._pace.every.total_seconds()
        seconds = self.watch.site.seconds
        return Round(name, work, every=every, seconds=seconds, ended=self.watch.ended, backoff=backoff)

    def stop(self) -> None:
        """Begins nothing more. May be called by a signal's handler."""
        self._stopping = self.watch.stopping = True
        self.watch.lookout.wake()

    def run(self) -> bool:
        """Until `stop`; True where all work under way came to its end within the grace, False where some was abandoned.

        This thread touches no directory of a trainer: one on a mount that hangs must not keep it from beating.
        """
        seconds = self.watch.site.seconds
        for one in self._rounds:
            one.start()
        between = min(_LOOK_SECONDS, self._pace.every.total_seconds())
        tell_at = seconds()
        while not self._stopping:
            if seconds() >= tell_at:
                self.tell()
                tell_at = seconds() + between
            self._dispatch(self.watch.lookout.wait(tell_at - seconds()))
        return self._end()

    def _follow(self, _: frozenset[str] | None) -> Done:
        self._places = self.watch.places()
        # A folder that is followed only from now on may have been written to before: nobody gave a hint of that.
        if self.watch.lookout.follow(list(self._places)):
            self._announced.ask()
        trouble = self.watch.lookout.trouble
        if trouble != self._trouble:
            self._trouble = trouble
            self.watch.say(trouble or "all folders give hints")
        return Done()

    def _safely(self, name: str, work: Callable[[], None]) -> None:
        """Its own chores end the service no more than a round does."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 - as in a round
            self.watch.ended(name, error)
        else:
            self.watch.ended(name, None)

    def _dispatch(self, heard: frozenset[Path]) -> None:
        """Asks the rounds whom the hints concern."""
        # A folder came, went or was replaced: the old one gives no hint of what happens in the new.
        if not self.watch.lookout.whole:
            self._followed.ask()
        for folder in heard:
            # A hint says that something changed, not what: the round itself looks.
            run = self._places.get(folder)
            if run is None:
                for one in (self._followed, self._announced, self._tended):
                    one.ask()
            elif folder == self.watch.site.spool_of(run):
                self._announced.ask(run)
            else:
                # A directory is written to for minutes: a look at once would read what is not whole, and once more afterwards.
                self._found.ask(run, after=self._pace.quiet.total_seconds())

    def _end(self) -> bool:
        for one in self._rounds:
            one.stop()
        # One grace for all rounds together: whoever stops the service waits that long and no longer.
        until = self.watch.site.seconds() + self._pace.grace.total_seconds()
        whole = all(one.is_over(until - self.watch.site.seconds()) for one in self._rounds)
        self.watch.lookout.close()
        self.tell(stopped=True)
        return whole

    def tell(self, *, stopped: bool = False) -> None:
        """Writes the state file, and beats."""
        site, totals, problems = self.watch.site, self.watch.totals, self.watch.problems
        document = self._document(site.now(), stopped=stopped)
        # On a full disk nobody may write it, and the service goes on all the same.
        self._safely("state file", lambda: site.notes.save(self._state, document))
        self._beat(f"{totals.committed} committed, {totals.replicated} replicated, {problems.count()} problem(s)")

    def _document(self, now: datetime, *, stopped: bool) -> JSON:
        totals, seconds = self.watch.totals, self.watch.site.seconds()
        last = totals.last_committed_at
        return {
            "format": FORMAT,
            "node": self.watch.site.node,
            "pid": os.getpid(),
            "started_at": to_text(self._started_at),
            "alive_at": to_text(now),
            "every_seconds": self._pace.every.total_seconds(),
            "stopped": stopped,
            "hints": self._trouble,
            "opened": totals.opened,
            "committed": totals.committed,
            "replicated": totals.replicated,
            "released": totals.released,
            "last_committed_at": to_text(last) if last else None,
            "rounds": [_round_view(one, now, seconds) for one in self._rounds],
            "problems": [
                {"what": one.what, "why": one.why, "since": to_text(one.since)} for one in self.watch.problems.listed()
            ],
        }


def _round_view(one: Round, now: datetime, seconds: float) -> dict[str, JSON]:
    busy, ended = one.busy_since, one.ended_at
    return {
        "name": one.name,
        "busy_since": None if busy is None else to_text(now - timedelta(seconds=seconds - busy)),
        "ended_at": None if ended is None else to_text(now - timedelta(seconds=seconds - ended)),
        "took_seconds": None if one.took is None else round(one.took, 3),
        "failures": one.failures,
    }


def _backoff_of(name: str, backoff: Backoff) -> Backoff | None:
    """Rounds that wait for this node alone are never put off."""
    return None if name in ("announced", "found") else backoff
