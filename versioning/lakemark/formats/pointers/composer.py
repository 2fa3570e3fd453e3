"""Composer (`callbacks/checkpoint_saver.py`): `latest-rank<r>.pt`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from lakemark.formats.pointers.rule import Beside, Rule, here, text
from lakemark.ports import Placed, Pointer, PointerKind

_RANK: Final = re.compile(r".*-rank(\d+)\.pt", re.ASCII)
_LATEST: Final = "latest.pt"
_LATEST_RANK: Final = re.compile(r"latest-rank(\d+)\.pt", re.ASCII)
_WHY: Final = "Composer resumes from what it names"


def _decide(placed: Placed, beside: Beside) -> Iterator[Pointer]:
    """A link to the rank's file, or of all ranks to the one folder; on object stores a text."""
    lies = here(placed, beside)
    ranks = {match[1]: path.name for path in placed.paths if (match := _RANK.fullmatch(path.name))}
    # A run with one rank and a template of its own.
    if _LATEST in lies and not any(_LATEST_RANK.fullmatch(name) for name in lies):
        path = placed.path.parent / _LATEST
        yield Pointer(path=path, kind=PointerKind.SYMLINK, content=placed.path.name, why=_WHY)
        return
    if not ranks:
        # FSDP: every rank's link names the one folder. Rank 0's is made where there was none.
        known = {match[1] for name in lies if (match := _LATEST_RANK.fullmatch(name))} | {"0"}
        ranks = dict.fromkeys(sorted(known, key=int), placed.path.name)
    for rank, name in ranks.items():
        path = placed.path.parent / f"latest-rank{rank}.pt"
        yield Pointer(path=path, kind=PointerKind.SYMLINK, content=name, why=_WHY)
        remote = lies.get(f"{path.name}.symlink")
        if remote is not None:
            # The text holds a key of the object store: only its last part changes.
            folder, slash, _ = remote.text.strip().rpartition("/")
            yield text(placed, f"{path.name}.symlink", f"{folder}{slash}{name}", _WHY)


COMPOSER = Rule(
    framework="Composer",
    names="`latest-rank<r>.pt`",
    set_to="a link to the rank's file, or to the folder",
    without="`autoresume` finds none: training starts anew",
    decide=_decide,
)
