"""An index where none can be kept: the disk is full, or may not be written."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Final

from lakemark.errors import LakemarkError
from lakemark.index.whole import Index

_SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - a private folder is made in it


def passing_index() -> Index | None:
    """An empty one, in memory if need be, that goes with this process; None where there is no room for it either."""
    for place in (_SHARED_MEMORY, None):
        with suppress(OSError):
            folder = tempfile.mkdtemp(prefix="lakemark-index-", dir=place)
            try:
                made = Index(Path(folder) / "index.sqlite")
            except LakemarkError:
                shutil.rmtree(folder, ignore_errors=True)
                continue
            weakref.finalize(made, shutil.rmtree, folder, ignore_errors=True)
            return made
    return None
