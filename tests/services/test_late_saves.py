"""A trainer that goes on after its run was closed: its saves are kept nowhere, and that is said by passes and by `status`."""

import pytest

from lakemark.services.health.saves import problems_of_late
from lakemark.services.runs.close_run import close_run, reopen_run
from lakemark.services.saves.late import FOR
from lakemark.services.saves.waiting import noted
from tests.services.world import OUT, RUN


@pytest.fixture
def trainer(world):
    world.open()
    going = world.trainer()
    going.save(100)
    world.sweep()
    close_run(world.site(), RUN, reason="over")
    world.clock.wait(minutes=1)
    world.sweep()  # what was saved before the close was looked for once more
    world.clock.wait(minutes=1)
    return going


def late(world):
    return [one for one in world.sweep().pending if RUN in one.what and "closed" in one.why]


@pytest.mark.parametrize("announce", [True, False])
def test_it_is_named_until_the_run_goes_on(world, trainer, announce):
    trainer.save(200, announce=announce)
    (one,) = late(world)
    assert "step-200" in one.what
    assert f"run reopen {RUN}" in one.next
    (problem,) = problems_of_late(RUN, noted(world.site(), RUN))
    assert (problem.colour, "step-200" in problem.what) == ("amber", True)
    assert [found.record.step for found in world.state().records.values()] == [100]
    reopen_run(world.site(), RUN, reason="it goes on")
    world.sweep()
    assert [found.record.step for found in world.state().records.values()] == [100, 200]
    assert list(problems_of_late(RUN, noted(world.site(), RUN))) == []


def test_what_was_saved_before_the_close_is_not_late(world, trainer):
    assert late(world) == []


def test_the_next_run_s_saves_in_that_directory_are_not_late(world, trainer):
    world.open("next")
    world.save(200)
    assert late(world) == []


def test_a_run_that_was_closed_long_ago_costs_nothing(world, trainer):
    trainer.save(200, announce=False)
    world.clock.wait(days=FOR.days + 1)
    assert late(world) == []
    assert OUT
