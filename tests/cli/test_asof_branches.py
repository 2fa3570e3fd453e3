"""as-of lists no head of a branch for a time before that branch was made."""

from datetime import UTC, datetime, timedelta

from lakemark.cli.commands.as_of import branches_at
from lakemark.model.checkpoints.record import DataKind, DataRef
from lakemark.model.ledger.run import Interval, RunState, Timeline

NOON = datetime(2026, 11, 26, 12, tzinfo=UTC)
COMMIT = "c" * 64


def interval(sequence, branch, *, timeline=1):
    ref = DataRef(kind=DataKind.LAKEFS, repository="data", branch=branch, commit=COMMIT)
    return Interval(sequence=sequence, timeline=timeline, opened_at=NOON + timedelta(hours=sequence), data=(ref,))


def rolled_back(branch):
    state = RunState(run="r")
    state.intervals = [interval(1, "main"), interval(5, branch, timeline=2), interval(6, branch, timeline=2)]
    at = NOON + timedelta(hours=5)
    state.timelines[2] = Timeline(number=2, fork=None, opened_by="rolled_back", opened_at=at, sequence=5, rollback="rb")
    return state


def test_the_rollback_s_own_branch_is_left_out_before_it_was_made():
    state = rolled_back("rollback-rb")
    before, after = NOON + timedelta(hours=2), NOON + timedelta(hours=7)
    assert branches_at(state, before) == {("data", "main")}
    assert branches_at(state, after) == {("data", "main"), ("data", "rollback-rb")}


def test_a_branch_that_was_read_before_stays_whoever_goes_back_to_it():
    assert branches_at(rolled_back("main"), NOON + timedelta(hours=2)) == {("data", "main")}
