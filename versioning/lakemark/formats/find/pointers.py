"""Which files of a framework name its newest checkpoint, and what they must say once training goes on from another one.

Decisions only: what lies there is handed in. Sources: the frameworks' own loaders and savers; docs/resuming.md tells people.
A pointer that a framework needs to find any checkpoint at all is made where there was none (DeepSpeed, Megatron,
TensorFlow, Composer, NeMo 2, fairseq); a convenience such as Lightning's `last.ckpt` only where there was one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from lakemark.formats.readers import tf_state
from lakemark.ports import Placed, Pointer, PointerKind

TEXTS: Final = re.compile(
    r"latest|latest_universal|latest_checkpointed_iteration\.txt|checkpoint|latest-rank\d+\.pt\.symlink", re.ASCII
)
"""Names whose text `decide` wants to see."""

_TRACKER: Final = "latest_checkpointed_iteration.txt"
# Seven digits or more; the tracker has the number without zeros.
_ITERATION: Final = re.compile(r"iter_(\d{7,})", re.ASCII)
_LAST: Final = re.compile(r"last(?:-v\d+)?\.ckpt", re.ASCII)
_RANK: Final = re.compile(r".*-rank(\d+)\.pt", re.ASCII)
_LATEST: Final = "latest.pt"
_LATEST_RANK: Final = re.compile(r"latest-rank(\d+)\.pt", re.ASCII)
_SHARD: Final = re.compile(r".*?((?:-(?:model_part-|shard|rank-)\d+)+|-shared)?\.pt", re.ASCII)


class Kind(Enum):
    """What a name is, links not followed."""

    FILE = "file"
    FOLDER = "folder"
    LINK = "link"


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """Something beside a checkpoint. text: of a small file that `TEXTS` names. target: of a link, as written.

    aside: it was moved aside by this job and is not there any more.
    """

    kind: Kind
    text: str = ""
    target: str = ""
    aside: bool = False


Beside = Mapping[Path, Mapping[str, Neighbour]]
"""By folder, from the checkpoint's own up to the directory that is resumed into: name -> what that is."""


def decide(placed: Placed, beside: Beside) -> tuple[Pointer, ...]:
    """How the pointers must be; also those that are right already. Empty for a framework that has none."""
    # `megatron-dist` and `megatron-legacy`, `composer` and `composer-fsdp` share theirs.
    family = placed.framework.partition("-")[0]
    rule = _RULES.get(family)
    return () if rule is None else tuple(rule(placed, beside))


def _here(placed: Placed, beside: Beside) -> Mapping[str, Neighbour]:
    return beside.get(placed.path.parent, {})


def _text(placed: Placed, name: str, content: str, why: str) -> Pointer:
    return Pointer(path=placed.path.parent / name, kind=PointerKind.TEXT, content=content, why=why)


def _deepspeed(placed: Placed, beside: Beside) -> Iterator[Pointer]:
    """`latest`: the tag, without a newline. `latest_universal`: the folder made from a tag for another number of ranks."""
    tag, here = placed.path.name, _here(placed, beside)
    yield _text(placed, "latest", tag, "DeepSpeed loads the tag it names")
    # A run that never used universal checkpoints gets no pointer to one.
    if "latest_universal" in here:
        universal = f"{tag}_universal"
        there = here.get(universal)
        why = "DeepSpeed loads the universal checkpoint it names"
        if there is not None and not there.aside:
            yield _text(placed, "latest_universal", universal, why)
        else:
            path = placed.path.parent / "latest_universal"
            yield Pointer(path=path, kind=PointerKind.GONE, why=f"{why}, and there is none of {tag}")


def _megatron(placed: Placed, _: Beside) -> Iterator[Pointer]:
    match = _ITERATION.fullmatch(placed.path.name)
    said = str(int(match[1])) if match else placed.path.name
    # Other names are NeMo's, which has no tracker.
    if match or said == "release":
        yield _text(placed, _TRACKER, said, "Megatron loads the iteration it names")


def _tensorflow(placed: Placed, beside: Beside) -> Iterator[Pointer]:
    here = _here(placed, beside)
    old = here.get("checkpoint")
    # TensorFlow may try to remove what it is told is kept: only what is really there is named.
    present = {name.removesuffix(".index") for name, one in here.items() if name.endswith(".index") and not one.aside}
    text = tf_state.repaired(old.text if old else "", placed.path, present | {placed.path.name})
    yield _text(placed, "checkpoint", text, "TensorFlow loads the checkpoint it names")


def _lightning(placed: Placed, beside: Beside) -> Iterator[Pointer]:
    """`last.ckpt` of the same kind as it was, wherever between the checkpoint and the directory one was."""
    if _LAST.fullmatch(placed.path.name):
        return
    for folder, names in beside.items():
        old = {name: one for name, one in names.items() if _LAST.fullmatch(name)}
        if not old:
            continue
        # `last-v1.ckpt` is there where `last.ckpt` was in another's way; Lightning takes the newest by time of change.
        kept = "last.ckpt" if "last.ckpt" in old else min(old)
        yield _alike(placed, folder / kept, old[kept], "Lightning takes it for the newest")
        for name, one in old.items():
            # What was moved aside is away already.
            if name != kept and not one.aside:
                yield Pointer(path=folder / name, kind=PointerKind.GONE, why="Lightning could take it for the newest")
    yield from _last_by_name(placed, _here(placed, beside), suffix=".ckpt", needed=False)


def _nemo(placed: Placed, beside: Beside) -> Iterator[Pointer]:
    """NeMo 2 goes on from what is called `…-last`, refuses several, and starts anew without one."""
    yield from _last_by_name(placed, _here(placed, beside), suffix="", needed=True)


def _last_by_name(placed: Placed, here: Mapping[str, Neighbour], *, suffix: str, needed: bool) -> Iterator[Pointer]:
    """NeMo's `<name>-last` beside the checkpoints, and the empty `<name>-unfinished`, which says that one is not whole."""
    stem = placed.path.name.removesuffix(suffix)
    # The checkpoint may be its own pointer.
    mine = placed.path.name if stem.endswith("-last") else f"{stem}-last{suffix}"
    old = {name: one for name, one in here.items() if name.endswith(f"-last{suffix}") and name != placed.path.name}
    if mine != placed.path.name and (old or needed):
        link = needed or any(one.kind is Kind.LINK for one in old.values())
        # As the run was kept: links where it had links.
        like = old.get(mine) or Neighbour(kind=Kind.LINK if link else Kind.FILE)
        yield _alike(placed, placed.path.parent / mine, like, "NeMo goes on from what is called so")
    for name, one in old.items():
        if name != mine and not one.aside:
            path = placed.path.parent / name
            yield Pointer(path=path, kind=PointerKind.GONE, why="NeMo refuses several that are called the last")
    unfinished = here.get(f"{stem}-unfinished")
    # A kill between the last byte and the marker's removal leaves it beside a whole checkpoint; this one was verified.
    if unfinished is not None and not unfinished.aside:
        path = placed.path.parent / f"{stem}-unfinished"
        yield Pointer(path=path, kind=PointerKind.GONE, why="it says that the checkpoint is not whole; it is")


def _alike(placed: Placed, path: Path, old: Neighbour, why: str) -> Pointer:
    """A link where there was one; else a copy, because the trainer may write to it."""
    if old.kind is Kind.LINK:
        # Relative: it stays right where the run's directory is moved or mounted elsewhere.
        target = os.path.relpath(placed.path, path.parent)
        return Pointer(path=path, kind=PointerKind.SYMLINK, content=target, why=why)
    return Pointer(path=path, kind=PointerKind.COPY, content=str(placed.path), why=why)


def _composer(placed: Placed, beside: Beside) -> Iterator[Pointer]:
    """`latest-rank<r>.pt`: a link to the rank's file, or of all ranks to the one folder; on object stores a text."""
    here = _here(placed, beside)
    ranks = {match[1]: path.name for path in placed.paths if (match := _RANK.fullmatch(path.name))}
    # A run with one rank and a template of its own.
    if _LATEST in here and not any(_LATEST_RANK.fullmatch(name) for name in here):
        path = placed.path.parent / _LATEST
        yield Pointer(
            path=path, kind=PointerKind.SYMLINK, content=placed.path.name, why="Composer resumes from what it names"
        )
        return
    if not ranks:
        # FSDP: every rank's link names the one folder. Rank 0's is made where there was none.
        known = {match[1] for name in here if (match := _LATEST_RANK.fullmatch(name))} | {"0"}
        ranks = dict.fromkeys(sorted(known, key=int), placed.path.name)
    for rank, name in ranks.items():
        path = placed.path.parent / f"latest-rank{rank}.pt"
        yield Pointer(path=path, kind=PointerKind.SYMLINK, content=name, why="Composer resumes from what it names")
        remote = here.get(f"{path.name}.symlink")
        if remote is not None:
            # The text holds a key of the object store: only its last part changes.
            folder, slash, _ = remote.text.strip().rpartition("/")
            content = f"{folder}{slash}{name}"
            yield _text(placed, f"{path.name}.symlink", content, "Composer resumes from what it names")


def _fairseq(placed: Placed, _: Beside) -> Iterator[Pointer]:
    for path in placed.paths:
        match = _SHARD.fullmatch(path.name)
        # Going on from checkpoint_last itself changes nothing.
        if match and not path.name.startswith("checkpoint_last"):
            last = path.with_name(f"checkpoint_last{match[1] or ''}.pt")
            yield Pointer(path=last, kind=PointerKind.COPY, content=str(path), why="fairseq resumes from it")


_RULES: Final[Mapping[str, Callable[[Placed, Beside], Iterator[Pointer]]]] = {
    "deepspeed": _deepspeed,
    "megatron": _megatron,
    "tf": _tensorflow,
    "lightning": _lightning,
    "nemo2": _nemo,
    "composer": _composer,
    "fairseq": _fairseq,
}
