"""Time, progress and threads, as the edge of the program hands them in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Protocol, TypeAlias, TypeVar

T = TypeVar("T")

Clock: TypeAlias = Callable[[], datetime]
"""Answers the current instant, aware, in UTC."""


class Lanes(Protocol):
    """Does several pieces of work, beside each other where it can; each of them is safe to do beside the others."""

    def __call__(self, works: Sequence[Callable[[], T]]) -> list[T]:
        """Their answers, in order. What one raises is raised once all have ended."""


def one_by_one(works: Sequence[Callable[[], T]]) -> list[T]:
    """In order, in the caller's thread."""
    # The port's promise that an error is raised once all have ended holds here for those that began.
    return [work() for work in works]


class Progress(Protocol):
    """Told what long work does, by any thread. It must not raise.

    Work is correct whoever listens, and even if the process dies in it.
    """

    def step(self, name: str) -> None:
        """A named step of a protocol was reached: everything before it is done (`commit.sealed`, `replicate.recorded`)."""

    def expect(self, what: str, size_bytes: int) -> None:
        """`size_bytes` more bytes of `what` are to be moved or read."""

    def advance(self, size_bytes: int) -> None:
        """So many of them are done."""


class Quiet:
    """Progress that nobody watches."""

    def step(self, name: str) -> None:
        pass

    def expect(self, what: str, size_bytes: int) -> None:
        pass

    def advance(self, size_bytes: int) -> None:
        pass
