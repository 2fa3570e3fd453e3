"""For a training loop of one's own: with no framework, or one that has no adapter here.

from lakemark.trainer.loop import saving

with saving(run, path, step=step, metrics={"val_loss": loss}):
    torch.save(state, path)
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from lakemark.trainer.run import Ranks, Run


@contextmanager
def saving(
    run: Run,
    path: str | os.PathLike[str],
    *,
    step: int,
    metrics: Mapping[str, Any] | None = None,
    roles: Mapping[str, str] | None = None,
    present: Collection[str] = (),
    ranks: Ranks | None = None,
) -> Iterator[None]:
    """Announces `path` when the block has ended; not where it raised. See `Run.saved` for what is said.

    All files must be closed, and threads that write them joined, inside the block. On several ranks, only one announces:
    after a barrier, else with `ranks`. metrics, roles and present are read at the end: they may be filled inside.
    """
    begun = time.monotonic()
    yield
    took = time.monotonic() - begun
    run.saved(path, step=step, metrics=metrics, roles=roles, present=present, ranks=ranks, seconds=took)
