"""Timelines: what is given up stays listed and restorable, and is never taken for the future again."""

from datetime import timedelta

import pytest

from lakemark.model.runs.timeline import as_of
from lakemark.ports import Watched
from lakemark.services.back.restore import restore
from lakemark.services.back.resume import resume
from lakemark.services.saves.commit import Commit, commit
from tests.services.world import OUT, RUN, files


@pytest.fixture
def long_run(world):
    """Steps 100 to 600, an hour apart, by a trainer that goes on living."""
    world.open()
    world.old_trainer = world.saves(100, 200, 300, 400, 500, 600, minutes=60)
    return world


def steps(world, timeline):
    return [step for step, _, _ in world.state().by_step.get(timeline, [])]


def test_rolled_back_the_given_up_steps_lie_there_and_no_sweep_makes_them_the_future(long_run):
    world = long_run
    world.roll_back(300)
    assert world.disk.exists(OUT / "step-600")
    for _ in range(2):
        assert world.sweep().committed == []
    assert steps(world, 2) == []
    assert world.latest().record.step == 300
    resume(world.site(), RUN, to=OUT, job="2")
    assert world.sweep().committed == []
    assert world.latest().record.step == 300


def test_nor_does_one_when_the_node_s_memory_is_lost(long_run):
    world = long_run
    world.roll_back(300)
    world.journal.forget_all()
    assert [made for made in world.sweep().committed if made.new] == []
    assert world.latest().record.step == 300
    resume(world.site(), RUN, to=OUT, job="2")
    world.journal.forget_all()
    assert [made for made in world.sweep().committed if made.new] == []
    assert world.latest().record.step == 300


def test_nor_does_one_when_only_the_files_were_forgotten(long_run):
    """As after a crash between the entry and the node's own note of it, in a directory that was resumed into since."""
    world = long_run
    world.roll_back(300)
    resume(world.site(), RUN, to=OUT, job="2")
    world.journal._files.clear()
    assert [made for made in world.sweep().committed if made.new] == []
    assert world.latest().record.step == 300
    assert steps(world, 2) == []


def test_the_restored_checkpoint_is_not_a_new_save(long_run):
    world = long_run
    world.roll_back(300)
    world.disk.remove(OUT / "step-300")
    resume(world.site(), RUN, to=OUT, job="2")
    assert world.disk.exists(OUT / "step-300" / "model.bin")
    assert world.sweep().committed == []
    assert len(world.state().records) == 6


@pytest.mark.parametrize("announce", [True, False])
def test_a_trainer_nobody_stopped_saves_into_the_old_timeline(long_run, announce):
    world = long_run
    world.roll_back(300)
    world.old_trainer.save(700, announce=announce)
    world.sweep()
    assert world.at(700).record.timeline == 1
    assert world.latest().record.step == 300
    assert world.state().timeline == 2


@pytest.mark.parametrize("announce", [True, False])
def test_nor_does_it_take_over_by_saving_a_step_again(long_run, announce):
    world = long_run
    world.roll_back(300)
    world.old_trainer.save(600, "again", announce=announce)
    world.sweep()
    again = world.at(600)
    assert (again.record.timeline, again.conflicts_with) == (1, world.state().by_step[1][-2][2])
    assert world.state().timeline == 2
    assert world.latest().record.step == 300
    assert len(steps(world, 1)) == 7
    world.sweep()
    assert len(steps(world, 1)) == 7


@pytest.mark.parametrize("announce", [True, False])
def test_resumed_it_saves_a_step_anew_and_that_is_the_latest(long_run, announce):
    world = long_run
    old = world.at(400).record
    world.roll_back(300)
    resume(world.site(), RUN, to=OUT, job="2")
    world.clock.wait(minutes=10)
    world.trainer().save(400, "400 prime", announce=announce)
    world.sweep()
    new = world.at(400, timeline=2).record
    assert world.latest().record.id == new.id != old.id
    assert new.parent == world.at(300).record.id
    assert world.state().records[old.id].stands
    restore(world.site(), RUN, old.id, to=OUT.with_name("old"))
    assert files(world.disk, OUT.with_name("old"))["model.bin"] == b"weights of step 400"


def test_the_very_same_bytes_trained_again_are_a_new_record_of_the_new_timeline(long_run):
    world = long_run
    world.roll_back(300)
    resume(world.site(), RUN, to=OUT, job="2")
    world.clock.wait(minutes=10)
    world.trainer().save(400, announce=False)
    world.sweep()
    assert world.latest().record.step == 400
    assert world.latest().record.timeline == 2


def test_a_rollback_of_a_rollback(long_run):
    world = long_run
    first = world.roll_back(300)
    resume(world.site(), RUN, to=OUT, job="2")
    world.saves(400, 500)
    second = world.roll_back(600, timeline=1)
    assert (first.timeline, second.timeline) == (2, 3)
    assert world.latest().record.step == 600
    assert world.state().timelines[3].fork.timeline == 1
    third = world.roll_back(400, timeline=2)
    assert third.timeline == 4
    assert world.latest().record.timeline == 2
    resume(world.site(), RUN, to=OUT, job="3")
    world.saves(500)
    assert world.latest().record.timeline == 4
    assert steps(world, 4) == [500]


def test_three_days_ago_on_the_day_after_a_rollback_is_the_parent_s_record(world):
    world.open()
    trainer = world.trainer()
    for day in range(6):
        trainer.save(100 * day)
        world.sweep()
        world.clock.wait(days=1)
    world.roll_back(300)
    world.clock.wait(days=1)
    found = as_of(world.state(), world.clock() - timedelta(days=3))
    assert (found.record.step, found.record.timeline) == (300, 1)
    found = as_of(world.state(), world.clock() - timedelta(days=6))
    assert found.record.step == 100


def test_a_save_in_flight_during_a_rollback_goes_where_its_process_was(long_run):
    """Announced before, committed after: by the attempt, not by the moment it was found."""
    world = long_run
    world.clock.wait(hours=3)
    world.old_trainer.save(700)
    world.clock.wait(hours=3)
    world.roll_back(300)
    resume(world.site(), RUN, to=OUT.with_name("other"), job="2")
    world.sweep()
    assert world.at(700).record.timeline == 1


def test_two_nodes_jobs_and_a_stray_explicit_commit(long_run):
    world = long_run
    world.roll_back(300)
    made = commit(world.site(), Commit(path=OUT / "step-600", run=RUN, step=600, directory=OUT))
    assert (made.new, made.record.timeline) == (False, 1)


def test_a_directory_that_only_the_configuration_names_stays_with_who_saved_there(world):
    world.changes = {"watch": (Watched(path=OUT, run=RUN),)}
    world.open(watch=None)
    for step in (100, 200):
        world.save(step)
        world.sweep()
    world.roll_back(100)
    world.save(300)
    world.sweep()
    assert world.at(300).record.timeline == 1
    assert world.latest().record.step == 100


def test_a_process_that_began_anew_is_said_to_have(world):
    world.open(job="1")
    world.save(100)
    world.sweep()
    world.open(job="2")
    world.clock.wait(minutes=1)
    world.save(50)
    world.sweep()
    (entry,) = (entry for entry, _ in world.ledger.entries(RUN) if entry.kind == "resumed")
    assert entry.reason == "step 50 was saved again by a process that had begun anew"


def test_a_new_attempt_does_not_take_over_what_lay_there_before(long_run):
    world = long_run
    world.save(700)
    world.clock.wait(minutes=1)
    world.roll_back(300)
    world.open(job="2")
    assert world.at(700).record.timeline == 1
    world.clock.wait(minutes=1)
    world.journal.forget_all()
    world.open(job="3")
    assert [made for made in world.sweep().committed if made.new] == []
    assert world.latest().record.step == 300
