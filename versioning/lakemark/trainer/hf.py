"""For the Trainer of Hugging Face transformers.

from lakemark.trainer.hf import LakemarkCallback, resume_from

trainer = Trainer(..., callbacks=[LakemarkCallback(run)])
trainer.train(resume_from_checkpoint=resume_from(run))
"""

from __future__ import annotations

import os
import time
from typing import Any, Final

from lakemark.trainer.listing import roles_in
from lakemark.trainer.run import Ranks, Run

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise ImportError("lakemark.trainer.hf needs transformers, which can't be imported", name="transformers") from error

_RANK_FILE: Final = "rng_state_{rank}.pth"
_NAMES: Final = {
    r"(pytorch_model|model|adapter_model)(-\d+-of-\d+)?\.(safetensors|bin)": "weights",
    r"optimizer\.(pt|bin)": "optimizer",
    r"scheduler\.pt": "scheduler",
    r"rng_state(_\d+)?\.pth": "rng",
    r"config\.json": "config",
}
_NO_METRICS: Final = frozenset({"step", "epoch"})


def resume_from(run: Run) -> str | None:
    """What to give `Trainer.train` as `resume_from_checkpoint`; None: start afresh."""
    return None if run.resume is None else run.resume["path"]


class LakemarkCallback(TrainerCallback):
    """Announces each save of a Trainer, with what was logged since the one before.

    The process that writes `trainer_state.json` speaks. With several ranks each writes its random state when it gets
    there: the announcement names all of these, and the checkpoint is taken once they are there.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._since = -1
        self._last_other: float | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ANN401, ARG002 - theirs
        self._since = state.global_step

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ANN401, ARG002 - theirs
        self._last_other = time.monotonic()

    # The Trainer logs, then evaluates, then saves: what comes after the last of these is the save.
    on_log = on_evaluate = on_step_end

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ANN401, ARG002 - theirs
        with self._run.guarded(getattr(state, "global_step", None)):
            if args.should_save:
                took = None if self._last_other is None else time.monotonic() - self._last_other
                self._announce(args, state, took)

    def _announce(self, args: Any, state: Any, took: float | None) -> None:  # noqa: ANN401 - TrainingArguments, TrainerState
        """Raises ValueError for a trial of a search, OSError."""
        if state.is_hyper_param_search:
            raise ValueError("the trials of a hyper-parameter search are many runs, not one")
        folder = os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
        # With the model alone no rank writes a random state, and none is waited for.
        several = args.world_size > 1 and not getattr(args, "save_only_model", False)
        self._run.saved(
            folder,
            step=state.global_step,
            metrics=self._logged(state),
            roles=roles_in(folder, _NAMES),
            ranks=Ranks(world=args.world_size, files=(_RANK_FILE,)) if several else None,
            seconds=took,
        )
        self._since = state.global_step

    def _logged(self, state: Any) -> dict[str, Any]:  # noqa: ANN401 - TrainerState
        """The newest value of each name since the last save."""
        newest: dict[str, Any] = {}
        for row in reversed(state.log_history):
            # From the newest row back: what was logged before the last save belongs to that.
            if row.get("step", 0) <= self._since:
                break
            newest = {name: value for name, value in row.items() if hasattr(value, "__float__")} | newest
        return {name: value for name, value in newest.items() if name not in _NO_METRICS}
