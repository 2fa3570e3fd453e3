"""What people read: sizes, instants, ids, and tables of aligned columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

SHORT: Final = 12
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_KILO: Final = 1024


def short(identity: str | None) -> str:
    """The first 12 digits of an id; `-` for none."""
    return identity[:SHORT] if identity else "-"


def size(size_bytes: int | None) -> str:
    """`1.4 GiB`; `-` where it is not known."""
    if size_bytes is None:
        return "-"
    value = float(size_bytes)
    for unit in _UNITS:
        if value < _KILO or unit == _UNITS[-1]:
            return f"{int(value)} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= _KILO
    return str(size_bytes)


def instant(at: datetime | None) -> str:
    """`2026-11-26 12:00:00Z`, always in UTC; `-` for none."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ") if at else "-"


def ago(span: timedelta) -> str:
    """`3d 4h`, `12m`, `5s`: the two largest units."""
    seconds = max(0, int(span.total_seconds()))
    parts = [(seconds // 86_400, "d"), (seconds % 86_400 // 3_600, "h"), (seconds % 3_600 // 60, "m")]
    shown = [f"{count}{unit}" for count, unit in parts if count]
    return " ".join(shown[:2]) or f"{seconds}s"


def plain(text: object) -> str:
    """One line that can't harm a terminal: control characters come out as escapes."""
    given = str(text)
    return given if given.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in given)


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Aligned columns, two blanks apart; no line where there are no rows."""
    cells = [[plain(cell) for cell in row] for row in rows]
    if not cells:
        return []
    lines = [list(heads), *cells]
    widths = [max(len(line[at]) for line in lines) for at in range(len(heads))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def pairs(rows: Iterable[tuple[str, object]]) -> list[str]:
    """`name  value`, one a line; values None or empty are left out."""
    kept = [(name, value) for name, value in rows if value not in (None, "", (), [])]
    width = max((len(name) for name, _ in kept), default=0)
    return [f"{name.ljust(width)}  {plain(value)}" for name, value in kept]
