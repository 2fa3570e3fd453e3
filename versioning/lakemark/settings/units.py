"""Sizes, shares and durations as people write them, exact, and back to text.

Every reader takes text only and raises ValueError with one sentence: a number
without a unit is a mistake here, never a guess.
"""

from __future__ import annotations

import math
import re
from datetime import timedelta
from fractions import Fraction
from typing import Final

from lakemark.model.values.instants import duration as _duration

_DECIMAL: Final = r"([0-9]{1,15}(?:\.[0-9]{1,9})?)"
# No bare number and no `Kb`: bits or bytes, 1000 or 1024 is never guessed.
_SIZE: Final = re.compile(_DECIMAL + r" ?(k|[KMGTPE]i?)?B", re.ASCII)
_SHARE: Final = re.compile(_DECIMAL + r" ?%", re.ASCII)
_FACTORS: Final = {
    "": 1,
    **{letter + "i": 1024**power for power, letter in enumerate("KMGTPE", start=1)},
    **{letter: 1000**power for power, letter in enumerate("kMGTPE", start=1)},
    "K": 1000,
}
_BINARY: Final = [(name, _FACTORS[name]) for name in ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki")]
_MOST_BYTES: Final = 2**63 - 1
# Sums of an instant and a span stay within the calendar.
_LONGEST: Final = timedelta(days=36_525)
_ALL: Final = 100


def delay(text: str) -> timedelta:
    """`90m`, `2h`, `3d`, `0s`: s, m, h, d, w; at most 100 years; `3d` is exactly 72 h."""
    try:
        span = _duration(text)
    except OverflowError:
        span = _LONGEST * 2
    if span > _LONGEST:
        raise ValueError(f"{text!r} is longer than 100 years")
    return span


def duration(text: str) -> timedelta:
    """A `delay` above zero."""
    span = delay(text)
    if not span:
        raise ValueError(f"{text!r} is no time at all; it must be above zero")
    return span


def size(text: str) -> int:
    """Bytes: `200GiB` is 200 * 1024³, `8TB` is 8 * 1000⁴, `1.5KiB` is 1536; whole bytes below 2⁶³."""
    match = _SIZE.fullmatch(text)
    # Exact: `0.1GiB` is no whole number of bytes and is refused, where a float would round it.
    size_bytes = Fraction(match[1]) * _FACTORS[match[2] or ""] if match else Fraction(1, 2)
    if size_bytes.denominator != 1 or size_bytes > _MOST_BYTES:
        raise ValueError(f"{text!r} is not a size in whole bytes such as 200GiB or 8TB")
    return int(size_bytes)


def share(text: str) -> Fraction:
    """`20%` is 1/5, exactly; from 0% to 100%, both included."""
    match = _SHARE.fullmatch(text)
    part = Fraction(match[1]) / _ALL if match else Fraction(-1)
    if not 0 <= part <= 1:
        raise ValueError(f"{text!r} is not a share from 0% to 100% such as 20%")
    return part


def amount(text: str) -> int | Fraction:
    """A share of a whole (`10%`, a Fraction) or a size of its own (`50GiB`, an int of bytes)."""
    if text.endswith("%"):
        return share(text)
    try:
        return size(text)
    except ValueError:
        raise ValueError(f"{text!r} is neither a share such as 10% nor a size such as 50GiB") from None


def rate(text: str) -> int:
    """Bytes per second: `200MiB` or `200MiB/s`; above zero."""
    per_second = size(text.removesuffix("/s"))
    if not per_second:
        raise ValueError(f"{text!r} is no bandwidth: leave it out, or null, for no limit")
    return per_second


def bytes_of(part: int | Fraction, *, total_bytes: int) -> int:
    """How many bytes an `amount` is of `total_bytes`, rounded up: `bytes_of(Fraction(1, 3), total_bytes=10)` is 4."""
    return math.ceil(part * total_bytes) if isinstance(part, Fraction) else part


def size_text(size_bytes: int) -> str:
    """The shortest exact text that `size` reads back: 1536 -> `1536B`, 2048 -> `2KiB`."""
    for name, factor in _BINARY:
        # Binary units only: every size has one shortest form.
        if size_bytes and size_bytes % factor == 0:
            return f"{size_bytes // factor}{name}B"
    return f"{size_bytes}B"


def share_text(part: Fraction) -> str:
    """Text that `share` reads back, exact for what `share` gave: 1/5 -> `20%`."""
    percent = part * _ALL
    if percent.denominator == 1:
        return f"{percent.numerator}%"
    # Nine digits are as many as `share` reads.
    return f"{percent.numerator / percent.denominator:.9f}".rstrip("0").rstrip(".") + "%"


def amount_text(part: int | Fraction) -> str:
    """Text that `amount` reads back."""
    return share_text(part) if isinstance(part, Fraction) else size_text(part)
