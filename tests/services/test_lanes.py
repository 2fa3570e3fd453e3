"""Each tier in a lane of its own: what one waits for, no other does. On adapters in memory, in real threads."""

import threading
import time
from dataclasses import replace

import pytest

from lakemark.adapters.disk.lanes import at_once
from lakemark.errors import NoRoom, StoreUnavailable
from lakemark.services.ledger import checkpoint
from lakemark.services.node.sweep import sweep
from lakemark.services.tiers.demote import demote
from tests.services.world import RUN, World

OTHER = "other"


def until(holds, *, seconds=180):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.005)


class Held:
    """A store whose `put` waits for as long as the test likes; the others are as they were."""

    def __init__(self, site, tier):
        self.go, self.asked = threading.Event(), 0
        self.error = None
        self._store = site.tiers[tier]
        self._put, self._store.put = self._store.put, self.put

    def put(self, *given, **more):
        self.asked += 1
        assert self.go.wait(600)
        if self.error is not None:
            raise self.error
        return self._put(*given, **more)


@pytest.fixture
def world():
    """Two runs of two records each, in hot alone."""
    world = World()
    for run in (RUN, OTHER):
        out = world.site().home.parent / "train" / run
        world.open(run, watch=out)
        for step in (100, 200):
            world.save(step, f"{run} {step}", out=out)
    world.clock.wait(seconds=10)
    return world


def tiers(world):
    """(run, step) -> the slower tiers that have it."""
    return {
        (run, found.record.step): {place.tier for place in found.replicas} - {"hot"}
        for run in (RUN, OTHER)
        for found in world.state(run).records.values()
    }


def in_thread(work):
    answers = []
    thread = threading.Thread(target=lambda: answers.append(work()))
    thread.start()
    return thread, answers


@pytest.mark.parametrize("slow", ["warm", "cold"])
def test_a_sweep_fills_one_tier_of_every_run_while_another_hangs(world, slow):
    other = {"warm": "cold", "cold": "warm"}[slow]
    site = world.site(at_once=at_once)
    held = Held(site, slow)
    thread, answers = in_thread(lambda: sweep(site))
    until(lambda: len(tiers(world)) == 4 and all(found == {other} for found in tiers(world).values()))
    held.go.set()
    thread.join()
    assert all(found == {"warm", "cold"} for found in tiers(world).values())
    (swept,) = answers
    assert swept.pending == [] or all(one.planned for one in swept.pending)
    # Said in the same order whoever was faster.
    assert [move.tier for move in swept.replicated] == ["warm"] * 4 + ["cold"] * 4


@pytest.mark.parametrize(
    "error", [StoreUnavailable("too slow", advice="-"), NoRoom("full", advice="-")], ids=["slow", "full"]
)
def test_a_tier_that_takes_nothing_costs_a_sweep_its_time_once_and_is_named(world, error):
    site = world.site(at_once=at_once)
    held = Held(site, "warm")
    held.error = error
    held.go.set()
    swept = sweep(site)
    assert held.asked == 1
    assert all(found == {"cold"} for found in tiers(world).values())
    (pending,) = [one for one in swept.pending if not one.planned]
    assert pending.what.endswith("to warm")
    assert pending.why == str(error)


def test_a_pass_over_one_run_has_lanes_too(world):
    sweep(world.site(), move=False)
    site = world.site(at_once=at_once)
    held = Held(site, "warm")
    thread, answers = in_thread(lambda: demote(site, RUN))
    until(lambda: [tiers(world)[RUN, step] for step in (100, 200)] == [{"cold"}, {"cold"}])
    held.go.set()
    thread.join()
    assert [move.tier for move in answers[0].replicated] == ["warm", "warm", "cold", "cold"]


def test_a_source_that_is_away_is_not_the_target_s_fault(world):
    """A record that lies in warm alone can't go to cold while warm is away; those that lie in hot can."""
    sweep(world.site(), move=False)
    site = world.site()
    first, second = sorted(world.state().records.values(), key=lambda found: found.record.step)
    demote(replace(site, tiers={name: site.tiers[name] for name in ("hot", "warm")}), RUN)
    world.hot.drop(checkpoint(site, first), now=world.clock())
    site = world.site()
    site.tiers["warm"].open = _away
    done = demote(site, RUN)
    assert {move.record for move in done.replicated if move.tier == "cold"} == {second.record.id}
    assert done.away == {}
    assert any(one.what.endswith("to cold") for one in done.pending)


def _away(*_, **__):
    raise StoreUnavailable("warm is away", advice="-")


def test_an_error_of_one_lane_is_raised_when_all_have_ended():
    done = []
    with pytest.raises(ZeroDivisionError):
        at_once([lambda: 1 / 0, lambda: done.append(1)])
    assert done == [1]
    assert at_once([lambda: 1, lambda: 2]) == [1, 2]
    assert at_once([]) == []
