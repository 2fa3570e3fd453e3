"""Files that people write in loops of their own: which roles one holds, by its keys where its format has any, and by its name.

Nobody knows what such a file may hold besides: what neither its keys nor its name tell is possible, and never denied. Which
files could not be judged is said by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from lakemark.errors import quoted
from lakemark.formats.readers import member_names
from lakemark.formats.readers.folder import Folder
from lakemark.formats.readers.torch_file import told
from lakemark.formats.roles import BESIDE_WEIGHTS, EVERYTHING, of_file, of_names
from lakemark.formats.rules.numbered import is_text
from lakemark.model.checkpoints.manifest import Role

_TORCH: Final = (".pt", ".pth", ".bin", ".ckpt", ".pth.tar", ".pkl")
_ARRAYS: Final = ".npz"
_SAFE: Final = ".safetensors"
_UNREAD: Final = (
    ".npy", ".msgpack", ".h5", ".hdf5", ".pickle", ".joblib", ".dill", ".ckpt.zst", ".pt.zst", ".dat", ".state", ".opt", ".optim"
)  # fmt: skip
"""Formats of state of which no header says what is in it."""
_JSON: Final = ".json"
# Not `LICENSE`, nor what a file is called that is somebody's pointer.
_BARE: Final = re.compile(r"(?:.*/)?(?!latest|last|best)[a-z][a-z0-9_-]*", re.ASCII)
# A file of each rank says the same as the first.
_MOST_LOOKED_INTO: Final = 64
_SHOWN: Final = 3


@dataclass(slots=True)
class OwnFiles:
    """roles: of files that hold one alone. present: of all. untold: files of which neither keys nor name say what they hold."""

    roles: dict[str, str] = field(default_factory=dict)
    present: set[str] = field(default_factory=set)
    untold: list[str] = field(default_factory=list)

    @property
    def possible(self) -> set[str]:
        """Whatever is not known to be there may be in one of them all the same."""
        return {role.value for role in EVERYTHING} - self.present if self.present or self.untold else set()

    @property
    def said(self) -> str:
        """Which could not be judged; empty where none."""
        if not self.untold:
            return ""
        names = ", ".join(map(quoted, self.untold[:_SHOWN])) + (", …" if len(self.untold) > _SHOWN else "")
        roles = ", ".join(role.value for role in EVERYTHING if role.value not in self.present)
        return f"what is in {names} nobody can tell" + (f": it may be {roles}" if roles else "")


def is_beside_a_model(name: str) -> bool:
    """Whether a file that no library wrote beside its model may hold what else training needs."""
    if name.endswith((_JSON, _SAFE)):
        return of_file(name) in BESIDE_WEIGHTS
    return name.endswith((*_TORCH, *_UNREAD, _ARRAYS)) or _is_named(name)


def is_own(name: str) -> bool:
    """Whether a file is of a format that people save state in, by its ending; of JSON also by its name."""
    if name.endswith(_JSON):
        return of_file(name) not in (None, Role.CONFIG)
    return name.endswith((*_TORCH, *_UNREAD, _ARRAYS, _SAFE)) or _is_named(name) or _BARE.fullmatch(name) is not None


def _is_named(name: str) -> bool:
    """Whether it says of itself what only training needs, in whatever format: `optimizer.zst`. Not a text about it."""
    return of_file(name) in BESIDE_WEIGHTS and not is_text(name)


def look(folder: Folder, names: Iterable[str]) -> OwnFiles:
    """What the files hold. Headers and keys are read, nothing is built from them."""
    result = OwnFiles()
    own = [name for name in names if is_own(name)]
    # `model.json` beside a state says what the model looks like; among texts it may be all there is.
    if not all(name.endswith(_JSON) for name in own):
        own = [name for name in own if not name.endswith(_JSON) or of_file(name) is not Role.WEIGHTS]
    for name in own[:_MOST_LOOKED_INTO]:
        said, inside = of_file(name), _inside(folder, name)
        role = None if said is None else said.value
        # A file called `model` often holds the optimizer as well; one called `scheduler` holds whatever its class has.
        if said in BESIDE_WEIGHTS:
            inside = inside.intersection(EVERYTHING) | {said.value}
        elif not inside and role is not None:
            inside = {role}
        result.present |= inside
        if len(inside) == 1:
            result.roles[name] = next(iter(inside))
        elif not inside:
            result.untold.append(name)
    result.present.discard(Role.OTHER.value)
    return result


def _inside(folder: Folder, name: str) -> set[str]:
    """Roles that its keys say; empty where it has none, or they say nothing."""
    if name.endswith(_TORCH):
        return told(folder, [name]).present
    if name.endswith(_ARRAYS):
        names = [one.removesuffix(".npy") for one in member_names.of_zip(folder, name)]
        return {role.value for role in of_names(names).values() if role is not None}
    if name.endswith(_SAFE):
        return _of_safetensors(folder, name)
    return set()


def _of_safetensors(folder: Folder, name: str) -> set[str]:
    """Names of tensors are weights unless one says otherwise: the format is made for these."""
    said = {role.value for role in of_names(member_names.of_safetensors(folder, name)).values() if role is not None}
    said &= {role.value for role in EVERYTHING}
    return said or ({Role.WEIGHTS.value} if of_file(name) in (None, Role.WEIGHTS) else set())
