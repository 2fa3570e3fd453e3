"""YAML to plain values, each with its line, refusing what YAML readers disagree on.

A configuration must mean the same to everybody who reads it. So: no duplicate
keys, no anchors, aliases, merges or tags, one document, no unquoted text that
YAML 1.1 and 1.2 read differently (`no`, `010`, `1:30`), and bounds on size and
depth. Dates stay text. Every refusal is Misconfigured with file and line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NoReturn

import yaml

from lakemark.errors import Misconfigured, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

Scalar = str | int | float | bool | None
Value = Scalar | list["Value"] | dict[str, "Value"]
Key = tuple[str | int, ...]

# Far beyond any site; a file of another kind that was named by mistake is not parsed for minutes.
_MOST_BYTES: Final = 1 << 20
_DEEPEST: Final = 16
# `!!str` and `!` say that it is text, which quotes say as well.
_STR_TAG: Final = "tag:yaml.org,2002:str"
_NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL: Final = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
# Eighteen digits fit into 64 bits everywhere.
_INT: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,17})", re.ASCII)
_FLOAT: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,17})\.[0-9]{1,18}", re.ASCII)
_TRAP: Final = re.compile(
    r"""(?i: yes | no | on | off
      | [-+]?\.(?:inf|nan) | \.nan
      | [-+]?0[xob][0-9a-f_]+          # 0x1F, 0o17, 0b1
      | [-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?   # 1:30 is 90 in YAML 1.1
      | [-+]?[0-9][0-9_]*(?:\.[0-9_]*)?(?:e[-+]?[0-9]+)?   # 010, 1_000, +5, 1e3 and longer than a number may be
      | = | << )""",
    re.ASCII | re.VERBOSE,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """A mapping and where each of its values stands: `lines[("tiers", "hot", "path")]` counts from 1."""

    name: str
    value: dict[str, Value]
    lines: dict[Key, int] = field(default_factory=dict)


def parse(text: str, *, name: str) -> Document:
    """The one mapping in `text`; `name` is what messages call the file."""
    # Before the first event: PyYAML takes time and memory by the length.
    if len(text) > _MOST_BYTES:
        raise Misconfigured(f"{name} is longer than 1 MiB", advice="Give lakemark's own configuration.")
    reader = _Reader(name, _events(text, name))
    value = reader.document()
    if not isinstance(value, dict) or not value:
        what = "is empty" if value in (None, {}) else "is not a mapping of keys to values"
        raise Misconfigured(
            f"{name} {what}", advice="Restore it from version control, or write a new one with `lakemark init`."
        )
    return Document(name=name, value=value, lines=reader.lines)


def parse_scalar(text: str, *, name: str) -> Scalar:
    """One value by the file's rules, for environment variables: `2` is a number, `"2"` text."""
    if "\n" not in text and not any(mark in text for mark in "'\"!&*{}[]#`|>%@"):
        # Nothing here is YAML syntax: what follows a colon in a URL stays text.
        return _plain(text.strip(), name)
    reader = _Reader(name, _events(text, name))
    value = reader.document()
    if isinstance(value, dict | list):
        _refuse(name, "must be a single value, not a mapping or list")
    return value


def _events(text: str, name: str) -> Iterator[yaml.Event]:
    try:
        yield from yaml.parse(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{mark.line + 1}" if mark else name
        _refuse(where, f"is not YAML: {error.problem or error.context}")
    except yaml.YAMLError as error:
        _refuse(name, f"is not YAML: {' '.join(str(error).split())[:120]}")


class _Reader:
    """Builds values from events: nothing of YAML's object construction ever runs."""

    def __init__(self, name: str, events: Iterator[yaml.Event]) -> None:
        self.lines: dict[Key, int] = {}
        self._name = name
        self._events = events

    def document(self) -> Value:
        started = 0
        value: Value = None
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                started += 1
                if started > 1:
                    _refuse(self._at(event), "starts a second document; one file holds one")
                value = self._value(next(self._events), ())
        return value

    def _value(self, event: yaml.Event, key: Key) -> Value:
        where = self._at(event)
        # The line of the key counts, where there is one: that is where people look.
        self.lines.setdefault(key, _line(event))
        # Aliases of aliases make a small file huge, and what an alias means depends on where it is read.
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            _refuse(where, "uses an anchor or alias (`&`, `*`); write the value out, or quote the text")
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event)
        # `_value` and its two callers recurse.
        if len(key) >= _DEEPEST:
            _refuse(where, f"is nested deeper than {_DEEPEST} levels")
        if isinstance(event, yaml.CollectionStartEvent) and event.tag is not None:
            _refuse(where, f"has the tag {quoted(event.tag)}; tags are not allowed")
        return self._mapping(key) if isinstance(event, yaml.MappingStartEvent) else self._sequence(key)

    def _sequence(self, key: Key) -> list[Value]:
        items: list[Value] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            items.append(self._value(event, (*key, len(items))))
        return items

    def _mapping(self, key: Key) -> dict[str, Value]:
        values: dict[str, Value] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            name = self._key(event)
            place = (*key, name)
            # YAML's readers take the first, the last, or neither.
            if name in values:
                shown = ".".join(map(str, place))
                first = self.lines[place]
                _refuse(self._at(event), f"gives `{shown}` a second time; the first is in line {first}")
            self.lines[place] = _line(event)
            values[name] = self._value(next(self._events), place)
        return values

    def _key(self, event: yaml.Event) -> str:
        scalar = event if isinstance(event, yaml.ScalarEvent) and event.anchor is None else None
        name = self._scalar(scalar) if scalar else None
        if not isinstance(name, str):
            _refuse(self._at(event), "has a key that is not plain text; put it in quotes")
        return name

    def _scalar(self, event: yaml.ScalarEvent) -> Scalar:
        where = self._at(event)
        if event.tag not in (None, _STR_TAG, "!"):
            _refuse(where, f"has the tag {quoted(event.tag)}; tags are not allowed")
        # Quoted, or said to be text: never a number, whatever it looks like.
        if event.style or event.tag is not None:
            return str(event.value)
        return _plain(event.value, where)

    def _at(self, event: yaml.Event) -> str:
        return f"{self._name}:{_line(event)}"


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1


def _plain(text: str, where: str) -> Scalar:
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _TRAP.fullmatch(text):
        _refuse(
            where,
            f"has {quoted(text)}, which YAML readers understand differently; write true, false or a plain "
            "decimal number, or quote it as text",
        )
    return text


def _refuse(where: str, why: str) -> NoReturn:
    raise Misconfigured(f"{where} {why}", advice="Mend that line; `lakemark config schema` tells what may stand there.")
