"""Documents that a node keeps beside its configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from lakemark.model.values.canonical import JSON


class Notes(Protocol):
    """What a node writes down for itself and for people, a JSON document each. Losing one loses no checkpoint."""

    def save(self, path: Path, value: JSON) -> None:
        """By atomic rename, durable."""

    def load(self, path: Path) -> JSON:
        """What `save` wrote there; None where there is nothing, or nothing that can be read."""
