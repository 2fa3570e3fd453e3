from datetime import UTC, datetime, timedelta

import pytest

from lakemark.adapters.disk.heard_clock import HeardClock

DATE = "Thu, 26 Nov 2026 12:00:00 GMT"
AT = datetime(2026, 11, 26, 12, tzinfo=UTC)


@pytest.fixture
def stopwatch():
    class Stopwatch:
        at = 1000.0

        def __call__(self):
            return self.at

    return Stopwatch()


def test_it_goes_on_by_the_stopwatch_also_in_another_process(tmp_path, stopwatch):
    clock = HeardClock(tmp_path / "heard.json", seconds=stopwatch, boot="b")
    assert clock.now() is None
    clock.hear(DATE)
    stopwatch.at += 90
    assert clock.now() == AT + timedelta(seconds=90)
    assert HeardClock(tmp_path / "heard.json", seconds=stopwatch, boot="b").now() == AT + timedelta(seconds=90)


def test_after_a_day_or_a_new_start_of_the_machine_nobody_told(tmp_path, stopwatch):
    clock = HeardClock(tmp_path / "heard.json", seconds=stopwatch, boot="b")
    clock.hear(DATE)
    assert HeardClock(tmp_path / "heard.json", seconds=stopwatch, boot="later").now() is None
    stopwatch.at += 86_401
    assert clock.now() is None
    stopwatch.at = 1.0
    assert clock.now() is None, "a stopwatch that went back is another one"


def test_the_newest_answer_of_any_process_counts(tmp_path, stopwatch):
    mine, other = (HeardClock(tmp_path / "heard.json", seconds=stopwatch, boot="b") for _ in range(2))
    mine.hear(DATE)
    stopwatch.at += 100
    other.hear("Thu, 26 Nov 2026 13:00:00 GMT")
    assert mine.now() == other.now() == AT + timedelta(hours=1)


@pytest.mark.parametrize(
    "date", [None, "", "soon", "Thu, 26 Nov 2026 12:00:00", "1764158400", "Thu, 99 Nov 2026 12:00:00 GMT"]
)
def test_what_is_no_date_says_nothing(tmp_path, stopwatch, date):
    clock = HeardClock(tmp_path / "heard.json", seconds=stopwatch, boot="b")
    clock.hear(date)
    assert clock.now() is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"theirs": 1, "seconds": "x", "boot": "b"}', '{"theirs": "now"}'])
def test_a_file_that_says_nothing_is_passed_over_and_written_anew(tmp_path, stopwatch, text):
    place = tmp_path / "heard.json"
    place.write_text(text)
    clock = HeardClock(place, seconds=stopwatch, boot="b")
    assert clock.now() is None
    clock.hear(DATE)
    assert HeardClock(place, seconds=stopwatch, boot="b").now() == AT


def test_where_nothing_can_be_written_this_process_knows_it_still(tmp_path, stopwatch):
    clock = HeardClock(tmp_path / "none" / "heard.json", seconds=stopwatch, boot="b")
    clock.hear(DATE)
    assert clock.now() == AT
