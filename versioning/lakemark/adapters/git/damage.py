"""Loose objects of the ledger that are not what their names say. Standard library only: `status` asks, and loads no Git."""

from __future__ import annotations

import os
import zlib
from hashlib import sha1
from pathlib import Path
from typing import Final

from lakemark.adapters.disk.files import fsync_directory, make_directories

DAMAGED: Final = "lakemark/damaged"
"""Where in the repository lies what could not be read, in case somebody knows more than we do."""


def place_aside(path: Path, name: str) -> Path:
    """A free place among what is damaged: what was set aside before, under the same name, stays."""
    make_directories(path / DAMAGED)
    flat = name.replace("/", "-")
    place, number = path / DAMAGED / flat, 1
    while place.exists():
        number += 1
        place = path / DAMAGED / f"{flat}.{number}"
    return place


def set_damaged_aside(path: Path) -> list[str]:
    """Moves loose objects that are not what their names say out of the way; answers their names. A pack may have them whole."""
    gone = damaged_loose(path)
    for name in gone:
        place = path / "objects" / name[:2] / name[2:]
        os.rename(place, place_aside(path, name))
        fsync_directory(place.parent)
    return gone


def damaged_loose(path: Path) -> list[str]:
    """Names of loose objects that are not what their names say. Reads each; there are about a thousand at most."""
    return [
        folder.name + file.name
        for folder in sorted((path / "objects").glob("[0-9a-f][0-9a-f]"))
        for file in sorted(folder.iterdir())
        # A sha1 in all; what else lies there are temporaries.
        if len(folder.name + file.name) == 40 and not _whole(file, folder.name + file.name)  # noqa: PLR2004
    ]


def _whole(file: Path, name: str) -> bool:
    try:
        return sha1(zlib.decompress(file.read_bytes()), usedforsecurity=False).hexdigest() == name
    except (zlib.error, FileNotFoundError):
        return not file.exists()
