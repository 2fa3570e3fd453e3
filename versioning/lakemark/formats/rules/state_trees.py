"""Roles by the names that JAX, Flax, Orbax and TensorFlow programs give the parts of their training state.

A learning-rate schedule is a function of the optimizer's own count in these libraries: no file or key says that it is there,
so with an optimizer the scheduler is possible, never present.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from lakemark.model.checkpoints.manifest import Role


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_WEIGHTS: Final = _words(
    "params param model models target variables weights ema ema_params model_state model_params batch_stats"
    " layers trainable_variables non_trainable_variables net network generator discriminator encoder decoder"
)
_OPTIMIZER: Final = _words(
    "opt_state opt_states optimizer optimizers optimizer_state optimizer_states optim opt param_states tx_state"
    # .optimizer_slot: TensorFlow's object graph.
    " optimizer_with_weights optimizer_variables .optimizer_slot"
)
_RNG: Final = _words(
    "rng rngs rng_key rng_keys rng_state prng prng_key prng_state prngkey jax_random_key np_random_state"
    " dropout_rng random_key random_state random np_rng numpy_rng jax_rng"
)
_DATALOADER: Final = _words(
    "data_iter data_iterator data_loader dataloader iter iterator train_iter train_iterator train_ds dataset"
    " dataset_iterator train_dataset data input_pipeline grain data_state loader"
)
_CONFIG: Final = _words("config model_config metrics metadata descriptor process_metadata hparams hyperparameters")
_STEP: Final = _words("step steps global_step epoch version save_counter iteration metrics_variables")
# Below `model`, these say that the holder is the whole state and no model.
_IN_STATE: Final = _OPTIMIZER | _RNG | {"step", "global_step"}
_BY_WORD: Final = (
    (_OPTIMIZER, Role.OPTIMIZER),
    (_WEIGHTS, Role.WEIGHTS),
    (_RNG, Role.RNG),
    (_DATALOADER, Role.DATALOADER),
    (_CONFIG, Role.CONFIG),
    (_STEP, Role.OTHER),
)
_HOLDERS: Final = _words("model models target")
"""What people call a whole training state, as Flax's guide does: what lies directly in it may be the optimizer."""
# Deeper keys are names of layers, which may be called anything.
_DEEPEST: Final = 4


@dataclass(frozen=True, slots=True)
class TreeRoles:
    """What names tell. present: roles that are named. possible: roles that what nobody can name may hold."""

    present: frozenset[str]
    possible: frozenset[str]


def role_of(path: Sequence[str]) -> Role | None:
    """Of one leaf, by the first of its keys that is known; OTHER for a step's number, None where no key is known."""
    words = [word.lower() for word in path[:_DEEPEST]]
    if words[:2] == ["optimizer", "target"]:  # the Optimizer of old Flax held the weights too
        return Role.WEIGHTS
    if len(words) > 1 and words[0] in _HOLDERS and words[1] in _IN_STATE:
        words = words[1:]
    for word in words:
        for known, role in _BY_WORD:
            if word in known:
                return role
    return None


def told(paths: Iterable[Sequence[str]]) -> TreeRoles:
    """Of a whole training state whose leaves' keys are all given; of an unknown one, of no keys."""
    roles = {role_of(path) for path in paths}
    present = frozenset(str(role.value) for role in roles if role is not None and role is not Role.OTHER)
    unknown = None in roles or not roles
    maybe: set[str] = set()
    if unknown:
        maybe |= {Role.WEIGHTS, Role.OPTIMIZER}
    # optax: the schedule follows from the optimizer's count; random numbers may be derived from the step.
    if unknown or Role.OPTIMIZER in present:
        maybe |= {Role.SCHEDULER, Role.RNG}
    return TreeRoles(present, frozenset(str(role) for role in maybe) - present)
