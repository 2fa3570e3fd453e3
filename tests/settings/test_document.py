"""YAML that means the same to everybody, or is refused with its line."""

import pytest

from lakemark.errors import Misconfigured
from lakemark.settings.document import parse, parse_scalar


def values(text):
    return parse(text, name="f.yaml").value


def refusal(text):
    with pytest.raises(Misconfigured) as caught:
        parse(text, name="f.yaml")
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_plain_values():
    text = """
a: text
b: 7
c: -1
d: 1.5
e: true
f: null
g:
h: ~
i: "no"
j: 'x: y'
k: !!str 5
l: [1, [two], {three: 3}]
m: 2026-11-26
n: 2026-11-26T12:00:00Z
o: http://127.0.0.1:8000
p: 10%
q: 3d
r: none
s: {}
t: "010"
"""
    assert values(text) == {
        "a": "text",
        "b": 7,
        "c": -1,
        "d": 1.5,
        "e": True,
        "f": None,
        "g": None,
        "h": None,
        "i": "no",
        "j": "x: y",
        "k": "5",
        "l": [1, ["two"], {"three": 3}],
        "m": "2026-11-26",
        "n": "2026-11-26T12:00:00Z",
        "o": "http://127.0.0.1:8000",
        "p": "10%",
        "q": "3d",
        "r": "none",
        "s": {},
        "t": "010",
    }


def test_every_value_has_its_line():
    document = parse("a: 1\nb:\n  c: [x,\n    {d: 2}]\ne: 3\n", name="f.yaml")
    assert document.lines == {
        (): 1,
        ("a",): 1,
        ("b",): 2,
        ("b", "c"): 3,
        ("b", "c", 0): 3,
        ("b", "c", 1): 4,
        ("b", "c", 1, "d"): 4,
        ("e",): 5,
    }


@pytest.mark.parametrize(
    "word",
    [
        "no",
        "No",
        "yes",
        "on",
        "OFF",
        "1:30",
        "12:30:45",
        "-1:30.5",
        "010",
        "0o10",
        "0x1F",
        "0b1",
        "1_000",
        "+5",
        "1e3",
        ".inf",
        "-.INF",
        ".nan",
        "1.",
        "=",
        "9999999999999999999",
    ],
)
def test_what_readers_disagree_on_is_refused(word):
    assert refusal(f"a: 1\nb: {word}\n").startswith(f"f.yaml:2 has {word!r}, which YAML readers understand")
    assert values(f'a: "{word}"') == {"a": word}


@pytest.mark.parametrize("key", ["no", "1", "null", "true", "? [a]"])
def test_keys_are_text(key):
    assert refusal(f"{key}: x\n").startswith("f.yaml:1 ")


@pytest.mark.parametrize("text", ["", "   \n", "# only a comment\n", "null", "~", "{}", "---\n", "---\n...\n"])
def test_nothing_is_never_a_configuration(text):
    assert refusal(text) == "f.yaml is empty"


@pytest.mark.parametrize("text", ["text", "7", "- a\n- b\n", "[]"])
def test_what_is_no_mapping(text):
    assert refusal(text) == "f.yaml is not a mapping of keys to values"


def test_duplicate_keys_name_both_lines():
    assert refusal("a: 1\nb: 2\na: 3\n") == "f.yaml:3 gives `a` a second time; the first is in line 1"
    assert "`t.h.p` a second time" in refusal("t:\n  h: {p: 1, p: 2}\n")
    assert "second time" in refusal('a: 1\n"a": 2\n')


BOMB = "a: &a [x, x]\n" + "".join(
    f"{new}: &{new} [*{old}, *{old}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    "text", [BOMB, "a: &x 1\n", "a: 1\nb: *a\n", "a: {<<: {b: 1}}\n", "a: &x {b: 1}\nc: {<<: *x}\n"]
)
def test_no_anchors_aliases_or_merges(text):
    refusal(text)


@pytest.mark.parametrize(
    "text",
    [
        "a: !!python/object/apply:os.system [true]",
        "a: !x 1",
        "a: !!int '3'",
        "a: !!map {b: 1}",
        "!!x a: 1",
        "a: !!binary aGk=",
    ],
)
def test_no_tags(text):
    assert "tags are not allowed" in refusal(text)


@pytest.mark.parametrize(
    "text", ["a: [", "a: b: c", "a: 'x", "\ta: 1", "a: 1\n b: 2", "a: @x", "a: \x00", "a: \x1b[2J", "%x"]
)
def test_broken_yaml_is_one_line(text):
    assert "is not YAML" in refusal(text)


def test_a_second_document_is_refused():
    assert refusal("a: 1\n---\nb: 2\n") == "f.yaml:2 starts a second document; one file holds one"


@pytest.mark.parametrize("text", ["a: " + "[" * 100_000, "{a: " * 5_000, "a: " + "[" * 17 + "]" * 17])
def test_depth_is_bounded(text):
    assert "nested deeper than 16 levels" in refusal(text)


def test_length_is_bounded():
    assert "longer than 1 MiB" in refusal("a: 1 #" + "x" * (1 << 20))


def test_a_byte_order_mark_is_no_key():
    assert values("\ufeffa: 1") == {"a": 1}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2", 2),
        ('"2"', "2"),
        ("'no'", "no"),
        ("true", True),
        ("", None),
        ("null", None),
        ("3d", "3d"),
        ("10%", "10%"),
        (" x ", "x"),
        ("a: b", "a: b"),
        ("http://h:1/x", "http://h:1/x"),
        ("http://h:1/x#y", "http://h:1/x#y"),
    ],
)
def test_scalars(text, value):
    assert parse_scalar(text, name="VARIABLE") == value


@pytest.mark.parametrize("text", ["no", "010", "1:30", "[a]", "{a: 1}", "*x", "&x y", "!!int 3", "'", "a\n---\nb"])
def test_no_scalars(text):
    with pytest.raises(Misconfigured, match=r"^VARIABLE"):
        parse_scalar(text, name="VARIABLE")
