"""An index where none can be kept: the disk is full, or may not be written."""

from __future__ import annotations

import shutil
import weakref

from lakemark.errors import LakemarkError
from lakemark.index.database import private_folders
from lakemark.index.whole import Index


def passing_index() -> Index | None:
    """An empty one, in memory if need be, that goes with this process; None where there is no room for it either."""
    for folder in private_folders():
        try:
            made = Index(folder / "index.sqlite")
        except LakemarkError:
            shutil.rmtree(folder, ignore_errors=True)
            continue
        weakref.finalize(made, shutil.rmtree, folder, ignore_errors=True)
        return made
    return None
