"""The options that every command takes, before or after its name."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final

from cyclopts import Parameter, Token

from lakemark.errors import Usage, quoted
from lakemark.model.values import outside
from lakemark.model.values.names import printable

CONFIG: Final = "--config"
_FLAGS: Final = {"--json": "json", "--quiet": "quiet", "-q": "quiet", "--verbose": "verbose", "-v": "verbose"}
HELP: Final = "Everywhere: --config FILE --json --quiet --verbose, before or after the command."


def _whole(_: type, tokens: Sequence[Token]) -> int:
    text = tokens[0].value
    # Alone `isdigit` is true for superscripts and for digits of other scripts, which must not pass for steps.
    if not (text.isascii() and text.removeprefix("-").isdigit()):
        raise ValueError(f"{text!r} is not a whole number of the digits 0 to 9")
    return int(text)


def as_text(_: type, value: Any) -> None:  # noqa: ANN401 - what cyclopts hands over
    """ValueError for text with bytes that are not UTF-8, which the ledger can't keep; paths may have such bytes."""
    for text in _texts(value):
        # Arguments that are no UTF-8 come in as surrogates, which neither JSON nor the journal could write.
        if printable(text) != text:
            raise ValueError(f"{quoted(text)} has bytes that are not UTF-8")


def require_kept(option: str, path: Path) -> None:
    """Raises Usage for a path with bytes that are not UTF-8, where the ledger keeps it."""
    if printable(path) != str(path):
        raise Usage(
            f"{option} {quoted(str(path))} has bytes that are not UTF-8, and the ledger keeps it as text",
            advice="Give it a name in UTF-8, or a symbolic link with such a name.",
        )


def absolute(path: Path) -> Path:
    """Without `..`; other links than those before one stay as they were written."""
    # `a/link/..` is the parent of what the link leads to, not `a`: with `..` in it only the kernel's way is right.
    return Path(os.path.realpath(path)) if ".." in path.parts else path.absolute()


def is_directory(path: Path) -> bool:
    """False also where it can't be looked at."""
    try:
        return path.is_dir()
    except OSError:
        return False


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple):
        yield from (text for one in value for text in _texts(one))
    elif is_dataclass(value):
        yield from (text for one in fields(value) for text in _texts(getattr(value, one.name)))


def _said(_: type, reason: Any) -> None:  # noqa: ANN401 - what cyclopts hands over
    as_text(str, reason)
    outside.reason(str(reason))


Whole = Annotated[int, Parameter(converter=_whole)]
"""A whole number in the digits 0 to 9: `int` would take full-width digits and 1_000, too."""

Reason = Annotated[str, Parameter(validator=_said)]
"""Why something was decided: 3 to 1,000 characters, as in Prefect's form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """config: the file, else it is searched for. json: one document on stdout. quiet: no progress and no notes."""

    config: Path | None = None
    json: bool = False
    quiet: bool = False
    verbose: bool = False


def taken(arguments: Sequence[str]) -> tuple[Options, list[str]]:
    """The global options, and the arguments without them. What stands after `--` is left alone.

    Raises Usage, also where an argument is empty, as a variable that is not set leaves it.
    """
    _require_words(arguments)
    options = Options()
    rest: list[str] = []
    left = iter(arguments)
    for argument in left:
        if argument == "--":
            # Behind `--` also what looks like an option is a value.
            return options, [*rest, argument, *left]
        if argument in _FLAGS:
            options = replace(options, **{_FLAGS[argument]: True})  # type: ignore[arg-type]
        # Both ways to write it, as the parser of all other options takes both.
        elif argument == CONFIG or argument.startswith(f"{CONFIG}="):
            value = argument.partition("=")[2] if "=" in argument else next(left, "")
            # `--config --json` is a forgotten file rather than one of that name.
            if not value or value.startswith("--"):
                raise Usage(f"{CONFIG} names no file", advice=f"Write {CONFIG} FILE.")
            options = replace(options, config=Path(value))
        else:
            rest.append(argument)
    return options, rest


def _require_words(arguments: Sequence[str]) -> None:
    before = ""
    for argument in arguments:
        option, mark, value = argument.partition("=")
        # `--to=$DIR` of a variable that is not set; the empty path would mean the current directory.
        if mark and not value and option.startswith("--"):
            raise _empty(option)
        if not argument:
            raise _empty(f"what stands after {before}" if before else "the first argument")
        before = argument


def _empty(which: str) -> Usage:
    return Usage(f"{which} is empty", advice="Give it a value, or leave it out; is a variable not set?")
