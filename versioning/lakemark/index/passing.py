"""An index where none can be kept: the disk is full, or may not be written."""

from __future__ import annotations

import weakref

from lakemark.errors import LakemarkError
from lakemark.index.private import private_folders
from lakemark.index.whole import Index


def passing_index() -> Index | None:
    """An empty one, in memory if need be, that goes with this process; None where there is no room for it either."""
    for folder in private_folders():
        try:
            made = Index(folder.path / "index.sqlite")
        except LakemarkError:
            folder.remove()
            continue
        weakref.finalize(made, folder.remove)
        return made
    return None
