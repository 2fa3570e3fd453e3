"""Lightning's `last.ckpt` (`callbacks/model_checkpoint.py`), and NeMo's `…-last` and `…-unfinished`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from lakemark.formats.pointers.rule import Beside, Kind, Neighbour, Rule, alike, alone, here
from lakemark.ports import Placed, Pointer, PointerKind

_LAST: Final = re.compile(r"last(?:-v\d+)?\.ckpt", re.ASCII)
_WHY: Final = "Lightning takes it for the newest"


def _lightning(placed: Placed, beside: Beside) -> Iterator[Pointer]:
    """`last.ckpt` of the same kind as it was, wherever between the checkpoint and the directory one was."""
    if _LAST.fullmatch(placed.path.name) or placed.path.stem.endswith("-last"):
        yield from _last_by_name(placed, here(placed, beside), suffix=".ckpt", needed=False)
        return
    by_name = list(_last_by_name(placed, here(placed, beside), suffix=".ckpt", needed=False))
    lasts = False
    for folder, names in beside.items():
        old = {name: one for name, one in names.items() if _LAST.fullmatch(name)}
        if not old:
            continue
        lasts = True
        # `last-v1.ckpt` is there where `last.ckpt` was in another's way; Lightning takes the newest by time of change.
        kept = "last.ckpt" if "last.ckpt" in old else min(old)
        yield alike(placed, folder / kept, old[kept], _WHY)
        for name, one in old.items():
            # What was moved aside is away already.
            if name != kept and not one.aside:
                yield Pointer(path=folder / name, kind=PointerKind.GONE, why="Lightning could take it for the newest")
    # In a directory where nothing was, nobody can tell whether the trainer asks for `ckpt_path="last"`: where it does not,
    # a link too many does nothing.
    if not lasts and not by_name and alone(placed, beside):
        yield alike(placed, placed.path.with_name("last.ckpt"), Neighbour(kind=Kind.LINK), _WHY)
    yield from by_name


def _nemo(placed: Placed, beside: Beside) -> Iterator[Pointer]:
    """NeMo 2 goes on from what is called `…-last`, refuses several, and starts anew without one."""
    yield from _last_by_name(placed, here(placed, beside), suffix="", needed=True)


def _last_by_name(placed: Placed, lies: Mapping[str, Neighbour], *, suffix: str, needed: bool) -> Iterator[Pointer]:
    """NeMo's `<name>-last` beside the checkpoints, and the empty `<name>-unfinished`, which says that one is not whole."""
    stem = placed.path.name.removesuffix(suffix)
    # The checkpoint may be its own pointer.
    mine = placed.path.name if stem.endswith("-last") else f"{stem}-last{suffix}"
    old = {name: one for name, one in lies.items() if name.endswith(f"-last{suffix}") and name != placed.path.name}
    if mine != placed.path.name and (old or needed):
        link = needed or any(one.kind is Kind.LINK for one in old.values())
        # As the run was kept: links where it had links.
        like = old.get(mine) or Neighbour(kind=Kind.LINK if link else Kind.FILE)
        yield alike(placed, placed.path.parent / mine, like, "NeMo goes on from what is called so")
    for name, one in old.items():
        if name != mine and not one.aside:
            path = placed.path.parent / name
            yield Pointer(path=path, kind=PointerKind.GONE, why="NeMo refuses several that are called the last")
    unfinished = lies.get(f"{stem}-unfinished")
    # A kill between the last byte and the marker's removal leaves it beside a whole checkpoint; this one was verified.
    if unfinished is not None and not unfinished.aside:
        path = placed.path.parent / f"{stem}-unfinished"
        yield Pointer(path=path, kind=PointerKind.GONE, why="it says that the checkpoint is not whole; it is")


LIGHTNING = Rule(
    framework="Lightning",
    names="`last.ckpt`",
    set_to="a link where it was a link, else a copy; a link where the directory was empty",
    without='`ckpt_path="last"` warns and starts anew',
    decide=_lightning,
)
NEMO = Rule(
    framework="NeMo",
    names="`…-last`, `…-unfinished`",
    set_to="one link to it, or a copy; a marker that it is unfinished is moved aside",
    without="it starts anew, or refuses to start; what is marked as unfinished it removes",
    decide=_nemo,
)
