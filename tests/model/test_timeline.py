"""Which record a run was at."""

from datetime import timedelta

import pytest
from hypothesis import given, strategies as st

from lakemark.errors import NoRecordAsOf
from lakemark.model.checkpoints.record import record_for
from lakemark.model.entries.fold import fold
from lakemark.model.ledger.entry import Attachments, Draft
from lakemark.model.runs.timeline import as_of, latest, lineage, segments, usable
from tests.model.histories import RUN, START, histories, manifest, settle, stamp


class Story:
    """Entries told one after the other, a minute each."""

    def __init__(self):
        self.pairs = []
        self.add(Draft(kind="opened", timeline=1))

    def add(self, draft, minutes=None):
        number = len(self.pairs) + 1
        self.pairs.append(settle(draft, number, stamp(number, number if minutes is None else minutes)))

    def commit(self, step, timeline=1, minutes=None, content=None, **body):
        held = manifest(step * 7 + timeline if content is None else content)
        number = len(self.pairs) + 1
        saved_at = START + timedelta(minutes=number if minutes is None else minutes)
        record = record_for(held, run=RUN, timeline=timeline, step=step, saved_at=saved_at, node="node-a")
        if "supersedes" in body:
            object.__setattr__(record, "supersedes", body["supersedes"])
        self.add(Draft(kind="committed", timeline=timeline, contents=Attachments(record=record), body=body), minutes)
        return record.id

    def fork(self, timeline, record, step, of=1):
        fork = {"timeline": of, "step": step, "record": record}
        self.add(Draft(kind="rolled_back", timeline=timeline, body={"rollback": "r", "fork": fork}))

    @property
    def state(self):
        return fold(RUN, self.pairs)


def steps(story, timeline=None):
    return [(found.record.timeline, found.record.step) for found in lineage(story.state, timeline)]


def test_a_rollback_leaves_later_records_behind():
    story = Story()
    first, _, _ = (story.commit(step) for step in (10, 20, 30))
    story.fork(2, first, 10)
    story.commit(20, timeline=2)
    assert steps(story) == [(2, 20), (1, 10)]
    assert steps(story, 1) == [(1, 30), (1, 20), (1, 10)]
    assert (latest(story.state).record.timeline, latest(story.state).record.step) == (2, 20)


def test_a_save_of_the_old_timeline_is_recorded_and_never_latest():
    story = Story()
    first = story.commit(10)
    story.fork(2, first, 10)
    story.commit(40)
    assert latest(story.state).record.id == first


def test_at_the_fork_only_the_record_it_names_counts():
    story = Story()
    first = story.commit(10)
    second = story.commit(10, content=1)
    story.fork(2, first, 10)
    assert [found.record.id for found in lineage(story.state)] == [first]
    assert {found.record.id for found in lineage(story.state, 1)} == {first, second}


def test_a_fork_named_by_a_later_timeline_counts_in_the_timeline_it_lies_in():
    story = Story()
    early, middle = story.commit(10), story.commit(30)
    story.fork(2, middle, 30)
    story.commit(40, timeline=2)
    story.fork(3, early, 10, of=2)
    assert steps(story) == [(1, 10)]


def test_a_rollback_of_a_rollback():
    story = Story()
    first, second = story.commit(10), story.commit(20)
    story.fork(2, second, 20)
    story.commit(30, timeline=2)
    story.fork(3, first, 10)
    story.commit(15, timeline=3)
    assert list(segments(story.state)) == [(3, None), (1, 10)]
    assert steps(story) == [(3, 15), (1, 10)]


def test_a_timeline_that_claims_to_come_from_itself_ends_the_lineage():
    story = Story()
    story.fork(2, "0" * 64, 5, of=2)
    assert list(segments(story.state)) == [(2, None)]


def test_superseded_and_conflicting_records_are_left_out():
    story = Story()
    old = story.commit(10)
    new = story.commit(10, content=1, supersedes=old)
    story.commit(20, conflicts_with=new)
    assert [found.record.id for found in lineage(story.state)] == [new]


def test_as_of_takes_the_greatest_step_not_the_newest_entry():
    story = Story()
    story.commit(30, minutes=30)
    story.commit(20, minutes=40)
    assert as_of(story.state, START + timedelta(minutes=50)).record.step == 30
    assert as_of(story.state, START + timedelta(minutes=30)).record.step == 30
    with pytest.raises(NoRecordAsOf, match="the oldest is step 30"):
        as_of(story.state, START + timedelta(minutes=29))


def test_as_of_passes_over_what_was_quarantined_unless_asked_what_was_known_then():
    story = Story()
    story.commit(10, minutes=10)
    bad = story.commit(20, minutes=20)
    story.add(Draft(kind="quarantined", timeline=1, record=bad, reason="diverged"), minutes=60)
    at = START + timedelta(minutes=30)
    assert as_of(story.state, at).record.step == 10
    assert as_of(story.state, at, known_then=True).record.step == 20
    assert as_of(story.state, START + timedelta(minutes=60), known_then=True).record.step == 10


def test_no_record_at_all_says_so():
    with pytest.raises(NoRecordAsOf, match="it has none at all"):
        as_of(Story().state, START)


def plainly(state, timeline):
    """The lineage by its definition: walk up, keep what is below every fork passed or named by one."""
    kept, below, named = [], [], set()
    while timeline is not None:
        here = [found for found in state.records.values() if found.record.timeline == timeline]
        here.sort(key=lambda found: (found.record.step, found.sequence), reverse=True)
        opened = state.timelines.get(timeline)
        fork = opened.fork if opened else None
        kept.append((here, list(below)))
        if fork is None or fork.timeline >= timeline:
            break
        below, named, timeline = [*below, fork.step], named | {fork.record}, fork.timeline
    return [
        found
        for here, bounds in kept
        for found in here
        if all(
            found.record.step < bound or (found.record.step == bound and found.record.id in named) for bound in bounds
        )
        and (
            (found.superseded_by is None and found.conflicts_with is None and not found.ambiguous)
            or found.record.id in named
        )
    ]


def held(found):
    """The earlier of when it was saved and recorded; under a suspect clock not outside what its neighbours say."""
    told = min(found.record.saved_at, found.recorded_at)
    if found.clock != "suspect":
        assert (found.not_before, found.not_after) == (None, None)
        return told
    not_earlier = max(told, found.not_before or told)
    return min(not_earlier, found.not_after or not_earlier)


@given(histories(), st.data())
def test_lineage_and_as_of_are_what_their_definitions_say(history, data):
    state = fold(RUN, history)
    timeline = data.draw(st.sampled_from(sorted(state.timelines)))
    expected = plainly(state, timeline)
    assert list(lineage(state, timeline)) == expected
    at = START + timedelta(minutes=data.draw(st.integers(-60, 500)))
    found = next((one for one in expected if held(one) <= at and usable(one)), None)
    if found is None:
        with pytest.raises(NoRecordAsOf):
            as_of(state, at, timeline)
    else:
        assert as_of(state, at, timeline) == found


def test_one_step_is_found_without_looking_at_the_others():
    class Seen(dict):
        def __getitem__(self, key):
            looked.append(key)
            return super().__getitem__(key)

    looked = []
    story = Story()
    wanted = [story.commit(step) for step in (100, 200, 300)][1]
    state = story.state
    state.records = Seen(state.records)
    assert [found.record.id for found in lineage(state, step=200)] == [wanted]
    assert looked == [wanted]
