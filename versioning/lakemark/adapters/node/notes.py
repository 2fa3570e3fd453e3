"""JSON documents on this machine's disks, each replaced whole."""

from __future__ import annotations

import json
from pathlib import Path

from lakemark.adapters.disk.files import make_directories, os_errors, write_atomic
from lakemark.model.values.canonical import JSON, parse


class LocalNotes:
    """Implements `ports.Notes`."""

    def save(self, path: Path, value: JSON) -> None:
        save_json(path, value)

    def load(self, path: Path) -> JSON:
        try:
            return parse(path.read_bytes())
        except (OSError, ValueError):
            return None


def save_json(path: Path, value: JSON) -> None:
    """By atomic rename, durable; missing parents are made."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    with os_errors(path):
        make_directories(path.parent)
        write_atomic(path, text.encode())
