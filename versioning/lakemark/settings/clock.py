"""The one place that reads a clock. Everything else gets an instant, or a function, from here."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lakemark.errors import Misconfigured, Usage
from lakemark.model.values.instants import from_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakemark.settings.schema import Settings

VARIABLE: Final = "LAKEMARK_CLOCK"


def is_simulated(environ: Mapping[str, str]) -> bool:
    """Whether `$LAKEMARK_CLOCK` sets the clock; entries then say `"clock": "simulated"`."""
    return bool(environ.get(VARIABLE))


def clock_from(settings: Settings, environ: Mapping[str, str]) -> Callable[[], datetime]:
    """A function that gives now, aware and UTC: the machine's clock, or what `$LAKEMARK_CLOCK` says.

    That is an ISO 8601 instant with an offset, or `@FILE`, which holds one and is
    read at each call. Set without `simulated_clock: true`, it is Misconfigured; an
    instant that does not parse is Usage, for `@FILE` when the clock is read.
    """
    given = environ.get(VARIABLE)
    if not given:
        return _machine
    # A variable that was left set in a shell must not date a real site's history.
    if not settings.simulated_clock:
        raise Misconfigured(
            f"{VARIABLE} is set, but this site's clock is not simulated",
            advice=f"Unset {VARIABLE}; only demos and tests say `simulated_clock: true`.",
        )
    if given.startswith("@"):
        file = Path(given[1:])
        # Read at each call: demos move the time while a service runs.
        return lambda: _in_file(file)
    instant = _parsed(given, VARIABLE)
    return lambda: instant


def _machine() -> datetime:
    return datetime.now(UTC)


def _in_file(file: Path) -> datetime:
    try:
        text = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Usage(
            f"{VARIABLE} names {file}, which cannot be read: {error}", advice="Write an ISO 8601 instant into it."
        ) from None
    return _parsed(text, str(file))


def _parsed(text: str, where: str) -> datetime:
    try:
        return from_text(text)
    except ValueError as error:
        raise Usage(f"{where}: {error}", advice="Give an instant such as 2026-11-26T12:00:00Z.") from None
