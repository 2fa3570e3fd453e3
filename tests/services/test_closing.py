"""Closing a run: what was saved while it was open is kept, whoever finds it and whenever."""

from pathlib import Path

import pytest

from lakemark.errors import Refused
from lakemark.model.ledger.entry import Draft
from lakemark.services.node.watch import Watch
from lakemark.services.runs.close_run import close_run, reopen_run
from lakemark.services.saves.commit import Commit, commit
from lakemark.services.saves.find import to_be_looked_through
from tests.services.crashing import KillAt, Killed
from tests.services.test_uncommitted import LACKING
from tests.services.world import OUT, RUN, World
from tests.support.memory.lookout import MemoryLookout


def closes(world, **asked):
    close_run(world.site(), RUN, reason="done", **asked)
    return world.state()


def closed_elsewhere(world):
    """On another node, which sees nothing of this one's directories."""
    world.ledger.append(RUN, lambda _: Draft(kind="closed", timeline=1), world.site().stamp("closed"))
    world.clock.wait(minutes=1)


def steps(world, run=RUN):
    return sorted(found.record.step for found in world.state(run).records.values())


@pytest.mark.parametrize("announce", [True, False], ids=["announced", "found"])
def test_close_takes_what_lies_there_first(world, announce):
    world.open()
    trainer = world.trainer()
    trainer.save(100, announce=announce)
    trainer.save(200, announce=announce)
    world.clock.wait(minutes=1)
    assert closes(world).closed
    assert steps(world) == [100, 200]


@pytest.mark.parametrize(("lack", "mend"), LACKING, ids=["no room", "away", "another disk"])
def test_close_is_refused_while_a_save_can_t_be_taken_naming_it(world, lack, mend):
    world.open()
    world.saves(100)
    world.save(200)
    world.clock.wait(minutes=1)
    lack(world)
    with pytest.raises(Refused, match=r"step 200 at .* is not committed") as raised:
        closes(world)
    assert "--without-step 200" in raised.value.advice
    assert not world.state().closed
    assert closes(world, without_steps=[200]).closed
    mend(world)
    world.clock.wait(minutes=1)
    world.sweep()
    assert steps(world) == [100, 200]


def test_a_save_that_is_still_written_is_waited_for(world):
    world.open()
    world.save(100)
    with pytest.raises(Refused, match="step 100"):
        closes(world)


def test_a_half_written_one_keeps_no_run_open(world):
    world.open()
    world.disk.write(OUT / "step-100" / "model.tmp", b"half")
    world.clock.wait(minutes=1)
    assert closes(world).closed


@pytest.mark.parametrize("how", ["sweep", "watch", "commit"])
@pytest.mark.parametrize("announce", [True, False], ids=["announced", "found"])
def test_a_save_made_while_it_was_open_is_committed_after_the_close(world, how, announce):
    world.open()
    path = world.trainer().save(100, announce=announce)
    world.clock.wait(minutes=1)
    closed_elsewhere(world)
    if how == "sweep":
        world.sweep()
    elif how == "watch":
        Watch(world.site(), MemoryLookout(world.disk), say=lambda _: None).found(None)
    else:
        commit(world.site(), Commit(path=path, run=RUN, step=100))
    assert steps(world) == [100]
    assert world.state().closed


@pytest.mark.parametrize("announce", [True, False], ids=["announced", "found"])
def test_a_save_made_after_the_close_is_not(world, announce):
    world.open()
    trainer = world.trainer()
    closed_elsewhere(world)
    path = trainer.save(100, announce=announce)
    world.clock.wait(minutes=1)
    world.sweep()
    with pytest.raises(Refused, match="closed"):
        commit(world.site(), Commit(path=path, run=RUN, step=100))
    assert steps(world) == []
    reopen_run(world.site(), RUN, reason="it goes on")
    world.sweep()
    assert steps(world) == [100]


def test_it_is_looked_through_until_nothing_waits(world):
    world.open()
    world.save(100)
    world.clock.wait(minutes=1)
    closed_elsewhere(world)
    world.hot.free_share, world.hot.min_free_share = 0.05, 0.1
    world.sweep()
    assert to_be_looked_through(world.site(), world.state())
    world.hot.free_share = 1.0
    world.sweep()
    assert steps(world) == [100]
    assert not to_be_looked_through(world.site(), world.state())
    reopen_run(world.site(), RUN, reason="again")
    world.clock.wait(minutes=1)
    closed_elsewhere(world)
    assert to_be_looked_through(world.site(), world.state())


def test_the_next_run_in_its_directory_does_not_take_its_saves(world):
    world.open()
    world.save(100)
    world.clock.wait(minutes=1)
    closed_elsewhere(world)
    world.open("next")
    world.save(200)
    world.sweep()
    assert (steps(world), steps(world, "next")) == ([100], [200])


def test_killed_anywhere_in_a_close_nothing_is_lost():
    for number in range(1, 30):
        world = World()
        world.open()
        world.trainer().save(100)
        world.save(200)
        world.clock.wait(minutes=1)
        try:
            close_run(world.site(progress=KillAt(number)), RUN, reason="done")
        except Killed:
            world.restart()
            world.sweep()
            assert steps(world) == [100, 200]
            assert closes(world).closed
        else:
            assert number > 3
            assert steps(world) == [100, 200]
            return
    pytest.fail("it never came to an end")


def test_closing_where_there_is_nothing_needs_no_directory(world):
    world.open(watch=None)
    world.changes = {"home": Path("/elsewhere")}
    world.hot.free_share, world.hot.min_free_share = 0.05, 0.1
    assert closes(world).closed
