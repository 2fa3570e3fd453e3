import json
import math

import pytest
import rfc8785
from hypothesis import given, strategies as st

from lakemark.model.values.canonical import canonical, digest, parse

SAFE = 2**53 - 1
texts = st.text(st.characters(exclude_categories=["Cs"]))
values = st.recursive(
    st.none() | st.booleans() | st.integers(-SAFE, SAFE) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(texts, inner, max_size=5),
    max_leaves=20,
)


@given(values)
def test_same_bytes_as_the_reference(value):
    assert canonical(value) == rfc8785.dumps(value)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_as_the_reference(value):
    assert canonical(value) == rfc8785.dumps(value)


@given(values)
def test_parse_reads_it_back(value):
    again = parse(canonical(value))
    assert canonical(again) == canonical(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (-0.0, "0"),
        (1e21, "1e+21"),
        (1e20, "100000000000000000000"),
        (1e-7, "1e-7"),
        (0.000001, "0.000001"),
        (333333333.33333329, "333333333.3333333"),
        (5e-324, "5e-324"),
        ({"€": 1, "\r": 2, "דּ": 3, "1": 4, "😀": 5, "\x80": 6, "ö": 7}, None),
    ],
)
def test_the_standards_own_examples(value, text):
    assert canonical(value).decode() == (text or rfc8785.dumps(value).decode())


@pytest.mark.parametrize("value", [math.nan, math.inf, SAFE + 1, -SAFE - 1, "\ud800", {"\udc00": 1}])
def test_what_has_no_form(value):
    with pytest.raises(ValueError, match=r"JSON|surrogate"):
        canonical(value)


@pytest.mark.parametrize("value", [b"x", object(), {1: 2}, {"a": {3}}])
def test_what_is_not_json(value):
    with pytest.raises((TypeError, AttributeError)):
        canonical(value)


@pytest.mark.parametrize(
    "text", ['{"a":1,"a":2}', '{"a":{"b":1,"b":1}}', "NaN", "[Infinity]", "1e999", "-Infinity", "{", "", "[" * 200_000]
)
def test_parse_refuses(text):
    with pytest.raises(ValueError, match=r"twice|not JSON|Expecting|nested|beyond"):
        parse(text)


def test_digest_is_sha256_of_the_bytes():
    assert digest({"b": 1, "a": [True, None]}) == digest(json.loads('{"a": [true, null], "b": 1.0}'))
    assert digest({}) == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
