"""The options that every command takes, before or after its name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final

from cyclopts import Parameter, Token

from lakemark.errors import Usage

CONFIG: Final = "--config"
_FLAGS: Final = {"--json": "json", "--quiet": "quiet", "-q": "quiet", "--verbose": "verbose", "-v": "verbose"}
HELP: Final = "Everywhere: --config FILE --json --quiet --verbose, before or after the command."


def _whole(_: type, tokens: Sequence[Token]) -> int:
    text = tokens[0].value
    if not (text.isascii() and text.removeprefix("-").isdigit()):
        raise ValueError(f"{text!r} is not a whole number of the digits 0 to 9")
    return int(text)


def _said(_: type, reason: Any) -> None:  # noqa: ANN401 - what cyclopts hands over
    if not str(reason).strip():
        raise ValueError("it is empty: say why, it stays in the history")


Whole = Annotated[int, Parameter(converter=_whole)]
"""A whole number in the digits 0 to 9: `int` would take full-width digits and 1_000, too."""

Reason = Annotated[str, Parameter(validator=_said)]
"""Why something was decided: never empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """config: the file, else it is searched for. json: one document on stdout. quiet: no progress and no notes."""

    config: Path | None = None
    json: bool = False
    quiet: bool = False
    verbose: bool = False


def taken(arguments: Sequence[str]) -> tuple[Options, list[str]]:
    """The global options, and the arguments without them. What stands after `--` is left alone. Raises Usage."""
    options = Options()
    rest: list[str] = []
    left = iter(arguments)
    for argument in left:
        if argument == "--":
            return options, [*rest, argument, *left]
        if argument in _FLAGS:
            options = replace(options, **{_FLAGS[argument]: True})  # type: ignore[arg-type]
        elif argument == CONFIG or argument.startswith(f"{CONFIG}="):
            value = argument.partition("=")[2] if "=" in argument else next(left, "")
            if not value or value.startswith("--"):
                raise Usage(f"{CONFIG} names no file", advice=f"Write {CONFIG} FILE.")
            options = replace(options, config=Path(value))
        else:
            rest.append(argument)
    return options, rest
