"""Work that waits for several others, each in a thread of its own, so that the slowest keeps only itself waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


def at_once(works: Sequence[Callable[[], T]]) -> list[T]:
    """Implements `Lanes`. Whoever is interrupted while waiting leaves the others to end with the process, as if it was killed."""
    if len(works) <= 1:
        return [work() for work in works]
    lanes = [_Lane(work) for work in works]
    for lane in lanes:
        lane.thread.start()
    for lane in lanes:
        lane.thread.join()
    for lane in lanes:
        # Once all have ended: nothing goes on behind the back of who catches it.
        if lane.error is not None:
            raise lane.error
    return [answer for lane in lanes for answer in lane.answers]


class _Lane(Generic[T]):
    def __init__(self, work: Callable[[], T]) -> None:
        self.answers: list[T] = []
        self.error: BaseException | None = None
        self._work = work
        # A daemon: a process that was told to end does not wait for a store.
        self.thread = threading.Thread(target=self._run, name="lakemark-lane", daemon=True)

    def _run(self) -> None:
        try:
            self.answers.append(self._work())
        except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
            self.error = error
