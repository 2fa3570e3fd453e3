"""Accelerate: `checkpoints/checkpoint_<i>/` with the number of the save, or a folder of any name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from lakemark.formats.hf import files as hf_files
from lakemark.formats.readers.folder import Folder
from lakemark.formats.rules import numbered, sets
from lakemark.formats.rules.contents import Contents
from lakemark.formats.rules.family import OfFolders
from lakemark.formats.rules.unfinished import left_over, unfinished
from lakemark.formats.torch import deepspeed
from lakemark.model.checkpoints.manifest import Role
from lakemark.ports import Found

FRAMEWORK: Final = "accelerate"
_COUNTED: Final = re.compile(r"checkpoint_(\d{1,15})", re.ASCII)
_NAMED: Final = re.compile(r"checkpoint-(\d{1,15})", re.ASCII)
_OF_TRAINER: Final = frozenset(
    {"trainer_state.json", "training_args.bin", "scheduler.pt", "rng_state.pth", "rng_state_0.pth"}
)
_NEXT: Final = frozenset({"optimizer.bin", "scheduler.bin", "dl_state_dict.bin", "custom_checkpoint_0.pkl"})
# DeepSpeed's tag is the model's name there: `pytorch_model`, with its number from the second model on.
_TAG: Final = re.compile(r"pytorch_model(?:_\d+)?", re.ASCII)
_OF_TENSORS: Final = (".bin", ".safetensors", ".pt", ".pth", ".pkl", ".ckpt")
_OF_DIFFUSERS: Final = "diffusion_pytorch_model"
_FIRST: Final = frozenset({"model.safetensors", "pytorch_model.bin", "pytorch_model_fsdp.bin"})


class Accelerate(OfFolders):
    """`save_accelerator_state` of accelerate 0.12 to 1.15: model, optimizer, scheduler, dataloader, scaler, random states.

    Then `custom_checkpoint_<i>.pkl` of registered objects. Each rank writes its own `random_states_<r>.pkl` after all its
    other files, so rank 0's says that the model, optimizer and schedule are there. FSDP: `pytorch_model_fsdp_<i>/` and
    `optimizer_<i>/` (DCP), or a file per rank; DeepSpeed: the tag `pytorch_model/`. The scripts of diffusers write the model
    into folders of `checkpoint-<step>/` before all that. The name `checkpoint_<i>` counts
    saves; for want of a step, that number is taken for it.
    """

    def claims(self, folder: Folder) -> bool:
        files = folder.files
        # `random_states_<r>.pkl` is nobody else's name.
        if "pkl" in folder.suffixes and any(
            name.startswith("random_states_") and name.endswith(".pkl") for name in files
        ):
            return not left_over(folder.name)
        tagged = any(_TAG.fullmatch(name) and deepspeed.holds_states(folder.sub(name)) for name in folder.folders)
        sharded = tagged or any(hf_files.fsdp_role_of(name) is Role.WEIGHTS for name in folder.folders)
        # `checkpoint-<N>` with FSDP's folders is the Trainer's, which has its own files soon.
        ours = tagged or _NAMED.fullmatch(folder.name) is None
        if sharded and ours and _OF_TRAINER.isdisjoint(files):
            return not left_over(folder.name)
        # In Accelerate's order of writing the model comes first, then the optimizer, then the schedule.
        started = not _FIRST.isdisjoint(files) or sharded
        second = folder.has_file("scheduler.bin") or folder.has_file("optimizer.bin")
        if started and second and _OF_TRAINER.isdisjoint(files):
            return not left_over(folder.name)
        if numbered.of_folder(folder.name) is None or not _OF_TRAINER.isdisjoint(files):
            return False
        # Scripts of diffusers: the model lies in folders before Accelerate writes anything.
        if not files and _NAMED.fullmatch(folder.name):
            return any(name.startswith(_OF_DIFFUSERS) for one in folder.folders for name in folder.sub(one).files)
        counted = _COUNTED.fullmatch(folder.name) is not None
        # Its own name, and the first file of a save, or what safetensors writes before it.
        if counted and (started or unfinished(files)):
            return True
        likely = [name for name in files if name.endswith(_OF_TENSORS)]
        # A hook that saves the model elsewhere: then every file of tensors must be one of Accelerate's.
        return not _NEXT.isdisjoint(files) and all(
            hf_files.role_of(name) not in (None, Role.WEIGHTS) for name in likely
        )

    def step(self, folder: Folder) -> int | None:
        """Of a user's own name; of `checkpoint_<i>` the number of the save."""
        counted = _COUNTED.fullmatch(folder.name)
        return int(counted[1]) if counted else numbered.of_tag(folder.name)

    def judge(self, folder: Folder) -> Found:
        contents = hf_files.contents_of(folder)
        _check(contents)
        counted = _COUNTED.fullmatch(folder.name)
        if counted:
            contents.notes.append(f"{counted[1]} counts saves, not steps")
        # A save's number: whoever compares it with steps must know.
        return replace(contents.found(FRAMEWORK, self.step(folder)), counted=counted is not None)


def _check(contents: Contents) -> None:
    contents.check_shards()
    if not any(role is Role.WEIGHTS and not name.endswith(".json") for name, role in contents.roles.items()):
        contents.problems.append("no weights")
    # The schedule is written after the optimizer.
    if contents.has(Role.SCHEDULER) and not contents.has(Role.OPTIMIZER):
        contents.problems.append("no optimizer, and the scheduler is there")
    ranks = sets.per_rank(contents.files).get("random_states", set())
    if not ranks:
        contents.problems.append("no random_states_N.pkl (written last)")
    else:
        _check_ranks(contents, ranks)
    for name, numbers in sets.per_rank(contents.files).items():
        # Told above, with how many ranks there must be.
        hole = None if name == "random_states" else sets.holes(name, numbers)
        if hole:
            contents.problems.append(hole)


def _check_ranks(contents: Contents, ranks: set[int]) -> None:
    hole = sets.holes("random_states", ranks)
    # The last rank's missing file leaves no hole in the numbers: other files of each rank tell how many there are.
    others = max([*contents.ranks.values(), *_per_rank_files(contents)], default=0)
    contents.ranks["random_states"] = len(ranks)
    if hole is not None:
        contents.problems.append(hole)
    elif others > len(ranks):
        contents.problems.append(f"random_states for {len(ranks)} of {others} ranks")


def _per_rank_files(contents: Contents) -> Iterator[int]:
    """How many ranks the per-rank files of FSDP are for; holes in them are problems."""
    found: dict[str, set[int]] = {}
    for name in contents.files:
        match = re.fullmatch(
            r"(?P<stem>(?:pytorch_model_fsdp|optimizer)(?:_\d+)?)_rank(?P<rank>\d{1,7})\.bin", name, re.ASCII
        )
        if match:
            found.setdefault(match["stem"], set()).add(int(match["rank"]))
    for stem, ranks in found.items():
        hole = sets.holes(f"{stem}_rank", ranks)
        if hole:
            contents.problems.append(hole)
        yield len(ranks)
