"""What entries add up to."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, strategies as st

from lakemark.model.checkpoints.record import record_for
from lakemark.model.entries.committed import gains
from lakemark.model.entries.fold import apply, fold, foreseen, mentions, structural
from lakemark.model.ledger.entry import Attachments, Draft, Means
from lakemark.model.ledger.run import Place, RunState
from lakemark.model.runs.lives import gain
from lakemark.model.runs.timeline import lineage
from tests.model.histories import RUN, START, histories, manifest, settle, stamp


def run_of(*drafts):
    return fold(RUN, [settle(draft, number, stamp(number, number)) for number, draft in enumerate(drafts, 1)])


OPENED = Draft(kind="opened", timeline=1, body={"watch": {"node-a": "/out"}, "parts": 2})


def committed(step, content=None, **body):
    held = manifest(step if content is None else content)
    record = record_for(held, run=RUN, timeline=1, step=step, saved_at=START, node="node-a")
    record = replace(record, supersedes=body.get("supersedes"))
    return record, Draft(kind="committed", timeline=1, contents=Attachments(record=record), body={"tier": "hot"} | body)


def test_a_commit_is_a_record_with_a_replica_where_it_was_sealed():
    record, draft = committed(10)
    state = run_of(OPENED, draft)
    found = state.records[record.id]
    assert (found.record, found.sequence) == (record, 2)
    assert list(found.replicas) == [Place(tier="hot", node="node-a")]
    assert state.by_step == {1: [(10, 2, record.id)]}
    assert (state.watch, state.parts, state.exists) == ({"node-a": "/out"}, 2, True)


def test_the_same_record_again_changes_nothing():
    record, draft = committed(10)
    held = Draft(kind="held", timeline=1, record=record.id, reason="keep")
    assert run_of(OPENED, draft, held, draft).records[record.id].held == "keep"


def test_the_same_record_again_supersedes_what_it_says_then():
    """So that folding the entries that mention the old record gives what folding all of them gives."""
    old, first = committed(10)
    new, second = committed(10, 11)
    again = replace(second, contents=Attachments(record=replace(new, supersedes=old.id)))
    state = run_of(OPENED, first, second, again)
    assert state.records[old.id].superseded_by == new.id
    assert state.records[new.id].record.supersedes is None


def test_replicas_come_and_go():
    record, draft = committed(10)
    warm = Draft(
        kind="replicated", timeline=1, record=record.id, body={"tier": "warm", "node": None, "proof": "checksum"}
    )
    item = {"record": record.id, "tier": "warm", "node": None}
    bad = Draft(kind="verified", timeline=1, body={"items": [item | {"ok": False}]})
    good = Draft(
        kind="verified", timeline=1, body={"items": [item | {"ok": True}], "verified_at": "2026-12-01T00:00:00Z"}
    )
    gone = Draft(kind="released", timeline=1, body={"items": [item]})
    place = Place(tier="warm")
    after = [
        run_of(OPENED, draft, warm, *more).records[record.id].replicas.get(place)
        for more in ([], [bad], [bad, good], [gone])
    ]
    assert [found and found.sound for found in after] == [True, False, True, None]
    assert (after[0].proof, after[2].verified_at.month, after[1].verified_at) == ("checksum", 12, after[0].verified_at)


def test_where_a_record_was_released_last_is_known_until_it_comes_back():
    record, draft = committed(10)
    warm = Draft(kind="replicated", timeline=1, record=record.id, body={"tier": "warm", "node": None})
    gone = Draft(kind="released", timeline=1, body={"items": [{"record": record.id, "tier": "warm", "node": None}]})
    released = [
        run_of(OPENED, draft, *more).records[record.id].released
        for more in ([], [warm], [warm, gone], [warm, gone, warm], [warm, gone, warm, gone])
    ]
    there = {Place(tier="warm")}
    assert released == [set(), set(), there, set(), there]


def test_a_superseded_record_stays_but_does_not_stand():
    old, first = committed(10)
    new, second = committed(10, 11, supersedes=old.id)
    state = run_of(OPENED, first, second)
    assert (state.records[old.id].superseded_by, state.records[old.id].stands) == (new.id, False)
    assert state.records[new.id].stands


def test_pruning_and_unpruning():
    record, draft = committed(10)
    pruned = Draft(
        kind="pruned", timeline=1, body={"items": [{"record": record.id, "reasons": ["old"], "thinned": True}]}
    )
    back = Draft(kind="unpruned", timeline=1, record=record.id)
    state = run_of(OPENED, draft, pruned)
    assert (state.records[record.id].pruned, state.records[record.id].thinned) == (("old",), True)
    found = run_of(OPENED, draft, pruned, back).records[record.id]
    assert (found.pruned, found.pruned_at, found.thinned) == (None, None, False)


def test_a_rollback_is_approved_once_and_applied():
    record, draft = committed(10)
    asked = Draft(kind="rollback_requested", timeline=1, body={"rollback": "r", "digest": "d", "requester": "ana"})
    yes = Draft(kind="rollback_approved", timeline=1, body={"rollback": "r", "by": "bo"})
    no = Draft(kind="rollback_refused", timeline=1, body={"rollback": "r", "by": "bo"})
    fork = {"timeline": 1, "step": 10, "record": record.id}
    done = Draft(kind="rolled_back", timeline=2, body={"rollback": "r", "fork": fork})
    state = run_of(OPENED, draft, asked, yes, done, no)
    assert (state.rollbacks["r"].state, state.rollbacks["r"].timeline, state.timeline) == ("applied", 2, 2)
    assert [approval["by"] for approval in state.rollbacks["r"].approvals] == ["bo"]
    assert run_of(OPENED, draft, asked, no, yes).rollbacks["r"].state == "refused"


@pytest.mark.parametrize(
    ("said", "blocked"),
    [
        ("ignore", Means.IGNORE),
        ("no_delete", Means.NO_DELETE),
        ("read_only", Means.READ_ONLY),
        ("newer", Means.READ_ONLY),
    ],
)
def test_an_unknown_kind_blocks_what_it_says(said, blocked):
    entry, contents = settle(Draft(kind="dreamt"), 1, stamp(1, 1))
    state = fold(RUN, [(replace(entry, unknown_means=said), contents)])
    assert (state.blocked, state.unknown) == (blocked, ["dreamt"])


def test_a_body_that_can_not_be_read_blocks_deletions_and_nothing_else():
    record, draft = committed(10)
    bad = Draft(kind="rolled_back", timeline=2, body={"fork": {"timeline": "one"}})
    state = run_of(OPENED, bad, draft)
    assert (state.blocked, list(state.records)) == (Means.NO_DELETE, [record.id])
    with pytest.raises(ValueError, match="timeline"):
        foreseen(run_of(OPENED), *settle(bad, 2, stamp(2, 2)))


@given(histories())
def test_the_entries_that_mention_a_record_give_its_state(history):
    state = fold(RUN, history)
    for record, found in state.records.items():
        about = [(entry, contents) for entry, contents in history if record in mentions(entry, contents)]
        alone = fold(RUN, about).records[record]
        clock = {name: getattr(found, name) for name in ("clock", "not_before", "not_after")}  # judged by all entries
        assert replace(alone, **clock) == found


@given(histories())
def test_the_structural_entries_give_the_state_without_records(history):
    """With what saves brought timelines in doubt, as an index notes it: that can't be told without all records."""
    whole, part = RunState(run=RUN), RunState(run=RUN)
    for entry, contents in history:
        gained = gain(whole, contents.record) if entry.kind == "committed" and contents.record else None
        before = dict(whole.timelines)
        apply(whole, entry, contents)
        if gained is not None and whole.timelines != before:
            gains(part, entry, contents.record, gained)
        elif structural(entry):
            apply(part, entry, contents)
    for name in ("timelines", "intervals", "attempts", "rollbacks", "watch", "parent", "parts", "closed", "decided"):
        assert getattr(part, name) == getattr(whole, name)


@given(histories())
def test_live_records_are_those_that_were_not_pruned(history):
    state = RunState(run=RUN)
    for entry, contents in history:
        state = state.snapshot()
        apply(state, entry, contents)
        live = {identity: found for identity, found in state.records.items() if found.pruned is None}
        assert {found.record.id: found for found in state.live()} == live
        assert dict(state.unpruned) == {identity: found.sequence for identity, found in live.items()}


@given(histories(), st.integers(0, 40))
def test_a_snapshot_is_not_reached_by_later_entries(history, cut):
    state = fold(RUN, history[:cut])
    kept, twin = state.snapshot(), fold(RUN, history[:cut])
    for entry, contents in history[cut:]:
        apply(state, entry, contents)
    assert kept == twin
    assert state == fold(RUN, history)


@given(histories())
def test_what_is_foreseen_comes_true(history):
    state = RunState(run=RUN)
    for entry, contents in history:
        before = state.snapshot()
        try:
            after = [found.record.id for found in lineage(foreseen(state, entry, contents))]
        except ValueError:
            after = None
        assert state == before
        apply(state, entry, contents)
        if after is None:
            assert state.unknown[-1] == entry.kind
        else:
            assert after == [found.record.id for found in lineage(state)]


def test_an_instant_is_the_earlier_of_saved_and_recorded():
    record, draft = committed(10)
    found = run_of(OPENED, draft).records[record.id]
    assert (found.instant, found.recorded_at) == (START, START + timedelta(minutes=2))
