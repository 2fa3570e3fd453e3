"""What people read: sizes, instants, ids, and tables of aligned columns."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from typing import Final

from lakemark.model.values.instants import from_text
from lakemark.model.values.names import original
from lakemark.model.values.wording import ago, instant, size

__all__ = [
    "AMBER",
    "RED",
    "SHORT",
    "ago",
    "as_typed",
    "coloured",
    "instant",
    "pairs",
    "plain",
    "short",
    "size",
    "table",
    "told",
]

RED: Final = 31
AMBER: Final = 33
"""ANSI's numbers of a terminal's red and yellow."""

SHORT: Final = 12
# What `names` makes of a name that is no run name; not inside of paths, URLs or file names, where it is the real one.
_MAPPED: Final = re.compile(r"(?<![\w./-])x-(?:[0-9a-f]{2})+(?![\w/-]|\.\w)", re.ASCII)


def short(identity: str | None) -> str:
    """The first 12 digits of an id; `-` for none."""
    return identity[:SHORT] if identity else "-"


def as_typed(text: str) -> str:
    """With the names of runs as people typed them, fit to be pasted into a shell; in paths they stay as they are there."""
    if _MAPPED.fullmatch(text):
        return original(text)
    return _MAPPED.sub(lambda match: shlex.quote(original(match[0])), text) if "x-" in text else text


def plain(text: object) -> str:
    """One line that can't harm a terminal: control characters come out as escapes, and run names as they were typed."""
    given = as_typed(str(text))
    # `ascii` of one character is its escape in quotes; those are cut off.
    return given if given.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in given)


def told(text: str | None) -> str:
    """An instant of a document, as `instant` shows one."""
    return instant(from_text(text)) if text else "-"


def coloured(word: str, colour: int) -> str:
    """The word in that colour where stdout is a terminal that has colours, else as it is (https://no-color.org)."""
    # An empty NO_COLOR counts as none, as that page says.
    shown = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return f"\x1b[{colour}m{word}\x1b[0m" if shown else word


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Aligned columns, two blanks apart; no line where there are no rows."""
    cells = [[plain(cell) for cell in row] for row in rows]
    if not cells:
        return []
    lines = [list(heads), *cells]
    # From the cells as they are shown: an escape is longer than the character it stands for.
    widths = [max(len(line[at]) for line in lines) for at in range(len(heads))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def pairs(rows: Iterable[tuple[str, object]]) -> list[str]:
    """`name  value`, one a line; values None or empty are left out."""
    # 0 and False are values and stay; `in` compares with ==, and neither is "", None, () or [].
    kept = [(name, value) for name, value in rows if value not in (None, "", (), [])]
    width = max((len(name) for name, _ in kept), default=0)
    return [f"{name.ljust(width)}  {plain(value)}" for name, value in kept]
