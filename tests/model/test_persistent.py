"""Collections whose copies share what they have."""

import pytest
from hypothesis import given, strategies as st

from lakemark.model.values.persistent import Layered, Rows

CHANGES = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 400), st.sampled_from(["put", "take", "copy"])), max_size=60
)


def changed(layered, plain, key, count):
    """Enough at once that a copy makes a new whole."""
    for one in range(key, key + count):
        layered[one] = plain[one] = f"{key} {one}"


@given(CHANGES)
def test_a_layered_dictionary_and_all_its_copies_stay_as_plain_ones_would(drawn):
    pairs = [(Layered({5: "five"}), {5: "five"})]
    for which, key, what in drawn:
        layered, plain = pairs[which % len(pairs)]
        if what == "put":
            changed(layered, plain, key, 40)
        elif what == "copy":
            pairs.append((layered.copy(), plain.copy()))
        elif key in plain:
            del layered[key], plain[key]
        else:
            with pytest.raises(KeyError):
                del layered[key]
    for layered, plain in pairs:
        assert layered == plain
        assert plain == layered
        assert len(layered) == len(plain)
        assert sorted(layered) == sorted(plain)
        assert dict(layered.items()) == plain
        assert sorted(layered.values()) == sorted(plain.values())
        assert [layered.get(key) for key in range(450)] == [plain.get(key) for key in range(450)]
        assert [key in layered for key in range(450)] == [key in plain for key in range(450)]


def test_keys_come_in_the_order_in_which_they_came():
    layered, plain = Layered(), {}
    for number in range(1000):
        key = number * 7919 % 2003
        layered[key] = plain[key] = number
        layered = layered.copy()
        layered[number // 2 * 7919 % 2003] = plain[number // 2 * 7919 % 2003] = -number
    assert list(layered) == list(plain)
    assert list(layered.items()) == list(plain.items())
    assert list(layered.values()) == list(plain.values())


def test_a_copy_of_a_large_dictionary_copies_a_small_part_of_it():
    class Counted(dict):
        copies = 0

        def copy(self):
            Counted.copies += 1
            return Counted(self)

    layered = Layered(Counted(dict.fromkeys(range(100_000), 0)))
    for number in range(10_000):
        layered[number] = 1
        layered = layered.copy()
    assert Counted.copies <= 10_000 // 300


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30), st.booleans()), max_size=40))
def test_rows_and_all_their_copies_stay_as_sorted_lists_would(drawn):
    pairs = [(Rows([(3,), (1,)]), [(1,), (3,)])]
    for which, number, copied in drawn:
        rows, plain = pairs[which % len(pairs)]
        if copied:
            pairs.append((rows.copy(), plain.copy()))
        # Mostly at the end, as steps come.
        rows.add((number * len(plain) // 20,))
        plain.append((number * len(plain) // 20,))
        plain.sort()
    for rows, plain in pairs:
        assert rows == plain
        assert len(rows) == len(plain)
        assert list(reversed(rows)) == plain[::-1]
        assert [rows[at] for at in range(-len(plain), len(plain))] == plain * 2
        assert rows[1:-1] == plain[1:-1]
        with pytest.raises(IndexError):
            rows[len(plain)]


def test_rows_that_come_at_the_end_are_not_copied():
    first = Rows((number, "") for number in range(1000))
    second = first.copy()
    second.add((1000, ""))
    assert second._rows is first._rows
    assert (len(first), len(second), first[-1], second[-1]) == (1000, 1001, (999, ""), (1000, ""))
    first.add((999, "b"))
    assert (first[-1], second[-1], second[-2]) == ((999, "b"), (1000, ""), (999, ""))
