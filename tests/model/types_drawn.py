"""Values as Hypothesis draws them from the types of a dataclass's fields."""

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from hypothesis import reject, strategies as st

from lakemark.model.checkpoints.record import DataRef
from lakemark.model.values import codec, outside
from tests.model.test_canonical import texts, values

hexes = st.text("0123456789abcdef", min_size=64, max_size=64)
anything = st.recursive(values, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3))
PLAIN = {
    str: texts,
    bool: st.booleans(),
    int: st.integers(0, 300) | st.integers(-(2**53) + 1, 2**53 - 1),
    float: st.floats(allow_nan=False, allow_infinity=False),
    datetime: st.integers(-30_610_224_000, 253_402_214_400).map(lambda second: datetime.fromtimestamp(second, UTC)),
    Any: values,
}
# What no filter would come upon.
CHECKED = {
    outside.digest: hexes,
    outside.run_name: st.from_regex(r"[a-z0-9]{1,9}", fullmatch=True).filter(lambda name: name != "site"),
    codec.number: st.integers(1, 2**53 - 1),
    codec.size: st.integers(0, 2**53 - 1),
}


@cache
def of(hint):
    """Values of a type as `codec` reads them; such as the type itself refuses are rejected."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _checked(of(args[0]), args[1:])
    if origin in (Union, types.UnionType):
        return st.one_of(st.none() if one is type(None) else of(one) for one in args)
    if origin is tuple and args[-1] is not Ellipsis:
        return st.tuples(*map(of, args))
    if origin is tuple:
        return st.lists(of(args[0]), max_size=3).map(tuple)
    if origin is Mapping:
        return st.dictionaries(texts, of(args[1]), max_size=3)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return st.sampled_from(hint)
    return whole(hint) if is_dataclass(hint) else PLAIN[hint]


def _checked(drawn, said):
    for check in said:
        if isinstance(check, codec.As):
            drawn = drawn.filter(
                lambda value, form=check: _reads(form.read, value if form.write is None else form.write(value))
            )
        elif check in CHECKED:
            drawn = CHECKED[check]
        elif callable(check):
            drawn = drawn.filter(lambda value, check=check: _reads(check, value))
    return drawn


def _reads(reader, value):
    try:
        reader(value)
    except (ValueError, TypeError):
        return False
    return True


@cache
def hints_of(cls):
    return get_type_hints(cls, localns={"JSON": Any}, include_extras=True)


@st.composite
def whole(draw, cls):
    hints = hints_of(cls)
    known = {field.name.removesuffix("_") for field in fields(cls)} | {"format"}
    value = {
        field.name: draw(
            st.dictionaries(texts.map(lambda name: "x_" + name), values, max_size=2)
            if field.name == "extra"
            else of(hints[field.name])
        )
        for field in fields(cls)
        if field.init
    }
    assert not known & value.get("extra", {}).keys()
    if cls is DataRef:
        value |= {"commit": draw(hexes)} | {
            "digest": draw(st.none() | hexes),
            "md5": draw(st.none() | st.just("a" * 32)),
        }
    try:
        return cls(**value)
    except ValueError:
        reject()


@cache
def like(cls):
    """JSON objects with the keys of a class, each with anything."""
    keys = st.sampled_from([field.name.removesuffix("_") for field in fields(cls)] or ["items"])
    return st.dictionaries(keys | texts, anything, max_size=5)
