"""What people read."""

from datetime import UTC, datetime, timedelta

import pytest

from lakemark.cli.output import ago, instant, pairs, plain, short, size, table


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (None, "-"),
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (3 * 2**30, "3.0 GiB"),
        (2**60, "1024.0 PiB"),
    ],
)
def test_sizes(size_bytes, text):
    assert size(size_bytes) == text


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (timedelta(seconds=5), "5s"),
        (timedelta(minutes=12, seconds=3), "12m"),
        (timedelta(days=3, hours=4, minutes=5), "3d 4h"),
        (timedelta(seconds=-5), "0s"),
    ],
)
def test_spans(span, text):
    assert ago(span) == text


def test_instants_are_utc():
    east = datetime.fromisoformat("2026-11-26T13:00:00+01:00")
    assert instant(east) == "2026-11-26 12:00:00Z"
    assert instant(datetime(2026, 11, 26, tzinfo=UTC)) == "2026-11-26 00:00:00Z"
    assert instant(None) == "-"


def test_control_characters_harm_no_terminal():
    assert plain("a\x1b[31mb\nc") == "a\\x1b[31mb\\nc"
    assert plain("größe") == "größe"


def test_tables_are_aligned():
    assert table(("a", "long"), [("x", 1), ("yyy", 22)]) == ["a    long", "x    1", "yyy  22"]
    assert table(("a",), []) == []
    assert pairs([("one", "1"), ("none", None), ("longer", 0)]) == ["one     1", "longer  0"]
    assert short("0123456789abcdef") == "0123456789ab"
