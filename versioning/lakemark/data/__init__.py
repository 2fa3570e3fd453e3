"""Reading data at the pinned commit, for people's loaders. The standard library, and fsspec for `filesystem` alone.

from lakemark.data import filesystem, paths
from lakemark.trainer import Run

run = Run.open("llama-7b")
with filesystem(run).open(run.data_uri() + "train/0.parquet") as file: ...
files = paths(run, "train/*.parquet")        # local files, from the cache of this node

What is read is noted for the run: the record of its next save then says that the data was read, not merely opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakemark.data.address import NotPinned
from lakemark.data.errors import DataError, DataGone
from lakemark.data.local import paths

if TYPE_CHECKING:
    from lakemark.data.lakefs import LakeFS
    from lakemark.trainer import Run

__all__ = ["DataError", "DataGone", "NotPinned", "filesystem", "paths"]


def filesystem(run: Run | None = None, **options: Any) -> LakeFS:  # noqa: ANN401 - as `LakeFS` names them
    """An fsspec file system over `lakefs://repository/commit/path`, read-only. See `LakeFS` for the options.

    run: its server is read from, and what is read is noted for it. Without one, LAKEFS_ENDPOINT and LAKEMARK_RUN_FILE say.
    """
    from lakemark.data.lakefs import LakeFS
    from lakemark.data.options import of_run

    return LakeFS(**(of_run(run) | options))
