"""For Hugging Face Accelerate: call this on every rank instead of `accelerator.save_state`.

from lakemark.trainer.accelerate import save_state

save_state(accelerator, run, folder, step=step, metrics={"val_loss": loss})
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any, Final

from lakemark.trainer.listing import roles_in
from lakemark.trainer.run import Ranks, Run

_RANK_FILE: Final = "random_states_{rank}.pkl"
_NAMES: Final = {
    r"(pytorch_)?model(_\d+)?(-\d+-of-\d+)?\.(safetensors|bin)": "weights",
    r"optimizer(_\d+)?\.bin": "optimizer",
    r"scheduler(_\d+)?\.bin": "scheduler",
    r"random_states_\d+\.pkl": "rng",
    r"(sampler|dl_state_dict)(_\d+)?\.bin": "dataloader",
}


def save_state(
    accelerator: Any,  # noqa: ANN401 - an accelerate.Accelerator, which this module need not import
    run: Run,
    output_dir: str | os.PathLike[str] | None = None,
    *,
    step: int,
    metrics: Mapping[str, Any] | None = None,
    **options: Any,  # noqa: ANN401 - they go to accelerate as they are
) -> Any:  # noqa: ANN401 - what accelerate answers
    """`accelerator.save_state`, with its options, answer and errors; what it saved is announced by the main process.

    step: of training; Accelerate names folders by how often it saved. With several ranks each writes its random state
    when it gets there: the announcement names all of these, and the checkpoint is taken once they are there.
    """
    begun = time.monotonic()
    saved = accelerator.save_state(output_dir, **options)
    took = time.monotonic() - begun
    with run.guarded(step):
        if _speaks(accelerator):
            world = int(accelerator.num_processes)
            ranks = Ranks(world=world, files=(_RANK_FILE,)) if world > 1 else None
            run.saved(saved, step=step, metrics=metrics, roles=roles_in(saved, _NAMES), ranks=ranks, seconds=took)
    return saved


def _speaks(accelerator: Any) -> bool:  # noqa: ANN401 - see save_state
    """One process per place that is saved to: with `save_on_each_node` each node's disk is one."""
    each = accelerator.project_configuration.save_on_each_node
    return bool(accelerator.is_local_main_process if each else accelerator.is_main_process)
