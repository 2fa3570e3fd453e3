"""A node that starts once with its clock a year off: what it recorded then is held between its neighbours, and said."""

from dataclasses import replace
from datetime import timedelta

import pytest

from lakemark.model.back.rollback_plan import Flags
from lakemark.model.ledger.moments import Sure
from lakemark.model.runs.then import doubts, known_then
from lakemark.model.runs.timeline import as_of
from lakemark.model.values.wording import instant
from lakemark.ports import Approval
from lakemark.services.back.resume import resume
from lakemark.services.back.rollback_request import plan
from tests.services.world import OUT, POLICIES, RUN

YEAR = timedelta(days=365)


@pytest.fixture(params=[-YEAR, YEAR], ids=["back", "ahead"])
def booted(request, world):
    """Steps 100 to 600, one a day; that of 400 was saved in a boot whose clock was a year off."""
    world.open()
    trainer = world.trainer()
    for step in (100, 200, 300, 400, 500, 600):
        world.clock.wait(days=1)
        if step == 400:
            world.clock.now += request.param
        trainer.save(step)
        world.sweep()
        if step == 400:
            world.clock.now -= request.param
    world.off = request.param
    return world


def day(world, number):
    """Noon after the save of that day."""
    return world.clock() - timedelta(days=6 - number) + timedelta(hours=12)


def test_no_time_since_answers_the_step_of_that_boot(booted):
    state = booted.state()
    assert booted.at(400).sure is Sure.HELD
    steps = [as_of(state, day(booted, number)).record.step for number in range(1, 7)]
    assert steps == [100, 200, 300, 300, 500, 600]
    assert day(booted, 3) < booted.at(400).instant <= booted.at(500).recorded_at


def test_the_answer_says_that_it_may_be_another(booted):
    state = booted.state()
    (said,) = doubts(state, as_of(state, day(booted, 4)), at=day(booted, 4))
    assert "the clock was wrong when step 400 was recorded" in said
    before, after = (instant(booted.at(step).recorded_at) for step in (300, 500))
    assert f"that was after {before} and before {after}" in said
    for number in (2, 6):
        assert doubts(state, as_of(state, day(booted, number)), at=day(booted, number)) == ()


def test_so_does_the_plan_of_a_rollback(booted):
    def notes(step, at=None):
        wish = booted.wish(step, at=at, flags=Flags(while_running=True))
        return [
            note for note in plan(booted.site(), wish).notes if "the clock was wrong when step 400 was recorded" in note
        ]

    at = day(booted, 4)
    assert len(notes(as_of(booted.state(), at).record.step, at)) == 1
    assert len(notes(400)) == 1, "of a target that was named by its step"
    assert notes(200) == notes(200, day(booted, 2)) == []


def test_nobody_knew_of_it_before(booted):
    state = booted.state()
    assert [known_then(state, day(booted, number)).record.step for number in (2, 3)] == [200, 300]
    assert known_then(state, day(booted, 5)).record.step == 500


@pytest.mark.parametrize("off", [-YEAR, YEAR])
def test_a_timeline_of_that_boot_was_not_open_before(world, off):
    world.policies = replace(POLICIES, approval=Approval(required=False))
    world.open()
    world.saves(100, 200, 300, minutes=60 * 24)
    world.clock.wait(days=1)
    world.clock.now += off
    resume(world.site(), RUN, to=OUT, record=world.at(100).record.id, job="2")
    world.trainer().save(150)
    world.sweep()
    world.clock.now -= off
    world.clock.wait(days=1)
    world.trainer().save(250)
    world.sweep()
    state = world.state()
    assert [found.record.timeline for found in state.records.values()] == [1, 1, 1, 2, 2]
    assert known_then(state, world.clock() - timedelta(days=1, hours=12)).record.step == 300
    assert known_then(state, world.clock()).record.step == 250


def test_retention_counts_its_age_by_where_it_is_held(booted):
    found = booted.at(400)
    assert abs(found.instant - day(booted, 4)) < timedelta(days=2)
    assert abs(found.known_at - day(booted, 4)) < timedelta(days=2)


def test_what_a_process_announced_is_not_of_before_it_began(world):
    world.open()
    began = world.clock()
    trainer = world.trainer()
    path = trainer.save(100, announce=False)
    world.clock.now -= YEAR
    trainer.announce(path, 100)
    world.clock.now += YEAR
    world.clock.wait(minutes=1)
    world.sweep()
    assert world.at(100).record.saved_at == began
