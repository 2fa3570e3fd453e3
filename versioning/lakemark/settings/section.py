"""A configuration's shape from plain dataclasses: read strictly, shown again, described as JSON schema.

Each key of a `Section` is a field whose annotation says what it may hold, and
`Default`, written as in the file, what it is when left out. Defaults are read like
given values. Everything wrong is found in one pass.

Standard library only, because every command loads this.
"""

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple, TypeVar, Union, cast, get_args, get_origin

from lakemark.errors import quoted
from lakemark.settings.document import Key, Value

S = TypeVar("S", bound="Section")
JsonSchema = dict[str, Any]
_MISSING: Final = object()


class SettingProblem(NamedTuple):
    """What is wrong with the value at `key`, in words that follow the key's name."""

    key: Key
    text: str


class InvalidError(Exception):
    """All problems of a value; keys count from that value."""

    def __init__(self, *problems: SettingProblem) -> None:
        super().__init__(problems)
        self.problems = problems


def invalid(text: str, *key: str | int) -> InvalidError:
    """One problem; `key` is where below the value it lies."""
    return InvalidError(SettingProblem(key, text))


@dataclass(frozen=True)
class ValueKind:
    """How one kind of value is read (InvalidError if it is none), shown, and described.

    `read` also gets the folder from which relative paths count.
    """

    read: Callable[[Value, Path], Any]
    schema: Callable[[], JsonSchema]
    show: Callable[[Any], Value] = lambda value: cast("Value", value)


@dataclass(frozen=True)
class Default:
    """What a key holds when left out, as the file would say it."""

    value: Any


class Section:
    """One mapping of the configuration; subclasses are frozen, keyword-only dataclasses."""

    what: ClassVar[str] = ""
    """How messages call the place whose keys these are, e.g. "an s3 tier"."""
    names: ClassVar[Mapping[str, str]] = {}
    """Fields whose key in the file has another name."""

    def problems(self) -> Iterator[SettingProblem]:
        """What is wrong between the keys, each of which is right by itself."""
        yield from ()


class _Field(NamedTuple):
    attribute: str
    kind: ValueKind
    default: Any


_DESCRIBED: Final[dict[type[Section], Mapping[str, _Field]]] = {}


def _fields(section: type[Section]) -> Mapping[str, _Field]:
    """The section's fields by their keys in the file; worked out once."""
    if section not in _DESCRIBED:
        found = {}
        for field in fields(cast("Any", section)):
            notes = getattr(field.type, "__metadata__", ())
            default = next((note.value for note in notes if isinstance(note, Default)), _MISSING)
            found[section.names.get(field.name, field.name)] = _Field(field.name, kind_of(field.type), default)
        _DESCRIBED[section] = found
    return _DESCRIBED[section]


def known(section: type[Section]) -> tuple[str, ...]:
    """The keys that may stand in it."""
    return tuple(_fields(section))


def read_section(section: type[S], value: Value, base: Path) -> S:
    """`value`, checked; InvalidError with everything that is wrong in it."""
    if value is None:
        raise invalid("is empty; leave the key out to have its defaults")
    if not isinstance(value, dict):
        raise invalid(f"must be a mapping such as {{{known(section)[0]}: …}}, not {quoted(value)}")
    # Unknown keys first: a mistyped one explains why another is missing.
    found = [SettingProblem((key,), _unknown(key, section)) for key in value if key not in known(section)]
    read = {}
    for key, field in _fields(section).items():
        # Defaults are read like given values, so one that is wrong is seen at once.
        given = value.get(key, field.default)
        if given is _MISSING:
            found.append(SettingProblem((key,), "is missing"))
        else:
            read[field.attribute] = _below(key, field.kind, given, base, found)
    # Rules between keys are asked only where each key is right by itself.
    if not found:
        whole = section(**read)
        found = list(whole.problems())
    if found:
        raise InvalidError(*found)
    return whole


def shown_section(section: Section) -> dict[str, Value]:
    """The mapping that reads back as `section`, paths absolute."""
    described = _fields(type(section))
    return {key: field.kind.show(getattr(section, field.attribute)) for key, field in described.items()}


def section_schema(section: type[Section]) -> JsonSchema:
    """The section as JSON schema, its docstring as description."""
    described = _fields(section)
    properties = {key: _property(field) for key, field in described.items()}
    required = [key for key, field in described.items() if field.default is _MISSING]
    schema = {"type": "object", "additionalProperties": False, "properties": properties}
    if section.__doc__:
        schema["description"] = " ".join(section.__doc__.split())
    return {**schema, "required": required} if required else schema


def kind_of(annotation: Any) -> ValueKind:  # noqa: ANN401 - a type expression
    """What a field's type says about its values; a `Kind` in an `Annotated` decides."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        given = [note for note in annotation.__metadata__ if isinstance(note, ValueKind)]
        return given[0] if given else kind_of(parts[0])
    if origin in {Union, UnionType}:
        # The only union there is: a kind, or null.
        return _optional(kind_of(parts[0]))
    if origin is Literal:
        return _choice(parts)
    if origin is tuple:
        return _list(kind_of(parts[0]))
    if origin is Mapping:
        return _mapping(kind_of(parts[0]), kind_of(parts[1]))
    if annotation is bool:
        return _FLAG
    return ValueKind(
        read=lambda value, base: read_section(annotation, value, base),
        schema=lambda: section_schema(annotation),
        show=cast("Callable[[Any], Value]", shown_section),
    )


def nearest(name: object, names: tuple[str, ...]) -> str:
    """The one of `names`, which are not none, that is most like `name`."""
    return difflib.get_close_matches(str(name).lower(), names, n=1, cutoff=0.0)[0]


def _unknown(key: object, section: type[Section]) -> str:
    of = f" of {section.what}" if section.what else ""
    return f"is not a known key{of}; the nearest one is `{nearest(key, known(section))}`"


def _below(step: str | int, kind: ValueKind, value: Value, base: Path, found: list[SettingProblem]) -> Any:  # noqa: ANN401, PLR0917
    try:
        return kind.read(value, base)
    except InvalidError as error:
        found.extend(SettingProblem((step, *problem.key), problem.text) for problem in error.problems)
        return None


def _property(field: _Field) -> JsonSchema:
    schema = field.kind.schema()
    return schema if field.default is _MISSING else {**schema, "default": field.default}


def _optional(kind: ValueKind) -> ValueKind:
    return ValueKind(
        read=lambda value, base: None if value is None else kind.read(value, base),
        schema=lambda: {"anyOf": [kind.schema(), {"type": "null"}]},
        show=lambda value: None if value is None else kind.show(value),
    )


def _choice(words: tuple[str, ...]) -> ValueKind:
    def read(value: Value, _: Path) -> str:
        if not isinstance(value, str) or value not in words:
            raise invalid(f"must be {' or '.join(words)}, not {quoted(value)}")
        return value

    return ValueKind(read=read, schema=lambda: {"enum": list(words)})


def _flag(value: Value, _: Path) -> bool:
    # `yes` and `1` are refused, whoever else would take them.
    if not isinstance(value, bool):
        raise invalid(f"must be true or false, not {quoted(value)}")
    return value


_FLAG: Final = ValueKind(read=_flag, schema=lambda: {"type": "boolean"})


def _list(kind: ValueKind) -> ValueKind:
    def read(value: Value, base: Path) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise invalid(f"must be a list, not {quoted(value)}")
        found: list[SettingProblem] = []
        items = tuple(_below(number, kind, item, base, found) for number, item in enumerate(value))
        if found:
            raise InvalidError(*found)
        return items

    return ValueKind(
        read=read,
        schema=lambda: {"type": "array", "items": kind.schema()},
        show=lambda items: [kind.show(item) for item in items],
    )


def _mapping(names: ValueKind, kind: ValueKind) -> ValueKind:
    def read(value: Value, base: Path) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise invalid(f"must be a mapping of names to values, not {quoted(value)}")
        found: list[SettingProblem] = []
        # Names are checked as values are: a tier's name becomes part of paths and keys.
        for name in value:
            _below(name, names, name, base, found)
        items = {name: _below(name, kind, item, base, found) for name, item in value.items()}
        if found:
            raise InvalidError(*found)
        return items

    return ValueKind(
        read=read,
        schema=lambda: {"type": "object", "additionalProperties": kind.schema()},
        show=lambda items: {name: kind.show(item) for name, item in items.items()},
    )
