"""What a node last said of itself: that it works, not what it did. `lakemark.heartbeat/1`.

Kept beside the ledger and replaced, never history: entries are for what turns.

    {"format": "lakemark.heartbeat/1", "node": "node-a", "at": "...Z", "passes": {"sweep": "...Z"},
     "looked": {"data/main": "...Z"}, "free_bytes": {"hot": 1099511627776}}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Self

from lakemark.model.values.canonical import JSON
from lakemark.model.values.fields import Fields
from lakemark.model.values.instants import from_text, to_text
from lakemark.model.values.outside import bounded

FORMAT: Final = "lakemark.heartbeat/1"
_MOST_BYTES: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """passes: name -> when it last ended well. looked: `repository/branch` -> when its head was last looked at.

    free_bytes: of each tier's file system that the node can ask without listing anything, 0 to 2^63 - 1.
    """

    node: str
    at: datetime
    passes: Mapping[str, datetime] = field(default_factory=dict)
    looked: Mapping[str, datetime] = field(default_factory=dict)
    free_bytes: Mapping[str, int] = field(default_factory=dict)
    extra: Mapping[str, JSON] = field(default_factory=dict)

    def as_json(self) -> dict[str, JSON]:
        value: dict[str, JSON] = {
            "format": FORMAT,
            "node": self.node,
            "at": to_text(self.at),
            "passes": {name: to_text(at) for name, at in sorted(self.passes.items())},
            "looked": {name: to_text(at) for name, at in sorted(self.looked.items())},
            "free_bytes": {**dict(sorted(self.free_bytes.items()))},
        }
        # Fields of a newer version are kept.
        return value | dict(self.extra)

    @classmethod
    def from_json(cls, value: JSON) -> Self:
        """Raises ValueError for what is no heartbeat of this format. Unknown fields are kept as they are."""
        read = Fields(value, "a heartbeat")
        read.format(FORMAT)
        return cls(
            node=read.text("node"),
            at=read.instant("at"),
            passes={name: _instant(name, at) for name, at in read.mapping("passes").items()},
            looked={name: _instant(name, at) for name, at in read.mapping("looked").items()},
            free_bytes={
                name: bounded(free, least=0, most=_MOST_BYTES, what=f"the free bytes of {name}")
                for name, free in read.mapping("free_bytes").items()
            },
            extra=read.rest(),
        )


def _instant(name: str, value: JSON) -> datetime:
    if not isinstance(value, str):
        raise ValueError(f"a heartbeat: {name} is {value!r:.80}, not an instant")
    return from_text(value)
