"""What a key of a saved dict holds, by the words frameworks and people use for it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from lakemark.model.checkpoints.manifest import Role

EVERYTHING: Final = (Role.WEIGHTS, Role.OPTIMIZER, Role.SCHEDULER, Role.RNG)
"""What may be in a file that says nothing of itself."""
BESIDE_WEIGHTS: Final = frozenset({Role.OPTIMIZER, Role.SCHEDULER, Role.RNG, Role.DATALOADER})
"""What nobody saves alone."""

_RNG: Final = (
    r"(?:\w+_)?(?:rng|rngs|random)(?:_?(?:states?|state_dict|key|seed|tracker|cpu|cuda|numpy|python|torch)\w*)?"
)
_SCHEDULER: Final = (
    r"(?:(?:lr|opt_param|param|learning_rate|warmup|wd|cosine)_?)?(?:schedulers?|schedules?|sched)(?:_(?:states?|state_dicts?|\d+))?"
    r"|lr_?schedul\w*"
)
_OPTIMIZER: Final = (
    # `\d++` here and below: a repeated group that may split a run of digits tries every way to do so before it gives up.
    # chained_0: Megatron-core's ChainedOptimizer; exp_avg: a file of Adam's own state, as DeepSpeed's universal checkpoints have.
    r"(?:(?:last|master|main|fp32|base|\w+)_)?(?:optimizers?|optims?|opts?)(?:_?(?:states?|state_dicts?|history|\d++))*"
    r"|chained_\d+|param_groups|scaler|grad_?scaler(?:_state(?:_dict)?)?|amp(?:_state)?|loss_scaler|exp_avg(?:_sq)?"
)
_DATALOADER: Final = (
    r"(?:\w+_)?(?:data_?loaders?|data_?iterators?|data_?iter|train_iterator|samplers?|data_?modules?|datasets?|dataset_state)"
    r"(?:_?(?:states?|state_dicts?|\d++))*|loader_ckpt|loader|dl_state_dict"
)
_TRAINER: Final = (
    r"train_?(?:er|ing)?_?states?|trainer|training|loops?|callbacks?|(?:global_?|num_|total_)?(?:steps?|iterations?|iters?|updates?"
    # Counters of steps, samples and tokens are a trainer's state, nothing unknown.
    r"|epochs?|batch(?:es)?|samples?|tokens?)(?:_(?:seen|num|idx|index))?|progress|metrics?|best_\w+|\w*loss(?:es)?|history"
    r"|extra_state|timestamp|client_state|elapsed\w*|integrations|run_name|tokens_seen|ntokens_seen|algorithms|max_epochs"
    r"|last_epoch|logs?|checkpoint_version|version|pytorch-lightning_version|\w+_version|task_state|rerun_state_machine"
)
_CONFIG: Final = (
    r"args|hparams|hyper_parameters|hparams_name|config|cfg|\w+_(?:args|config|cfg|kwargs)|arch|tokenizer|metadata"
    r"|vocab|classes"
)
_WEIGHTS: Final = (
    r"(?:\w+_)?(?:model|module|network|net|weights|params|parameters|backbone|encoder|decoder|generator|discriminator|policy"
    r"|actor|critic|ema|state_dict|teacher|student|adapter|lora)(?:_?(?:states?|state_dict|weights|ema|dict|\d++)|_[a-z])*"
)
_KNOWN: Final = tuple(
    (role, re.compile(pattern, re.ASCII | re.IGNORECASE))
    for role, pattern in (
        # The first that fits. Weights are last: before `state_dict` their pattern takes any word, also optimizer_ and rng_.
        (Role.RNG, _RNG),
        (Role.SCHEDULER, _SCHEDULER),
        (Role.OPTIMIZER, _OPTIMIZER),
        (Role.DATALOADER, _DATALOADER),
        (Role.TRAINER, _TRAINER),
        (Role.CONFIG, _CONFIG),
        (Role.WEIGHTS, _WEIGHTS),
    )
)
# What scripts wrap everything in, as `{"app": AppState()}` of PyTorch's guide to DCP: the next component says what it is.
_OUTER: Final = frozenset({"app", "state", "checkpoint", "ckpt", "train", "content", "_content", "root", "job"})
# Longer keys are names of tensors or come from damaged files: no word that people use for a part of the state is as long.
_LONGEST_WORD: Final = 64
_WORD: Final = re.compile(
    # _world_size_<n>_rank_<r>: verl's files of FSDP.
    r"(?P<word>[A-Za-z][A-Za-z_]*?)(?:_world_size_\d+)?(?:[-_]?(?:rank|step|iter|iteration))?[-_=]?\d*(?:-of-\d+)?\.\w+",
    re.ASCII,
)


@lru_cache(maxsize=4096)
def of_key(key: str) -> Role | None:
    """What the value of a key of this name is; None where the name tells nothing."""
    if len(key) > _LONGEST_WORD:
        return None
    return next((role for role, pattern in _KNOWN if pattern.fullmatch(key)), None)


def of_file(name: str) -> Role | None:
    """What a file holds by the word that its name begins with, folders before it aside; None where that tells nothing."""
    match = _WORD.fullmatch(name.rpartition("/")[2])
    return of_key(match["word"]) if match else None


def of_names(names: Iterable[str]) -> dict[str, Role | None]:
    """Of dotted names such as DCP's: by the first component after an outer one that all share, or that is known as outer.

    None: nothing tells. A tensor is a weight then. What Megatron-core adds to the name of an object says which part it is.
    """
    split = [(name, name.partition("/shard_")[0].split(".")) for name in names]
    shared = _shared([parts for _, parts in split])
    return {name: _of_parts(parts[shared:]) for name, parts in split}


def _of_parts(parts: list[str]) -> Role | None:
    while len(parts) > 1 and parts[0].lower() in _OUTER:
        parts = parts[1:]
    return of_key(parts[0]) if parts else None


def _shared(rows: list[list[str]]) -> int:
    """How many outer components say nothing, being the same everywhere."""
    depth = 0
    while rows and all(len(parts) > depth + 1 for parts in rows):
        first = {parts[depth] for parts in rows}
        # A shared component that names a role is no wrapping: an optimizer saved alone has `optimizer.` before every name.
        if len(first) > 1 or of_key(next(iter(first))) is not None:
            return depth
        depth += 1
    return 0
