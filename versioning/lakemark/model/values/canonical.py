"""JSON as bytes that are the same everywhere: RFC 8785 (JSON Canonicalization Scheme).

Ids and digests are taken over these bytes, so a writer in any language can repeat them.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from json.encoder import encode_basestring
from typing import Final, TypeAlias

JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"

_SAFE_INTEGER: Final = 2**53 - 1


def canonical(value: JSON) -> bytes:
    """`value` as RFC 8785 bytes.

    Integers beyond ±(2**53 - 1), NaN and infinities have no form there: ValueError. So have strings with lone
    surrogates, and anything that is not JSON (TypeError).
    """
    return _text(value).encode("utf-8")


def digest(value: JSON) -> str:
    """sha256 of `canonical(value)`, 64 lower-case hex digits."""
    return hashlib.sha256(canonical(value)).hexdigest()


def parse(text: bytes | str) -> JSON:
    """JSON without its traps: a key given twice and NaN or Infinity are a ValueError, as is anything malformed.

    A whole number beyond ±(2**53 - 1) is a float, as it is to every other reader, so that `canonical` can write it again.
    """
    try:
        value: JSON = json.loads(
            text, object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_int=_integer, parse_float=_finite
        )
    except RecursionError as error:
        message = "nested too deeply"
        raise ValueError(message) from error
    return value


def _text(value: JSON) -> str:
    if value is None or isinstance(value, bool):
        # Before integers: True is one in Python.
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        # JSON's short escapes and no others, which is what RFC 8785 asks for; ensure_ascii would escape more.
        return encode_basestring(value)
    if isinstance(value, int):
        if abs(value) > _SAFE_INTEGER:
            message = f"{value} does not fit the integers every JSON reader keeps exact (±{_SAFE_INTEGER})"
            raise ValueError(message)
        return str(value)
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, Mapping):
        # By UTF-16 code units: another order than Python's for letters beyond U+FFFF.
        keys = sorted(value, key=lambda key: key.encode("utf-16-be"))
        return "{" + ",".join(f"{_text(key)}:{_text(value[key])}" for key in keys) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(_text(item) for item in value) + "]"
    message = f"{type(value).__name__} is not JSON"
    raise TypeError(message)


def _number(value: float) -> str:
    """ECMAScript's Number::toString (ECMA-262 §6.1.6.1.20), which RFC 8785 prescribes."""
    if not math.isfinite(value):
        message = f"{value} is not JSON"
        raise ValueError(message)
    # Minus zero is 0 as well.
    if value == 0:
        return "0"
    # Python's repr has the same shortest digits as ECMAScript, and other rules of where the point goes.
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    fraction = "" if fraction == "0" else fraction
    point = len(whole) + int(exponent or 0)
    digits = whole + fraction
    stripped = digits.lstrip("0")
    point -= len(digits) - len(stripped)
    digits = stripped.rstrip("0")
    sign = "-" if value < 0 else ""
    return sign + _placed(digits, point)


def _placed(digits: str, point: int) -> str:
    count = len(digits)
    if count <= point <= 21:  # noqa: PLR2004 - the standard's own bounds
        return digits + "0" * (point - count)
    if 0 < point <= 21:  # noqa: PLR2004
        return f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:  # noqa: PLR2004
        return "0." + "0" * -point + digits
    shown = digits if count == 1 else f"{digits[0]}.{digits[1:]}"
    return f"{shown}e{point - 1:+d}"


def _unique(pairs: list[tuple[str, JSON]]) -> dict[str, JSON]:
    # Readers differ in which of two equal keys they take: a digest could be of another meaning than what is read.
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        message = f"the key {twice!r} is given twice"
        raise ValueError(message)
    return result


def _integer(text: str) -> int | float:
    value = int(text)
    return value if abs(value) <= _SAFE_INTEGER else _finite(text)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        message = f"{text[:40]} is beyond every number of JSON readers"
        raise ValueError(message)
    return value


def _refuse_constant(name: str) -> JSON:
    message = f"{name} is not JSON"
    raise ValueError(message)
