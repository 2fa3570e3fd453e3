"""Dry runs of commands that only append: the command itself, on a ledger that keeps what it decides to itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from lakemark.cli.session import Answer, Session, would

if TYPE_CHECKING:
    from lakemark.model.ledger.entry import Entry
    from lakemark.ports import Site

Told: TypeAlias = Mapping[str, "Callable[[Entry], str]"]
"""Kind of entry -> what appending it does, in words that follow `would`."""


def rehearsed(here: Session, do: Callable[[Site], object], told: Told, *, otherwise: str, **facts: object) -> Answer:
    """What `do` would do; raises what it would raise. otherwise: why it would do nothing, where it would not."""
    from lakemark.services.rehearsal import rehearse

    made = [told[entry.kind](entry) for entry in rehearse(here.site, do)]
    return would(*(made or [f"change nothing: {otherwise}"]), **facts)
