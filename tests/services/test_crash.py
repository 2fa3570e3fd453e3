"""kill -9 at every named step of commit, replicate, release, resume and rollback; then a sweep.

No acknowledged record is lost, every recorded replica verifies, no half checkpoint is visible, a second sweep is a
no-op, and what was interrupted completes when it is asked for again.
"""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from lakemark.model.back.rollback_plan import Flags
from lakemark.services.back.resume import resume
from lakemark.services.back.rollback_apply import apply
from lakemark.services.back.rollback_decide import approve
from lakemark.services.back.rollback_request import request
from lakemark.services.node.sweep import sweep
from lakemark.services.saves.commit import Commit, commit
from lakemark.services.tiers.release import release
from lakemark.services.tiers.replicate import replicate
from tests.services.crashing import Fuse, KillAt, Killed, fused, invariants, settled
from tests.services.world import OUT, POLICIES, RUN, World, files

MOST = 200


def commit_world():
    world = World()
    world.open()
    world.saves(100)
    world.trainer().save(200)
    return world, set(world.state().records)


def commit_it(world, site):
    (spooled,) = list(site.spool.spooled(site.spool_of(RUN))) or [None]
    return commit(site, Commit(path=OUT / "step-200", run=RUN, step=200, spooled=spooled, found=True))


def explicit_it(world, site):
    return commit(site, Commit(path=OUT / "step-200", run=RUN, step=200))


def again_world():
    """A restarted trainer saved the newest step again: the commit opens a timeline first."""
    world = World()
    world.open()
    for step in (100, 200):
        world.save(step)
        world.sweep()
    world.save(200, "again")
    world.clock.wait(minutes=1)
    return world, set(world.state().records)


def again_it(world, site):
    return commit(site, Commit(path=OUT / "step-200", run=RUN, step=200, found=True, directory=OUT))


def replicate_world():
    world = World(policies=replace(POLICIES, residence={}))
    world.open()
    world.save(100)
    world.clock.wait(minutes=1)
    sweep(world.site(), move=False)
    return world, set(world.state().records)


def replicate_it(world, site):
    return replicate(site, RUN, world.at(100).record.id, to="warm")


def release_world():
    world = World()
    world.open()
    world.saves(100, 200)
    world.clock.wait(hours=1)
    return world, set(world.state().records)


def release_it(world, site):
    record = world.at(100)
    if world.hot.place not in record.replicas:
        return record
    return release(site, RUN, record.record.id, tier="hot")


def warm_world():
    """Warm keeps nothing for long; what is due for release waits for somebody."""
    world, acknowledged = release_world()
    warm = replace(POLICIES.residence["warm"], keep_for=timedelta(minutes=5))
    world.policies = replace(POLICIES, residence=dict(POLICIES.residence) | {"warm": warm})
    world.clock.wait(hours=3)
    return world, acknowledged


def release_warm_it(world, site):
    record = world.at(100)
    if "warm" not in {place.tier for place in record.replicas}:
        return record
    return release(site, RUN, record.record.id, tier="warm")


def resume_world():
    world = World()
    world.open()
    world.saves(100, 200, 300)
    world.roll_back(200)
    world.disk.remove(OUT / "step-200")
    return world, set(world.state().records)


def resume_it(world, site):
    return resume(site, RUN, to=OUT, job="7")


def rollback_world():
    world = World()
    world.open()
    world.saves(100, 200, 300)
    world.change_data(2)
    world.clock.wait(hours=1)
    return world, set(world.state().records)


def rollback_it(world, site):
    wish = world.wish(200, flags=Flags(while_running=True), key="the form of that day")
    asked = request(site, wish)
    if asked.state == "requested":
        approve(replace(site, actor="bob@node-b"), asked.id, digest=asked.digest)
    return apply(site, asked.id)


OPERATIONS = {
    "commit": (commit_world, commit_it),
    "explicit commit": (commit_world, explicit_it),
    "commit that opens a timeline": (again_world, again_it),
    "replicate": (replicate_world, replicate_it),
    "release from hot": (release_world, release_it),
    "release from warm": (warm_world, release_warm_it),
    "resume": (resume_world, resume_it),
    "roll back": (rollback_world, rollback_it),
    "sweep": (commit_world, lambda world, site: world.clock.wait(minutes=1) or sweep(site)),
}
EXPECTED_STEPS = {
    "commit": {"commit.landed", "commit.adopted", "commit.recorded", "commit.remembered", "commit.acknowledged"},
    "commit that opens a timeline": {"commit.timeline"},
    "replicate": {"replicate.stored", "replicate.recorded"},
    "release from hot": {"release.checked", "release.recorded", "release.dropped"},
    "resume": {
        "resume.recorded",
        "resume.chosen",
        "resume.moved",
        "resume.restored",
        "resume.bound",
        "resume.told",
    },
    "roll back": {"rollback.requested", "rollback.approved", "rollback.restored", "rollback.data_opened"}
    | {"rollback.recorded", "rollback.told"},
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_killed_at_every_named_step(name):
    prepare, operate = OPERATIONS[name]
    for number in range(1, MOST):
        world, acknowledged = prepare()
        progress = KillAt(number)
        try:
            operate(world, world.site(progress=progress))
        except Killed:
            settled(world, acknowledged)
            finish(world, operate)
            continue
        assert len(progress.steps) < number
        assert EXPECTED_STEPS.get(name, set()) <= set(progress.steps)
        return
    pytest.fail(f"{name} has more than {MOST} steps")


@pytest.mark.parametrize("name", OPERATIONS)
def test_killed_after_every_call_that_changed_something(name):
    prepare, operate = OPERATIONS[name]
    for number in range(1, MOST):
        world, acknowledged = prepare()
        fuse = Fuse()
        fuse.left = number
        try:
            operate(world, fused(world.site(), fuse))
        except Killed:
            settled(world, acknowledged)
            finish(world, operate)
            continue
        assert number > 3
        return
    pytest.fail(f"{name} has more than {MOST} calls")


def finish(world, operate):
    """Asked for again, it completes; and again, it changes nothing."""
    operate(world, world.site())
    world.sweep()
    before = world.state().sequence
    operate(world, world.site())
    assert world.state().sequence == before
    invariants(world, set(world.state().records))


def test_a_rollback_killed_anywhere_shows_both_or_neither():
    for number in range(1, MOST):
        world, _ = rollback_world()
        fuse = Fuse()
        fuse.left = number
        try:
            rollback_it(world, fused(world.site(), fuse))
        except Killed:
            state = world.state()
            told = world.spool.read_run_file(Path("/home/runs") / f"{RUN}.json")
            if state.timeline == 1:
                assert told.timeline == 1
                continue
            (rollback,) = state.rollbacks.values()
            item = rollback.plan["data"][0]
            assert world.data.head("data", item["opens_branch"]) == item["commit"]
            assert files(world.disk, Path("/restores") / rollback.id) == files(world.disk, OUT / "step-200")
            assert [ref.commit for ref in state.interval.data] == [item["commit"]]
            continue
        return


def test_a_resume_killed_anywhere_has_destroyed_nothing():
    for number in range(1, MOST):
        world, _ = resume_world()
        before = sorted(node.data for _, node in world.disk.walk(OUT) if hasattr(node, "data"))
        fuse = Fuse()
        fuse.left = number
        try:
            resume_it(world, fused(world.site(), fuse))
        except Killed:
            after = [node.data for _, node in world.disk.walk(OUT) if hasattr(node, "data")]
            for data in before:
                after.remove(data)
            continue
        return
