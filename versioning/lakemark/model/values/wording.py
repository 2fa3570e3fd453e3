"""Sizes, instants and spans as people read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_KILO: Final = 1024


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
