"""What a node writes down, in memory."""

from __future__ import annotations

from pathlib import Path

from lakemark.model.values.canonical import JSON


class MemoryNotes:
    """`ports.Notes`."""

    def __init__(self) -> None:
        self.json: dict[Path, JSON] = {}

    def save(self, path: Path, value: JSON) -> None:
        self.json[path] = value

    def load(self, path: Path) -> JSON:
        return self.json.get(path)
