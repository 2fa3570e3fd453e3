"""A second look at a save, for families without an index, marker or count of their own: it is held against other saves.

What a trainer killed between two files leaves behind looks whole to rules that judge a directory alone, and so does what is
left of a save that somebody stripped later.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from lakemark.model.checkpoints.judging import is_of_tensors
from lakemark.model.checkpoints.manifest import File, Manifest

_NUMBER: Final = re.compile(r"\d+", re.ASCII)


def kinds_of(names: Iterable[str]) -> Counter[str]:
    """How many files of tensors there are of each name, steps and ranks left out: `model_rank_#.pt` -> 4."""
    return Counter(_NUMBER.sub("#", name) for name in names if is_of_tensors(name) and not _is_indexed(name))


def lacking(names: Iterable[str], earlier: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Name without numbers -> how many more of it *every* earlier save has.

    earlier: `kinds_of` each earlier save of the same attempt and framework, as it had them when first sealed; read no further
    than needed to find one that had no more. Empty where there is no earlier one, and where nothing lacks.
    """
    have = kinds_of(names)
    short: dict[str, int] | None = None
    for before in earlier:
        # The one file of tensors that a save has may be called by its loss.
        if sum(before.values()) == 1 and have:
            return {}
        here = {name: count - have[name] for name, count in before.items() if count > have[name]}
        # What one earlier save did without, a trainer writes now and then, as samples of an evaluation.
        short = here if short is None else {name: min(short[name], here[name]) for name in short.keys() & here.keys()}
        if not short:
            return {}
    return short or {}


def lacks_too(short: Mapping[str, int], names: Iterable[str], later: Iterable[str]) -> bool:
    """Whether a later save has no more of what this one lacks: then the trainer writes it no more, and nothing is missing.

    names: of this save's files; later: of the next one's. As with fewer ranks after an elastic restart, or in a last export.
    """
    have, next_has = kinds_of(names), kinds_of(later)
    return all(next_has[name] <= have[name] for name in short)


def told(short: Mapping[str, int]) -> str:
    """What is missing, in words: `ema.bin, 2 of model_rank_#.pt`."""
    shown = [name if count == 1 and "#" not in name else f"{count} of {name}" for name, count in sorted(short.items())]
    return ", ".join(shown[:3]) + (", …" if len(shown) > 3 else "")  # noqa: PLR2004 - enough to see


def grew(before: Manifest, now: Manifest) -> bool:
    """Whether `now` is `before` with more: every path of it is there still, and every file of tensors has the same bytes.

    Texts beside them may be written again, as a trainer does with a history. Without a file of tensors all bytes are the same.
    """
    here = {file.path: file for file in now.files}
    heavy = {file.path for file in before.regular if is_of_tensors(file.path)} or {file.path for file in before.regular}
    return all(_stands(file, here, exactly=file.path in heavy) for file in before.files)


def _stands(file: File, here: Mapping[str, File], *, exactly: bool) -> bool:
    found = here.get(file.path)
    return found is not None and found.type is file.type and (not exactly or found.digest == file.digest)


def _is_indexed(name: str) -> bool:
    """Whether `.metadata` beside it lists it: how many of these there are differs from save to save."""
    return name.endswith(".distcp")
