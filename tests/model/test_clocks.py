"""Whose clock had jumped, as the neighbours in sequence tell."""

import json
from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import example, given, strategies as st

from lakemark.model.checkpoints.record import record_for
from lakemark.model.entries.fold import apply, fold
from lakemark.model.ledger.clocks import TOLERANCE, WINDOW, Clocks
from lakemark.model.ledger.entry import Attachments, Draft
from lakemark.model.runs.timeline import as_of
from lakemark.model.values.instants import to_text
from tests.model.histories import RUN, START, manifest, settle, stamp

DAY = 24.0
YEAR = 365 * DAY


def entries(hours, *, clock="ok", nodes=("node-a",), replayed=()):
    """A run opened at hour 0, and one commit for each of `hours`; the k-th is of step k."""
    found = [settle(Draft(kind="opened", timeline=1), 1, stamp(1, 0))]
    for step, hour in enumerate(hours, 1):
        at = START + timedelta(hours=hour)
        record = record_for(manifest(step), run=RUN, timeline=1, step=step, saved_at=at, node=nodes[0])
        draft = Draft(
            kind="committed",
            timeline=1,
            contents=Attachments(record=record),
            extra={"replayed": True} if step in replayed else {},
        )
        entry, contents = settle(draft, step + 1, stamp(step + 1, hour * 60, node=nodes[step % len(nodes)]))
        found.append((entry, contents))
    return found


def jumped(hours, **how):
    """Steps whose records are suspect."""
    state = fold(RUN, entries(hours, **how))
    return [found.record.step for found in state.records.values() if found.clock == "suspect"]


def test_the_one_that_jumped_ahead_is_suspect_and_not_those_after_it():
    assert jumped([1, 2, 3, 4 + 400 * DAY, 5, 6, 7]) == [4]


def test_it_is_known_with_the_first_entry_after_it():
    assert jumped([1, 2, 3, 4 + 400 * DAY]) == []
    assert jumped([1, 2, 3, 4 + 400 * DAY, 5]) == [4]


def test_the_one_that_fell_behind_is_suspect_and_not_those_around_it():
    assert jumped([1, 2, 3, 4 - YEAR]) == [4]
    assert jumped([1, 2, 3, 4 - YEAR, 5, 6]) == [4]


def test_a_clock_that_stayed_ahead_for_long_is_found_when_it_is_set_right():
    ahead = [hour + 400 * DAY for hour in range(4, 60)]
    assert jumped([1, 2, 3, *ahead, 60]) == list(range(4, 60))
    assert jumped([1, 2, 3, *ahead, 60, 61, 62]) == list(range(4, 60))


def test_a_clock_that_stays_behind_is_not_believed_against_many():
    assert jumped([*range(1, 20), *(hour - DAY for hour in range(20, 25)), 25, 26]) == list(range(20, 25))


def test_two_nodes_one_of_which_is_ahead():
    hours = [1, 2 + 400 * DAY, 3, 4 + 400 * DAY, 5, 6 + 400 * DAY, 7]
    assert jumped(hours, nodes=("node-b", "node-a")) == [2, 4, 6]


def test_two_nodes_one_of_which_is_behind():
    hours = [1, 2, 3 - YEAR, 4, 5 - YEAR, 6, 7 - YEAR, 8]
    assert jumped(hours, nodes=("node-b", "node-a")) == [3, 5, 7]


def test_nodes_that_differ_by_minutes_are_both_right():
    minute = 1 / 60
    assert jumped([1, 1 - 4 * minute, 1 + minute, 1 - 3 * minute, 1 + 2 * minute]) == []


def test_a_chain_of_jumps():
    there_and_back = [1, 2, 3, 4 + 100 * DAY, 5 + 50 * DAY, 6, 7]
    assert jumped(there_and_back) == [4, 5]
    twice = [1, 2, 3, 4 + 100 * DAY, 5 + 200 * DAY, 6, 7, 8]
    assert jumped(twice[:6]) == [6]  # nothing tells yet that it was two jumps
    assert jumped(twice) == [4, 5]
    both_ways = [1, 2, 3, 4 + 100 * DAY, 5, 6 - YEAR, 7, 8 + 400 * DAY, 9]
    assert jumped(both_ways) == [4, 6, 8]


def test_what_was_written_as_suspect_or_simulated_says_nothing_of_others():
    told = entries([1, 2, 3])
    ahead = entries([1, 2, 3, 4 + 400 * DAY])[-1][0]
    for clock in ("suspect", "simulated"):
        clocks = Clocks()
        for entry, _ in told:
            clocks.add(entry)
        marks = clocks.add(type(ahead)(**{name: getattr(ahead, name) for name in ahead.__slots__} | {"clock": clock}))
        assert [one.suspect for one in marks] == ([True] if clock == "suspect" else [])
        assert clocks.newest == told[-1][0].recorded_at


def test_what_was_written_as_suspect_is_held_between_its_neighbours():
    pairs = entries([1, 2, 3 + 400 * DAY, 4])
    entry, contents = pairs[3]
    changed = {name: getattr(entry, name) for name in entry.__slots__} | {"clock": "suspect"}
    pairs[3] = (type(entry)(**changed), contents)
    third = list(fold(RUN, pairs).records.values())[2]
    assert third.clock == "suspect"
    assert START + timedelta(hours=2) <= third.instant <= START + timedelta(hours=4)


def test_entries_replayed_from_another_copy_prove_nothing():
    assert jumped([10, 11, 12, 3, 4, 5, 6, 7, 13], replayed=(4, 5, 6, 7, 8)) == []


def test_as_of_after_a_jump_names_what_it_would_without_it():
    right = list(range(1, 12))
    for at, hours in (
        (4, [*right[:3], 4 + 400 * DAY, *right[4:]]),
        (4, [*right[:3], 4 - YEAR, *right[4:]]),
        (7, [*right[:4], 5 + 400 * DAY, 6 + 400 * DAY, 7 + 400 * DAY, *right[7:]]),
    ):
        told, without = fold(RUN, entries(hours)), fold(RUN, entries(right))
        for hour in [*range(at + 1, 12), 100 * DAY, -100 * DAY]:
            asked = START + timedelta(hours=hour)
            found = [_answer(state, asked) for state in (told, without)]
            assert found[0] == found[1], (hours, hour)


def test_a_clock_is_behind_the_newest_entry_that_is_right():
    state = fold(RUN, entries([1, 2, 3 + 400 * DAY]))
    assert state.written_at == START + timedelta(hours=3 + 400 * DAY)  # nobody can know better yet
    state = fold(RUN, entries([1, 2, 3 + 400 * DAY, 4, 5 - YEAR]))
    assert state.written_at == START + timedelta(hours=4)


hours = st.lists(
    st.tuples(st.integers(0, 30), st.sampled_from([0, 0, 0, 0, 400 * DAY, -YEAR, DAY, -DAY, 0.05, -0.05])), max_size=60
).map(lambda drawn: [number + offset + minutes / 60 for number, (minutes, offset) in enumerate(drawn, 1)])


@given(hours, st.lists(st.integers(0, 60), max_size=6))
def test_marks_do_not_depend_on_how_the_history_was_cut(drawn, cuts):
    pairs = entries(drawn)
    state = fold(RUN, pairs)
    part = fold(RUN, [])
    for number, pair in enumerate(pairs):
        if number in cuts:  # as an index keeps it from one time to the next
            part = part.snapshot()
            part.clocks = Clocks.from_json(json.loads(json.dumps(part.clocks.as_json())))
        apply(part, *pair)
    assert part == state


@given(hours)
# One that is a year behind agrees with all that came since, and with nothing that was trusted before.
@example([1, 2, 3, 4, 5, 6, 7, 32, 9609, -8750, 11, 12, 13, 14, 15, 16, 17, 18, -5, 20])
def test_what_is_not_suspect_goes_on(drawn):
    state = fold(RUN, entries(drawn))
    kept = [one.at for one in state.clocks.trusted]
    assert all(after >= before - TOLERANCE for before, after in pairwise(kept))
    assert state.clocks.newest == max(kept)
    sound = {found.sequence for found in state.records.values() if found.clock == "ok"}
    assert sound == {one.sequence for one in state.clocks.trusted if one.record}


def test_few_strays_do_not_keep_the_many_from_outvoting_a_jump():
    drawn = [1, 2, 3, 4, 5, 6, 7, 32, 9609, -8750, 11, 12, 13, 14]
    state = fold(RUN, entries(drawn))
    assert [drawn[found.record.step - 1] for found in state.records.values() if found.clock != "ok"] == [
        32,
        9609,
        -8750,
    ]


@pytest.mark.parametrize("jump", [400 * DAY, -YEAR])
def test_what_is_kept_for_judging_is_bounded(jump):
    clocks = Clocks()
    for entry, _ in entries([*range(3 * WINDOW), *(hour + jump for hour in range(3 * WINDOW, 9 * WINDOW))]):
        clocks.add(entry)
        assert max(len(clocks.trusted), len(clocks.apart), len(clocks.off)) <= WINDOW + 1
    assert len(json.dumps(clocks.as_json())) < 40_000


def _answer(state, at):
    try:
        return as_of(state, at).record.step
    except Exception as error:  # noqa: BLE001 - that there is none is an answer, too
        return type(error).__name__


def test_simulated_histories_go_by_their_last_entry():
    pairs = entries([1, 2])
    state = fold(
        RUN, [(type(e)(**{n: getattr(e, n) for n in e.__slots__} | {"clock": "simulated"}), c) for e, c in pairs]
    )
    assert to_text(state.written_at) == to_text(START + timedelta(hours=2))
