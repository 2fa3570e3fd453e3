from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, strategies as st

from lakemark.model.values.instants import OutOfCalendar, duration, duration_text, from_text, to_text

instants = st.datetimes(
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=-5)), timezone(timedelta(minutes=345))]),
    min_value=datetime(1000, 1, 2),  # noqa: DTZ001 - the strategy adds the zone
    max_value=datetime(9990, 1, 1),  # noqa: DTZ001
)


@given(instants)
def test_round_trip(instant):
    assert from_text(to_text(instant)) == instant


@given(instants, instants)
def test_text_order_is_time_order(one, other):
    assert (to_text(one) < to_text(other)) == (one < other)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-26T12:00:00Z", "2026-11-26T12:00:00.000000Z"),
        ("2026-11-26 12:00+01:00", "2026-11-26T11:00:00.000000Z"),
        ("2026-11-26t12:00:00.5z", "2026-11-26T12:00:00.500000Z"),
        ("2026-11-26T12:00:00,25+0530", "2026-11-26T06:30:00.250000Z"),
    ],
)
def test_reads(text, expected):
    assert to_text(from_text(text)) == expected


@pytest.mark.parametrize(
    "text",
    ["2026-11-26T12:00:00", "2026-11-26", "12:00Z", "2026-13-26T12:00Z", "2026-02-30T00:00Z", "", "now",
     "\uff12026-11-26T12:00:00Z", "2026-11-26T12:00:00Z ", "2026-11-26T12:00:00 CET"],
)  # fmt: skip
def test_refuses(text):
    with pytest.raises(ValueError, match=r"ISO 8601|month|day"):
        from_text(text)


@pytest.mark.parametrize(
    "text", ["0001-01-01T00:00:00Z", "0001-01-01T00:00:00+02:00", "0999-12-31T23:59:59Z", "9999-12-31T23:00:00-02:00"]
)
def test_what_is_in_no_calendar_is_refused(text):
    """A program's zero time, or what a stranger wrote: before 1000 it would not be written as it is read."""
    with pytest.raises(OutOfCalendar, match="years 1000 to 9999"):
        from_text(text)


def test_a_hold_may_be_until_the_last_year():
    assert to_text(from_text("9999-12-31T00:00:00Z")) == "9999-12-31T00:00:00.000000Z"


def test_naive_is_refused():
    with pytest.raises(ValueError, match="offset"):
        to_text(datetime(2026, 1, 1))  # noqa: DTZ001 - the case


def test_three_days_are_72_hours():
    assert duration("3d") == timedelta(hours=72)


@given(st.integers(0, 999_999_999))
def test_durations_round_trip(seconds):
    span = timedelta(seconds=seconds)
    assert duration(duration_text(span)) == span


@pytest.mark.parametrize("text", ["3", "d", "-3d", "3.5h", "3 d", "\uff13d", "3D", "1000000000d", "3d2h", ""])
def test_durations_refused(text):
    with pytest.raises(ValueError, match="not a duration"):
        duration(text)
