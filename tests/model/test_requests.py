"""Which entry a request made."""

import tracemalloc

import pytest
from hypothesis import given, strategies as st

from lakemark.model.ledger.requests import Requests


@given(st.lists(st.tuples(st.text(max_size=4), st.integers(1, 5)), max_size=300))
def test_every_entry_is_found_by_its_key(drawn):
    table, told, sequence = Requests(), {}, 0
    for key, step in drawn:
        sequence += step
        table.add(key, sequence)
        told.setdefault(key, []).insert(0, sequence)
    for key, expected in told.items():
        assert [one for one in table.of(key) if one in expected] == expected
    assert table.copy() == table
    assert len(table) == len(drawn)


def test_a_copy_is_not_reached_by_later_ones():
    table = Requests()
    table.add("a", 7)
    kept = table.copy()
    for number in range(8, 500):
        table.add(f"{number}", number)
    assert (kept.of("a"), kept.of("9"), table.of("a"), table.of("9"), len(kept)) == ([7], [], [7], [9], 1)
    assert kept != table
    with pytest.raises(ValueError, match="no later one"):
        table.add("b", 8)


def test_a_hundred_thousand_take_no_more_than_24_bytes_each():
    tracemalloc.start()
    table = Requests()
    for number in range(1, 100_001):
        table.add(f"replicate:{number:064x}:warm", number)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used <= 24 * 100_000
    assert table.of(f"replicate:{77:064x}:warm") == [77]
