"""A full hot drops last copies only where that gives room back, by clocks that can be believed, as far as it is needed."""

import shutil
from dataclasses import replace
from datetime import timedelta

import pytest

from lakemark.adapters.hot.store import TreeStore
from lakemark.model.ledger.entry import Draft
from lakemark.model.tiers.retention import RetentionPolicy
from lakemark.services.node.sweep import sweep
from tests.services.on_disk import hf
from tests.services.world import POLICIES, RUN, World
from tests.support.memory import MemoryStore

MONTH = RetentionPolicy(keep_for=timedelta(days=30))


def test_what_the_trainer_still_holds_is_not_dropped_for_room(yard):
    yard.open()
    for step in (10, 20):
        hf(yard.out, step)
    yard.sweep()
    site = yard.site()
    hot = TreeStore(yard.home / "site" / "hot", name="hot", node="node-a", min_free=2**62)
    policies = replace(site.policies, retention={"default": RetentionPolicy(keep_last=1)}, min_keep=1, residence={})
    full = replace(site, hot=hot, tiers={"hot": hot}, policies=policies)
    first = yard.at(10).record.id
    sealed = hot.path(hot.load(first).record)
    assert {file.stat().st_nlink for file in sealed.iterdir()} == {2}
    assert sweep(full, find=False).thinned == []
    assert sealed.is_dir()
    shutil.rmtree(yard.out / "checkpoint-10")
    assert sweep(full, find=False).thinned == [first]
    assert not sealed.exists()


def full_world(policy, *steps):
    """Everything slower is away, hot is full, and the trainer removed its own saves."""
    world = World(policies=replace(POLICIES, residence={}, retention={"default": policy}, min_keep=1))
    for shelf in world.shelves.values():
        shelf.reachable = False
    world.open()
    for step in steps:
        world.save(step)
        world.sweep()
        world.forget(step)
    world.hot.free_share, world.hot.min_free_share = 0.1, 0.2
    return world


def test_a_clock_that_jumped_ahead_makes_nothing_old(require_nothing_dropped):
    world = full_world(MONTH, 100, 200, 300)
    world.clock.wait(days=40)
    require_nothing_dropped(world)


def test_where_retention_is_not_applied_nothing_is_dropped_for_room():
    """`apply: false`, whatever a full hot may do: it says of its own whether it thins."""
    world = full_world(RetentionPolicy(keep_last=1), 100, 200)
    assert world.sweep(policies=replace(world.policies, apply=False)).thinned == []
    assert world.sweep(policies=replace(world.policies, when_full="stop")).thinned == []
    assert world.sweep().thinned == [world.at(100).record.id]


def test_nor_does_it_end_a_hold(require_nothing_dropped):
    world = full_world(RetentionPolicy(keep_last=1), 100, 200)
    until = "2026-12-06T12:00:00Z"
    held = world.at(100).record.id
    draft = Draft(kind="held", record=held, reason="paper", body={"until": until})
    world.ledger.append(RUN, lambda _: draft, world.site().stamp("held"))
    world.clock.wait(days=40)
    require_nothing_dropped(world)


def test_a_clock_behind_the_ledger_thins_nothing(require_nothing_dropped):
    world = full_world(RetentionPolicy(keep_last=1), 100, 200)
    world.clock.wait(days=-2)
    pending = require_nothing_dropped(world)
    assert any("this clock is behind" in one.why for one in pending)


def test_a_clock_that_is_not_a_store_s_thins_nothing(require_nothing_dropped):
    world = full_world(MONTH, 100, 200)
    world.shelves["warm"].reachable = True
    world.shelves["warm"].time = world.clock()
    world.clock.wait(days=40)
    pending = require_nothing_dropped(world)
    assert any("nothing is deleted" in one.why for one in pending)


@pytest.fixture
def require_nothing_dropped():
    def check(world):
        kept = world.hot.records()
        world.clock.wait(seconds=10)
        swept = sweep(world.site(), find=False)
        assert swept.thinned == []
        assert world.hot.records() == kept
        return swept.pending

    return check


def test_where_a_store_s_clock_agrees_time_that_passed_is_believed():
    world = full_world(MONTH, 100, 200)
    world.clock.wait(days=40)
    site = world.site()
    stores = dict(site.tiers)
    stores["clock"] = Agreeing(world.shelves["warm"], name="clock", tier_class="cold", domain="elsewhere")
    stores["clock"].now = world.clock
    assert len(sweep(replace(site, tiers=stores), find=False).thinned) == 1, "the newest stays"


class Agreeing(MemoryStore):
    """Out of reach for everything but the time."""

    def clock(self):
        return self.now()


def test_ages_count_to_the_newest_save_where_no_clock_can_be_asked():
    world = full_world(MONTH, 100)
    world.hot.free_share = 1.0
    world.clock.wait(days=40)
    world.save(200)
    world.sweep()
    world.hot.free_share = 0.1
    swept = world.sweep()
    assert [world.state().records[one].record.step for one in swept.thinned] == [100]


@pytest.mark.parametrize("free", [0, 30])
def test_it_thins_for_the_save_that_waits_though_more_than_min_free_is_free(free):
    world = full_world(RetentionPolicy(keep_last=1), 100, 200, 300)
    world.hot.free_share, world.hot.free_bytes = 1.0, free
    assert sweep(world.site(), find=False).thinned == [], "nothing waits"
    world.save(400)
    swept = world.sweep()
    assert any("bytes are free" in one.why for one in swept.pending)
    assert len(swept.thinned) == 2
    world.hot.free_bytes = 2**20
    assert [done.record.step for done in world.sweep().committed] == [400]
    assert world.sweep().thinned == []
