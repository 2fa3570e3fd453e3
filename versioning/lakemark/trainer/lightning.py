"""For Lightning, `lightning` or `pytorch_lightning`.

from lakemark.trainer.lightning import LakemarkCheckpointIO

kept = LakemarkCheckpointIO(run)
trainer = Trainer(..., plugins=[kept], callbacks=[..., kept.callback])
"""

from __future__ import annotations

import os
import sys
import time
from importlib import import_module
from typing import Any, Final, Self

from lakemark.trainer.run import Run


def _family() -> tuple[Any, Any, Any]:
    """CheckpointIO, TorchCheckpointIO and Callback: of the package the trainer is from, where both are installed."""
    families = [("lightning.fabric", "lightning.pytorch"), ("lightning_fabric", "pytorch_lightning")]
    if "lightning.pytorch" not in sys.modules and "pytorch_lightning" in sys.modules:
        families.reverse()
    for fabric, trainer in families:
        try:
            plugins, callbacks = import_module(f"{fabric}.plugins"), import_module(f"{trainer}.callbacks")
        except ModuleNotFoundError as error:
            # Something that the package itself needs is missing: to go on with the other one would hide that.
            if (error.name or "").partition(".")[0] != fabric.partition(".")[0]:
                raise
        else:
            return plugins.CheckpointIO, plugins.TorchCheckpointIO, callbacks.Callback
    raise ImportError("lakemark.trainer.lightning needs lightning, which can't be imported", name="lightning")


_CheckpointIO: Any
_Callback: Any
_CheckpointIO, _TorchCheckpointIO, _Callback = _family()
_ROLES: Final = {"state_dict": "weights", "optimizer_states": "optimizer", "lr_schedulers": "scheduler"}


class LakemarkCheckpointIO(_CheckpointIO):
    """Announces each checkpoint that `checkpoint_io` (default: Lightning's own) has written.

    Around or inside an AsyncCheckpointIO: the announcement is made where the file is written. A second file of the same
    step, such as `last.ckpt`, is a copy and not announced. Strategies that write by themselves (FSDP, DeepSpeed) don't
    call a CheckpointIO: their checkpoints are found by the node, or announced by `Run.saved`.
    """

    def __init__(self, run: Run, checkpoint_io: Any = None) -> None:  # noqa: ANN401 - a CheckpointIO
        super().__init__()
        self.run = run
        self.callback: Any = _Metrics()
        self._announced: tuple[int, str] | None = None
        self._writes: Any = _TorchCheckpointIO() if checkpoint_io is None else checkpoint_io
        wrapper = _innermost(checkpoint_io)
        self._speaks = wrapper is None
        if wrapper is not None:
            wrapper._checkpoint_io = self._inner(wrapper._checkpoint_io)  # noqa: SLF001 - its setter fills only a gap

    def _inner(self, checkpoint_io: Any) -> Self:  # noqa: ANN401 - a CheckpointIO
        inner = type(self)(self.run, checkpoint_io)
        inner.callback = self.callback
        return inner

    def save_checkpoint(self, checkpoint: Any, path: Any, storage_options: Any = None) -> None:  # noqa: ANN401 - theirs
        begun = time.monotonic()
        self._writes.save_checkpoint(checkpoint, path, storage_options=storage_options)
        took = time.monotonic() - begun
        step = checkpoint.get("global_step")
        if self._speaks and step is not None:  # a launcher also hands weights over through a file, without a step
            with self.run.guarded(step):
                self._announce(checkpoint, os.fspath(path), step=step, took=took)

    def load_checkpoint(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - theirs
        return self._writes.load_checkpoint(*args, **kwargs)

    def remove_checkpoint(self, path: Any) -> None:  # noqa: ANN401 - theirs
        self._writes.remove_checkpoint(path)

    def teardown(self) -> None:
        self._writes.teardown()

    def _announce(self, checkpoint: Any, path: str, *, step: int, took: float) -> None:  # noqa: ANN401 - theirs
        # The same path again is a save that was written over: that one is announced.
        if self._announced is not None and self._announced[0] == step and self._announced[1] != path:
            return
        self.run.saved(
            path,
            step=step,
            metrics=_watched(checkpoint) | self.callback.of(step),
            present=[role for key, role in _ROLES.items() if key in checkpoint],
            seconds=took,
        )
        self._announced = (step, path)


class _Metrics(_Callback):
    """Keeps what was logged at each of the last saves, as numbers: an AsyncCheckpointIO writes later."""

    _MOST: Final = 16

    def __init__(self) -> None:
        self._by_step: dict[int, dict[str, Any]] = {}

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Any) -> None:  # noqa: ANN401, ARG002 - theirs
        try:
            self._by_step[checkpoint["global_step"]] = {k: float(v) for k, v in trainer.callback_metrics.items()}
            # In order of the saves: what is left over is of steps whose file was never written, or is written long ago.
            for step in list(self._by_step)[: -self._MOST]:
                del self._by_step[step]
        except Exception:  # noqa: BLE001, S110 - a save without metrics is still a save
            pass

    def of(self, step: int) -> dict[str, Any]:
        return self._by_step.get(step, {})


def _innermost(checkpoint_io: Any) -> Any:  # noqa: ANN401 - a CheckpointIO
    """Of wrappers around one another (AsyncCheckpointIO is one), the one that calls what writes; None: it is none."""
    found = None
    while hasattr(checkpoint_io, "_checkpoint_io"):
        found, checkpoint_io = checkpoint_io, checkpoint_io._checkpoint_io  # noqa: SLF001 - the public name has a default
    return found


def _watched(checkpoint: Any) -> dict[str, Any]:  # noqa: ANN401 - theirs
    """The metric that a ModelCheckpoint watches, as it was at this save."""
    states = [state for state in checkpoint.get("callbacks", {}).values() if isinstance(state, dict)]
    return {state["monitor"]: state["current_score"] for state in states if state.get("current_score") is not None}
