"""Removals in a DVC tier that are under way: each has a note of its own, which tells others to stay clear for a minute.

A pass that removes an object writes a note first (lakemark/condemned/<object>-<pass>) and looks at claims then. It sends the
removal only while its note stands and is young, by clocks that it looks at last before each try; else it begins anew, with
another note. Whoever meets a note that is not its own waits until it is gone, or for longer than it can be young: then no
removal under it comes any more, even if its process was stopped for a year and goes on now. So a note may be taken away by
its own pass and by who has waited; its name is used once, so that nobody takes away another's.

Waiting is by a clock of one's own that only has to run: nothing compares the clocks of two machines.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from lakemark.adapters.disk.objects import ANSWER_SECONDS, Blobs, TooLate
from lakemark.adapters.disk.pool import run_all
from lakemark.adapters.dvc import layout

LASTS_SECONDS: Final = 40.0
"""How long after it was begun a note is young."""
WAIT_SECONDS: Final = LASTS_SECONDS + ANSWER_SECONDS
_FIRST_LOOK_SECONDS: Final = 0.05
_LOOK_SECONDS: Final = 2.0
_WORKERS: Final = 4


def _running() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)  # goes on while the machine sleeps, as other machines do


@dataclass(frozen=True, slots=True)
class Patience:
    """The clocks and the waiting of one process. Seconds. running: since some time, never back. wall: as the node's clock says.

    Both are looked at for "too late": a stopped virtual machine's running clock stops with it, its wall clock is set right.
    """

    running: Callable[[], float] = _running
    wall: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep


class RemovalTurn:
    """One pass's permission to remove, from before its first note is written on."""

    def __init__(self, blobs: Blobs, patience: Patience) -> None:
        self._blobs = blobs
        self._patience = patience
        self._by = secrets.token_hex(8)
        # Before the first note: a turn must never seem younger to itself than to those who wait it out.
        self._began = patience.running(), patience.wall()

    def seconds(self) -> float:
        """At least so long ago it began."""
        running, wall = self._began
        # The larger of the two: whichever clock was stopped or set back, the turn ends too early rather than too late.
        return max(self._patience.running() - running, self._patience.wall() - wall)

    def announce(self, name: str) -> None:
        """Writes the note that the object is being removed."""
        self._blobs.create(layout.going_key(name, self._by), b"")

    def stands(self, name: str) -> bool:
        """False where somebody has waited this turn out and taken its note away."""
        return self._blobs.size(layout.going_key(name, self._by)) is not None

    def require_young(self) -> None:
        """Raises TooLate where others may have waited this turn out by now."""
        if self.seconds() >= LASTS_SECONDS:
            raise TooLate(
                "this removal took too long to count on what it looked at", advice="Try again: it begins anew."
            )

    def end(self, names: Iterable[str]) -> None:
        """Takes the notes away. Only of names for which no removal is under way any more."""
        tasks = (partial(self._blobs.delete, layout.going_key(name, self._by)) for name in names)
        for _ in run_all(tasks, workers=_WORKERS):
            pass


class Going:
    """Others' removals, as this process has seen them."""

    def __init__(self, blobs: Blobs, patience: Patience) -> None:
        self._blobs = blobs
        self._patience = patience
        # Since when each note has been seen: kept from call to call, so that waiting that was broken off need not begin anew.
        self._seen: dict[str, float] = {}

    def begin(self) -> RemovalTurn:
        return RemovalTurn(self._blobs, self._patience)

    def wait_out(self, keys: Iterable[str]) -> None:
        """Returns once no removal under these notes can come any more; what dead passes left of them is gone then.

        At most a minute. Raises StoreUnavailable where one is still under way.
        """
        left, pause = set(keys), _FIRST_LOOK_SECONDS
        while left:
            left &= self._blobs.list(layout.CONDEMNED).require_all(self._blobs.where).keys()
            now = self._patience.running()
            over = {key for key in left if now - self._seen.setdefault(key, now) > WAIT_SECONDS}
            if over:
                # A process stopped between its last look at the clock and its unlink is seen here, where the place has locks.
                self._blobs.require_no_removal()
            for key in over:
                self._blobs.delete(key)
                self._seen.pop(key, None)
            left -= over
            if left:
                # A living pass is done in no time, a dead one never.
                self._patience.sleep(pause)
                pause = min(2 * pause, _LOOK_SECONDS)
