"""A released copy whose grace is not over saves a record of which every claimed replica is damaged or gone."""

from dataclasses import replace
from pathlib import Path

import pytest

from lakemark.errors import LakemarkError, NoReplica, SourceDamaged, StoreUnavailable
from lakemark.model.ledger.run import Place
from lakemark.services.back.restore import restore
from lakemark.services.node.sweep import sweep
from lakemark.services.tiers.release import release
from lakemark.services.tiers.replicate import replicate
from lakemark.services.tiers.verify import verify
from tests.services.test_replicas import places, saved, spoil
from tests.services.world import RUN, files

__all__ = ["saved"]
BACK, COLD = Path("/back"), Path("/cold")
COLD_PLACE = Place(tier="cold")


@pytest.fixture
def alone(world, saved):
    """The record is claimed in cold alone, where it is rotten; warm let it go an hour ago."""
    for tier in ("warm", "cold"):
        replicate(world.site(), RUN, saved, to=tier)
    world.clock.wait(hours=3)
    for tier in ("hot", "warm"):
        release(world.site(), RUN, saved, tier=tier)
    spoil(world, "cold", saved)
    world.clock.wait(hours=1)
    assert places(world, saved) == {"cold"}
    return saved


def brought(world, record):
    return restore(world.site(), RUN, record, to=BACK)


def test_restore_takes_what_was_let_go_where_nothing_claimed_is_right(world, alone):
    done = brought(world, alone)
    assert done.restored.files_by_place["warm"] >= 1
    assert files(world.disk, BACK) == files(world.disk, Path("/train/out/step-100"))
    assert {place for place, _ in done.restored.damaged} == {COLD_PLACE}
    # Reading it claims nothing: only what was copied somewhere is a replica.
    assert places(world, alone) == {"cold"}


def test_the_next_pass_makes_the_damaged_replica_again_from_it(world, alone):
    verify(world.site(), list(world.state().records.values()))
    assert not world.at(100).replicas[COLD_PLACE].sound
    assert replicate(world.site(), RUN, alone, to="cold").replicas[COLD_PLACE].sound
    (entry, _) = list(world.ledger.entries(RUN))[-1]
    assert (entry.kind, entry.body["tier"], entry.record) == ("replicated", "cold", alone)
    assert places(world, alone) == {"cold"}
    assert all(one.ok for one in verify(world.site(), list(world.state().records.values())).looks)


def test_it_serves_where_no_replica_is_claimed_in_reach(world, alone):
    tiers = {name: store for name, store in world.site().tiers.items() if name != "cold"}
    world.changes = {"tiers": tiers}
    assert brought(world, alone).restored.files_by_place.keys() == {"warm"}
    assert replicate(world.site(), RUN, alone, to="hot").replicas[world.hot.place].sound


@pytest.mark.parametrize("trouble", ["another disk", "rotten", "collected", "away"])
def test_what_is_not_the_ledger_s_or_not_right_saves_nothing(world, alone, trouble):
    shelf = world.shelves["warm"]
    if trouble == "another disk":
        shelf.identity = replace(shelf.identity, id="f" * 32)
    elif trouble == "rotten":
        spoil(world, "warm", alone)
    elif trouble == "collected":
        world.clock.wait(hours=100)
        sweep(world.site(), find=False)
        sweep(world.site(), find=False)
        assert not shelf.objects
    else:
        shelf.reachable = False
    with pytest.raises(LakemarkError) as error:
        brought(world, alone)
    # One that is away may still have it: that is worth another try.
    assert type(error.value) is (StoreUnavailable if trouble == "away" else SourceDamaged)
    before = world.state().sequence
    with pytest.raises(LakemarkError):
        replicate(world.site(), RUN, alone, to="hot")
    assert world.hot.place not in world.at(100).replicas
    assert "replicated" not in {one.kind for one, _ in world.ledger.entries(RUN, after=before)}


def test_a_tier_that_was_asked_for_gives_only_what_is_claimed_there(world, alone):
    with pytest.raises(NoReplica):
        restore(world.site(), RUN, alone, to=BACK, tier="warm")
