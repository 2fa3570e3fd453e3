"""Sizes, shares and durations: exact, with units, and back."""

from datetime import timedelta
from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from lakemark.settings import units


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("0B", 0),
        ("1B", 1),
        ("200GiB", 200 * 2**30),
        ("8TiB", 2**43),
        ("8TB", 8 * 10**12),
        ("500 MiB", 500 * 2**20),
        ("1.5KiB", 1536),
        ("0.1kB", 100),
        ("3KB", 3000),
        ("7EiB", 7 * 2**60),
        ("1PB", 10**15),
    ],
)
def test_sizes(text, size_bytes):
    assert units.size(text) == size_bytes


@pytest.mark.parametrize(
    "text",
    [
        "",
        "200",
        "GiB",
        "-1GiB",
        "1,5GiB",
        "1.5B",
        "0.3KiB",
        "1e3B",
        "8EiB",
        "99999999999999999999B",
        "200gib",
        "200Gib",
        "200GiB ",
        " 200GiB",
        "\uff12GiB",
        "1GiB\n",
        "200G",
        "200kiB",
    ],
)
def test_no_sizes(text):
    with pytest.raises(ValueError, match="is not a size in whole bytes"):
        units.size(text)


@given(st.integers(min_value=0, max_value=10**15 - 1))
def test_size_text_reads_back(size_bytes):
    assert units.size(units.size_text(size_bytes)) == size_bytes


@pytest.mark.parametrize(
    ("text", "part"), [("0%", 0), ("20%", Fraction(1, 5)), ("0.1%", Fraction(1, 1000)), ("100%", 1)]
)
def test_shares(text, part):
    assert units.share(text) == part
    assert units.share(units.share_text(Fraction(part))) == part


@pytest.mark.parametrize("text", ["", "20", "%", "-1%", "100.1%", "120%", "1/5", "20 percent", "\uff120%"])
def test_no_shares(text):
    with pytest.raises(ValueError, match="is not a share from 0% to 100%"):
        units.share(text)


@given(st.integers(min_value=0, max_value=10**11))
def test_share_text_reads_back(billionths):
    part = Fraction(billionths, 10**11)
    assert units.share(units.share_text(part)) == part


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1s", 1), ("10m", 600), ("2h", 7200), ("3d", 72 * 3600), ("2w", 14 * 86400), ("36525d", 36525 * 86400)],
)
def test_durations(text, seconds):
    assert units.duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text", ["", "3", "d", "-3d", "3 d", "1.5h", "1h30m", "3D", "36526d", "999999999w", "0s", "\uff13d", "3d\n"]
)
def test_no_durations(text):
    with pytest.raises(ValueError, match=r"is not a duration|is longer than|is no time at all"):
        units.duration(text)


def test_a_delay_may_be_zero():
    assert units.delay("0s") == timedelta()


def test_amounts_are_shares_or_bytes():
    assert units.amount("10%") == Fraction(1, 10)
    assert isinstance(units.amount("100%"), Fraction)
    assert units.amount("50GiB") == 50 * 2**30
    assert units.amount_text(Fraction(1, 10)) == "10%"
    assert units.amount_text(2**30) == "1GiB"
    with pytest.raises(ValueError, match="neither a share"):
        units.amount("10")


def test_bytes_of_rounds_up_and_sizes_stay():
    assert units.bytes_of(Fraction(1, 3), total_bytes=10) == 4
    assert units.bytes_of(Fraction(0), total_bytes=10) == 0
    assert units.bytes_of(7, total_bytes=10) == 7


def test_rates():
    assert units.rate("200MiB") == units.rate("200MiB/s") == 200 * 2**20
    with pytest.raises(ValueError, match="no bandwidth"):
        units.rate("0B")
