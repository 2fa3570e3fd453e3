"""fairseq and metaseq (`checkpoint_utils.py`): `checkpoint_last.pt`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from lakemark.formats.pointers.rule import Beside, Rule
from lakemark.ports import Placed, Pointer, PointerKind

_SHARD: Final = re.compile(r".*?((?:-(?:model_part-|shard|rank-)\d+)+|-shared)?\.pt", re.ASCII)


def _decide(placed: Placed, _: Beside) -> Iterator[Pointer]:
    for path in placed.paths:
        match = _SHARD.fullmatch(path.name)
        # Going on from checkpoint_last itself changes nothing.
        if match and not path.name.startswith("checkpoint_last"):
            last = path.with_name(f"checkpoint_last{match[1] or ''}.pt")
            yield Pointer(path=last, kind=PointerKind.COPY, content=str(path), why="fairseq resumes from it")


FAIRSEQ = Rule(
    framework="fairseq",
    names="`checkpoint_last.pt`",
    set_to="a copy",
    without="`--restore-file` finds none: training starts anew",
    decide=_decide,
)
