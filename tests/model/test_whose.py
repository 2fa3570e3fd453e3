"""Whose a save is: by who said so, by its bytes, by its files' times; `ambiguous` where nobody could know."""

from datetime import UTC, datetime, timedelta

import pytest

from lakemark.model.ledger.run import Attempt
from lakemark.model.runs.whose import Known, Lying, Owner, Same, Seat, whose

START = datetime(2026, 11, 26, 12, tzinfo=UTC)
RUN = "llama"


def minutes(number):
    return START + timedelta(minutes=number)


def attempt(identity, *, at=0, timeline=1, sequence=None):
    return Attempt(id=identity, timeline=timeline, sequence=sequence or at + 2, node="node-a", started_at=minutes(at))


FIRST, SECOND = attempt("a"), attempt("b", at=60)


def seat(attempt=SECOND, **more):
    values = {"run": RUN, "attempt": attempt.id, "timeline": attempt.timeline, "since": START}
    return Seat(**(values | more))


def lying(at=90, **more):
    return Lying(**({"step": 7, "written_at": None if at is None else minutes(at)} | more))


def same(run=RUN, step=7, known=None):
    return Same(record="f" * 64, run=run, timeline=1, step=step, known=known)


def told(found, *, attempts=(FIRST, SECOND), lineage=(1,), directory=None):
    return whose(found, attempts, lineage, directory or seat())


def test_written_by_who_sits_there():
    found = told(lying())
    assert (found.owner, found.attempt, found.taken, found.dated) == (Owner.ATTEMPT, "b", True, True)
    assert "2026-11-26 13:30:00Z" in found.why


def test_written_while_an_earlier_attempt_was_open_there_it_is_that_one_s():
    found = told(lying(30))
    assert (found.owner, found.attempt, found.taken, found.dated) == (Owner.EARLIER, "a", True, True)


def test_written_before_the_first_open_there_it_is_older_and_not_taken():
    found = told(lying(-60))
    assert (found.owner, found.attempt, found.taken) == (Owner.OLDER, None, False)
    assert str(found) == "older than the run"
    assert told(lying(-60, came_at=minutes(-50))).owner is Owner.OLDER


def test_a_tick_of_the_kernel_is_no_age():
    found = told(Lying(step=7, written_at=START - timedelta(milliseconds=4)), attempts=(FIRST,), directory=seat(FIRST))
    assert found.owner is Owner.ATTEMPT


def test_what_a_pattern_found_is_taken_and_its_data_ambiguous():
    found = told(lying(-60), directory=seat(watched=True))
    assert (found.owner, found.attempt, found.taken, found.dated) == (Owner.AMBIGUOUS, "b", True, False)


def test_what_came_later_with_an_old_time_is_kept_and_vouches_for_nothing():
    found = told(lying(-60, came_at=minutes(70)))
    assert (found.owner, found.taken, found.dated) == (Owner.AMBIGUOUS, True, False)
    # Somebody changed its rights: it was seen there before.
    assert told(lying(-60, came_at=minutes(70), listed=True)).owner is Owner.OLDER


def test_times_of_a_simulated_clock_say_nothing():
    assert (told(lying(None)).owner, told(lying(None)).attempt) == (Owner.ATTEMPT, "b")


def test_its_process_s_own_word_goes_before_all():
    for attempt_id, owner in (("b", Owner.ATTEMPT), ("a", Owner.EARLIER)):
        found = told(lying(-60, announced=attempt_id, same=same(run="other")))
        assert (found.owner, found.attempt, found.taken) == (owner, attempt_id, True)


@pytest.mark.parametrize("known", [Known.RESTORED, Known.POINTER])
@pytest.mark.parametrize("run", [RUN, "other"])
def test_what_lakemark_brought_there_is_no_save(known, run):
    found = told(lying(same=same(run=run, known=known)))
    assert (found.owner, found.taken) == (Owner.RESTORED, False)


@pytest.mark.parametrize("known", [None, Known.COMMITTED, Known.COPY])
def test_the_bytes_of_another_run_s_record_are_a_copy(known):
    found = told(lying(same=same(run="other", step=2, known=known)))
    assert (found.owner, found.taken, str(found)) == (Owner.COPY, False, "a copy of other@2")
    assert "other@2" in found.why


def test_the_same_bytes_at_another_step_of_the_run_are_a_save():
    assert told(lying(same=same(step=6, known=Known.COMMITTED))).owner is Owner.ATTEMPT


def test_a_life_that_was_left_is_an_earlier_one():
    old, new = attempt("a"), attempt("b", at=60, timeline=2)
    assert told(lying(90), attempts=(old, new), lineage=(2, 1), directory=seat(old)).owner is Owner.EARLIER
    assert told(lying(90), attempts=(old, new), lineage=(2, 1), directory=seat(new)).owner is Owner.ATTEMPT


def test_where_nobody_noted_whose_directory_it_is_and_there_are_two_lives_nobody_can_know():
    unsure = seat(FIRST, sure=False)
    found = told(lying(90), attempts=(FIRST,), lineage=(2, 1), directory=unsure)
    assert (found.owner, found.attempt, found.dated, found.doubtful) == (Owner.AMBIGUOUS, None, False, True)
    assert told(lying(90), attempts=(FIRST,), lineage=(1,), directory=unsure).owner is Owner.ATTEMPT
