"""How often a node's service looks at data versions: the more nodes share the work, the seldomer each of them.

A look serves the whole site: what it finds and mends is in the ledger. So the server is asked about as often for twenty nodes
as for one, by whichever of them; and at once again where something was wrong, or somebody waits for an answer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta
from hashlib import blake2b
from typing import Final, NamedTuple

EVERY: Final = timedelta(minutes=5)
LONGEST: Final = timedelta(hours=1)
"""Nodes that the ledger knows may be switched off: each looks so often whatever others do."""


class Pause(NamedTuple):
    """Until a node's next look, and why it is that long."""

    span: timedelta
    why: str


def pause(node: str, *, nodes: Collection[str], wrong: bool, turn: int) -> Pause:
    """wrong: the last look could not do something, or did something: it is looked again soon. turn: a count of its looks.

    nodes: those of the site. Each takes between three and five quarters of its share, another each time, so that nodes that
    were started together come apart.
    """
    if wrong:
        return Pause(EVERY, "the last look found something to do, or could not")
    # A node that is not registered yet looks as well.
    count = len({*nodes, node})
    share = min(EVERY * count, LONGEST)
    # Drawn from the name and the turn: repeatable in tests, and different on each node.
    drawn = int.from_bytes(blake2b(f"{node}:{turn}".encode(), digest_size=4).digest(), "big") / 2**32
    if count == 1:
        return Pause(EVERY, "no other node looks")
    return Pause(share * (0.75 + drawn / 2), f"{count} nodes share the looks, and the last one found all as it was")


def nodes_of(tiers: Mapping[str, bool], *, retired_nodes: Collection[str]) -> frozenset[str]:
    """Nodes with a tier of their own. tiers: name -> whether it is retired; a node's own is called `hot@node`."""
    named = {name.partition("@")[2] for name, retired in tiers.items() if not retired}
    return frozenset(named - {""} - set(retired_nodes))
