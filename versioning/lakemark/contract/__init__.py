"""The guarantees of `ports`, as checks that run against any implementation.

The tests run them on every adapter, `lakemark doctor` on a user's own stores. A check works on a place of its own, leaves
nothing behind, and raises `Broken` where the guarantee does not hold.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


class Broken(AssertionError):
    """A guarantee that does not hold, in a sentence that says what was seen."""


@dataclass(frozen=True, slots=True)
class Check(Generic[T]):
    """One guarantee of a port. `probe` is safe on a store in use: it touches only names of its own and removes them."""

    name: str
    guarantee: str
    run: Callable[[T], None]
    probe: bool = True


def require(holds: object, seen: str) -> None:
    """Raises Broken(`seen`) unless `holds`."""
    if not holds:
        raise Broken(seen)
