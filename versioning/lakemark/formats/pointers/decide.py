"""All pointers of a checkpoint: its framework's own first, then links and lines that anybody keeps beside checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lakemark.formats.pointers.composer import COMPOSER
from lakemark.formats.pointers.deepspeed import DEEPSPEED
from lakemark.formats.pointers.fairseq import FAIRSEQ
from lakemark.formats.pointers.lightning import LIGHTNING, NEMO
from lakemark.formats.pointers.links_and_lines import ANYBODY_S
from lakemark.formats.pointers.ray import RAY
from lakemark.formats.pointers.rule import Beside, Rule
from lakemark.formats.pointers.tensorflow import TENSORFLOW
from lakemark.formats.pointers.trackers import BYTECHECKPOINT, MEGATRON
from lakemark.ports import Placed, Pointer

RULES: Final[Mapping[str, Rule]] = {
    "deepspeed": DEEPSPEED,
    "megatron": MEGATRON,
    "bytecheckpoint": BYTECHECKPOINT,
    "tf": TENSORFLOW,
    "lightning": LIGHTNING,
    "composer": COMPOSER,
    "nemo2": NEMO,
    "fairseq": FAIRSEQ,
    "ray": RAY,
}


def cannot(placed: Placed, beside: Beside) -> tuple[str, ...]:
    """What can neither be set nor made, a sentence each."""
    rule = _rule(placed)
    return () if rule is None else tuple(rule.cannot(placed, beside))


def decide(placed: Placed, beside: Beside) -> tuple[Pointer, ...]:
    """How the pointers must be; also those that are right already."""
    rule = _rule(placed)
    own = () if rule is None else tuple(rule.decide(placed, beside))
    paths = {one.path for one in own}
    return (*own, *(one for one in ANYBODY_S.decide(placed, beside) if one.path not in paths))


def _rule(placed: Placed) -> Rule | None:
    # `megatron-dist` and `megatron-legacy`, `composer` and `composer-fsdp` share theirs.
    return RULES.get(placed.framework.partition("-")[0])
