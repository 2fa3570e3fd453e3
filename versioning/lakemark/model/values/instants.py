"""Instants and durations as text. Aware UTC only; `3d` is exactly 72 hours."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

_DURATION: Final = re.compile(r"([0-9]{1,9})(s|m|h|d|w)", re.ASCII)
_INSTANT: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.,][0-9]{1,9})?)?([Zz]|[+-][0-9]{2}:?[0-9]{2})",
    re.ASCII,
)
_FIRST_YEAR: Final = 1000
_FIRST: Final = datetime(_FIRST_YEAR, 1, 1, tzinfo=UTC)
_LAST: Final = datetime.max.replace(tzinfo=UTC)
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class OutOfCalendar(ValueError):
    """An instant before the year 1000 or after 9999, UTC: it could not be written as it was read."""


def to_text(instant: datetime) -> str:
    """`2026-11-26T12:00:00.000000Z`: fixed width, so text order is time order. A naive `instant` is a ValueError."""
    if instant.tzinfo is None:
        message = f"{instant.isoformat()} has no offset"
        raise ValueError(message)
    # Always six digits: isoformat() leaves them out where they are zero, and texts would not sort by time.
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def from_text(text: str) -> datetime:
    """The instant `text` names, in UTC: ISO 8601 with an offset. Without one, malformed, or OutOfCalendar: ValueError."""
    if not _INSTANT.fullmatch(text):
        message = f"{text!r} is not an ISO 8601 instant with an offset, such as 2026-11-26T12:00:00Z"
        raise ValueError(message)
    found: datetime | None
    try:
        found = datetime.fromisoformat(text.upper().replace(" ", "T").replace(",", ".")).astimezone(UTC)
    except OverflowError:
        found = None
    # Other programs' zero time is of the year 1: a span taken from it has no instant, and strftime writes no four digits.
    if found is None or found.year < _FIRST_YEAR:
        message = f"{text!r} is not within the years {_FIRST_YEAR} to 9999, UTC"
        raise OutOfCalendar(message)
    return found


def later(instant: datetime, span: timedelta) -> datetime:
    """`instant + span`; where no calendar has that, the last instant of it, or the first: a ledger may say any date."""
    try:
        return instant + span
    except OverflowError:
        return _LAST if span > timedelta(0) else _FIRST


def in_zone(instant: datetime, zone: tzinfo) -> datetime:
    """The instant as clocks of the zone show it; as UTC's do where theirs would be beyond the calendar."""
    try:
        return instant.astimezone(zone)
    except (OverflowError, ValueError):
        return instant.astimezone(UTC)


def duration(text: str) -> timedelta:
    """`10m`, `2h`, `3d`: a whole number of seconds, minutes, hours, days or weeks, exact. Else ValueError.

    OverflowError where it is longer than a timedelta can be.
    """
    match = _DURATION.fullmatch(text)
    if not match:
        message = f"{text!r} is not a duration such as 90m, 2h or 3d"
        raise ValueError(message)
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def duration_text(span: timedelta) -> str:
    """The shortest exact text `duration` reads back; `span` is whole seconds, not negative."""
    seconds = int(span.total_seconds())
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds and seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
