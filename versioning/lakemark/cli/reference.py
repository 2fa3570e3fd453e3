"""The reference page of the command line, from the commands themselves: `python -m lakemark.cli.reference > docs/cli.md`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from lakemark.cli.registry import COMMANDS, GROUPS, MEANINGS, Command, application

if TYPE_CHECKING:
    from cyclopts import App, Argument

_HEAD = """\
# The command line

This page is made by `python -m lakemark.cli.reference`; `lakemark COMMAND --help` says the same.

Every command takes `--config FILE`, `--json`, `--quiet` (`-q`) and `--verbose` (`-v`), before or after its name, and
everything that changes something takes `--dry-run`: it says what would be done, and changes nothing. Data goes to
stdout, all else to stderr. With `--json` stdout has exactly one JSON document; an error is one JSON line on stderr:
`{"error": {"kind", "message", "advice", "exit_code"}}`. A dry run answers `{"dry_run": true, "would": [...]}`.

WHEN is `3d` or `90m` (ago, exact), or ISO 8601 with an offset; a time without one is refused. RECORD is `id:HEX`, 8 or
more digits of an id with at least one letter, `RUN@STEP`, `RUN@latest`, `RUN@WHEN`, `RUN~TIMELINE@STEP` or
`RUN@best:METRIC`; text of digits alone is a step. Letter case does not matter. What is ambiguous is refused, with the
candidates named.
"""


def render() -> str:
    """The page, in Markdown."""
    return "\n".join([_HEAD, *_codes(), *(line for command in COMMANDS for line in _command(command))]).rstrip() + "\n"


def _codes() -> list[str]:
    rows = [f"| {code} | {meaning} |" for code, meaning in MEANINGS.items()]
    return ["## Exit codes", "", "| code | meaning |", "|---|---|", *rows, ""]


def _command(command: Command) -> Iterator[str]:
    app = _found(command)
    arguments = list(app.assemble_argument_collection(parse_docstring=True))
    first, rest = _help(app)
    if command.name.split()[0] in GROUPS and _is_first(command):
        yield from (f"## `lakemark {command.name.split()[0]}`", "", GROUPS[command.name.split()[0]], "")
    yield from (f"## `{usage(command.name, arguments)}`", "", first, "")
    if rest:
        yield from (rest, "")
    rows = [f"| {_names(one)} | {_told(one)} |" for one in arguments if one.show]
    if rows:
        yield from ("| | |", "|---|---|", *rows, "")
    yield f"Exit codes: {', '.join(str(code) for code in command.codes)}."
    yield ""


def usage(name: str, arguments: list[Argument]) -> str:
    """`lakemark run open RUN [--data DATA …]`."""
    words = [f"lakemark {name}"]
    for one in arguments:
        if not one.show:
            continue
        shown = _names(one).replace("`", "").split(", ")[0]
        words.append(shown if one.required else f"[{shown}]")
    return " ".join(words)


def _found(command: Command) -> App:
    # With its words: only the command that is called has its docstring read.
    app: App = application(command.name.split())
    for word in command.name.split():
        app = app[word]
    return app


def _help(app: App) -> tuple[str, str]:
    """First line and the rest of what a command says of itself, without its parameters."""
    text = inspect.cleandoc(str(app.help))
    first, _, rest = text.partition("\n")
    return first.strip(), rest.partition("Parameters\n---")[0].strip()


def _names(argument: Argument) -> str:
    name = argument.names[0]
    if not name.startswith("-"):
        return f"`{name}`"
    # A switch takes no value, so none is shown.
    if argument.hint is bool:
        return f"`{name}`"
    many = " …" if argument.is_var_positional() or "tuple" in str(argument.hint) else ""
    return f"`{name} {name.strip('-').upper()}{many}`"


def _told(argument: Argument) -> str:
    text = " ".join(str(argument.parameter.help or "").split())
    default = argument.field_info.default
    # An empty, false or missing default says nothing that the text does not say.
    plain = default not in (None, False, (), inspect.Parameter.empty) and not argument.required
    return f"{text} Default: `{default}`.".strip() if plain else text


def _is_first(command: Command) -> bool:
    group = command.name.split()[0]
    return next(one for one in COMMANDS if one.name.split()[0] == group) is command


if __name__ == "__main__":
    sys.stdout.write(render())
