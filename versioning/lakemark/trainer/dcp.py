"""For torch.distributed.checkpoint: `save`, and `async_save` in a thread or a process.

from lakemark.trainer.dcp import LakemarkWriter

dcp.save(state, storage_writer=LakemarkWriter(run, folder, step=step, metrics={"val_loss": loss}))
"""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Mapping
from itertools import chain, islice
from typing import Any, Final

from lakemark.trainer.run import Ranks, Run

try:
    import torch.distributed as dist
    from torch.distributed.checkpoint import FileSystemWriter
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata
    from torch.distributed.checkpoint.staging import AsyncStager
    from torch.distributed.checkpoint.storage import StorageWriter
except ImportError as error:
    raise ImportError("lakemark.trainer.dcp needs torch, which can't be imported", name="torch") from error

_RANK_FILE: Final = "__{rank}.metadata"
_STAGING: Final = (
    "_synchronize_after_execute",
    "should_synchronize_after_execute",
    "stage",
    "synchronize_staging",
    "close",
)
_MOST_NAMES: Final = 500
_ROLES: Final = {
    "model": "weights",
    "optim": "optimizer",
    "optimizer": "optimizer",
    "lr_scheduler": "scheduler",
    "scheduler": "scheduler",
    "rng": "rng",
    "rng_state": "rng",
    "dataloader": "dataloader",
}


class LakemarkWriter(StorageWriter):
    """One save by another StorageWriter; announced by the coordinator once the metadata is written.

    writer: a StorageWriter, or a folder for torch's own. All else is asked of it. In `async_save` that happens in torch's
    thread or process; make one LakemarkWriter for each save then, since each has its step.
    """

    def __init__(
        self,
        run: Run,
        writer: StorageWriter | str | os.PathLike[str],
        *,
        step: int,
        metrics: Mapping[str, Any] | None = None,
    ) -> None:
        self.run, self.step, self.metrics = run, step, metrics
        self.writer: Any = writer if isinstance(writer, StorageWriter) else FileSystemWriter(writer)
        self._rank: int | None = None
        self._begun = time.monotonic()
        self._collective = True
        if isinstance(self.writer, AsyncStager):
            # `async_save` asks whether this is a stager by looking for these, and not through __getattr__.
            self.__dict__ |= {name: getattr(self.writer, name) for name in _STAGING if hasattr(self.writer, name)}

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the writer's own
        # While it is unpickled, in torch's process, there is no writer yet: to ask for that would ask for ever.
        if name.startswith("__") or "writer" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.writer, name)

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        self.writer.reset(checkpoint_id)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401, FBT001 - torch's
        self._begun = time.monotonic()
        self._rank, self._collective = kwargs.get("rank"), kwargs.get("use_collectives", True)
        # Writers made for an older torch take no keywords.
        takes = inspect.signature(self.writer.set_up_storage_writer).parameters
        self.writer.set_up_storage_writer(is_coordinator, *args, **(kwargs if "kwargs" in takes else {}))

    def prepare_local_plan(self, plan: Any) -> Any:  # noqa: ANN401 - torch's
        return self.writer.prepare_local_plan(plan)

    def prepare_global_plan(self, plans: Any) -> Any:  # noqa: ANN401 - torch's
        return self.writer.prepare_global_plan(plans)

    def write_data(self, plan: Any, planner: Any) -> Any:  # noqa: ANN401 - torch's
        return self.writer.write_data(plan, planner)

    def finish(self, metadata: Any, results: Any) -> None:  # noqa: ANN401 - torch's
        # It writes the metadata: before that torch can load nothing of what lies there.
        self.writer.finish(metadata, results)
        took = time.monotonic() - self._begun
        with self.run.guarded(self.step):
            self._announce(metadata, took)

    def storage_meta(self) -> Any:  # noqa: ANN401 - torch's
        return self.writer.storage_meta()

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return bool(FileSystemWriter.validate_checkpoint_id(checkpoint_id))

    def _announce(self, metadata: Any, took: float) -> None:  # noqa: ANN401 - Metadata
        """Without collectives every rank writes metadata of its own, at its own pace; the first rank speaks."""
        ranks = None
        if not self._collective and self._rank is not None:
            if self._rank != 0:
                return
            ranks = Ranks(world=dist.get_world_size() if dist.is_initialized() else 1, files=(_RANK_FILE,))
        self.run.saved(
            self.writer.checkpoint_id,
            step=self.step,
            metrics=self.metrics,
            present=_present(metadata),
            ranks=ranks,
            seconds=took,
        )


def _present(metadata: Any) -> set[str]:  # noqa: ANN401 - Metadata
    """By how things are named, `optim.state.…` or `app.optim.state.…`; of very many, only the first and last are looked at."""
    kept = metadata.state_dict_metadata
    names = (
        kept if len(kept) <= 2 * _MOST_NAMES else chain(islice(kept, _MOST_NAMES), islice(reversed(kept), _MOST_NAMES))
    )
    roles: set[str] = set()
    for name in names:
        words = [_ROLES[word] for word in name.split(".", 2)[:2] if word in _ROLES]
        # Weights are tensors: a model's state may also hold a number of its own, without any weight.
        if words and (words[0] != "weights" or isinstance(kept[name], TensorStorageMetadata)):
            roles.add(words[0])
    return roles
