"""The files that Hugging Face libraries write: which role each has, by its name."""

from __future__ import annotations

import re
from typing import Final

from lakemark.formats.readers.folder import Folder
from lakemark.formats.rules.contents import Contents
from lakemark.formats.torch import deepspeed, sharded
from lakemark.model.checkpoints.manifest import Role

_WEIGHTS: Final = re.compile(
    # rank<r>-of-<w>-: XLA, where each rank saves its part.
    r"(?:rank\d+-of-\d+-)?(?:model|pytorch_model|tf_model|flax_model|adapter_model|diffusion_pytorch_model|pytorch_lora_weights"
    r"|pytorch_custom_diffusion_weights|value_head|rust_model)(?:[-._].*)?\.(?:safetensors|bin|h5|msgpack|pt|pth|ot)"
    r"(?:\.index\.json)?|.+\.safetensors(?:\.index\.json)?|learned_embeds.*\.bin",
    re.ASCII,
)
_OTHERS: Final = (
    (
        Role.OPTIMIZER,
        re.compile(
            # `optimizer.pt_<ranks>`: model-parallel ranks append their numbers.
            r"optimizer(?:_\d+)?(?:_rank\d+)?\.(?:pt|bin)(?:_[\d_]+)?|rank\d+-of-\d+-optimizer\.pt|.+_optim_states\.pt",
            re.ASCII,
        ),
    ),
    (Role.SCHEDULER, re.compile(r"scheduler(?:_\d+)?\.(?:pt|bin)", re.ASCII)),
    (Role.RNG, re.compile(r"rng_state(?:_\d+)?\.pth|random_states_\d+\.pkl", re.ASCII)),
    (Role.DATALOADER, re.compile(r"(?:sampler|dl_state_dict)(?:_\d+)?\.bin", re.ASCII)),
    (Role.TRAINER, re.compile(r"trainer_state\.json|scaler\.pt|custom_checkpoint_\d+\.pkl", re.ASCII)),
    (
        Role.CONFIG,
        re.compile(
            r"training_args\.bin|.*(?:config|tokenizer|tokens|token_map|vocab|merges|special|modelcard|chat_template|modules)"
            r"[\w.-]*\.(?:json|txt|jinja|yaml)|.+\.(?:model|jinja|tiktoken)|(?:modeling|configuration|tokenization)_\w+\.py",
            re.ASCII,
        ),
    ),
)
_DCP_FOLDERS: Final = (
    (Role.WEIGHTS, re.compile(r"pytorch_model_fsdp_\d+", re.ASCII)),
    (Role.OPTIMIZER, re.compile(r"optimizer_\d+", re.ASCII)),
)


def role_of(name: str) -> Role | None:
    """Of a file by its name, folders before it aside; None where the name tells nothing."""
    base = name.rpartition("/")[2]
    # Weights are asked last: their pattern takes any `.safetensors`.
    for role, pattern in _OTHERS:
        if pattern.fullmatch(base):
            return role
    return Role.WEIGHTS if _WEIGHTS.fullmatch(base) else None


def fsdp_role_of(folder: str) -> Role | None:
    """Of a folder that Accelerate writes with DCP for FSDP's sharded state; None for any other."""
    return next((role for role, pattern in _DCP_FOLDERS if pattern.fullmatch(folder)), None)


def contents_of(folder: Folder) -> Contents:
    """A checkpoint's files with their roles, FSDP's and DeepSpeed's folders in it among them, each file looked at."""
    contents = Contents(folder)
    for name in contents.files:
        role = role_of(name)
        # A temporary file has the role of none: what it will be is not there.
        if role is not None and name not in contents.unfinished:
            contents.roles[name] = role
    for inside in folder.folders:
        fsdp = fsdp_role_of(inside)
        if fsdp is not None:
            sharded.add(contents, inside, role=fsdp)
        elif deepspeed.holds_states(folder.sub(inside)):
            deepspeed.add_tag(contents, inside)
    contents.check()
    return contents
