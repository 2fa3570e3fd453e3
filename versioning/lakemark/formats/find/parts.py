"""What one node can say of its part of a checkpoint, from the names and headers of the files that lie on it."""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from lakemark.formats.readers import dcp_metadata, headers, ocdbt, zarr
from lakemark.formats.readers.folder import Folder, NameKind, Unreadable
from lakemark.formats.readers.pickle_stream import Unfit
from lakemark.formats.readers.torch_numbers import integers
from lakemark.formats.rules import sets
from lakemark.formats.rules.unfinished import unfinished
from lakemark.formats.torch import megatron, sharded
from lakemark.model.checkpoints.parts import Facts, PartFile, Rank

# `.index` belongs to TensorFlow or to others; JSON is read where a framework needs it.
_NOT_READ: Final = (".index", ".json")
_INDEX_BYTES: Final = 1 << 20
_LONGEST_JSON_BYTES: Final = 16 * 2**20
_DEEPSPEED: Final = (
    ("model_states", re.compile(r"(?:zero_pp_rank_(\d{1,7})_)?mp_rank_(\d{1,7})_model_states\.pt", re.ASCII)),
    (
        "optim_states",
        re.compile(r"(?:bf16_|fp16_)?zero_pp_rank_(\d{1,7})_mp_rank_(\d{1,7})_?optim_states\.pt", re.ASCII),
    ),
    ("experts", re.compile(r"(?:layer_(\d{1,7})_)?expert_(\d{1,7})_mp_rank_(\d{1,7})_model_states\.pt", re.ASCII)),
    ("expert optim_states", re.compile(r"expp_rank_(\d{1,7})_mp_rank_(\d{1,7})_optim_states\.pt", re.ASCII)),
    ("layers", re.compile(r"layer_(\d{1,7})(?:-[a-z]+_(\d{1,7}))?(?:-[a-z]+_(\d{1,7}))?-model_states\.pt", re.ASCII)),
)
_OFFLOADED: Final = re.compile(r"offloaded_tensors/rank(\d{1,7})/.+", re.ASCII | re.DOTALL)
_WORLD: Final = ("dp_world_size", "mp_world_size", "zero_optimization.stage", "zero_optimization.mics_shard_size")
_LEGACY: Final = re.compile(r"mp_rank_(\d{1,7})(?:_(\d{1,7}))?(?:_(\d{1,7}))?/(.+)\.pt", re.ASCII | re.DOTALL)
_MODEL: Final = "model_optim_rng"
# Where one rank has it, each that has a model has it.
_OF_EACH_RANK: Final = frozenset({"distrib_optim"})
_SPLIT: Final = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "expert_model_parallel_size")
_PROCESS: Final = re.compile(r"(.*?)(ocdbt\.process_|array_metadatas/process_)(\d{1,7})(/.*)?", re.ASCII | re.DOTALL)
_JSON_OF: Final = re.compile(r"(.*/)?process_(\d{1,7})-of-(\d{1,7})\.json", re.ASCII | re.DOTALL)


@dataclass(slots=True)
class _Part:
    """What is collected. The names are those of `model.parts.Facts`."""

    folder: Folder
    names: list[str]
    needed: dict[str, int] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    wanted: dict[tuple[str, ...], None] = field(default_factory=dict)
    members: dict[str, set[Rank]] = field(default_factory=lambda: defaultdict(set))
    counts: dict[str, int] = field(default_factory=dict)
    together: dict[tuple[str, str], None] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def want(self, *paths: str) -> None:
        self.wanted[paths] = None


def facts(
    path: Path,
    *,
    framework: str,
    attempt: str,
    step: int | None,
    node: str,
    digests: Mapping[str, str] | None = None,
) -> Facts:
    """Of the files at and below `path`, as a checkpoint of `framework` (a name that a recogniser gave). Reads headers only.

    digests: path -> digest, where they are known; then a path on two nodes is compared by content.
    """
    folder = Folder.of(path)
    part = _Part(folder, sorted(name for name, kind in folder.walk() if kind is NameKind.FILE))
    files = _files(part, digests or {})
    left = unfinished(part.names)
    # On this node. What another node's part has left, that one says itself.
    part.problems.extend(f"temporary file {name} left" for name in left)
    part.problems.extend(
        headers.problems(folder, [name for name in part.names if name not in left and not name.endswith(_NOT_READ)])
    )
    for name, ranks in sets.per_rank(part.names).items():
        part.members[name].update((rank,) for rank in ranks)
    # By the beginning: `composer-fsdp`, `megatron-dist` and such share rules, and a collector takes only what it finds.
    for prefix, collect in _COLLECTORS:
        if framework.startswith(prefix):
            collect(part)
    _sharded(part)
    if folder.problem:
        part.problems.append(f"it can't be read: {folder.problem}")
    return Facts(
        framework=framework,
        attempt=attempt,
        step=step,
        node=node,
        files=files,
        needed=part.needed,
        metadata=part.metadata,
        wanted=tuple(part.wanted),
        members={name: tuple(sorted(ranks)) for name, ranks in sorted(part.members.items())},
        counts=part.counts,
        together=tuple(part.together),
        problems=tuple(dict.fromkeys(part.problems)),
    )


def _files(part: _Part, digests: Mapping[str, str]) -> dict[str, PartFile]:
    files = {}
    for name in part.names:
        try:
            files[name] = PartFile(size_bytes=part.folder.size_bytes(name), digest=digests.get(name))
        except Unreadable as error:
            part.problems.append(f"{name}: {error}")
    return files


def _sharded(part: _Part) -> None:
    """DCP's files, wherever they lie: `.metadata` says which bytes there must be; without collectives each rank says it."""
    for name in part.names:
        at, slash, last = name.rpartition("/")
        data = sharded.DATA.fullmatch(last)
        own = sharded.RANKS_METADATA.fullmatch(last)
        if data:
            # Either will do, on any node: the first rank's `.metadata`, or this rank's own.
            part.want(f"{at}{slash}.metadata", f"{at}{slash}__{int(data[1])}.metadata")
        if own:
            part.members[f"{at}{slash}__<rank>.metadata"].add((int(own[1]),))
        if last == dcp_metadata.NAME or own:
            _index(part, name, f"{at}{slash}")


def _index(part: _Part, name: str, prefix: str) -> None:
    try:
        metadata = dcp_metadata.read(part.folder, name)
        # Nodes that hold a copy each must hold the same one: other bytes are of another save.
        part.metadata[name] = _digest(part.folder, name)
    except dcp_metadata.TooLarge:
        return  # then only the ranks' names are known
    except (Unreadable, Unfit, OSError) as error:
        part.problems.append(f"{name}: {error}")
        return
    for path, least in metadata.needed_bytes.items():
        if path.startswith("/") or ".." in path.split("/"):
            part.problems.append(f"{name} names {path[:200]!r}, which lies outside of it")
        else:
            # Ranks' own metadata may name the same file: it must be as long as the longest of them says.
            part.needed[f"{prefix}{path}"] = max(least, part.needed.get(f"{prefix}{path}", 0))


def _digest(folder: Folder, name: str) -> str:
    found = hashlib.sha256()
    with folder.open(name) as stream:
        while block := stream.read(_INDEX_BYTES):
            found.update(block)
    return found.hexdigest()


def _dcp(part: _Part) -> None:
    part.want(".metadata", "__0.metadata")


def _olmo(part: _Part) -> None:
    part.want("model_and_optim/.metadata", "model_and_optim/__0.metadata")
    # Rank 0 writes these, and each of them is needed by `dir_is_checkpoint`.
    part.want(".metadata.json")
    part.want("train/rank0.pt")
    first = next((name for name in part.names if name.startswith("train/rank")), None)
    if first is not None:
        said = integers(part.folder, first, ("world_size",))
        if said.get("world_size", 0) > 0:
            part.counts["rank"] = said["world_size"]


def _megatron(part: _Part) -> None:
    """torch_dist: `common.pt` up to core 0.16, later its content lies in the data files; `metadata.json` with either."""
    for name in (megatron.COMMON, megatron.CONFIG):
        # Of rank 0: no other part can have it with other contents.
        if name in part.names:
            part.members[name].add((0,))
    said = _json(part, megatron.CONFIG) if megatron.CONFIG in part.names else None
    if isinstance(said, dict) and said.get("sharded_backend") == "torch_dist":
        part.want(".metadata", "__0.metadata")
    # `metadata.json` follows `common.pt` wherever there is one.
    part.together[megatron.COMMON, megatron.CONFIG] = None
    if dcp_metadata.NAME in part.names and (listed := _names(part.folder)):
        # The layout since 2026: no `common.pt`, and `metadata.json` all the same.
        if any(name.startswith("common_state") for name in listed):
            part.want(megatron.CONFIG)
        else:
            part.together[megatron.CONFIG, megatron.COMMON] = None


def _names(folder: Folder) -> list[str]:
    try:
        return dcp_metadata.read(folder).names
    except (Unreadable, Unfit, OSError):
        return []


def _deepspeed(part: _Part) -> None:
    for name in part.names:
        for kind, pattern in _DEEPSPEED:
            match = pattern.fullmatch(name)
            if match:
                part.members[kind].add(tuple(int(one) for one in match.groups() if one is not None))
        match = _OFFLOADED.fullmatch(name)
        if match:
            part.members["offloaded_tensors"].add((int(match[1]),))
    models = [name for name in part.names if _DEEPSPEED[0][1].fullmatch(name)]
    # A node may hold optimizer states alone; then another must have the first rank's model.
    if not part.members.get("model_states"):
        part.want("mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_model_states.pt")
    # Each says the same of the whole world.
    for name in models[:1]:
        said = integers(part.folder, name, _WORLD)
        _world(part, said, partitioned=name.startswith("zero_pp_rank_"))


def _world(part: _Part, said: Mapping[str, int], *, partitioned: bool) -> None:
    """How many files of each kind there must be. Not with MiCS, whose shards repeat; nor model ranks of a pipeline."""
    dp, mp = said.get("dp_world_size", 0), max(said.get("mp_world_size", 1), 1)
    # Nothing is claimed of numbers that can't be right.
    if dp < 1 or said.get("zero_optimization.mics_shard_size", 0) > 0:
        return
    # Each stage of a pipeline counts as a model rank, and the file does not say how many there are.
    if not part.members.get("layers"):
        part.counts["model_states"] = dp * mp if partitioned else mp
    if said.get("zero_optimization.stage", 0) > 0 or part.members.get("optim_states"):
        part.counts["optim_states"] = dp * mp


def _legacy(part: _Part) -> None:
    """Each model rank has a folder with its model, and the same further files as the others."""
    kinds: set[str] = set()
    for name in part.names:
        match = _LEGACY.fullmatch(name)
        if match:
            # Names of two and three numbers are other ranks than those of one: tuples of different length never meet.
            rank = tuple(int(one) for one in match.groups()[:3] if one is not None)
            part.members[match[4]].add(rank)
            kinds.add(match[4])
    for kind in sorted(kinds & _OF_EACH_RANK):
        part.together[kind, _MODEL] = None
        part.together[_MODEL, kind] = None
    models = [name for name in part.names if name.endswith(f"/{_MODEL}.pt")]
    if not models:
        part.want(
            "mp_rank_00/model_optim_rng.pt",
            "mp_rank_00_000/model_optim_rng.pt",
            "mp_rank_00_000_000/model_optim_rng.pt",
        )
    for name in models[:1]:
        said = integers(part.folder, name, _SPLIT)
        if _SPLIT[0] in said:
            count = 1
            for size in _SPLIT:
                count *= max(said.get(size, 1), 1)
            part.counts[_MODEL] = count


def _orbax(part: _Part) -> None:
    """By item: its tree, its merged store, and what each process wrote; where arrays are folders, each array."""
    # A step of items has it; an item that is a step by itself need not.
    if any(name.startswith("_CHECKPOINT_METADATA") or "/" in name for name in part.names):
        part.want("_CHECKPOINT_METADATA")
    for name in part.names:
        at, slash, last = name.rpartition("/")
        match = _PROCESS.fullmatch(name)
        if match:
            item = match[1]
            part.members[f"{item}{match[2]}*"].add((int(match[3]),))
            part.want(f"{item}_METADATA")
            # The merged manifest is the first process's work, and may lie on its node alone.
            if match[2].startswith("ocdbt"):
                part.want(f"{item}{match[2]}{match[3]}/{ocdbt.MANIFEST}")
                part.want(f"{item}{ocdbt.MANIFEST}")
                part.together[f"{item}array_metadatas/process_*", f"{item}ocdbt.process_*"] = None
            else:
                part.together[f"{item}ocdbt.process_*", f"{item}array_metadatas/process_*"] = None
        elif last == "_METADATA":
            _tree(part, f"{at}{slash}", name)
        elif last in zarr.METADATA:
            above = f"{at.rpartition('/')[0]}/".lstrip("/")
            part.want(f"{above}_METADATA", f"{above}checkpoint")
            part.problems.extend(zarr.problems(part.folder, name))
        numbered = _JSON_OF.fullmatch(name)
        if numbered:
            part.members[f"{numbered[1] or ''}process_*-of-{numbered[3]}.json"].add((int(numbered[2]),))
            part.counts[f"{numbered[1] or ''}process_*-of-{numbered[3]}.json"] = int(numbered[3])


def _tree(part: _Part, prefix: str, name: str) -> None:
    """What an item's `_METADATA` says that it holds."""
    value = _json(part, name)
    if not isinstance(value, dict):
        return
    # Without the key a store is looked for; `checkpoint` is what older ones have instead.
    if value.get("use_ocdbt", True):
        part.want(f"{prefix}{ocdbt.MANIFEST}", f"{prefix}checkpoint")
        return
    leaves = value.get("tree_metadata")
    for leaf in leaves.values() if isinstance(leaves, dict) else ():
        try:
            stored = leaf["value_metadata"].get("value_type") in ("jax.Array", "np.ndarray", "scalar")
            array = prefix + ".".join(str(key["key"]) for key in leaf["key_metadata"])
        except (LookupError, TypeError, AttributeError):
            part.problems.append(f"{name}: JSON empty, cut or damaged")
            return
        if stored and not leaf["value_metadata"].get("skip_deserialize"):
            # Zarr 2 or 3; a small array of old lies in `checkpoint` itself.
            part.want(*(f"{array}/{meta}" for meta in zarr.METADATA), f"{prefix}checkpoint")


def _json(part: _Part, name: str) -> Any:  # noqa: ANN401 - JSON
    try:
        return json.loads(part.folder.text(name, longest_bytes=_LONGEST_JSON_BYTES))
    except Unreadable as error:
        part.problems.append(f"{name}: {error}")
    except (ValueError, RecursionError):
        part.problems.append(f"{name}: JSON empty or cut")
    return None


_COLLECTORS: Final[Iterable[tuple[str, Callable[[_Part], None]]]] = (
    ("dcp", _dcp),
    ("composer-fsdp", _dcp),
    ("olmo-core", _olmo),
    ("megatron-dist", _megatron),
    ("megatron-legacy", _legacy),
    ("deepspeed", _deepspeed),
    ("orbax", _orbax),
)
"""By the beginning of the framework's name. DCP's files are looked for in any other as well."""
