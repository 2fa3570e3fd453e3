"""What a checkpoint needs of the number of processes that go on from it: told by the names of its files.

Most formats are loaded by any number (DCP, Megatron's torch_dist, Orbax, one file of all). Some are loaded by as many ranks as
saved them, and random-number state is a file of each rank nearly everywhere.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

_ZERO: Final = re.compile(r"(?:bf16_|fp16_)?zero_pp_rank_(\d{1,7})_mp_rank_(\d{1,7})_?optim_states\.pt", re.ASCII)
_UNIVERSAL: Final = re.compile(r"(?:.*/)?zero/.+\.pt", re.ASCII | re.DOTALL)
_LEGACY: Final = re.compile(r"mp_rank_(\d{1,7})(?:_(\d{1,7}))?(?:_(\d{1,7}))?/.+\.pt", re.ASCII)
_VERL: Final = re.compile(r"(?:.+_)?world_size_(\d{1,7})_rank_\d{1,7}\.pt", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Set:
    """Files of which each rank has one. needed: whether another number of ranks can't load it at all."""

    name: re.Pattern[str]
    what: str
    frameworks: tuple[str, ...] = ()
    needed: bool = False


_SETS: Final = (
    _Set(re.compile(r"rng_state_(\d{1,7})\.pth|random_states_(\d{1,7})\.pkl", re.ASCII), "rng"),
    _Set(re.compile(r"extra_state_rank_(\d{1,7})\.pt", re.ASCII), "rng and dataloader"),
    _Set(re.compile(r"rank(\d{1,7})\.pt", re.ASCII), "rng and dataloader", ("olmo-core",)),
    _Set(re.compile(r"iter_\d{7}_(\d{1,7})_local\.pt", re.ASCII), "state", ("nvrx",), needed=True),
    _Set(
        re.compile(r"[A-Za-z][\w.-]*_(\d{1,7})\.(?:pt|safetensors)", re.ASCII),
        "state",
        ("torch_checkpointing",),
        needed=True,
    ),
    _Set(re.compile(r".*-rank(\d{1,7})\.pt", re.ASCII), "state", ("composer",), needed=True),
    _Set(
        re.compile(r".*[-_]?rank[-_]?(\d{1,7})\.(?:pt|pth|bin)", re.ASCII), "state", ("generic", "torch"), needed=True
    ),
)
_ALONE: Final = frozenset({"rng_state.pth"})


def of_world(paths: Iterable[str], framework: str, world: int) -> Iterator[str]:
    """What to know of it before `world` processes go on from it, a sentence each; nothing where any number will do."""
    names = list(paths)
    yield from _deepspeed(names, world)
    yield from _megatron(names, framework, world)
    saved = {int(match[1]) for name in names if (match := _VERL.fullmatch(_base(name)))}
    if saved and saved != {world}:
        yield f"saved by {_shown(saved)} ranks: it is loaded by as many only, not by {world}"
        return
    for what, (count, needed) in _by_rank(names, framework).items():
        if needed and count != world:
            yield f"saved by {count} rank{'s' * (count != 1)}: each loads its own file, and there are {world} processes"
        elif not needed and count < world:
            yield f"{what} for {count} of {world}: the others start with one of their own"
        elif not needed and count > world:
            yield f"{what} for {count} ranks: {world} of them are used"


def _by_rank(names: list[str], framework: str) -> Mapping[str, tuple[int, bool]]:
    ranks: dict[str, set[str]] = defaultdict(set)
    needed: dict[str, bool] = {}
    for name in names:
        base = _base(name)
        if base in _ALONE:
            ranks["rng"].add("0")
            needed.setdefault("rng", False)
        for one in _SETS:
            match = one.name.fullmatch(base)
            if match and (not one.frameworks or framework.startswith(one.frameworks)):
                ranks[one.what].add(next(group for group in match.groups() if group is not None))
                needed[one.what] = one.needed
                break
    return {what: (len(seen), needed[what]) for what, seen in ranks.items()}


def _deepspeed(names: list[str], world: int) -> Iterator[str]:
    grid = [match for name in names if (match := _ZERO.fullmatch(_base(name)))]
    data, model = len({match[1] for match in grid}), len({match[2] for match in grid})
    if not grid or data * model == world or any(_UNIVERSAL.fullmatch(name) for name in names):
        return
    by = f"{data} data rank{'s' * (data != 1)}" + (f" of {model} model ranks each" if model > 1 else "")
    yield (
        f"saved by {by}: DeepSpeed loads ZeRO's states with as many only, and there are {world} processes; "
        "ds_to_universal.py makes it fit any number, loaded with load_universal_checkpoint"
    )


def _megatron(names: list[str], framework: str, world: int) -> Iterator[str]:
    if not framework.startswith("megatron-legacy"):
        return
    ranks = {name.partition("/")[0] for name in names if _LEGACY.fullmatch(name)}
    if ranks and world % len(ranks):
        yield f"saved by {len(ranks)} model-parallel ranks: the number of processes is a multiple of that, and {world} is none"


def _base(name: str) -> str:
    return name.rpartition("/")[2]


def _shown(numbers: set[int]) -> str:
    return " or ".join(map(str, sorted(numbers)))
