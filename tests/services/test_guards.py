"""What keeps a pass from dropping the last of something: rules of the store, clocks, copies of the ledger, full disks."""

import io
from dataclasses import replace
from datetime import timedelta

import pytest

from lakemark.errors import Refused
from lakemark.model.ledger.entry import Draft
from lakemark.model.ledger.run import Place
from lakemark.model.tiers.retention import RetentionPolicy
from lakemark.ports import DataCommit, Mark, MarkKind
from lakemark.services.health.invariants import violations
from lakemark.services.node.sweep import sweep
from lakemark.services.recovery import keep_copies as keep_ledger
from lakemark.services.tiers.demote import demote
from lakemark.services.tiers.release import release
from lakemark.services.tiers.replicate import replicate
from tests.services.crashing import At, Killed
from tests.services.world import POLICIES, RUN
from tests.support.memory.stores import MemoryStore

WARM_PLACE = Place(tier="warm")


@pytest.fixture
def saved(world):
    """One record, in hot and, settled, in warm."""
    world.open()
    world.save(100)
    world.clock.wait(seconds=10)
    sweep(world.site(), move=False)
    record = world.at(100).record.id
    replicate(world.site(), RUN, record, to="warm")
    world.clock.wait(hours=1)
    return record


def copies(world):
    tiers = {name: shelf.ledger.get(None) for name, shelf in world.shelves.items()}
    return tiers | {"hot": world.hot._tier.ledger.get(None)}


def bundle_of(world):
    with world.ledger.bundle() as bundle:
        return bundle.read()


def dies():
    raise Killed


def test_a_store_that_removes_objects_itself_justifies_no_release(world, saved):
    world.shelves["warm"].rule = "after-a-week"
    with pytest.raises(Refused, match="after-a-week"):
        release(world.site(), RUN, saved, tier="hot")
    assert set(world.state().records[saved].replicas) == {world.hot.place, WARM_PLACE}
    world.shelves["warm"].rule = None
    release(world.site(), RUN, saved, tier="hot")
    assert set(world.state().records[saved].replicas) == {WARM_PLACE}


def test_another_survivor_serves_where_one_store_removes_objects_itself(world, saved):
    replicate(world.site(), RUN, saved, to="cold")
    world.clock.wait(hours=1)
    world.shelves["warm"].rule = "after-a-week"
    release(world.site(), RUN, saved, tier="hot")
    entry = [entry for entry, _ in world.ledger.entries(RUN) if entry.kind == "released"][-1]
    assert [item["survivor"] for item in entry.body["items"]] == ["cold"]


def test_demotion_waits_while_a_store_removes_objects_itself(world):
    world.open()
    for shelf in world.shelves.values():
        shelf.rule = "after-a-week"
    world.saves(100, 200, 300)
    world.clock.wait(hours=1)
    first = demote(world.site(), RUN)
    assert first.released == []
    assert {one.what for one in first.pending if "after-a-week" in one.why} == {"tier warm", "tier cold"}
    for shelf in world.shelves.values():
        shelf.rule = None
    assert [one.record for one in demote(world.site(), RUN).released] == [world.at(100).record.id]


def test_nothing_is_deleted_under_a_clock_that_is_not_the_store_s(world, saved):
    warm = world.shelves["warm"]
    warm.time = world.clock() - timedelta(minutes=6)
    with pytest.raises(Refused, match="360 s"):
        release(world.site(), RUN, saved, tier="hot")
    warm.condemned["f" * 64], warm.objects["f" * 64] = world.clock() - timedelta(days=30), b"old"
    swept = sweep(world.site())
    assert warm.condemned
    assert [one.what for one in swept.pending if "360 s" in one.why] == ["condemned bytes of warm"]
    warm.time = world.clock() + timedelta(minutes=4)
    sweep(world.site())
    assert not warm.condemned
    release(world.site(), RUN, saved, tier="hot")


def test_a_simulated_clock_is_not_compared(world, saved):
    world.shelves["warm"].time = world.clock() - timedelta(days=900)
    release(world.site(simulated_clock=True), RUN, saved, tier="hot")
    assert set(world.state().records[saved].replicas) == {WARM_PLACE}


def test_every_tier_keeps_a_copy_of_the_ledger(world):
    world.open()
    world.saves(100)
    now = bundle_of(world)
    assert set(copies(world)) == {"hot", "warm", "cold"}
    heads = [world.ledger.heads_of(io.BytesIO(copy)) for copy in copies(world).values()]
    assert all(world.ledger.contains(RUN, one[RUN]) for one in heads)
    assert now
    before = copies(world)
    world.save(200)
    world.sweep()
    assert copies(world) == before
    world.clock.wait(hours=1)
    world.sweep()
    assert set(copies(world).values()) == {bundle_of(world)}


def test_a_copy_is_not_renewed_while_nothing_was_appended(world, saved):
    sweep(world.site())
    world.clock.wait(hours=2)
    sweep(world.site())
    world.shelves["cold"].ledger[None] = b"as it was"
    world.clock.wait(hours=2)
    assert sweep(world.site()).pending == []
    assert copies(world)["cold"] == b"as it was"


class Counted:
    """A store that counts the bytes of the copies it was sent."""

    def __init__(self, store):
        self._store, self.sent = store, 0

    def __getattr__(self, name):
        return getattr(self._store, name)

    def keep_ledger(self, bundle, *, slot=None):
        self._store.keep_ledger(bundle, slot=slot)
        self.sent += bundle.seek(0, 2)


def passes(world, cold, hours):
    site = world.site()
    for _ in range(hours):
        world.clock.wait(hours=1)
        assert not sweep(replace(site, tiers=site.tiers | {"cold": cold})).pending


def test_a_clock_that_had_jumped_ahead_does_not_send_the_ledger_every_hour(world, saved):
    now = world.clock.now
    world.clock.now = now + timedelta(days=400)
    world.site().ledger.append("other", lambda _: Draft(kind="opened", timeline=1), world.site().stamp("open"))
    world.clock.now = now
    cold = Counted(world.site().tiers["cold"])
    passes(world, cold, 3)
    before = cold.sent
    passes(world, cold, 30)
    assert cold.sent == before


def test_a_large_ledger_is_sent_less_often(world, saved):
    assert keep_ledger.pause_after(0) == timedelta(hours=1)
    assert keep_ledger.pause_after(2**28) == timedelta(hours=6)
    assert keep_ledger.pause_after(2**40) == timedelta(days=1)
    world.clock.wait(hours=2)
    sweep(world.site())
    world.site().journal.marks.set(Mark(MarkKind.LEDGER_NEXT, "cold"), at=world.clock() + timedelta(hours=6))
    cold = Counted(world.site().tiers["cold"])
    world.save(200)
    passes(world, cold, 5)
    assert cold.sent == 0
    passes(world, cold, 2)
    assert cold.sent > 0


def test_a_tier_that_was_away_gets_its_copy_when_it_is_back(world):
    world.open()
    world.shelves["cold"].reachable = False
    assert "copy of the ledger in cold" in {one.what for one in world.sweep().pending}
    assert copies(world)["cold"] is None
    assert copies(world)["warm"]
    world.shelves["cold"].reachable = True
    world.sweep()
    assert copies(world)["cold"]


class Overtaken:
    """A store in which somebody else's copy comes to lie over ours right after it was written, the first `times` times."""

    def __init__(self, store, times):
        self._store, self._left = store, times

    def __getattr__(self, name):
        return getattr(self._store, name)

    def keep_ledger(self, bundle, *, slot=None):
        self._store.keep_ledger(bundle, slot=slot)
        if self._left:
            self._left -= 1
            self._store.keep_ledger(io.BytesIO(b"another process's copy"))


@pytest.mark.parametrize(("times", "kept"), [(1, True), (9, False)])
def test_a_copy_that_another_process_wrote_over_is_written_again(world, saved, times, kept):
    world.clock.wait(hours=2)
    world.save(200)
    site = world.site()
    site = replace(site, tiers=site.tiers | {"cold": Overtaken(site.tiers["cold"], times)})
    said = {one.what: one.why for one in sweep(site).pending}
    assert (copies(world)["cold"] == bundle_of(world)) is kept
    assert ("has other bytes right after" in said.get("copy of the ledger in cold", "")) is not kept


def test_what_was_thinned_is_claimed_by_nobody_and_goes_also_after_a_crash(world):
    world.policies = replace(POLICIES, residence={}, retention={"default": RetentionPolicy(keep_last=1)}, min_keep=1)
    world.shelves["warm"].reachable = world.shelves["cold"].reachable = False
    world.open()
    for step in (100, 200):
        world.save(step)
        world.sweep()
    oldest = world.at(100).record.id
    world.forget(100)
    world.hot.free_share, world.hot.min_free_share = 0.1, 0.2
    with pytest.raises(Killed):
        demote(world.site(progress=At("thin.recorded", dies)), RUN)
    world.restart()
    assert world.at(100).pruned
    assert world.at(100).replicas == {}
    assert oldest in world.hot.records().records
    world.sweep()
    assert oldest not in world.hot.records().records
    assert {one.what for one in violations(world.site())} == {"tier warm", "tier cold"}


def test_a_record_whose_hold_is_over_may_be_thinned(world):
    """With no store's clock to ask, that is told by a save that came after its end."""
    world.policies = replace(POLICIES, residence={}, retention={"default": RetentionPolicy(keep_last=1)}, min_keep=1)
    world.shelves["warm"].reachable = world.shelves["cold"].reachable = False
    world.open()
    for step in (100, 200):
        world.save(step)
        world.sweep()
    record = world.at(100).record.id
    until = world.clock() + timedelta(hours=1)
    held = Draft(kind="held", record=record, reason="paper", body={"until": until.strftime("%Y-%m-%dT%H:%M:%S.%fZ")})
    world.ledger.append(RUN, lambda _: held, world.site().stamp("held"))
    world.forget(100)
    world.hot.free_share, world.hot.min_free_share = 0.1, 0.2
    assert world.sweep().thinned == []
    world.clock.wait(hours=2)
    assert world.sweep().thinned == []
    world.hot.free_share = 1.0
    world.save(300)
    world.sweep()
    world.hot.free_share = 0.1
    assert record in world.sweep().thinned


def test_a_data_history_that_was_edited_is_a_violation(world, saved):
    assert list(violations(world.site())) == []
    commits = world.data._repositories["data"].commits
    (commit,) = {ref.commit for ref in world.at(100).record.data}
    true: DataCommit = commits[commit]
    commits[commit] = replace(true, message="another truth")
    found = [one for one in violations(world.site()) if one.rule == "edited"]
    assert [commit in one.why for one in found] == [True]


class ListedBefore(MemoryStore):
    """Something comes, and something goes, between its listing and whatever is asked next."""

    then = None

    def records(self):
        listed = super().records()
        if self.then is not None:
            then, self.then = self.then, None
            then()
        return listed


def test_a_replica_that_came_while_a_tier_was_listed_is_no_violation(world, saved):
    site = world.site()
    cold = ListedBefore(world.shelves["cold"], name="cold", tier_class="cold", domain="hdd")
    cold.then = lambda: replicate(site, RUN, saved, to="cold")
    assert list(violations(replace(site, tiers={**site.tiers, "cold": cold}))) == []
    assert Place(tier="cold") in world.at(100).replicas
    del world.shelves["cold"].markers[saved]
    assert [(one.rule, one.what[:9]) for one in violations(site)] == [("claimed", f"{RUN}@100"[:9])]
