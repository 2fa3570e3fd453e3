"""What a node last said of itself: that it works, not what it did. `lakemark.heartbeat/1`.

Kept beside the ledger and replaced, never history: entries are for what turns.

    {"format": "lakemark.heartbeat/1", "node": "node-a", "at": "...Z", "passes": {"sweep": "...Z"},
     "looked": {"data/main": "...Z"}, "free_bytes": {"hot": 1099511627776}}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Final

from lakemark.model.values.canonical import JSON
from lakemark.model.values.codec import As, Coded
from lakemark.model.values.outside import bounded

FORMAT: Final = "lakemark.heartbeat/1"
_MOST_BYTES: Final = 2**63 - 1
# What JSON keeps exact. Some mounts of object stores say that all of 2^63 are free.
_MOST_WRITTEN: Final = 2**53 - 1


def _free(value: object) -> int:
    return bounded(value, least=0, most=_MOST_BYTES, what="it")


def _written(value: int) -> int:
    return min(value, _MOST_WRITTEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat(Coded, what="a heartbeat", document=FORMAT):
    """passes: name -> when it last ended well. looked: `repository/branch` -> when its head was last looked at.

    free_bytes: of each tier's file system that the node can ask without listing anything, 0 to 2^63 - 1; more than 2^53 - 1
    is written as that. extra: fields of a newer version, which are kept.
    """

    node: str
    at: datetime
    passes: Mapping[str, datetime] = field(default_factory=dict)
    looked: Mapping[str, datetime] = field(default_factory=dict)
    free_bytes: Mapping[str, Annotated[int, As(_free, _written)]] = field(default_factory=dict)
    extra: Mapping[str, JSON] = field(default_factory=dict)
