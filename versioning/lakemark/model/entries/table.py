"""Every kind that this version knows, and what follows from that for an entry.

What takes time says so in `<work>_seconds`, see `model.ledger.measures`.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any, Final

from lakemark.model.entries import (
    attempts,
    bound,
    committed,
    data_versions,
    founded,
    holds,
    nodes,
    opened,
    pruning,
    quarantines,
    reads,
    renamed,
    replicas,
    rollbacks,
    site_wide,
    tiers,
)
from lakemark.model.entries.kind import Kind
from lakemark.model.ledger.entry import REPLAYED, Draft, Entry, Means, Stamp
from lakemark.model.values.canonical import digest

_FAMILIES: Final = (
    # Of a run, as it goes.
    opened,
    attempts,
    committed,
    bound,
    replicas,
    reads,
    rollbacks,
    holds,
    quarantines,
    pruning,
    # Of the site.
    founded,
    tiers,
    nodes,
    renamed,
    data_versions,
    site_wide,
)
KINDS: Final[Mapping[str, Kind[Any]]] = {
    kind.name: kind for kind in chain.from_iterable(family.KINDS for family in _FAMILIES)
}


def means(entry: Entry) -> Means:
    """What is to be stopped where this version does not act on it: the stricter of what it and the kind's table say."""
    said, kind = Means.of(entry.unknown_means), KINDS.get(entry.kind)
    return said if kind is None else max(said, kind.unknown_means, key=list(Means).index)


def settled(draft: Draft, *, branch: str, sequence: int, stamp: Stamp) -> Entry:
    """`draft` as the entry it becomes on `branch`."""
    # The record travels beside the entry; the entry names it by id and by the digest of all its fields.
    carried = draft.contents.record if draft.contents else None
    known = KINDS.get(draft.kind)
    return Entry(
        branch=branch,
        sequence=sequence,
        kind=draft.kind,
        timeline=draft.timeline,
        recorded_at=stamp.at,
        saved_at=draft.saved_at,
        node=stamp.node,
        actor=stamp.actor,
        reason=draft.reason,
        request=stamp.request,
        clock=stamp.clock,
        # Written into the entry itself: a version that does not know the kind has no table to look it up in.
        unknown_means=draft.unknown_means or (known.unknown_means if known else Means.NO_DELETE),
        signer=draft.signer,
        # An entry may carry a record's new form, `bound` does, or only name it.
        record=draft.record or (carried.id if carried else None),
        record_digest=digest(carried.as_json()) if carried else None,
        body=draft.body,
        extra=dict(draft.extra) | ({REPLAYED: True} if stamp.replayed else {}),
    )
