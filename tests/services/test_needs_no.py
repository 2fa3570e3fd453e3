"""A plain loop without scheduler or random-number state: said once per run, with how to say that it is meant."""

import pytest

from lakemark.errors import NotFound, Usage
from lakemark.services.back.resume import newest_resumable, resume
from tests.services.world import OUT, RUN

ROLES = {"model.bin": "weights", "optim/state.bin": "optimizer"}


def saved(world, *steps):
    trainer = world.trainer()
    said = []
    for step in steps:
        world.clock.wait(minutes=10)
        trainer.save(step, roles=ROLES)
        said += world.sweep().said
    return [line for line in said if "--needs-no" in line]


def test_it_is_said_of_the_first_save_alone(world):
    world.open()
    (line,) = saved(world, 100, 200, 300)
    assert line.startswith(f"{RUN}@100: ")
    assert line.endswith(f"lakemark run open {RUN} --needs-no scheduler rng")
    with pytest.raises(NotFound):
        newest_resumable(world.state())


def test_what_a_run_needs_not_is_no_gap_before_or_after(world):
    world.open()
    saved(world, 100)
    world.open(needs_no=["scheduler", "rng"])
    assert resume(world.site(), RUN, to=OUT, job="7").found.record.step == 100
    assert saved(world, 200) == []
    record = world.at(200).record
    assert (record.resumable, record.gaps) == (True, ())
    world.clock.wait(minutes=1)
    assert resume(world.site(), RUN, to=OUT, job="8").found.record.step == 200
    before = world.kinds().count("opened")
    world.open(needs_no=["rng"])
    assert world.kinds().count("opened") == before


def test_other_roles_are_still_missed(world):
    world.open(needs_no=["scheduler"])
    (line,) = saved(world, 100)
    assert line.endswith("--needs-no rng")
    assert world.at(100).record.gaps == ("no rng",)


def test_what_is_no_role_is_refused(world):
    with pytest.raises(Usage, match="--needs-no 'seed'"):
        world.open(needs_no=["seed"])
