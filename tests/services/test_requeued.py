"""A job that is started again under the same id goes on from what it saved, not from what was decided for its first start."""

from dataclasses import replace
from datetime import timedelta

import pytest

from lakemark.errors import Refused
from lakemark.model.ledger.entry import Draft
from lakemark.model.runs.starts import Start
from lakemark.services.back.resume import resume
from lakemark.services.saves.commit import Commit, commit
from lakemark.services.saves.layout import ASIDE
from tests.services.crashing import KillAt, Killed
from tests.services.world import OUT, RUN, World


def prologue(world, **asked):
    asked["job"] = Start(job=asked.get("job", "4711"), restart=asked.pop("restart", None))
    done = resume(world.site(), RUN, to=OUT, **asked)
    world.clock.wait(minutes=1)
    return done


def trained(world, *steps, announce=True):
    """A process of the job that the prologue prepared, and that ends."""
    trainer = world.trainer()
    for step in steps:
        world.clock.wait(minutes=10)
        trainer.save(step, announce=announce)


def started(world):
    world.open()
    world.saves(100)
    return prologue(world)


@pytest.mark.parametrize("announce", [True, False], ids=["announced", "found"])
@pytest.mark.parametrize("swept", [True, False], ids=["swept", "not swept"])
def test_what_a_process_of_the_job_saved_ends_the_decision(world, announce, swept):
    first = started(world)
    trained(world, 200, 300, 400, announce=announce)
    if swept:
        world.sweep()
    world.clock.wait(minutes=1)
    again = prologue(world)
    assert (again.found.record.step, again.timeline, again.moved_aside) == (400, 1, ())
    assert again.attempt != first.attempt
    trained(world, 500)
    world.clock.wait(minutes=1)
    third = prologue(world)
    assert (third.found.record.step, third.timeline) == (500, 1)
    assert len({first.attempt, again.attempt, third.attempt}) == 3
    assert world.state().timeline == 1


def test_every_node_of_the_second_start_decides_the_same(world):
    started(world)
    trained(world, 200)
    world.clock.wait(minutes=1)
    again = prologue(world)
    other = resume(world.site(), RUN, to=OUT.with_name("out-b"), job="4711")
    assert (other.attempt, other.found.record.id) == (again.attempt, again.found.record.id)


def test_what_was_written_before_the_decision_and_is_recorded_later_ends_nothing(world):
    world.open()
    world.saves(100)
    late = world.save(200, out=OUT.with_name("elsewhere"))
    world.clock.wait(minutes=1)
    first = prologue(world)
    commit(world.site(), Commit(path=late, run=RUN, step=200))
    assert world.at(200).record.saved_at < world.state().attempts[first.attempt].decided_at
    again = prologue(world)
    assert (again.attempt, again.found.record.step) == (first.attempt, 100)


def test_a_save_of_another_job_ends_nothing(world):
    first = started(world)
    prologue(world, job="5000")
    trained(world, 200)
    world.sweep()
    assert prologue(world).attempt == first.attempt


@pytest.mark.parametrize("opened", [True, False], ids=["opened", "resumed"])
def test_how_often_the_scheduler_started_it_is_part_of_the_start(world, opened):
    first = started(world)
    world.save(200, out=OUT)
    world.clock.wait(minutes=1)
    if opened:
        world.open(job="4711", restart="1")
    again = prologue(world, restart="1")
    assert again.attempt != first.attempt
    assert again.found.record.step == 200
    assert prologue(world, restart="1").attempt == again.attempt


def test_a_rollback_since_is_gone_along_with(world):
    started(world)
    world.saves(200)
    prologue(world)
    world.roll_back(100)
    again = prologue(world)
    assert (again.found.record.step, again.timeline) == (100, 2)


@pytest.mark.parametrize("kind", ["quarantined", "pruned"])
def test_a_record_that_went_out_of_use_is_decided_no_more(world, kind):
    world.open()
    world.saves(100, 200)
    first = prologue(world)
    bad = first.found.record.id
    items = [{"record": bad, "reasons": ["old"], "thinned": False}]
    body = {"items": items} if kind == "pruned" else {}
    named = None if kind == "pruned" else bad
    world.ledger.append(RUN, lambda _: Draft(kind=kind, record=named, body=body), world.site().stamp("bad"))
    assert prologue(world).found.record.step == 100


def test_what_each_start_moves_aside_is_kept_apart(world):
    started(world)
    trained(world, 200)
    world.sweep()
    world.roll_back(100)
    once = prologue(world)
    assert once.moved_aside == (OUT / ASIDE / "4711.1" / "step-200",)
    trained(world, 200)
    world.sweep()
    world.roll_back(100, timeline=1)
    twice = prologue(world)
    assert twice.moved_aside == (OUT / ASIDE / "4711.2" / "step-200",)
    assert world.disk.exists(once.moved_aside[0])


def test_killed_anywhere_in_the_second_prologue_it_still_goes_on_from_the_newest():
    for number in range(1, 60):
        world = World()
        started(world)
        trained(world, 200)
        world.clock.wait(minutes=1)
        try:
            resume(world.site(progress=KillAt(number)), RUN, to=OUT, job="4711")
        except Killed:
            world.restart()
            assert prologue(world).found.record.step == 200
        else:
            assert number > 5
            return
    pytest.fail("it never came to an end")


def test_another_node_that_decided_meanwhile_is_followed(world):
    """Two prologues of one start look at the same time; the second finds the first's entry when it appends its own."""
    world.open()
    world.saves(100)
    seen = []

    def race():
        if not seen:
            seen.append(True)
            world.saves(200)
            seen.append(resume(world.site(), RUN, to=OUT.with_name("out-b"), job="4711"))

    append = world.ledger.append
    site = world.site()

    class Racing:
        def __getattr__(self, name):
            return getattr(world.ledger, name)

        def append(self, run, decide, stamp):
            race()
            return append(run, decide, stamp)

    done = resume(replace(site, ledger=Racing()), RUN, to=OUT, job="4711")
    assert done.found.record.id == seen[1].found.record.id == world.at(200).record.id


# Which start it is


ENVIRONMENTS = [
    ({}, None, Start()),
    ({}, "7", Start(job="7")),
    ({"SLURM_JOB_ID": "4711"}, None, Start(job="4711")),
    ({"SLURM_JOB_ID": "4711", "SLURM_RESTART_COUNT": "0"}, None, Start(job="4711")),
    ({"SLURM_JOB_ID": "4711", "SLURM_RESTART_COUNT": "2"}, None, Start(job="4711", restart="2")),
    ({"SLURM_JOB_ID": "4711", "SLURM_RESTART_COUNT": "2"}, "mine", Start(job="mine", restart="2")),
    ({"AWS_BATCH_JOB_ID": "a-b", "AWS_BATCH_JOB_ATTEMPT": "1"}, None, Start(job="a-b")),
    ({"AWS_BATCH_JOB_ID": "a-b", "AWS_BATCH_JOB_ATTEMPT": "3"}, None, Start(job="a-b", restart="3")),
    ({"LSB_JOBID": "5", "LSB_RESTART": "Y"}, None, Start(job="5", restart="Y")),
    ({"PBS_JOBID": "9.pbs"}, None, Start(job="9.pbs")),
    ({"SLURM_RESTART_COUNT": "2"}, "7", Start(job="7")),
]


@pytest.mark.parametrize(("environ", "job", "start"), ENVIRONMENTS)
def test_a_start_is_told_by_its_scheduler(environ, job, start):
    assert Start.of(job, environ) == start


def test_refusals_come_before_any_decision(world):
    started(world)
    trained(world, 200)
    world.hot.free_share, world.hot.min_free_share = 0.05, 0.1
    world.clock.wait(minutes=1)
    with pytest.raises(Refused, match="step 200"):
        prologue(world)
    world.hot.free_share = 1.0
    assert prologue(world).found.record.step == 200
    assert world.clock() > world.at(200).record.saved_at + timedelta(seconds=1)
