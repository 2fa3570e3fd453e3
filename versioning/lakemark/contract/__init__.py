"""The guarantees of `ports`, as checks that run against any implementation.

The tests run them on every adapter, `lakemark doctor` on a user's own stores. A check works on a place of its own, leaves
nothing behind, and raises `Broken` where the guarantee does not hold.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from lakemark.errors import LakemarkError

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


def raises(call: Callable[[], object], kind: type[LakemarkError], what: str) -> None:
    """Broken unless `call` raises an error of `kind`, with advice."""
    try:
        answer = call()
    except LakemarkError as error:
        require(isinstance(error, kind), f"{what} raised {error.kind}, not {kind.__name__}: {error}")
        require(error.advice, f"{what} raised {error.kind} without advice")
        return
    require(holds=False, seen=f"{what} raised nothing and answered {answer!r}")
