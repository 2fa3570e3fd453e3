"""What the items of an Orbax step hold, and whether each is whole: from `_METADATA`, names and lengths."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from lakemark.formats.readers import ocdbt, ocdbt_tree, zarr
from lakemark.formats.readers.folder import Folder, Unreadable
from lakemark.formats.readers.msgpack import outline
from lakemark.formats.rules.state_trees import TreeRoles, role_of, told
from lakemark.model.checkpoints.manifest import Role

_TREE: Final = "_METADATA"
# A msgpack file of 0.6 and before. Also the folder of an item's only array.
_AGGREGATE: Final = "checkpoint"
# What stands in that file for an array that lies elsewhere.
_PLACEHOLDER: Final = "PLACEHOLDER://"
_TEXTS: Final = "_strings.json"
DATA: Final = "d"
HASHED: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)
"""How the files in it are called."""
_DATA: Final = (DATA, "ocdbt_data")
_OF_JSON: Final = frozenset({"metadata", "metrics"})
"""What a handler of JSON calls its file."""
OF_STEP: Final = frozenset({"_CHECKPOINT_METADATA", "commit_success.txt", "orbax.checkpoint"})
_OF_PROCESS: Final = "ocdbt.process_"
_LONGEST_TREE_BYTES: Final = 16 * 2**20
_SHOWN: Final = 3
# Leaves of other types, such as strings and empty nodes, have no array in the store.
_ON_DISK: Final = frozenset({"jax.Array", "np.ndarray", "scalar"})
_OF_ARRAYS: Final = ("PyTree", "Standard", "Array", "RandomKey")
"""In the names of the handlers that keep arrays."""
_HANDLERS: Final = (
    # By a word in the class's name: modules moved between versions, names stayed.
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
    """One item that holds arrays. at: its path, empty for the step itself. leaves: keys of each, None where unknown.

    stored: arrays that lie in its store or in folders. texts: some leaves are strings.
    """

    at: str
    leaves: tuple[tuple[str, ...], ...] | None = None
    stored: tuple[str, ...] = ()
    texts: bool = False
    ocdbt: bool | None = None
    full: bool = False
    aggregated: bool = False
    problems: list[str] = field(default_factory=list)

    @property
    def told(self) -> TreeRoles:
        return told(self.leaves or ())


@dataclass(slots=True)
class Items:
    """All items of a step. `handlers`, in what follows: item -> the class that wrote it."""

    files: Sequence[str]
    trees: list[_Tree]
    problems: list[str]
    ranks: dict[str, int]

    @classmethod
    def read(cls, folder: Folder, files: Sequence[str], folders: Sequence[str], *, handlers: Mapping[str, str]) -> Self:
        by_folder: dict[str, list[str]] = defaultdict(list)
        for name in files:
            at, _, last = name.rpartition("/")
            by_folder[at].append(last)
        # Processes make their stores before anything says what the item is.
        begun = {at.rpartition("/")[0] for at in folders if at.rpartition("/")[2].startswith(_OF_PROCESS)}
        begun |= {at.rpartition("/")[0] for at in folders if _is_data(at, by_folder)}
        holding = {at for at in by_folder if _holds_tree(at, by_folder)} | begun
        # An array's folder inside an item is not another item.
        holding |= {
            at
            for at in _with_arrays(by_folder, folders)
            if holding.isdisjoint(above(at)) and _keeps_arrays(at, handlers)
        }
        trees = [_tree(folder, at, by_folder) for at in sorted(holding)]
        problems = [problem for tree in trees for problem in _problems(folder, tree, by_folder, folders)]
        return cls(files, trees, problems, _ranks(files))

    def roles(self, handlers: Mapping[str, str]) -> dict[str, str]:
        """File -> role. Of files that hold several, weights; of arrays in folders of their own, what their names say."""
        # Only without OCDBT is an array a folder whose name says what it is; a store mixes all.
        apart = {tree.at for tree in self.trees if tree.ocdbt is False}
        # The step is its own item: saved without a CheckpointManager.
        single = {tree.at for tree in self.trees} == {""}
        roles = {name: str(_role(name, handlers, apart, single=single)) for name in self.files}
        with_arrays = {tree.at.partition("/")[0] for tree in self.trees}
        for name, role in roles.items() if not single else ():
            # An item without arrays is no model, whatever it is called.
            if role == Role.WEIGHTS and name.partition("/")[0] not in with_arrays:
                roles[name] = str(Role.CONFIG if name.rpartition("/")[2] in _OF_JSON else Role.OTHER)
        return roles

    def present(self, handlers: Mapping[str, str]) -> set[str]:
        roles = {role for item in self._items(handlers) if (role := _of_item(item, handlers)) is not Role.WEIGHTS}
        stated = [tree for tree in self.trees if _is_state(tree, handlers)]
        held = {str(role) for role in roles} | {role for tree in stated for role in (*tree.told.present, "weights")}
        return held | ({"weights"} if any(_holds_model(tree) for tree in self.trees) else set())

    def possible(self, handlers: Mapping[str, str]) -> set[str]:
        """An item that is an optimizer's counts its own steps, as a schedule needs them."""
        maybe = {role for tree in self.trees if _is_state(tree, handlers) for role in tree.told.possible}
        return maybe | ({Role.SCHEDULER, Role.RNG} if Role.OPTIMIZER in self.present(handlers) else set())

    def treeless(self, handlers: Mapping[str, str]) -> Iterator[str]:
        """Items that must hold arrays, and have other files alone."""
        there = {name.partition("/")[0] for name in self.files}
        with_tree = {tree.at.partition("/")[0] for tree in self.trees}
        for item, by in handlers.items():
            if item in there - with_tree and any(word in by for word in _OF_ARRAYS):
                yield f"no {item}/{_TREE}"

    def _items(self, handlers: Mapping[str, str]) -> set[str]:
        """Those that have files. None where the step is its own item."""
        if any(not tree.at for tree in self.trees):
            return set()
        inside = {name.partition("/")[0] for name in self.files if "/" in name}
        return inside.intersection(handlers) if handlers else inside


def _is_state(tree: _Tree, handlers: Mapping[str, str]) -> bool:
    return not tree.at or _of_item(tree.at.partition("/")[0], handlers) is Role.WEIGHTS


def _holds_model(tree: _Tree) -> bool:
    """An optimizer's item, of the days when Flax's optimizer held the model too."""
    return tree.at.rpartition("/")[2] == "optimizer" and any(keys[:1] == ("target",) for keys in tree.leaves or ())


def _holds_tree(at: str, by_folder: Mapping[str, Sequence[str]]) -> bool:
    if at.rpartition("/")[2].startswith(_OF_PROCESS):
        return False
    names = by_folder[at]
    return _TREE in names or ocdbt.MANIFEST in names or "_sharding" in names or _single(at, by_folder)


def _is_data(at: str, by_folder: Mapping[str, Sequence[str]]) -> bool:
    """Not of one process, whose own store it is."""
    above_it, _, last = at.rpartition("/")
    mine = last == DATA and not above_it.rpartition("/")[2].startswith(_OF_PROCESS)
    return mine and any(map(HASHED.fullmatch, by_folder.get(at, ())))


def _with_arrays(by_folder: Mapping[str, Sequence[str]], folders: Sequence[str]) -> set[str]:
    """What arrays in folders lie in, and what says of arrays which process wrote them."""
    arrays = {at for at, names in by_folder.items() if not {*zarr.METADATA}.isdisjoint(names)}
    arrays |= {at for at in folders if at.rpartition("/")[2] == "array_metadatas"}
    return {at.rpartition("/")[0] for at in arrays}


def above(at: str) -> Iterator[str]:
    """What a folder lies in, up to the step itself. A name with `/` makes an array lie deeper in its item."""
    while at:
        at = at.rpartition("/")[0]
        yield at


def _keeps_arrays(at: str, handlers: Mapping[str, str]) -> bool:
    """Not an item that a handler of the user's own wrote: what it has to hold nobody knows."""
    by = handlers.get(at.partition("/")[0], "")
    return not by or any(word in by for word in _OF_ARRAYS)


def _single(at: str, by_folder: Mapping[str, Sequence[str]]) -> bool:
    """An item of one array: up to 0.6 it has no tree."""
    array = by_folder.get(f"{at}/{_AGGREGATE}".lstrip("/"), ())
    return not {*zarr.METADATA}.isdisjoint(array) and f"{at}/array_metadatas".lstrip("/") not in by_folder


def _of_item(item: str, handlers: Mapping[str, str]) -> Role:
    """By what wrote it, else by its name; an item of no known name is the state."""
    by = handlers.get(item, "")
    for word, role in _HANDLERS:
        if word in by:
            return role
    # `state`, `default`, `items`: names that say nothing are the training state.
    named = role_of((item,))
    return Role.WEIGHTS if named in (None, Role.OTHER) else named


def _role(name: str, handlers: Mapping[str, str], apart: set[str], *, single: bool) -> Role:
    item, slash, rest = name.partition("/")
    if not slash and (not single or name in OF_STEP):
        return Role.OTHER
    role = Role.WEIGHTS if single else _of_item(item, handlers)
    inside, array = ("", item) if single else (item, rest.partition("/")[0])
    # `opt_state.0.mu.kernel/`: the keys of the leaf, joined.
    if role is Role.WEIGHTS and inside in apart and "." in array:
        return role_of(array.split(".")) or Role.WEIGHTS
    return role


def _tree(folder: Folder, at: str, by_folder: Mapping[str, Sequence[str]]) -> _Tree:
    names = by_folder.get(at, ())
    tree = _Tree(at, ocdbt=True if ocdbt.MANIFEST in names else None)
    name = f"{at}/{_TREE}".lstrip("/")
    try:
        if _AGGREGATE in names:
            _old(tree, folder, f"{at}/{_AGGREGATE}".lstrip("/"))
        elif _TREE not in names and _single(at, by_folder):
            tree.ocdbt = False
        elif _TREE not in names:
            tree.problems.append(f"no {name}")
        # A longer one is not read: nothing is said of what it holds then, nor against it.
        if _TREE in names and folder.size_bytes(name) <= _LONGEST_TREE_BYTES:
            _fill(tree, json.loads(folder.text(name, longest_bytes=_LONGEST_TREE_BYTES)))
    except (Unreadable, OSError) as error:
        tree.problems.append(f"{name}: {error}")
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        tree.problems.append(f"{name}: JSON empty, cut or damaged")
    return tree


def _old(tree: _Tree, folder: Folder, name: str) -> None:
    """Up to 0.6 a msgpack file keeps small values, and in the place of each array its name."""
    with folder.open(name) as stream:
        said = outline(stream, folder.size_bytes(name), placeholder=_PLACEHOLDER)
    tree.aggregated = True
    tree.stored = tuple(sorted(said.placeholders))
    if said.problem:
        tree.problems.append(f"{name}: {said.problem}")
    if tree.ocdbt is None and said.placeholders:
        tree.ocdbt = False


def _fill(tree: _Tree, value: Any) -> None:  # noqa: ANN401 - JSON
    leaves = value["tree_metadata"]
    keys = {name: tuple(str(key["key"]) for key in leaf["key_metadata"]) for name, leaf in leaves.items()}
    tree.leaves = tuple(keys.values())
    tree.texts = any(leaf["value_metadata"].get("value_type") == "string" for leaf in leaves.values())
    # What the aggregate file names has to be in the store, and no more than that.
    if tree.aggregated:  # small arrays may lie in that file instead
        return _options(tree, value)
    tree.stored = tuple(
        ".".join(keys[name])
        for name, leaf in leaves.items()
        # Marked as not to be read back: nothing of it need be in the store.
        if leaf["value_metadata"].get("value_type") in _ON_DISK and not leaf["value_metadata"].get("skip_deserialize")
    )
    return _options(tree, value)


def _options(tree: _Tree, value: Mapping[str, Any]) -> None:
    if "use_ocdbt" in value:
        tree.ocdbt = bool(value["use_ocdbt"])
    tree.full = bool(value.get("store_array_data_equal_to_fill_value"))


def _problems(
    folder: Folder, tree: _Tree, by_folder: Mapping[str, Sequence[str]], folders: Sequence[str]
) -> Iterator[str]:
    yield from tree.problems
    inside = f"{tree.at}/" if tree.at else ""
    own = [at for at in folders if at.startswith(f"{inside}{_OF_PROCESS}") and "/" not in at[len(inside) :]]
    names = by_folder.get(tree.at, ())
    # Only strings or nothing at all: no store is made for these.
    if tree.leaves and not tree.stored and not tree.aggregated and not own and ocdbt.MANIFEST not in names:
        if tree.texts and _TEXTS not in names:
            yield f"no {inside}{_TEXTS}"
    elif tree.ocdbt or own:
        yield from _store_problems(folder, tree, by_folder, own)
    elif tree.ocdbt is False:
        yield from _array_problems(folder, tree, inside, by_folder)


def _store_problems(
    folder: Folder, tree: _Tree, by_folder: Mapping[str, Sequence[str]], own: Sequence[str]
) -> Iterator[str]:
    """Of the store of one item: what its merged tree names, and each file by itself, also of those the processes wrote."""
    inside = f"{tree.at}/" if tree.at else ""
    stores = (tree.at, *own)
    # The first process joins the others' stores at the end of a save, by a manifest of its own.
    if ocdbt.MANIFEST not in by_folder.get(tree.at, ()):
        yield f"no {inside}{ocdbt.MANIFEST}: what the processes wrote was not put together"
    if not any(one.startswith(f"{at}/{data}".lstrip("/")) for one in by_folder for at in stores for data in _DATA):
        yield f"{inside}{ocdbt.MANIFEST} without the data it names"
    else:
        yield from _tree_problems(folder, tree, inside)
    for at in stores:
        files = [f"{at}/d/{name}".lstrip("/") for name in by_folder.get(f"{at}/d".lstrip("/"), ())]
        if ocdbt.MANIFEST in by_folder.get(at, ()):
            problem = ocdbt.manifest_problem(folder, f"{at}/{ocdbt.MANIFEST}".lstrip("/"))
            yield from [problem] if problem else []
        elif at in own and files:
            yield f"no {at}/{ocdbt.MANIFEST}"
        yield from (problem for name in files if (problem := ocdbt.data_problem(folder, name)))


def _tree_problems(folder: Folder, tree: _Tree, inside: str) -> Iterator[str]:
    try:
        store = ocdbt_tree.read(folder, tree.at)
    except (ocdbt_tree.Unknown, Unreadable):
        # Of a later version nothing is claimed.
        return  # said of the file itself
    except ocdbt_tree.OcdbtDamaged as error:
        yield str(error)
        return
    lacking = list(ocdbt_tree.lacking(folder, tree.at, store))
    # A cut tree lacks arrays as well: the file that is missing says it better.
    yield from lacking or _not_stored(tree, inside, store.arrays)


def _not_stored(tree: _Tree, inside: str, there: Collection[str]) -> Iterator[str]:
    missing = [name for name in tree.stored if name not in there]
    if missing:
        shown = ", ".join(missing[:_SHOWN]) + (", …" if len(missing) > _SHOWN else "")
        yield f"{len(missing)} of {len(tree.stored)} arrays missing: {inside}{shown}"


def _array_problems(folder: Folder, tree: _Tree, inside: str, by_folder: Mapping[str, Sequence[str]]) -> Iterator[str]:
    arrays = {at: meta for at, names in by_folder.items() for meta in zarr.METADATA if meta in names}
    yield from _not_stored(tree, inside, {at.removeprefix(inside) for at in arrays if at.startswith(inside)})
    chunks: dict[str, list[str]] = defaultdict(list)
    for at, names in by_folder.items():
        above = at
        # Chunks may lie deeper than their array: `c/0/1` of Zarr 3, or a separator `/`.
        while len(above) > len(inside) and above not in arrays:
            above = above.rpartition("/")[0]
        if above in arrays:
            chunks[above] += [f"{at}/{name}" for name in names if f"{at}/{name}" != f"{above}/{arrays[above]}"]
    for at, files in chunks.items():
        if at.startswith(inside):
            yield from zarr.problems(folder, f"{at}/{arrays[at]}", files, full=tree.full)


def _ranks(files: Sequence[str]) -> dict[str, int]:
    processes = {name.rpartition("/")[2] for name in files if "array_metadatas/process_" in name}
    return {"process": len(processes)} if processes else {}
