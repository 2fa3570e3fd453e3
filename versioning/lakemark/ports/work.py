"""Time and progress, as the edge of the program hands them in."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Protocol, TypeAlias

Clock: TypeAlias = Callable[[], datetime]
"""Answers the current instant, aware, in UTC."""


class Progress(Protocol):
    """Told what long work does. It must not raise; work is correct whoever listens, and even if the process dies in it."""

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
