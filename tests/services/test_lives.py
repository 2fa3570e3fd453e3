"""A process that goes back by itself: seen, said, and not believed before it has gone on, or somebody says so."""

from dataclasses import replace
from datetime import timedelta

import pytest

from lakemark.errors import Refused
from lakemark.model.checkpoints.record import Evidence
from lakemark.model.runs.timeline import lineage
from lakemark.ports import Approval
from lakemark.services.back.refresh_run_file import freshen
from lakemark.services.back.resume import resume
from lakemark.services.back.rollback_request import request
from lakemark.services.health.status import AMBER, Rules, problems_of
from tests.services.world import OUT, POLICIES, RUN


def saved(world, *steps, minutes=10, content=None):
    """Unannounced, each found by a pass of its own."""
    for step in steps:
        world.clock.wait(minutes=minutes)
        world.save(step, content and f"{content} {step}")
        world.sweep()


def steps(world, timeline=None):
    return [found.record.step for found in lineage(world.state(), timeline)]


def lives_told(world):
    long = timedelta(days=99)
    rules = Rules(
        now=world.clock(),
        rpo=long,
        idle_after=long,
        domains={},
        copies=1,
        data=True,
        directories={RUN: str(OUT)},
        written_at={RUN: world.clock()},
    )
    ambers = [one for one in problems_of(world.state(), rules) if one.colour == AMBER]
    return [one.what for one in ambers if "is inferred" in one.what or "nobody can tell" in one.what]


def told(world):
    freshen(world.site(), RUN)
    file = world.spool.read_run_file(world.site().run_file(RUN))
    return file.timeline, file.resume["step"]


# Begun again at 0, without a command of ours.


@pytest.fixture
def began_anew(world):
    """Steps 500 and 1000, then 10 of a process that somebody started again by hand."""
    world.open()
    saved(world, 500, 1000)
    saved(world, 10, content="anew")
    return world


def test_a_process_that_begins_anew_is_seen_and_not_believed_at_once(began_anew):
    world = began_anew
    state = world.state()
    assert world.at(10).record.timeline == 2
    assert (state.timelines[2].inferred, state.timelines[2].fork.step) == (True, -1)
    assert (state.timeline, world.latest().record.step, told(world)) == (1, 1000, (1, 1000))
    (said,) = lives_told(world)
    assert "timeline 2, at step 10 is inferred; timeline 1 stays current" in said


def test_with_its_second_step_that_the_other_life_never_had_it_goes_on(began_anew):
    world = began_anew
    saved(world, 20, content="anew")
    assert (world.state().timeline, steps(world), told(world)) == (2, [20, 10], (2, 20))
    (said,) = lives_told(world)
    assert "timeline 2, at step 20 is inferred; it goes on" in said


def test_steps_that_the_other_life_had_tell_nothing_until_it_is_passed(world):
    world.open()
    saved(world, 10, 20, 30)
    saved(world, 10, 20, 30, content="anew")
    assert (world.state().timeline, steps(world), len(world.state().timelines)) == (1, [30, 20, 10], 2)
    saved(world, 40, content="anew")
    assert (world.state().timeline, steps(world)) == (2, [40, 30, 20, 10])
    assert {world.at(step).record.timeline for step in (10, 20, 30, 40)} == {2}


@pytest.mark.parametrize("order", [(10, 20), (20, 10)])
def test_what_one_pass_finds_stays_one_timeline(world, order):
    world.open()
    saved(world, 500, 1000)
    for step in order:
        world.clock.wait(minutes=1)
        world.save(step, f"anew {step}")
    world.sweep()
    assert {world.at(step).record.timeline for step in order} == {2}
    assert sorted(world.state().timelines) == [1, 2]
    assert world.state().timeline == 2


def test_an_old_step_that_is_found_late_is_no_going_back(world):
    """As a save that waited for its quiet window, or for room: older than what was recorded meanwhile."""
    world.open()
    world.save(10)
    late = [(path, node) for path, node in world.disk.walk(OUT)]
    world.disk.rename(OUT / "step-10", OUT.with_name("elsewhere"))
    saved(world, 20)
    world.disk.rename(OUT.with_name("elsewhere"), OUT / "step-10")
    world.sweep()
    assert late
    assert (sorted(world.state().timelines), steps(world)) == ([1], [20, 10])


def test_a_resume_never_moves_newer_steps_aside_for_what_was_only_inferred(began_anew):
    world = began_anew
    saved(world, 20, content="anew")
    with pytest.raises(Refused) as raised:
        resume(world.site(), RUN, to=OUT, job="7")
    assert "would move step 500, 1000 aside" in str(raised.value)
    for step, timeline in ((1000, 1), (20, 2)):
        line = f"lakemark resume {RUN} --to {OUT} --record id:{world.at(step).record.id[:12]}"
        assert f"in timeline {timeline} from step {step}: {line}" in raised.value.advice
    assert world.disk.exists(OUT / "step-1000")


@pytest.mark.parametrize(("chosen", "timeline"), [(20, 2), (1000, 3)])
def test_choosing_between_the_two_needs_no_approval(began_anew, chosen, timeline):
    world = began_anew
    saved(world, 20, content="anew")
    assert world.policies.approval.required
    done = resume(world.site(), RUN, to=OUT, record=world.at(chosen).record.id, job="7")
    assert (done.found.record.step, done.timeline) == (chosen, timeline)
    assert (world.state().timeline, world.latest().record.step) == (timeline, chosen)
    assert lives_told(world) == []
    again = resume(world.site(), RUN, to=OUT.with_name("other"), job="7")
    assert again.found.record.step == chosen
    # From then on it is decided: what goes below it is a rollback again.
    with pytest.raises(Refused, match="the newest record"):
        resume(world.site(), RUN, to=OUT, record=world.at(1020 - chosen).record.id)


def test_what_is_moved_aside_is_named_with_the_way_to_have_it_otherwise(began_anew):
    world = began_anew
    saved(world, 20, content="anew")
    done = resume(world.site(), RUN, to=OUT, record=world.at(20).record.id, job="7")
    assert len(done.moved_aside) == 2
    assert len(done.notes) == 2
    for step, note in zip((1000, 500), sorted(done.notes), strict=True):
        assert note.startswith(f"step {step} was moved aside: it is of timeline 1")
        assert f"rollback request {RUN} --to id:{world.at(step).record.id[:12]}" in note


def test_after_a_rollback_a_resume_names_what_it_moves(world):
    world.open()
    saved(world, 10, 20, 30)
    world.roll_back(10)
    done = resume(world.site(), RUN, to=OUT, job="7")
    assert len(done.moved_aside) == 2
    passed = {one.found.record.step: one.why for one in done.passed_over}
    assert set(passed) == {20, 30}
    assert f"to go on from it: lakemark rollback request {RUN} --to id:{world.at(30).record.id[:12]}" in passed[30]


def test_one_in_doubt_may_be_chosen_too(began_anew):
    world = began_anew
    done = resume(world.site(), RUN, to=OUT, record=world.at(10).record.id, job="7")
    assert (done.timeline, world.latest().record.step, lives_told(world)) == (2, 10, [])
    saved(world, 20, content="anew")
    assert steps(world) == [20, 10]


def test_going_on_in_the_current_life_settles_it(began_anew):
    world = began_anew
    done = resume(world.site(), RUN, to=OUT, job="7")
    assert (done.found.record.step, done.timeline, done.moved_aside) == (1000, 1, ())
    assert (world.state().in_doubt, lives_told(world)) == ((), [])


def test_a_rollback_settles_it(began_anew):
    world = began_anew
    done = world.roll_back(500)
    assert (done.timeline, world.state().timeline, world.state().in_doubt) == (3, 3, ())
    saved(world, 20, content="anew")
    assert (world.state().timeline, world.at(20).record.timeline) == (3, 2)


def test_it_ends_requests_only_once_it_goes_on(began_anew):
    world = began_anew
    world.clock.wait(hours=2)
    asked = request(world.site(), world.wish(500))
    saved(world, 15, content="anew")
    assert world.state().rollbacks[asked.id].state == "overtaken"


def test_opened_where_only_its_own_saves_lie_it_goes_on(began_anew):
    world = began_anew
    for step in (500, 1000):
        world.forget(step)
    opened = world.open(job="8")
    assert (opened.timeline, opened.notes, world.state().timeline) == (2, (), 2)
    assert lives_told(world) == []


def test_opened_where_the_others_lie_the_current_one_goes_on(began_anew):
    opened = began_anew.open(job="8")
    assert (opened.timeline, began_anew.state().timeline) == (1, 1)


# Old steps are written anew while later ones stand.


@pytest.mark.parametrize("converted", [(10,), (30,), (10, 20, 30), (30, 20, 10), (20, 10)])
def test_a_loop_that_writes_old_steps_anew_is_no_new_life(world, converted):
    world.open()
    saved(world, 10, 20, 30, 40)
    saved(world, *converted, minutes=1, content="in half the precision")
    assert (world.state().timeline, steps(world), told(world)) == (1, [40, 30, 20, 10], (1, 40))
    assert lives_told(world)
    done = resume(world.site(), RUN, to=OUT, job="7")
    assert (done.found.record.step, done.timeline, done.moved_aside) == (40, 1, ())


@pytest.mark.parametrize("announce", [True, False])
def test_the_life_that_was_never_left_goes_on_after_it(world, announce):
    world.open()
    trainer = world.saves(10, 20, 30, 40)
    saved(world, 10, 20, 30, minutes=1, content="in half the precision")
    for step in (50, 60):
        world.clock.wait(minutes=10)
        trainer.save(step, announce=announce)
        world.sweep()
    assert (world.state().timeline, steps(world)) == (1, [60, 50, 40, 30, 20, 10])
    assert len(world.state().timelines) == 2


# Rolled back, then started by hand.


@pytest.fixture
def by_hand(world):
    world.open(job="7")
    saved(world, 10, 20, 30, 40)
    world.roll_back(20)
    world.clock.wait(minutes=10)
    world.opened = world.open(job="7")
    return world


def test_an_opening_says_that_another_life_s_steps_lie_there(by_hand):
    world = by_hand
    bound = world.journal.directory(OUT)
    assert (world.opened.timeline, bound.timeline, bound.attempt) == (2, 2, world.opened.attempt)
    assert world.state().attempts[world.opened.attempt].timeline == 2
    (note,) = world.opened.notes
    assert f"step 30, 40 of another life lies in {OUT}" in note
    assert f"lakemark resume {RUN} --to {OUT} first" in note


@pytest.mark.parametrize("step", [25, 50])
def test_what_is_saved_there_unannounced_is_nobody_s_newest(by_hand, step):
    world = by_hand
    saved(world, step)
    found = world.at(step)
    assert (found.record.timeline, found.ambiguous, found.stands) == (2, True, False)
    assert {ref.evidence for ref in found.record.data} == {Evidence.AMBIGUOUS}
    assert (world.state().timeline, world.latest().record.step, told(world)) == (2, 20, (2, 20))
    (said,) = lives_told(world)
    assert f"nobody can tell which life of {RUN} saved step {step}" in said


def test_what_its_process_announces_is_known(by_hand):
    world = by_hand
    world.clock.wait(minutes=10)
    world.trainer().save(50)
    world.sweep()
    assert (world.at(50).ambiguous, world.latest().record.step) == (False, 50)


def test_the_resume_after_it_names_what_it_moves(by_hand):
    world = by_hand
    saved(world, 50)
    done = resume(world.site(), RUN, to=OUT, job="9")
    assert done.found.record.step == 20
    passed = {one.found.record.step: one.why for one in done.passed_over}
    assert set(passed) == {30, 40, 50}
    assert passed[50].startswith("nobody can tell which life it is of")
    assert f"id:{world.at(50).record.id[:12]}" in passed[50]
    assert lives_told(world) == []
    saved(world, 30, content="again")
    assert (world.latest().record.step, world.at(30).record.timeline) == (30, 2)


def test_who_knows_better_goes_on_from_it(by_hand):
    world = by_hand
    saved(world, 50)
    world.policies = replace(POLICIES, approval=Approval(required=False))
    done = resume(world.site(), RUN, to=OUT, record=world.at(50).record.id, job="9")
    assert (done.timeline, steps(world)) == (3, [50, 20, 10])


def test_after_a_resume_nothing_is_in_doubt(by_hand):
    world = by_hand
    resume(world.site(), RUN, to=OUT, job="9")
    opened = world.open(job="10")
    assert opened.notes == ()
    saved(world, 50)
    assert (world.at(50).ambiguous, world.latest().record.step) == (False, 50)
