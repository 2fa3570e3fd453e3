"""DeepSpeed: one folder per tag with a file per rank, and the file `latest` beside it that names a tag."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from lakemark.formats.readers.folder import Folder, Unreadable
from lakemark.formats.readers.torch_file import told
from lakemark.formats.readers.torch_numbers import integers
from lakemark.formats.rules import numbered, sets
from lakemark.formats.rules.contents import Contents
from lakemark.formats.rules.family import Loose, pointer
from lakemark.formats.rules.unfinished import left_over
from lakemark.model.checkpoints.manifest import Role
from lakemark.ports import Found

FRAMEWORK: Final = "deepspeed"
POINTERS: Final = ("latest", "latest_universal")
_STATES: Final = ("_model_states.pt", "optim_states.pt", "-model_states.pt")
_TAG: Final = re.compile(r"global_step(\d{1,15})(?P<universal>_universal)?", re.ASCII)
_MODEL: Final = re.compile(r"(?:zero_pp_rank_(?P<dp>\d+)_)?mp_rank_(?P<mp>\d+)_model_states\.pt", re.ASCII)
_OPTIMIZER: Final = re.compile(
    r"(?:bf16_|fp16_)?zero_pp_rank_(?P<dp>\d+)_mp_rank_(?P<mp>\d+)_?optim_states\.pt", re.ASCII
)
_EXPERT: Final = re.compile(
    r"(?:layer_(?P<layer>\d+)_)?expert_(?P<expert>\d+)_mp_rank_(?P<mp>\d+)_model_states\.pt", re.ASCII
)
_EXPERT_OPTIMIZER: Final = re.compile(r"expp_rank_(?P<dp>\d+)_mp_rank_(?P<mp>\d+)_optim_states\.pt", re.ASCII)
_LAYER: Final = re.compile(r"layer_(?P<layer>\d+)(?P<rank>(?:-[a-z]+_\d+)*)-model_states\.pt", re.ASCII)
_OFFLOADED: Final = re.compile(r"offloaded_tensors/rank(?P<rank>\d+)/.+", re.ASCII)
_UNIVERSAL: Final = re.compile(
    r"zero/(?:(?P<parameter>.+)/)?(?P<state>fp32|exp_avg|exp_avg_sq|step|optimizer_state)(?:\.\d+)?\.pt", re.ASCII
)
_CONVERTED: Final = frozenset({"zero", "tmp"})
# Numbers in the first rank's file; the last two stand in the configuration that it keeps.
_TOLD: Final = ("dp_world_size", "mp_world_size", "zero_optimization.stage", "zero_optimization.mics_shard_size")
_IN_FIRST: Final = frozenset({Role.WEIGHTS, Role.OPTIMIZER, Role.SCHEDULER, Role.RNG, Role.DATALOADER})
_LONGEST_POINTER_BYTES: Final = 4096
_SHOWN: Final = 5


class DeepSpeed:
    """`runtime/engine.py` and `runtime/pipe/module.py` of DeepSpeed 0.6 to 0.19.

    `mp_rank_00_model_states.pt` (stages 0-2) or `zero_pp_rank_<d>_mp_rank_<t>_model_states.pt` (3), the same with
    `optim_states` where a ZeRO stage is on, `layer_*` files of experts and of pipelines, `offloaded_tensors/rank*` with NVMe,
    `zero/<parameter>/*.pt` of universal checkpoints. Nothing marks the end: `R/latest` is written last, not atomically.
    """

    def claims(self, folder: Folder) -> bool:
        if holds_states(folder):
            return not left_over(folder.name)
        # The folder is made before any file of a rank. Others use the name, too: theirs have the files that are excluded here.
        tag = _TAG.fullmatch(folder.name)
        if tag is None or any(
            name.endswith((".distcp", ".safetensors")) or name == ".metadata" for name in folder.files
        ):
            return False
        # `zero/` and `tmp/` are what `ds_to_universal.py` makes in its output folder.
        return not folder.folders or (tag["universal"] is not None and _CONVERTED.issuperset(folder.folders))

    def step(self, folder: Folder) -> int | None:
        match = _TAG.fullmatch(folder.name)
        return int(match[1]) if match else numbered.of_tag(folder.name.removesuffix("_universal"))

    def judge(self, folder: Folder) -> Found:
        contents = Contents(folder)
        add(contents)
        contents.check()
        contents.notes.extend(_pointed(folder))
        return contents.found(FRAMEWORK, self.step(folder))

    def loose(self, folder: Folder) -> Iterator[Loose]:
        there = [name for name in POINTERS if folder.has_file(name)]
        if there and (
            folder.has_file("zero_to_fp32.py") or any(holds_states(folder.sub(name)) for name in folder.folders)
        ):
            for name in there:
                yield Loose(path=folder.path / name, names=(name,), judge=partial(_pointer, folder, name))


def holds_states(folder: Folder) -> bool:
    """Whether a folder has files of DeepSpeed's ranks."""
    return "pt" in folder.suffixes and any(name.endswith(_STATES) for name in folder.files)


def add(contents: Contents, inside: str = "") -> None:
    """Judges the files of a tag: the folder itself, or the folder `inside` of another framework's checkpoint."""
    prefix = f"{inside}/" if inside else ""
    names = [name.removeprefix(prefix) for name in contents.files if name.startswith(prefix)]
    for name in names:
        role = _role(name)
        if role is not None:
            contents.roles[f"{prefix}{name}"] = role
    problems = _model(names) + _experts(names)
    optimizer = [name for name in names if _OPTIMIZER.fullmatch(name) or _EXPERT_OPTIMIZER.fullmatch(name)]
    problems += _grid("optim_states", _OPTIMIZER, names) + _grid("expp_rank optim_states", _EXPERT_OPTIMIZER, names)
    problems += _offloaded(names) + _universal(names)
    problems += _told(contents, prefix, names)
    contents.problems.extend(f"{prefix}{problem}" if prefix else problem for problem in problems)
    # Every rank's file has the same keys: one is opened.
    first = next((f"{prefix}{name}" for name in names if _MODEL.fullmatch(name)), None)
    if first is not None:
        contents.present.update(told(contents.folder, [first]).present.intersection(_IN_FIRST))
    # Without ZeRO the optimizer's state lies in the model's file.
    if not optimizer:
        contents.possible.add(Role.OPTIMIZER)
    contents.possible.update((Role.SCHEDULER, Role.RNG, Role.DATALOADER))
    dp = {int(match["dp"]) for name in names if (match := _OPTIMIZER.fullmatch(name))}
    if dp:
        contents.ranks["zero_pp_rank"] = len(dp)


def add_tag(contents: Contents, inside: str) -> None:
    """The same for a tag in another framework's checkpoint, where `latest` beside it belongs to the checkpoint."""
    add(contents, inside)
    name = POINTERS[0]
    target = _text(contents.folder, name)
    if target is None:
        contents.problems.append(f"no {name} beside {inside}")
        return
    contents.roles[name] = Role.TRAINER
    if target != inside:
        contents.problems.append(f"{name} says {target[:200]!r}, not {inside}" if target else f"{name} is empty")


def _role(name: str) -> Role | None:
    if _OPTIMIZER.fullmatch(name) or _EXPERT_OPTIMIZER.fullmatch(name) or _OFFLOADED.fullmatch(name):
        return Role.OPTIMIZER
    universal = _UNIVERSAL.fullmatch(name)
    if universal:
        return Role.WEIGHTS if universal["state"] == "fp32" else Role.OPTIMIZER
    return Role.WEIGHTS if name.endswith(_STATES) else None


def _model(names: Sequence[str]) -> list[str]:
    models = [match for name in names if (match := _MODEL.fullmatch(name))]
    if not models:
        return ["no model_states"]
    problems = _grid("model_states", _MODEL, names)
    layers = [match for name in names if (match := _LAYER.fullmatch(name))]
    seen: dict[str, set[int]] = defaultdict(set)
    for match in layers:
        seen[match["rank"]].add(int(match["layer"]))
    if len({frozenset(one) for one in seen.values()}) > 1:
        problems.append("layer files: not the same layers for each model rank")
    mp = sets.holes("layer model ranks", {int(rank) for one in seen if (rank := one.removeprefix("-model_")).isdigit()})
    return problems + ([mp] if mp else [])


def _grid(what: str, pattern: re.Pattern[str], names: Sequence[str]) -> list[str]:
    """Holes in data-parallel × model-parallel ranks."""
    seen: dict[int | None, set[int]] = defaultdict(set)
    for name in names:
        match = pattern.fullmatch(name)
        if match:
            seen[None if match["dp"] is None else int(match["dp"])].add(int(match["mp"]))
    if not seen:
        return []
    mp = max(max(one) for one in seen.values()) + 1
    dp = max((rank for rank in seen if rank is not None), default=0) + 1
    # One row more than there are has the first hole; a rank of many digits in a name must not make a million rows.
    rows = (
        [seen.get(None, set())] if None in seen else [seen.get(rank, set()) for rank in range(min(dp, len(seen) + 1))]
    )
    wanted = mp if None in seen else dp * mp
    # Files without a data rank are stages 0 to 2: one of each model rank, whatever else is there.
    count = wanted - sum(map(len, rows if None in seen else seen.values()))
    if not count:
        return []
    data, have = next((rank, row) for rank, row in enumerate(rows) if len(row) < mp)
    first = next(rank for rank in range(mp) if rank not in have)
    where = f"mp {first}" if None in seen else f"dp {data}, mp {first}"
    return [f"{what}: {count} of {wanted} ranks missing ({where})"]


def _experts(names: Sequence[str]) -> list[str]:
    seen: dict[tuple[int, int], set[int]] = defaultdict(set)
    for name in names:
        match = _EXPERT.fullmatch(name)
        if match:
            # Without a layer: as DeepSpeed wrote experts at first.
            seen[int(match["layer"] or 0), int(match["mp"])].add(int(match["expert"]))
    problems = [sets.holes(f"layer {layer} experts", experts) for (layer, _), experts in sorted(seen.items())]
    problems.append(sets.holes("expert layers", {layer for layer, _ in seen}))
    return [problem for problem in problems if problem]


def _offloaded(names: Sequence[str]) -> list[str]:
    ranks = {int(match["rank"]) for name in names if (match := _OFFLOADED.fullmatch(name))}
    if not ranks:
        return []
    hole = sets.holes("offloaded_tensors", ranks)
    # Each rank that offloads has an optimizer's file, too; the last rank's folder shows only so.
    world = sum(1 for name in names if _OPTIMIZER.fullmatch(name))
    if hole is None and world > len(ranks):
        hole = f"offloaded_tensors for {len(ranks)} of {world} ranks"
    return [hole] if hole else []


def _universal(names: Sequence[str]) -> list[str]:
    """`checkpoint/ds_to_universal.py`: per parameter its weights and the same states of the optimizer as any other has.

    A parameter that had no gradient has its weights alone. What the optimizer has in common follows, then the model's files.
    """
    seen: dict[str, set[str]] = defaultdict(set)
    common = False
    for name in names:
        match = _UNIVERSAL.fullmatch(name)
        if match and match["parameter"]:
            seen[match["parameter"]].add(match["state"])
        common = common or (match is not None and match["state"] == "optimizer_state")
    if not seen:
        return []
    # What states an optimizer keeps, nothing says but the parameters beside each other.
    whole = set().union(*seen.values())
    lacking = [
        f"zero/{parameter}: no {state}"
        for parameter, states in seen.items()
        # Weights alone: the parameter was frozen.
        for state in sorted((whole if states != {"fp32"} else {"fp32"}) - states)
    ]
    return [*lacking[:_SHOWN], *([] if common else ["no zero/optimizer_state.pt"])]


def _told(contents: Contents, prefix: str, names: Sequence[str]) -> list[str]:
    """What the first rank's file says of how many ranks there are, and whether their optimizer states lie in files."""
    models = [match for name in sorted(names) if (match := _MODEL.fullmatch(name))]
    if not models:
        return []
    said = integers(contents.folder, f"{prefix}{models[0][0]}", _TOLD)
    # MiCS repeats its shards over groups of ranks: how many files there are follows from nothing that is known here.
    if said.get("zero_optimization.mics_shard_size", 0) > 0:
        return []
    optimizer = {(int(m["dp"]), int(m["mp"])) for name in names if (m := _OPTIMIZER.fullmatch(name))}
    parts = {int(match["dp"]) for match in models if match["dp"]}
    # A lost file of the optimizer would else pass for a save without one.
    stage = said.get("zero_optimization.stage", 0)
    elsewhere = any(_EXPERT_OPTIMIZER.fullmatch(name) or _UNIVERSAL.fullmatch(name) for name in names)
    if not optimizer and stage > 0 and not elsewhere:
        return [f"no optim_states, and its ZeRO stage is {stage}"]
    have, dp = {rank for rank, _ in optimizer}, said.get("dp_world_size", 0)
    unlike = _unlike(parts, have, dp=dp, elsewhere=elsewhere)
    of_model, of_optimizer = {int(match["mp"]) for match in models}, {rank for _, rank in optimizer}
    if unlike is None and of_optimizer - of_model:
        unlike = f"no model_states of model rank {min(of_optimizer - of_model)}, and it has optim_states"
    if unlike is None and of_optimizer and not elsewhere and of_model - of_optimizer:
        unlike = f"no optim_states of model rank {min(of_model - of_optimizer)}, and it has model_states"
    if unlike is not None:
        return [unlike]
    if any(_LAYER.fullmatch(name) for name in names):
        return []  # each stage of a pipeline counts as a model rank, and nothing says how many there are
    mp = len({match["mp"] for match in models})
    # Then another number of ranks than in the step before is right, and not a hole.
    contents.ranks_told = dp == len(have or parts or {0}) and said.get("mp_world_size") == mp
    return _short_of_model_ranks(mp, said.get("mp_world_size", 0))


def _unlike(parts: set[int], optimizer: set[int], *, dp: int, elsewhere: bool) -> str | None:
    """parts, optimizer: data ranks that have a part of the weights, and optimizer states; no parts below stage 3."""
    if parts and not optimizer and not elsewhere:
        return "no optim_states, and its weights are in parts"
    most = max(dp, len(parts), len(optimizer))
    if optimizer and most > len(optimizer):
        return f"optim_states for {len(optimizer)} of {most} data ranks"
    return f"model_states for {len(parts)} of {most} data ranks" if parts and most > len(parts) else None


def _short_of_model_ranks(count: int, told_count: int) -> list[str]:
    return [f"model_states for {count} of {told_count} model ranks"] if told_count > count else []


def _pointed(folder: Folder) -> Iterator[str]:
    target = _text(folder.parent, POINTERS[0])
    if target is not None and target != folder.name:
        yield f"{POINTERS[0]} says {target[:200]!r}"


def _pointer(folder: Folder, name: str) -> Found:
    target = _text(folder, name)
    if target is None:
        return pointer(folder.path / name, "", why="it can't be read")
    # A tag that names nothing here says no step, whatever its digits are.
    step = numbered.of_tag(target) if folder.has_folder(target) else None
    return pointer(folder.path / name, target, step=step)


def _text(folder: Folder, name: str) -> str | None:
    try:
        return folder.text(name, longest_bytes=_LONGEST_POINTER_BYTES).strip()
    except (Unreadable, OSError):
        return None
