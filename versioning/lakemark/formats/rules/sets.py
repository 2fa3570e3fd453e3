"""Files that come one per rank, or numbered `i of n`: are they all there?"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

from lakemark.formats.roles import BESIDE_WEIGHTS, of_file
from lakemark.model.checkpoints.manifest import Role

_PER_RANK: Final = re.compile(
    # rng_state: HF Trainer; random_states: Accelerate; extra_state_rank: ByteCheckpoint; train/rank: OLMo-core.
    r"(?:.*/)?(?P<set>rng_state_|random_states_|extra_state_rank_|train/rank|rank|[a-z_]+_(?=\d+\.pt\b))"
    r"(?P<rank>\d{1,7})\.(?:pth|pt|pkl)",
    re.ASCII,
)
_PER_PROCESS: Final = re.compile(
    r"(?:.*/)?(?P<set>array_metadatas/process_|ocdbt\.process_)(?P<rank>\d{1,7})", re.ASCII
)
"""Orbax. Not what lies inside such a folder."""
_INDEXED: Final = re.compile(
    r"(?P<set>model|pytorch_model|optimizer|scheduler|sampler|dl_state_dict|custom_checkpoint)(?:_(?P<index>\d{1,4}))?"
    r"\.(?:safetensors|bin|pkl)",
    re.ASCII,
)
_OF_MODEL: Final = (
    # DeepSpeed
    ("optim_states", re.compile(r"(?:.*/)?(?:bf16_|fp16_)?zero_pp_rank_\d+_mp_rank_\d+_?optim_states\.pt", re.ASCII)),
    ("expert optim_states", re.compile(r"(?:.*/)?expp_rank_\d+_mp_rank_\d+_optim_states\.pt", re.ASCII)),
    ("model_states", re.compile(r"(?:.*/)?(?:zero_pp_rank_\d+_)?mp_rank_\d+_model_states\.pt", re.ASCII)),
    ("layers", re.compile(r"(?:.*/)?layer_(?P<of>\d+)(?:-[a-z]+_\d+)*-model_states\.pt", re.ASCII)),
    ("experts", re.compile(r"(?:.*/)?(?P<of>(?:layer_\d+_)?expert_\d+)_mp_rank_\d+_model_states\.pt", re.ASCII)),
    ("parameters", re.compile(r"(?:.*/)?zero/(?P<of>.+)/fp32\.pt", re.ASCII)),
    # Megatron-LM, legacy
    ("mp_rank", re.compile(r"mp_rank_[\d_]+/(?:model_optim_rng|model_rng)\.pt", re.ASCII)),
    # ByteCheckpoint
    ("optimizer's part", re.compile(r"optimizer/\.metadata", re.ASCII)),
    # DCP's HuggingFaceStorageWriter, by rank
    ("shards", re.compile(r"(?:.*/)?shard-(?P<of>\d{5,7})-model-\d{5,7}-of-\d{5,7}\.safetensors", re.ASCII)),
    ("__<rank>.metadata", re.compile(r"(?:.*/)?__(?P<of>\d{1,7})\.metadata", re.ASCII)),
    ("parts", re.compile(r".+/\.metadata", re.ASCII)),
)
"""DeepSpeed, Megatron-LM, ByteCheckpoint: how many there are only the step before tells. of: what they are counted by."""
_LIKELY: Final = ("_states.pt", "_rng.pt", ".metadata", "/fp32.pt")
SPLIT: Final = frozenset({"optim_states", "model_states", "mp_rank", "rng_state"})
"""Those that are one per rank: where the checkpoint itself says how many, another number than before is right."""
_STAY: Final = (
    "extra_state_rank",
    "random_states",
    "custom_checkpoint",
    "experts",
    "layers",
    "parameters",
    "optimizer's part",
)
"""Written last, or for as long as the model is the same: a step that has none after one that had some is not whole."""
_OF_THE_MODEL: Final = ("experts", "layers", "parameters", "parts")
_NUMBER: Final = re.compile(r"\d+", re.ASCII)
# Steps on either side that a save is compared with: a run may change what it saves, and then goes on so.
_NEAR: Final = 2
_OF: Final = re.compile(
    r"(?P<stem>.*?)(?P<number>\d{1,9})-of-(?P<count>\d{1,9})(?P<rest>.*)"
    r"|(?P<what>.+)_world_size_(?P<world>\d{1,7})_rank_(?P<rank>\d{1,7})\.pt",  # verl
    re.ASCII,
)


def per_rank(names: Iterable[str]) -> dict[str, set[int]]:
    """Set name -> ranks, of the names (with `/`) that come one per rank, or one per model, optimizer and so on."""
    found: dict[str, set[int]] = defaultdict(set)
    for name in names:
        match = _PER_RANK.fullmatch(name) or ("process_" in name and _PER_PROCESS.fullmatch(name))
        indexed = None if match else _INDEXED.fullmatch(name)
        if match:
            found[match["set"].rstrip("_").removeprefix("train/")].add(int(match["rank"]))
        elif indexed:
            found[indexed["set"]].add(int(indexed["index"] or 0))
    return dict(found)


def counts(names: Iterable[str]) -> dict[str, int]:
    """Set name -> how many, of all sets whose end only the step before tells."""
    listed = list(names)
    found = {name: len(ranks) for name, ranks in per_rank(listed).items()}
    # The patterns are tried on few names: an Orbax step has thousands.
    likely = [name for name in listed if name.endswith(_LIKELY) or "shard-" in name]
    for kind, pattern in _OF_MODEL if likely else ():
        matches = [match for name in likely if (match := pattern.fullmatch(name))]
        if matches:
            found[kind] = len({match["of"] if "of" in pattern.groupindex else match[0] for match in matches})
    return found


def holes(name: str, numbers: Iterable[int], *, first: int = 0) -> str | None:
    """What is missing between `first` and the largest of the numbers; None where nothing is."""
    # Counted by the set's size and not by walking to the largest: a name may have fifteen digits.
    have = {number for number in numbers if number >= first}
    last = max(have, default=first - 1)
    missing = last + 1 - first - len(have)
    if not missing:
        return None
    # For the same reason only the first few are looked for.
    some = list(islice((number for number in range(first, last + 1) if number not in have), 5))
    shown = ", ".join(map(str, some)) + (", …" if missing > len(some) else "")
    return f"{name}: {shown} missing of {last + 1 - first}"


def short_of(names: Iterable[str]) -> list[str]:
    """Which of the sets `…-00001-of-00004…` or `…data-00000-of-00002` are not full, and what they lack."""
    seen: dict[tuple[str, str, int], set[int]] = defaultdict(set)
    for name in names:
        match = _OF.fullmatch(name)
        if match and match["world"]:
            seen[f"{match['what']}_rank_", ".pt", int(match["world"])].add(int(match["rank"]))
        elif match:
            seen[match["stem"], match["rest"], int(match["count"])].add(int(match["number"]))
    problems = []
    for (stem, rest, count), numbers in sorted(seen.items()):
        lacking = count - len(numbers)
        if lacking > 0:
            problems.append(f"{stem}*-of-{count}{rest}: {lacking} of {count} missing")
    return problems


def short_of_model(now: Mapping[str, int], after: Mapping[str, int]) -> str | None:
    """Why a model's own parts, which are the same at each step, are short against the step after; None where not."""
    less = next((name for name in _OF_THE_MODEL if name in now and now[name] < after.get(name, 0)), None)
    return None if less is None else f"{less}: {now[less]} of {after[less]}, as the step after has"


def short(now: Mapping[str, int], before: Mapping[str, int]) -> str | None:
    """Why sets of ranks are short against the step before; None where they are not, or where all shrank alike.

    A hole at the end shows in no other way. Where there are several sets and each has the same new number, the run goes on
    with fewer ranks; a single set that shrank can't be told from one that is still being written.
    """
    lacks = gone(now, before)
    if lacks is not None:
        return f"no {lacks}, which the step before has"
    shared = [name for name in now if name in before]
    less = [name for name in shared if now[name] < before[name]]
    # One set of two that shrank is the one still being written.
    if not less or (len(shared) > 1 and len(less) == len(shared) and len({now[name] for name in shared}) == 1):
        return None
    worst = less[0]
    return f"{worst} for {now[worst]} of {before[worst]} ranks, as the step before has"


def gone(now: Mapping[str, int], before: Mapping[str, int]) -> str | None:
    """A set that the step before has, that no trainer stops to write, and of which there is nothing."""
    return next((name for name in _STAY if name in before and name not in now), None)


def fewer(what: str, counts: Sequence[int], at: int) -> str | None:
    """Why the step at `at` is short of files against the one before; None where it is not, or the one after has as few.

    counts: how many files each step has, in order of steps.
    """
    count, before = counts[at], counts[at - 1] if at else 0
    # The step after has as few: the run goes on with fewer ranks. Of the last step nothing tells that: it may be in the making.
    if count >= before or (at + 1 < len(counts) and counts[at + 1] == count):
        return None
    return f"{count} of {before} {what}, as the step before has"


def alike(one: str, other: str) -> bool:
    """Whether two names differ in their numbers alone."""
    return _NUMBER.sub("#", one) == _NUMBER.sub("#", other)


def kinds(names: Iterable[str]) -> frozenset[str]:
    """The names that say that they are a part of the state beside weights, without what their numbers say."""
    told = ((name, of_file(name)) for name in names)
    return frozenset(
        _NUMBER.sub("#", name)
        for name, role in told
        if role in BESIDE_WEIGHTS or (role is Role.TRAINER and "state" in name.lower())
    )


def lacking(steps: Sequence[frozenset[str]], at: int, *, removed: bool = False) -> str | None:
    """Which kind the step at `at` lacks of those the step before has; None where one near it on either side is alike.

    Of a layout without a mark nothing else says that a file is still to come. The last of all may be in the making.
    removed: the first is compared with the one after it; it may be half removed.
    """
    other = at - 1 if at else 1
    # A proper subset: kinds that changed altogether are another layout, no lack.
    if (not at and not removed) or other >= len(steps) or not steps[at] < steps[other]:
        return None
    if steps[at] in (*steps[max(at - _NEAR, 0) : at], *steps[at + 1 : at + 1 + _NEAR][: len(steps) - at - 2]):
        return None
    return f"no {min(steps[other] - steps[at])}, which the step {'before' if at else 'after'} has"
