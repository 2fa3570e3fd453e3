"""What frameworks keep around a checkpoint and inside it, read from disk: pointers, places written into files, byte ranges."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from lakemark.formats.find.world import of_world
from lakemark.formats.pointers import links_and_lines
from lakemark.formats.pointers.decide import cannot, decide
from lakemark.formats.pointers.rule import Kind, Neighbour
from lakemark.formats.readers import role_ranges
from lakemark.formats.readers.folder import Folder, NameKind as Lies, Unreadable
from lakemark.formats.torch.ray import SNAPSHOT
from lakemark.model.checkpoints.manifest import Manifest
from lakemark.ports import Baked, Placed, Pointer, Range

_LONGEST_POINTER_BYTES: Final = 2**20
# The Trainer writes its keys sorted: the best checkpoint comes before the long history.
_LOOKED_AT_BYTES: Final = 2**20
# By pattern and not by JSON: only the first of a long file is read.
_BEST: Final = re.compile(r'"best_model_checkpoint"\s*:\s*("(?:[^"\\]|\\.){1,8000}")')
_COMMITTED: Final = re.compile(r"Checkpoint commit was successful to (?P<place>\S.*?)\s*", re.DOTALL)
_LATEST_OF_RAY: Final = re.compile(
    r'"latest_checkpoint_result"\s*:\s*\{[^{}]*?"checkpoint_dir_name"\s*:\s*("(?:[^"\\]|\\.){1,1000}")'
)
_UNFINISHED: Final = ".orbax-checkpoint-tmp"
_OWN_TEXTS: Final = re.compile(rf"checkpoint|{re.escape(SNAPSHOT)}|latest-rank\d+\.pt\.symlink", re.ASCII)
_KINDS: Final = {Lies.FILE: Kind.FILE, Lies.FOLDER: Kind.FOLDER, Lies.LINK: Kind.LINK}


class Layouts:
    """The part of `ports.Recogniser` that needs no judgement of a checkpoint."""

    __slots__ = ()

    def pointers(self, placed: Placed) -> tuple[Pointer, ...]:
        """As the port says. Reads names, links and small pointer files."""
        return decide(placed, _beside(placed))

    def unset(self, placed: Placed) -> tuple[str, ...]:
        """As the port says."""
        return cannot(placed, _beside(placed))

    def baked(self, placed: Placed) -> tuple[Baked, ...]:
        """As the port says."""
        return (*_baked(placed), *_unlike(placed))

    def of_world(self, manifest: Manifest, world: int) -> tuple[str, ...]:
        """As the port says."""
        return tuple(of_world((file.path for file in manifest.files), manifest.framework, world))

    def index_files(self, manifest: Manifest) -> Mapping[str, tuple[str, ...]]:
        """As the port says."""
        return role_ranges.index_files(manifest)

    def ranges(self, tree: Path, manifest: Manifest, roles: Collection[str]) -> Mapping[str, tuple[Range, ...]]:
        """As the port says."""
        return role_ranges.ranges(tree, manifest, roles)


def _beside(placed: Placed) -> dict[Path, dict[str, Neighbour]]:
    found: dict[Path, dict[str, Neighbour]] = {}
    folder = placed.path.parent
    while folder == placed.root or placed.root in folder.parents:
        # A pointer that this very job moved aside says how the run was kept; what lies there now wins over it.
        moved = placed.aside / folder.relative_to(placed.root)
        found[folder] = _listed(moved, aside=True) | _listed(folder, aside=False)
        folder = folder.parent
    return found


def _listed(path: Path, *, aside: bool) -> dict[str, Neighbour]:
    folder = Folder.of(path)
    return {
        name: _neighbour(folder, name, _KINDS[kind], aside=aside)
        for name, kind in folder.kinds.items()
        if kind in _KINDS
    }


def _neighbour(folder: Folder, name: str, kind: Kind, *, aside: bool) -> Neighbour:
    text = target = ""
    try:
        # Other files are never opened: they may be checkpoints of any size.
        if kind is Kind.FILE and _OWN_TEXTS.fullmatch(name):
            text = folder.text(name, longest_bytes=_LONGEST_POINTER_BYTES)
        elif kind is Kind.FILE and links_and_lines.is_text(name):
            text = folder.text(name, longest_bytes=links_and_lines.LONGEST_BYTES)
        elif kind is Kind.LINK:
            target = os.readlink(f"{folder.at}/{name}")  # noqa: PTH115 - the text, whatever it is
    except (Unreadable, OSError):
        pass
    return Neighbour(kind=kind, text=text, target=target, aside=aside)


def pointed(folder: Folder, likely: Iterable[str]) -> dict[str, str]:
    """Links and lines in a folder of checkpoints that name a step -> their form. likely: of its names, by what they say."""
    kinds = {name: _KINDS[folder.kinds[name]] for name in likely if folder.kinds[name] in _KINDS}
    read = {name: _neighbour(folder, name, kind, aside=False) for name, kind in kinds.items()}
    return links_and_lines.kept(folder.path, read, beside=folder.kinds)


def _unlike(placed: Placed) -> Iterator[Baked]:
    for folder, names in _beside(placed).items():
        for name, said in links_and_lines.unlike(names, placed):
            yield Baked(file=folder / name, path=said, now=placed.path)


def _baked(placed: Placed) -> Iterator[Baked]:
    inside = Folder.of(placed.path)
    text = _start(inside, "trainer_state.json")
    match = _BEST.search(text)
    if match and isinstance(best := _json(match[1]), str):
        file = placed.path / "trainer_state.json"
        # Where it would lie now: the Trainer's checkpoints lie side by side.
        yield Baked(file=file, path=best, now=placed.path.parent / Path(best).name)
    # Orbax marks the step and each item.
    for name in ("", *inside.folders):
        folder = inside.sub(name) if name else inside
        match = _COMMITTED.fullmatch(_start(folder, "commit_success.txt"))
        if match and _UNFINISHED not in match["place"]:  # of an item it is where that was before the whole was renamed
            yield Baked(file=folder.path / "commit_success.txt", path=match["place"], now=folder.path)
    if placed.framework.startswith("ray"):
        match = _LATEST_OF_RAY.search(_start(inside.parent, SNAPSHOT))
        if match and isinstance(latest := _json(match[1]), str):
            yield Baked(file=placed.path.parent / SNAPSHOT, path=latest, now=Path(placed.path.name))


def _start(folder: Folder, name: str) -> str:
    """The first of a text; empty where there is none."""
    if not folder.has_file(name):
        return ""
    try:
        with folder.open(name) as stream:
            return stream.read(_LOOKED_AT_BYTES).decode(errors="replace")
    except (Unreadable, OSError):
        return ""


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None
