"""Rounds: work that is done again and again, each kind in a thread of its own, all of it every so often, parts when asked."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

ALL: Final = "*"
"""The part that stands for everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """again: parts that another round was busy with. transient: something was out of reach: try again, but later each time."""

    again: frozenset[str] = frozenset()
    transient: bool = False


Work: TypeAlias = Callable[[frozenset[str] | None], Done]
"""Does the parts named; None: everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Doubles from `least` to `most` seconds. jitter: in [0, 1), drawn anew each time; it takes up to half of the wait away."""

    least: float
    most: float
    jitter: Callable[[], float]

    def seconds(self, failures: int) -> float:
        """After so many failures in a row; 0 after none."""
        if failures <= 0:
            return 0.0
        # The exponent is bounded: a float overflows after a thousand failures, and a service lives that long.
        whole = min(self.most, self.least * 2.0 ** min(failures - 1, 30))
        # Nodes that lost one server at once must not all come back to it at once.
        return whole * (1 - self.jitter() / 2)


@dataclass(slots=True, kw_only=True)
class Agenda:
    """What is due when, by one stopwatch. Nothing is before `not_before`."""

    every: float
    not_before: float = 0.0
    asked: dict[str, float] = field(default_factory=lambda: {ALL: 0.0})

    def ask(self, part: str, *, at: float) -> None:
        """An earlier wish stays."""
        self.asked[part] = min(at, self.asked.get(part, at))

    def next_at(self) -> float:
        return max(self.not_before, min(self.asked.values(), default=self.not_before))

    def take(self, now: float) -> frozenset[str] | None:
        """The parts that are due, which then are asked for no more; None: everything. Everything comes again after `every`."""
        if now < self.not_before:
            return frozenset()
        due = frozenset(part for part, at in self.asked.items() if at <= now)
        if ALL in due:
            # Everything includes every part that is due; those put off until later, such as for quiet files, keep their time.
            self.asked = {part: at for part, at in self.asked.items() if at > now}
            self.asked[ALL] = now + self.every
            return None
        for part in due:
            del self.asked[part]
        return due


class Round:
    """One kind of work. ended: told how each pass ended; after an error, too, the round goes on.

    busy_since: by the stopwatch, while it works; else None. took: seconds that everything took last; None: it never ended.
    """

    def __init__(
        self,
        name: str,
        work: Work,
        *,
        every: float,
        seconds: Callable[[], float],
        ended: Callable[[str, Exception | None], None],
        backoff: Backoff | None = None,
        again_after: float = 0.5,
    ) -> None:
        self.name = name
        self.busy_since: float | None = None
        self.ended_at: float | None = None
        self.took: float | None = None
        self.failures = 0
        self._work = work
        self._seconds = seconds
        self._ended = ended
        self._backoff = backoff
        self._again_after = again_after
        self._agenda = Agenda(every=every)
        self._changed = threading.Condition()
        self._stopping = False
        # A daemon: whoever ends the program decides how long to wait for it.
        self._thread = threading.Thread(target=self._run, name=f"lakemark-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ask(self, part: str = ALL, *, after: float = 0.0) -> None:
        """Does the part once so many seconds have passed, at the latest."""
        with self._changed:
            self._agenda.ask(part, at=self._seconds() + after)
            self._changed.notify()

    def stop(self) -> None:
        """No more work is begun."""
        with self._changed:
            self._stopping = True
            self._changed.notify()

    def is_over(self, within: float) -> bool:
        """Whether it came to an end, within so many seconds."""
        self._thread.join(max(0.0, within))
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._stopping:
                    return
                parts = self._agenda.take(self._seconds())
                if parts is not None and not parts:
                    # Never zero: a wish due in the very next instant would spin.
                    self._changed.wait(max(0.01, self._agenda.next_at() - self._seconds()))
                    continue
                began = self.busy_since = self._seconds()
            # Outside the lock: `ask` and `stop` come from other threads, and must not wait for work.
            done = self._do(parts)
            with self._changed:
                self._settle(done, began=began, whole=parts is None)

    def _do(self, parts: frozenset[str] | None) -> Done:
        try:
            done = self._work(parts)
        except Exception as error:  # noqa: BLE001 - a service that ended would commit nothing at all
            self._ended(self.name, error)
            return Done(transient=True)
        self._ended(self.name, None)
        return done

    def _settle(self, done: Done, *, began: float, whole: bool) -> None:
        now = self._seconds()
        self.busy_since = None
        self.ended_at = now
        self.took = now - began if whole else self.took
        for part in done.again:
            self._agenda.ask(part, at=now + self._again_after)
        self.failures = self.failures + 1 if done.transient else 0
        if self._backoff is not None:
            self._agenda.not_before = now + self._backoff.seconds(self.failures)
