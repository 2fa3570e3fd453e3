"""Hugging Face Trainer: `checkpoint-<N>/`, whose `trainer_state.json` rank 0 writes last."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Final

from lakemark.formats.hf import files as hf_files
from lakemark.formats.readers.folder import Folder, Unreadable
from lakemark.formats.readers.torch_numbers import integers
from lakemark.formats.rules import sets
from lakemark.formats.rules.contents import Contents
from lakemark.formats.rules.family import OfFolders, temporary
from lakemark.formats.rules.metrics import of_history
from lakemark.formats.torch import deepspeed
from lakemark.model.checkpoints.manifest import Role
from lakemark.ports import Found

FRAMEWORK: Final = "hf-trainer"
STATE: Final = "trainer_state.json"
ARGUMENTS: Final = "training_args.bin"
_NAME: Final = re.compile(r"(?P<tmp>tmp-)?checkpoint-(?P<step>\d{1,15})", re.ASCII)
_OF_HUB: Final = "last-checkpoint"
_EVIDENCE: Final = frozenset(
    {
        STATE, ARGUMENTS, "config.json", "generation_config.json", "adapter_config.json", "model.safetensors",
        "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json", "adapter_model.safetensors",
        "adapter_model.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth", "rng_state_0.pth", "tokenizer_config.json",
        "pytorch_model_fsdp.bin", "optimizer.bin", "modules.json",
    }
)  # fmt: skip
# Files of ranks and of XLA, whose names have numbers in them and so are in no list.
_OF_STATE: Final = frozenset({Role.WEIGHTS, Role.OPTIMIZER, Role.SCHEDULER, Role.RNG})
_LONGEST_STATE_BYTES: Final = 64 * 2**20


class HfTrainer(OfFolders):
    """`_save_checkpoint` of transformers 4.0 to 5.24: model, training_args, optimizer, scheduler, scaler, rng, trainer_state.

    FSDP adds `pytorch_model_fsdp_0/` and `optimizer_0/` (DCP), DeepSpeed a folder of its own with `latest` beside it, XLA
    `rank<r>-of-<w>-optimizer.pt`. Other ranks' `rng_state_<r>.pth` may come after `trainer_state.json`; how many there will
    be is said in `training_args.bin` and seen from DeepSpeed's and DCP's files. `push_to_hub` keeps the newest as
    `last-checkpoint/`, whose step its state says. A node that does not hold the first rank has `rng_state_<r>.pth` alone.
    """

    def claims(self, folder: Folder) -> bool:
        # A common name: both of the Trainer's own files must be there.
        if folder.name == _OF_HUB:
            return folder.has_file(STATE) and folder.has_file(ARGUMENTS)
        return _NAME.fullmatch(folder.name) is not None and (
            not _EVIDENCE.isdisjoint(folder.files)
            or any(hf_files.fsdp_role_of(name) or name.startswith("global_step") for name in folder.folders)
            or any(hf_files.role_of(name) in _OF_STATE or name.startswith(".tmp") for name in folder.files)
        )

    def step(self, folder: Folder) -> int | None:
        match = _NAME.fullmatch(folder.name)
        return int(match["step"]) if match else None

    def judge(self, folder: Folder) -> Found:
        contents = hf_files.contents_of(folder)
        _check(contents)
        step = self.step(folder)
        said, metrics = _check_state(contents, step)
        # Some releases 4.3x of transformers wrote here and renamed.
        if folder.name.startswith("tmp-"):
            why = "; ".join(["tmp- prefix", *contents.problems])
            return temporary(folder.path, FRAMEWORK, step, why, roles=contents.roles)
        return replace(contents.found(FRAMEWORK, said if folder.name == _OF_HUB else step), metrics=metrics)


def _check(contents: Contents) -> None:
    contents.check_shards()
    weights = [name for name, role in contents.roles.items() if role is Role.WEIGHTS and not name.endswith(".json")]
    if not weights:
        contents.problems.append("no weights")
    # DeepSpeed's files hold the optimizer's state and may hold the schedule.
    if not any(deepspeed.holds_states(contents.folder.sub(name)) for name in contents.folder.folders):
        _check_pair(contents)
    _check_ranks(contents)


def _check_pair(contents: Contents) -> None:
    """`_save_optimizer_and_scheduler` writes both, or with `save_only_model` neither; DeepSpeed may keep them in its own.

    FSDP's shards come with them, and the random states follow.
    """
    have = {role for role in (Role.OPTIMIZER, Role.SCHEDULER) if contents.has(role)}
    if len(have) == 1:
        other = Role.SCHEDULER if Role.OPTIMIZER in have else Role.OPTIMIZER
        contents.problems.append(f"no {other}, and the {have.pop()} is there")
    elif not have and (contents.has(Role.RNG) or any(map(hf_files.fsdp_role_of, contents.folder.folders))):
        what = "rng is" if contents.has(Role.RNG) else "shards of FSDP are"
        contents.problems.append(f"no optimizer and no scheduler, and the {what} there")


def _check_ranks(contents: Contents) -> None:
    """As many `rng_state_<r>.pth` as there are processes: `training_args.bin` says how many, newer ones at least."""
    told = integers(contents.folder, ARGUMENTS, ("num_processes",)) if ARGUMENTS in contents.files else {}
    count = told.get("num_processes", 0)
    ranks = sets.per_rank(contents.files).get("rng_state", set())
    if not ranks:
        # With `save_only_model` no rank saves random states.
        if count and contents.has(Role.OPTIMIZER) and (count > 1 or not contents.has(Role.RNG)):
            contents.problems.append(f"no rng_state of {count} ranks")
        return
    hole = sets.holes("rng_state", ranks)
    # A number in the name says that there are at least two processes: one alone writes `rng_state.pth`.
    world = max([2, count, *contents.ranks.values()])
    contents.ranks["rng_state"] = len(ranks)
    contents.ranks_told = contents.ranks_told or count == len(ranks)
    if hole is not None:
        contents.problems.append(hole)
    elif world > len(ranks):
        contents.problems.append(f"rng_state for {len(ranks)} of {world} ranks")


def _check_state(contents: Contents, step: int | None) -> tuple[int | None, dict[str, float]]:
    """Answers the step that it says, and the metrics of that step."""
    if STATE not in contents.files:
        contents.problems.append(f"no {STATE}")
        return None, {}
    try:
        state = json.loads(contents.folder.text(STATE, longest_bytes=_LONGEST_STATE_BYTES))
    except (Unreadable, ValueError, RecursionError):
        return None, {}  # said with the headers
    if not isinstance(state, dict):
        contents.problems.append(f"{STATE}: no state of a trainer")
        return None, {}
    said, best = state.get("global_step"), state.get("best_model_checkpoint")
    # Noted, not judged: the folder may have been renamed by hand; the Trainer itself goes by the state.
    if isinstance(said, int) and step is not None and said != step:
        contents.notes.append(f"{STATE} says step {said}")
    # It would lead `load_best_model_at_end` to where the run was before.
    if isinstance(best, str) and best.startswith("/") and Path(best).parent != contents.folder.path.parent:
        contents.notes.append(f"{STATE} names the best checkpoint by an absolute path: {best[:500]!r}")
    whole = said if isinstance(said, int) and said >= 0 else None
    return whole, of_history(state.get("log_history"), whole)
