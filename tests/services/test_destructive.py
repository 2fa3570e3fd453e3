"""What takes something away, killed after any call that changed something; `docs/destructive.md` has the others."""

from dataclasses import replace

from lakemark.model.tiers.retention import RetentionPolicy
from lakemark.services.back.rollback_apply import leftovers
from lakemark.services.back.rollback_decide import refuse
from lakemark.services.back.rollback_request import request
from lakemark.services.recovery.keep_copies import keep_copies
from lakemark.services.tiers.demote import demote
from tests.services.crashing import Fuse, Killed, fused
from tests.services.world import POLICIES, RUN, World

MOST = 60


def killed_anywhere(prepare, work):
    """The world each time a process of `work` ended after one more call; at last that in which it came to its end."""
    for number in range(1, MOST):
        world, fuse = prepare(), Fuse()
        fuse.left = number
        try:
            work(world, fused(world.site(), fuse))
        except Killed:
            world.restart()
            yield world
        else:
            assert number > 1
            yield world
            return
    raise AssertionError(f"more than {MOST} calls")


def with_copies():
    world = World()
    world.open()
    world.saves(100, 200)
    world.clock.wait(days=1)
    world.save(300)
    world.sweep()
    world.clock.wait(hours=2)
    world.save(400)
    return world


def test_keeping_copies_killed_anywhere_leaves_a_whole_one():
    for world in killed_anywhere(with_copies, lambda _, site: keep_copies(site)):
        for store in world.site().tiers.values():
            for slot in (None, *store.ledger_slots()):
                with store.open_ledger(slot) as copy:
                    heads = world.ledger.heads_of(copy)
                assert world.ledger.contains(RUN, heads[RUN])
        world.clock.wait(hours=2)
        assert keep_copies(world.site()) == {}


def full():
    world = World(
        policies=replace(POLICIES, residence={}, retention={"default": RetentionPolicy(keep_last=1)}, min_keep=1)
    )
    for shelf in world.shelves.values():
        shelf.reachable = False
    world.open()
    for step in (100, 200, 300):
        world.save(step)
        world.sweep()
        world.forget(step)
    world.hot.free_share, world.hot.min_free_share = 0.1, 0.2
    return world


def test_thinning_killed_anywhere_drops_only_what_an_entry_lets_go():
    for world in killed_anywhere(full, lambda _, site: demote(site, RUN)):
        lies = set(world.hot.records().records)
        records = world.state().records.values()
        assert {found.record.id for found in records if found.pruned is None} <= lies
        world.sweep()
        kept = {found.record.step for found in world.state().records.values() if found.pruned is None}
        assert kept == {300}
        assert set(world.hot.records().records) == {world.at(300).record.id}


def refused():
    world = World()
    world.open()
    world.saves(100, 200)
    world.clock.wait(hours=5)
    for step in (100, 200):
        asked = request(world.site(), world.wish(step))
        item = asked.plan["data"][0]
        world.data.branch_at("data", item["opens_branch"], item["commit"])
        refuse(world.site(), asked.id, reason="not that one")
    return world


def test_leftover_branches_killed_anywhere_go_with_the_next_pass():
    for world in killed_anywhere(refused, lambda _, site: leftovers(site)):
        leftovers(world.site())
        assert [name for name in world.data.branches("data") if name.startswith("rollback")] == []
        assert leftovers(world.site()) == []
        assert world.data.head("data", "main") is not None
