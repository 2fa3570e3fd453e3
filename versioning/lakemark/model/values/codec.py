"""Dataclasses as JSON objects and back, by the types of their fields: one rule for all formats.

Text, numbers, booleans, instants, words (StrEnum), tuples, mappings, other dataclasses, `None` and JSON as it is. `Annotated`
says more: a function checks or replaces what was read, `As` is another form in JSON, text is a note for the documentation.

A field that is absent or null takes its default; without one it is None where it may be, else missing. Keys that no field
has are kept in `extra` where the class has such a field. A name that Python keeps for itself has an underscore behind it
(`from_` is `from`).
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import datetime
from enum import StrEnum
from functools import cache
from itertools import repeat
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    NamedTuple,
    Self,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints as hints_of,
)

from lakemark.model.values.canonical import JSON
from lakemark.model.values.instants import from_text, to_text
from lakemark.model.values.outside import bounded, digest

_MOST: Final = 2**53 - 1
"""What every JSON reader keeps exact."""
_Read: TypeAlias = Callable[[Any], Any]
_Write: TypeAlias = Callable[[Any], JSON]
T = TypeVar("T")


class As(NamedTuple):
    """How a field's value is read from JSON, and written. read: raises ValueError. write: None: it is JSON already."""

    read: Callable[[Any], Any]
    write: Callable[[Any], JSON] | None


class _Passed:
    pass


PASSED_OVER: Final = _Passed()
"""Marks a field on which nothing depends: what it can't be is None, and the rest is read."""
LEFT_OUT: Final = types.MappingProxyType({"left_out": True})
"""Metadata of a field that is not written where it has its default, instead of as null or empty."""
REQUIRED: Final = types.MappingProxyType({"required": True})
"""Metadata of a field that JSON must have, although code may leave it to its default."""


def size(value: int) -> int:
    """A number of bytes, files or parts, a step or the number of an entry: from 0 to what JSON keeps exact."""
    return bounded(value, least=0, most=_MOST, what="it")


def number(value: int) -> int:
    """From 1 on: of an entry or a timeline."""
    return bounded(value, least=1, most=_MOST, what="it")


Size: TypeAlias = Annotated[int, size]
Number: TypeAlias = Annotated[int, number]
Digest: TypeAlias = Annotated[str, digest]


class Coded:
    """A dataclass that is a JSON object. what: how it is called in errors. document: its `format`, checked and written.

    sparse: what is null or empty by default is not written where it is so; also in classes derived from it.
    """

    __slots__ = ()
    _what: ClassVar[str] = "it"
    _document: ClassVar[str | None] = None
    _sparse: ClassVar[bool] = False

    def __init_subclass__(cls, *, what: str = "", document: str = "", sparse: bool = False) -> None:
        # With slots the class is made a second time, without these: then they lie in it already.
        if what:
            cls._what = what
        if document:
            cls._document = document
        if sparse:
            cls._sparse = True

    def as_json(self) -> dict[str, JSON]:
        return write(self)

    @classmethod
    def from_json(cls, value: JSON) -> Self:
        """Raises ValueError, which names the key, the value and the rule."""
        return read(cls, value)


class _Unfit(ValueError):
    """said: which value breaks which rule. path: where it lies; grows on the way out."""

    def __init__(self, said: str, path: str = "") -> None:
        super().__init__(f"{path}: {said}" if path else said)
        self.said, self.path = said, path


def read(cls: type[T], value: JSON) -> T:
    """`value` as `cls`. Raises ValueError, which names the key, the value and the rule, and what `cls` itself raises."""
    plan = _plan(cls)
    try:
        found: T = plan.read(value)
    except ValueError as error:
        raise ValueError(f"{plan.what}: {error}") from error
    return found


def write(value: Any) -> dict[str, JSON]:  # noqa: ANN401 - any dataclass whose fields have types of above
    """`value` as a JSON object; its keys in the order of its fields."""
    return _plan(type(value)).write(value)


class _Plan:
    """What a class's fields are read and written by: worked out once for each class."""

    def __init__(self, cls: Any) -> None:  # noqa: ANN401 - a class of dataclasses
        # As a name, `JSON` is text that refers to itself: anything.
        hints = hints_of(cls, localns={"JSON": Any}, include_extras=True)
        made = [one for one in fields(cls) if one.init]
        self.cls = cls
        self.what: str = getattr(cls, "_what", cls.__name__)
        self.format: str | None = getattr(cls, "_document", None)
        self.keeps = any(one.name == "extra" for one in made)
        bare = {one.name for one in made if _is_bare(one)}
        self.blank = dict.fromkeys(name for name in bare if _nullable(hints[name]))
        self.required = frozenset(bare - self.blank.keys())
        self.readers: dict[str, tuple[str, Any, _Read]] = {}
        self.always: list[tuple[str, str, _Write | None]] = []
        self.sparse: list[tuple[str, str, _Write | None, Any]] = []
        for one in made:
            if one.name == "extra":
                continue
            key, form = one.name.removesuffix("_"), _form(hints[one.name])
            self.readers[key] = (one.name, _plain(hints[one.name]), form.read)
            # A word of ours may stand where any text may.
            writer = str if isinstance(one.default, StrEnum) else form.write
            if one.metadata.get("left_out") or (getattr(cls, "_sparse", False) and _is_blank(one)):
                self.sparse.append((key, one.name, writer, _default(one)))
            else:
                self.always.append((key, one.name, writer))

    def read(self, value: JSON) -> Any:  # noqa: ANN401 - one of the class
        if not isinstance(value, Mapping):
            raise _Unfit(f"{_shown(value)} is not an object")
        if self.format is not None and value.get("format") != self.format:
            raise _Unfit(f"it has the format {_shown(value.get('format'))}; this version reads {self.format!r}")
        readers, found, more = self.readers, dict(self.blank), {}
        for key, one in value.items():
            known = readers.get(key)
            if known is None:
                if self.keeps:
                    more[key] = one
            # null and absent are the same: newer versions may write either.
            elif one is not None:
                name, plain, reader = known
                # Most values are text or a flag, and nothing is to be done with them: a fold is quicker by it.
                if one.__class__ is plain:
                    found[name] = one
                    continue
                try:
                    found[name] = reader(one)
                except ValueError as error:
                    raise _within(str(key), error) from error
        if not found.keys() >= self.required:
            raise _Unfit("it is missing", min(self.required - found.keys()))
        if self.keeps:
            if self.format is not None:
                del more["format"]
            found["extra"] = more
        return self.cls(**found)

    def write(self, value: Any) -> dict[str, JSON]:  # noqa: ANN401 - one of the class
        said: dict[str, JSON] = {} if self.format is None else {"format": self.format}
        for key, name, writer in self.always:
            one = getattr(value, name)
            said[key] = one if writer is None or one is None else writer(one)
        for key, name, writer, default in self.sparse:
            one = getattr(value, name)
            if one != default:
                said[key] = one if writer is None or one is None else writer(one)
        if self.keeps:
            # Fields of a newer version are written back as they were read.
            said |= value.extra
        return said


_PLANS: Final[dict[Any, _Plan]] = {}


def _plan(cls: Any) -> _Plan:  # noqa: ANN401 - a class of dataclasses
    plan = _PLANS.get(cls)
    if plan is None:
        plan = _PLANS[cls] = _Plan(cls)
    return plan


def _is_bare(field: Field[Any]) -> bool:
    missing = field.default is MISSING and field.default_factory is MISSING
    return missing or bool(field.metadata.get("required"))


def _default(field: Field[Any]) -> Any:  # noqa: ANN401 - of any type
    return field.default if field.default_factory is MISSING else field.default_factory()


def _is_blank(field: Field[Any]) -> bool:
    """Whether its default says nothing: null, or an empty text, list or object; false is an answer."""
    return not _is_bare(field) and _default(field) in (None, "", (), {})


def _nullable(hint: Any) -> bool:  # noqa: ANN401 - a type's hint
    if get_origin(hint) is Annotated:
        return _nullable(get_args(hint)[0])
    return hint is Any or type(None) in get_args(hint)


def _plain(hint: Any) -> Any:  # noqa: ANN401 - a type's hint
    """The class whose values are taken as they are; None where each is looked at."""
    origin, of = get_origin(hint), get_args(hint)
    if origin is Annotated:
        if PASSED_OVER in of[1:]:
            # Nothing depends on it, so its bounds do not matter.
            return next(one for one in (*get_args(of[0]), of[0]) if one is not type(None))
        return _plain(of[0]) if all(isinstance(said, str) for said in of[1:]) else None
    if origin in (Union, types.UnionType):
        return _plain(next(one for one in of if one is not type(None)))
    return hint if hint in (str, bool) else None


@cache
def _form(hint: Any) -> As:  # noqa: ANN401 - a type's hint
    """How a value of this type is read and written."""
    origin, of = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _annotated(_form(of[0]), of[1:])
    if origin in (Union, types.UnionType):
        (one,) = (each for each in of if each is not type(None))
        return _form(one)
    if origin is tuple and of[-1] is not Ellipsis:
        return _row(tuple(map(_inner, of)))
    if origin in (tuple, frozenset):
        return _many(origin, _inner(of[0]))
    if origin is Mapping:
        return _mapping(_inner(of[1]))
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return _word(hint)
    if is_dataclass(hint) and isinstance(hint, type):
        return _nested(hint)
    return _PLAIN[hint]


def _inner(hint: Any) -> As:  # noqa: ANN401 - a type's hint
    """As `_form`, where nobody has asked for null before."""
    form = _form(hint)
    if hint is Any or not _nullable(hint):
        return form
    writer = form.write
    return As(
        lambda value: None if value is None else form.read(value),
        None if writer is None else lambda value: None if value is None else writer(value),
    )


def _annotated(form: As, said: tuple[Any, ...]) -> As:
    for one in said:
        if isinstance(one, As):
            form = one
        elif one is PASSED_OVER:
            form = As(_or_none(form.read), form.write)
        elif callable(one):
            form = As(_then(form.read, one), form.write)
    return form


def _then(first: _Read, second: _Read) -> _Read:
    return lambda value: second(first(value))


def _or_none(reader: _Read) -> _Read:
    def lenient(value: JSON) -> Any:  # noqa: ANN401 - what the reader gives
        try:
            return reader(value)
        except ValueError:
            return None

    return lenient


def _many(made: type[Any], form: As) -> As:
    reader, writer = form

    def listed(value: Any) -> JSON:  # noqa: ANN401 - a tuple or set
        # A set has no order, and the same value must be the same bytes.
        ordered = sorted(value) if made is frozenset else value
        return list(ordered) if writer is None else [writer(one) for one in ordered]

    return As(lambda value: made(_items(value, repeat(reader))), listed)


def _row(forms: tuple[As, ...]) -> As:
    readers = [form.read for form in forms]

    def row(value: JSON) -> tuple[Any, ...]:
        found = tuple(_items(value, readers))
        if not len(found) == len(value) == len(forms):  # type: ignore[arg-type]
            raise _Unfit(f"{_shown(value)} has not {len(forms)} items")
        return found

    def listed(value: tuple[Any, ...]) -> JSON:
        return [one if form.write is None else form.write(one) for form, one in zip(forms, value, strict=True)]

    return As(row, listed)


def _items(value: JSON, readers: Iterable[_Read]) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise _Unfit(f"{_shown(value)} is not a list")
    found: list[Any] = []
    try:
        found.extend(reader(one) for one, reader in zip(value, readers, strict=False))
    except ValueError as error:
        # Those before it were read.
        raise _within(f"[{len(found)}]", error) from error
    return found


def _mapping(form: As) -> As:
    reader, writer = form

    def named(value: JSON) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise _Unfit(f"{_shown(value)} is not an object")
        if form is _ANYTHING:
            return dict(value)
        found: dict[str, Any] = {}
        for key, one in value.items():
            try:
                found[key] = reader(one)
            except ValueError as error:
                raise _within(f"[{key!r:.80}]", error) from error
        return found

    def written(value: Mapping[str, Any]) -> JSON:
        return dict(value) if writer is None else {key: writer(one) for key, one in value.items()}

    return As(named, written)


def _word(words: type[StrEnum]) -> As:
    known = {word.value: word for word in words}

    def one_of(value: JSON) -> StrEnum:
        found = known.get(value) if isinstance(value, str) else None
        if found is None:
            raise _Unfit(f"{_shown(value)} is none of {', '.join(known)}")
        return found

    return As(one_of, str)


def _nested(cls: type[Any]) -> As:
    # By its own methods where it has a say in it, else by its plan: made when it is needed first, as types may go in circles.
    own = cls.__dict__
    return As(
        cls.from_json if "from_json" in own else lambda value: _plan(cls).read(value),
        cls.as_json if "as_json" in own else lambda value: _plan(cls).write(value),
    )


def _text(value: JSON) -> str:
    if isinstance(value, str):
        return value
    raise _Unfit(f"{_shown(value)} is not text")


def _flag(value: JSON) -> bool:
    if isinstance(value, bool):
        return value
    raise _Unfit(f"{_shown(value)} is not true or false")


def _whole(value: JSON) -> int:
    # True is an int to Python.
    if isinstance(value, int) and not isinstance(value, bool) and -_MOST <= value <= _MOST:
        return value
    raise _Unfit(f"{_shown(value)} is not a whole number that JSON keeps exact")


def _number(value: JSON) -> float:
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, int):
        return _whole(value)
    raise _Unfit(f"{_shown(value)} is not a finite number")


def _instant(value: JSON) -> datetime:
    return from_text(_text(value))


_ANYTHING: Final = As(lambda value: value, None)
_PLAIN: Final[Mapping[Any, As]] = {
    str: As(_text, None),
    bool: As(_flag, None),
    int: As(_whole, None),
    float: As(_number, None),
    datetime: As(_instant, to_text),
    Any: _ANYTHING,
}


def _within(key: str, error: ValueError) -> _Unfit:
    said, path = (error.said, error.path) if isinstance(error, _Unfit) else (str(error), "")
    return _Unfit(said, f"{key}{path}" if path.startswith("[") or not path else f"{key}.{path}")


def _shown(value: object) -> str:
    # Not what is inside: it may be large, and nested deeper than repr can go.
    if isinstance(value, Mapping):
        return "an object"
    return "a list" if isinstance(value, list | tuple) else f"{value!r:.80}"
