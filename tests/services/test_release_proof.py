"""A release reads its survivors back itself, in full, after they settled and right before the entry, whoever read before."""

from dataclasses import replace
from datetime import timedelta

import pytest

from lakemark.model.ledger.run import Place
from lakemark.model.tiers.residence import Residence
from lakemark.services.tiers.demote import demote
from lakemark.services.tiers.release import release
from lakemark.services.tiers.verify import verify
from tests.services.world import COLD, HOT, POLICIES, RUN
from tests.support.faulty_store import Always, FaultyStore, Lie, Reset, Stall

WARM, COLD_PLACE = Place(tier="warm"), Place(tier="cold")


def spoil(world, tier, step, path="model.bin"):
    """One byte of an object is another."""
    manifest = world.ledger.manifest(RUN, world.at(step).record.id)
    digest = next(file.digest for file in manifest.files if file.path == path)
    data = bytearray(world.shelves[tier].objects[digest])
    data[0] ^= 1
    world.shelves[tier].objects[digest] = bytes(data)


def with_faults(world, **faults):
    tiers = dict(world.site().tiers)
    tiers |= {name: FaultyStore(tiers[name], **how) for name, how in faults.items()}
    world.changes = {"tiers": tiers, "hot": tiers["hot"]}
    return tiers


def places(world, step):
    return {place.tier for place in world.at(step).replicas}


@pytest.fixture
def sunk(world):
    """Steps 100 to 300 in all tiers, settled, and read back by a verify of yesterday."""
    world.open()
    world.saves(100, 200, 300, minutes=1)
    world.clock.wait(seconds=COLD.total_seconds() + 1)
    verify(world.site(), list(world.state().records.values()))
    world.clock.wait(days=1)
    return world


def test_what_was_right_yesterday_is_read_again_before_hot_lets_go(sunk):
    spoil(sunk, "warm", 100)
    spoil(sunk, "cold", 100)
    done = demote(sunk.site(), RUN)
    assert done.released == []
    assert places(sunk, 100) == {"hot", "warm", "cold"}
    assert not sunk.at(100).replicas[WARM].sound
    assert sunk.site().hot.holds(sunk.at(100).record.id)


def test_one_right_survivor_is_enough_and_is_named(sunk):
    spoil(sunk, "warm", 100)
    (one,) = demote(sunk.site(), RUN).released
    assert one.survivor == COLD_PLACE
    assert "cold was read back" in one.why
    assert sunk.at(100).replicas[COLD_PLACE].verified_at == sunk.clock()


def test_copies_in_two_domains_are_both_read(sunk):
    sunk.policies = replace(POLICIES, copies=2)
    spoil(sunk, "cold", 100)
    assert demote(sunk.site(), RUN).released == []
    assert sunk.at(100).replicas[COLD_PLACE].damaged


def test_warm_lets_go_only_of_what_cold_has_at_that_moment(sunk):
    sunk.policies = replace(POLICIES, residence=POLICIES.residence | {"warm": Residence(keep_for=timedelta(hours=1))})
    spoil(sunk, "cold", 100)
    demote(sunk.site(), RUN)
    assert "warm" in places(sunk, 100)
    assert places(sunk, 200) == {"hot", "cold"}


def test_a_survivor_that_does_not_answer_now_keeps_what_waits_for_it(sunk):
    with_faults(sunk, warm={"verify": Always(Reset())}, cold={"verify": Always(Reset())})
    done = demote(sunk.site(), RUN)
    assert done.released == []
    assert any(one.transient and "hot" in one.what for one in done.pending)
    assert sunk.at(100).replicas[WARM].sound


def test_one_that_can_t_be_proven_keeps_no_other(sunk):
    sunk.policies = replace(POLICIES, residence=POLICIES.residence | {"hot": Residence(keep_last=1, settle=HOT)})
    spoil(sunk, "warm", 100)
    spoil(sunk, "cold", 100)
    done = demote(sunk.site(), RUN)
    assert [one.record for one in done.released] == [sunk.at(200).record.id]
    assert "hot" in places(sunk, 100)


def test_a_proof_is_not_kept_over_a_long_pass(sunk):
    """Reading takes minutes: what was read first is let go before much more is read."""
    sunk.policies = replace(POLICIES, residence=POLICIES.residence | {"hot": Residence(keep_last=1, settle=HOT)})
    slow = [Stall(lambda: sunk.clock.wait(minutes=30))] * 9
    with_faults(sunk, warm={"verify": slow})
    demote(sunk.site(), RUN)
    ages = [
        entry.recorded_at - sunk.at(step).replicas[WARM].verified_at
        for entry, _ in sunk.ledger.entries(RUN)
        if entry.kind == "released"
        for step in (100, 200)
        if any(item["record"] == sunk.at(step).record.id for item in entry.body["items"])
    ]
    assert len(ages) == 2
    assert all(age <= timedelta(minutes=5) for age in ages)


def test_one_bad_reading_of_a_survivor_is_no_damage(sunk):
    with_faults(sunk, warm={"verify": [Lie()]})
    assert [one.survivor for one in demote(sunk.site(), RUN).released] == [WARM]
    assert sunk.at(100).replicas[WARM].sound


def test_by_hand_too_and_only_what_is_needed_is_read(sunk):
    tiers = with_faults(sunk, warm={}, cold={})
    release(sunk.site(), RUN, sunk.at(200).record.id, tier="hot")
    assert (tiers["warm"].calls["verify"], tiers["cold"].calls["verify"]) == (1, 0)
    assert places(sunk, 200) == {"warm", "cold"}
