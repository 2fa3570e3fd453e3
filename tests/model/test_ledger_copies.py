from datetime import timedelta

import pytest

from lakemark.model.ledger.copies import AT_LEAST_EVERY, SMALL_BYTES, Sent, sending
from tests.model.building import at

NOW = at(0)
LARGE = 10 * SMALL_BYTES


@pytest.mark.parametrize(
    ("sent", "stands", "whole"),
    [
        (None, True, True),
        (Sent(at=NOW, size_bytes=LARGE), False, True),
        (Sent(at=NOW, size_bytes=SMALL_BYTES), True, True),
        (Sent(at=NOW, size_bytes=LARGE), True, False),
        (Sent(at=NOW, size_bytes=LARGE, more_bytes=LARGE - 1), True, False),
        (Sent(at=NOW, size_bytes=LARGE, more_bytes=LARGE), True, True),
        (Sent(at=NOW - AT_LEAST_EVERY, size_bytes=LARGE), True, True),
        (Sent(at=NOW + timedelta(hours=1), size_bytes=LARGE), True, True),
    ],
)
def test_when_a_whole_copy_is_sent(sent, stands, whole):
    found = sending(sent, now=NOW, stands=stands)
    assert found.whole is whole
    assert found.why


def test_what_an_hour_costs_grows_with_the_root_of_the_history():
    """A ledger that gets 2 kB an hour: what a day sends, at 100 times the size, is about ten times as much, not a hundred."""

    def day(size_bytes):
        sent, total, since = Sent(at=NOW, size_bytes=size_bytes), 0, 0
        hours = 24 * 90
        for hour in range(hours):
            now, since = NOW + timedelta(hours=hour), since + 2000
            if sending(sent, now=now, stands=True).whole:
                size_bytes, since = size_bytes + since, 0
                sent, total = Sent(at=now, size_bytes=size_bytes), total + size_bytes
            else:
                sent = Sent(at=sent.at, size_bytes=sent.size_bytes, more_bytes=sent.more_bytes + since)
                total += since
        return total / hours * 24

    assert day(10 * SMALL_BYTES) < 24 * 10 * SMALL_BYTES / 20
    assert day(1000 * SMALL_BYTES) < 24 * 1000 * SMALL_BYTES / 100


def test_it_comes_back_from_json():
    sent = Sent(at=NOW, size_bytes=LARGE, more_bytes=7)
    assert Sent.from_json(sent.as_json()) == sent
    for bad in (None, [], {}, {"at": "now", "size_bytes": 1, "more_bytes": 1}):
        with pytest.raises(ValueError, match=r"sent|not"):
            Sent.from_json(bad)
