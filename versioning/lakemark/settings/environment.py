"""`LAKEMARK_TIERS__WARM__ENDPOINT=…`: any value of the file, from the environment.

Parts of the name are keys in any letter case, `-` written as `_`, list items by
number. Values follow the file's rules for one value, so `2` is a number and
`"2"` is text. Variables that are none of the configuration's are left alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lakemark.errors import Misconfigured
from lakemark.settings.document import parse_scalar
from lakemark.settings.section import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakemark.settings.document import Key, Value

PREFIX: Final = "LAKEMARK_"
_SEPARATOR: Final = "__"
_SECRET: Final = ("_ACCESS_KEY_ID", "_SECRET_ACCESS_KEY", "_SESSION_TOKEN")
_ADVICE: Final = "Mend or unset the variable; `lakemark config show` lists every value with its source."


def overridden(
    value: dict[str, Value], *, environ: Mapping[str, str], known: tuple[str, ...]
) -> tuple[dict[str, Value], dict[Key, str]]:
    """A copy of `value` with the environment's values in it, and which variable gave which key.

    `known` are the top-level keys. A variable whose first part, before `__`, is
    none of them is Misconfigured, as are two that name the same key.
    """
    whole: dict[str, Value] = _copied(value)
    sources: dict[Key, str] = {}
    for variable in sorted(environ):
        parts = _parts(variable, known)
        if not parts:
            continue
        key = _set(whole, parts, parse_scalar(environ[variable], name=variable), variable)
        if key in sources:
            raise Misconfigured(f"{variable} and {sources[key]} both set `{_dotted(key)}`", advice=_ADVICE)
        sources[key] = variable
    return whole, sources


def _parts(variable: str, known: tuple[str, ...]) -> tuple[str, ...]:
    upper = variable.upper()
    # Keys to stores are read where they are used, and must not end up among the settings that are shown.
    if not upper.startswith(PREFIX) or upper.removesuffix("_FILE").endswith(_SECRET):
        return ()
    parts = tuple(upper.removeprefix(PREFIX).lower().split(_SEPARATOR))
    if parts[0] in known and all(parts):
        return parts
    # LAKEMARK_CONFIG, LAKEMARK_CLOCK and others' variables: with one part nothing tells a mistake from another program's name.
    if len(parts) == 1:
        return ()
    raise Misconfigured(
        f"{variable} names no key of the configuration; the nearest one is `{nearest(parts[0], known)}`",
        advice=_ADVICE,
    )


def _set(whole: dict[str, Value], parts: tuple[str, ...], value: Value, variable: str) -> Key:
    here: Value = whole
    key: Key = ()
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        step = _step(here, part, variable, key)
        key = (*key, step)
        if last:
            _put(here, step, value)
        else:
            here = _child(here, step, below=parts[number + 1])
    return key


def _step(here: Value, part: str, variable: str, key: Key) -> str | int:
    if isinstance(here, dict):
        # A key as the file spells it: `warm-2` is WARM_2 in a variable's name.
        same = [name for name in here if name.lower().replace("-", "_") == part]
        return same[0] if same else part
    # One past the end adds an item; a gap would leave items that nobody gave.
    if isinstance(here, list) and part.isascii() and part.isdecimal() and int(part) <= len(here):
        return int(part)
    what = "is a list: number its items from 0" if isinstance(here, list) else "is a single value"
    raise Misconfigured(f"{variable} goes below `{_dotted(key)}`, which {what}", advice=_ADVICE)


def _child(here: Value, step: str | int, *, below: str) -> Value:
    """The value at `step`; a mapping, or for item 0 a list, is begun where there is none, or `none` stood."""
    child = _get(here, step)
    if child in (None, "none"):
        child = [] if below == "0" else {}
        _put(here, step, child)
    return child


def _get(here: Value, step: str | int) -> Value:
    if isinstance(here, dict):
        return here.get(str(step))
    if isinstance(here, list) and isinstance(step, int) and step < len(here):
        return here[step]
    return None


def _put(here: Value, step: str | int, value: Value) -> None:
    if isinstance(here, dict):
        here[str(step)] = value
    elif isinstance(here, list) and isinstance(step, int):
        # A slice, so that one past the end appends.
        here[step : step + 1] = [value]


def _copied(value: dict[str, Value]) -> dict[str, Value]:
    return {name: _copy(child) for name, child in value.items()}


def _copy(value: Value) -> Value:
    if isinstance(value, dict):
        return _copied(value)
    return [_copy(item) for item in value] if isinstance(value, list) else value


def _dotted(key: Key) -> str:
    return ".".join(map(str, key))
