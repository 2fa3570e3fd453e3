"""Sharing: whether hot may keep a save by a hard link, and until when that may be the only copy.

A linked file is the trainer's own: what it writes into it next is what we have. So a save is linked only where the next one
goes elsewhere by its very name, and where nobody has seen it written a second time.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime, timedelta
from typing import Final

from lakemark.model.ledger.run import Place, RecordState, RunState

_NUMBER: Final = re.compile(r"[0-9]+", re.ASCII)


def names_step(names: Iterable[str], step: int) -> bool:
    """Whether each name says this very step, so that the next save has another. A folder's number may mean anything."""
    # `step-100/model_3.pt` says 3 and not 100: its folder's number does not count, as the next save may write there again.
    return all(any(int(number) == step for number in _NUMBER.findall(name)) for name in names)


def alone_by_link(
    state: RunState, hot: Place, now: datetime, *, rpo: timedelta | None, slower: Collection[str]
) -> Iterator[RecordState]:
    """Records whose only sound replica shares files with the trainer, and has to become a copy of our own.

    rpo: as old as that without a slower copy. slower: names of slower tiers in reach; while there are none, at once.
    """
    for found in state.live():
        here = found.replicas.get(hot)
        if here is None or not here.linked or not here.sound:
            continue
        # A copy anywhere else will do: what the trainer does to the link then costs nothing.
        if any(copy.sound for place, copy in found.replicas.items() if place != hot):
            continue
        if not slower or (rpo is not None and now - found.known_at >= rpo):
            yield found
