"""What the items of an Orbax step hold, and whether each is whole: from `_METADATA`, names and lengths."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from lakemark.formats import ocdbt, zarr
from lakemark.formats.folder import Folder, Unreadable
from lakemark.formats.trees import Told, role_of, told
from lakemark.model.checkpoint import Role

_TREE: Final = "_METADATA"
_AGGREGATE: Final = "checkpoint"
_OF_STEP: Final = frozenset({"_CHECKPOINT_METADATA", "commit_success.txt", "orbax.checkpoint"})
_OF_PROCESS: Final = "ocdbt.process_"
_LONGEST_TREE_BYTES: Final = 16 * 2**20
_SHOWN: Final = 3
_ON_DISK: Final = frozenset({"jax.Array", "np.ndarray", "scalar"})
_HANDLERS: Final = (
    ("RandomKey", Role.RNG),
    ("grain", Role.DATALOADER),
    ("Iterator", Role.DATALOADER),
    ("Dataset", Role.DATALOADER),
    ("Json", Role.CONFIG),
    ("Proto", Role.CONFIG),
    ("ProcessMetadata", Role.CONFIG),
)


@dataclass(slots=True)
class _Tree:
    """One item that holds arrays. at: its path, empty for the step itself. leaves: keys of each, None where unknown."""

    at: str
    leaves: tuple[tuple[str, ...], ...] | None = None
    stored: tuple[str, ...] = ()
    ocdbt: bool | None = None
    full: bool = False
    aggregated: bool = False
    problems: list[str] = field(default_factory=list)

    @property
    def told(self) -> Told:
        return told(self.leaves or ())


@dataclass(slots=True)
class Items:
    """All items of a step. `handlers`, in what follows: item -> the class that wrote it."""

    files: Sequence[str]
    trees: list[_Tree]
    problems: list[str]
    ranks: dict[str, int]

    @classmethod
    def read(cls, folder: Folder, files: Sequence[str], folders: Sequence[str]) -> Self:
        by_folder: dict[str, list[str]] = defaultdict(list)
        for name in files:
            at, _, last = name.rpartition("/")
            by_folder[at].append(last)
        begun = {at.rpartition("/")[0] for at in folders if at.rpartition("/")[2].startswith(_OF_PROCESS)}
        holding = {at for at, names in by_folder.items() if _holds_tree(at, names)} | begun
        trees = [_tree(folder, at, by_folder.get(at, ())) for at in sorted(holding)]
        problems = [problem for tree in trees for problem in _problems(folder, tree, by_folder, folders)]
        return cls(files, trees, problems, _ranks(files))

    def roles(self, handlers: Mapping[str, str]) -> dict[str, str]:
        """File -> role. Of files that hold several, weights; of arrays in folders of their own, what their names say."""
        apart = {tree.at for tree in self.trees if tree.ocdbt is False}
        single = {tree.at for tree in self.trees} == {""}
        return {name: str(_role(name, handlers, apart, single=single)) for name in self.files}

    def present(self, handlers: Mapping[str, str]) -> set[str]:
        roles = {role for item in self._items(handlers) if (role := _of_item(item, handlers)) is not Role.WEIGHTS}
        stated = [tree for tree in self.trees if _is_state(tree, handlers)]
        return {str(role) for role in roles} | {role for tree in stated for role in (*tree.told.present, "weights")}

    def possible(self, handlers: Mapping[str, str]) -> set[str]:
        return {role for tree in self.trees if _is_state(tree, handlers) for role in tree.told.possible}

    def _items(self, handlers: Mapping[str, str]) -> set[str]:
        """Those that have files. None where the step is its own item."""
        if any(not tree.at for tree in self.trees):
            return set()
        inside = {name.partition("/")[0] for name in self.files if "/" in name}
        return inside.intersection(handlers) if handlers else inside


def _is_state(tree: _Tree, handlers: Mapping[str, str]) -> bool:
    return not tree.at or _of_item(tree.at.partition("/")[0], handlers) is Role.WEIGHTS


def _holds_tree(at: str, names: Sequence[str]) -> bool:
    if at.rpartition("/")[2].startswith(_OF_PROCESS):
        return False
    return _TREE in names or ocdbt.MANIFEST in names or "_sharding" in names


def _of_item(item: str, handlers: Mapping[str, str]) -> Role:
    """By what wrote it, else by its name; an item of no known name is the state."""
    by = handlers.get(item, "")
    for word, role in _HANDLERS:
        if word in by:
            return role
    named = role_of((item,))
    return Role.WEIGHTS if named in (None, Role.OTHER, Role.OPTIMIZER) else named


def _role(name: str, handlers: Mapping[str, str], apart: set[str], *, single: bool) -> Role:
    item, slash, rest = name.partition("/")
    if not slash and (not single or name in _OF_STEP):
        return Role.OTHER
    role = Role.WEIGHTS if single else _of_item(item, handlers)
    inside, array = ("", item) if single else (item, rest.partition("/")[0])
    if role is Role.WEIGHTS and inside in apart and "." in array:
        return role_of(array.split(".")) or Role.WEIGHTS
    return role


def _tree(folder: Folder, at: str, names: Sequence[str]) -> _Tree:
    tree = _Tree(at, ocdbt=True if ocdbt.MANIFEST in names else None)
    name = f"{at}/{_TREE}".lstrip("/")
    if _TREE not in names:
        if _AGGREGATE not in names:
            tree.problems.append(f"no {name}")
        return tree
    tree.aggregated = _AGGREGATE in names  # small arrays may lie in that file instead
    try:
        if folder.size_bytes(name) > _LONGEST_TREE_BYTES:
            return tree
        _fill(tree, json.loads(folder.text(name, longest_bytes=_LONGEST_TREE_BYTES)))
    except Unreadable as error:
        tree.problems.append(f"{name}: {error}")
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        tree.problems.append(f"{name}: JSON empty, cut or damaged")
    return tree


def _fill(tree: _Tree, value: Any) -> None:  # noqa: ANN401 - JSON
    leaves = value["tree_metadata"]
    keys = {name: tuple(str(key["key"]) for key in leaf["key_metadata"]) for name, leaf in leaves.items()}
    tree.leaves = tuple(keys.values())
    tree.stored = tuple(
        ".".join(keys[name])
        for name, leaf in leaves.items()
        if leaf["value_metadata"].get("value_type") in _ON_DISK and not leaf["value_metadata"].get("skip_deserialize")
    )
    if "use_ocdbt" in value:
        tree.ocdbt = bool(value["use_ocdbt"])
    tree.full = bool(value.get("store_array_data_equal_to_fill_value"))


def _problems(
    folder: Folder, tree: _Tree, by_folder: Mapping[str, Sequence[str]], folders: Sequence[str]
) -> Iterator[str]:
    yield from tree.problems
    inside = f"{tree.at}/" if tree.at else ""
    own = [at for at in folders if at.startswith(f"{inside}{_OF_PROCESS}") and "/" not in at[len(inside) :]]
    if tree.ocdbt or own:
        yield from _store_problems(folder, inside, by_folder, own)
    elif tree.ocdbt is False:
        yield from _array_problems(folder, tree, inside, by_folder)


def _store_problems(
    folder: Folder, inside: str, by_folder: Mapping[str, Sequence[str]], own: Sequence[str]
) -> Iterator[str]:
    """Of the store of one item: the merged one, and those of its own that the processes wrote first."""
    if ocdbt.MANIFEST not in by_folder.get(inside.rstrip("/"), ()):
        yield f"no {inside}{ocdbt.MANIFEST}: what the processes wrote was not put together"
    data = 0
    for at in (inside.rstrip("/"), *own):
        names = by_folder.get(at, ())
        files = [f"{at}/d/{name}".lstrip("/") for name in by_folder.get(f"{at}/d".lstrip("/"), ())]
        data += len(files) + any(one.startswith(f"{at}/ocdbt_data".lstrip("/")) for one in by_folder)
        if ocdbt.MANIFEST in names:
            problem = ocdbt.manifest_problem(folder, f"{at}/{ocdbt.MANIFEST}".lstrip("/"))
            if problem:
                yield problem
        elif at in own and files:
            yield f"no {at}/{ocdbt.MANIFEST}"
        yield from (problem for name in files if (problem := ocdbt.data_problem(folder, name)))
    if not data:
        yield f"{inside}{ocdbt.MANIFEST} without the data it names"


def _array_problems(folder: Folder, tree: _Tree, inside: str, by_folder: Mapping[str, Sequence[str]]) -> Iterator[str]:
    arrays = {at: names for at, names in by_folder.items() if at.startswith(inside)}
    missing = [name for name in tree.stored if not any(meta in arrays.get(inside + name, ()) for meta in zarr.METADATA)]
    if missing and not tree.aggregated:
        shown = ", ".join(missing[:_SHOWN]) + (", …" if len(missing) > _SHOWN else "")
        yield f"{len(missing)} of {len(tree.stored)} arrays missing: {inside}{shown}"
    below: Counter[str] = Counter()
    for at, names in arrays.items():
        above = at
        while len(above) > len(inside):
            below[above] += len(names)
            above = above.rpartition("/")[0]
    for at, names in arrays.items():
        for meta in zarr.METADATA:
            if meta in names:
                count = below[at] - 1
                yield from (f"{at}/{name} is empty" for name in names if _is_empty(folder, f"{at}/{name}"))
                problem = zarr.problem(folder, f"{at}/{meta}", chunks=count, full=tree.full)
                if problem:
                    yield problem


def _is_empty(folder: Folder, name: str) -> bool:
    try:
        return folder.size_bytes(name) == 0
    except Unreadable:
        return True


def _ranks(files: Sequence[str]) -> dict[str, int]:
    processes = {name.rpartition("/")[2] for name in files if "array_metadatas/process_" in name}
    return {"process": len(processes)} if processes else {}
