"""A tier that would have to keep two files under one name: the record stays where it is, recorded, red, and nobody's is lost."""

from datetime import UTC, datetime, timedelta

import pytest

from lakemark.adapters.disk.directory_objects import DirectoryBlobs
from lakemark.adapters.dvc.store import DvcStore
from lakemark.errors import NameTaken, Refused
from lakemark.model.ledger.run import Place
from lakemark.services.back.restore import restore
from lakemark.services.health.status import RED, Rules, problems_of
from lakemark.services.node.sweep import sweep
from lakemark.services.tiers.demote import demote, plan, present
from lakemark.services.tiers.replicate import replicate
from lakemark.services.tiers.verify import verify
from tests.services.world import OUT, RUN
from tests.support.md5_pair import ONE, OTHER

WARM, COLD = Place(tier="warm"), Place(tier="cold")


@pytest.fixture
def world(world, tmp_path):
    """Warm and cold are real directory tiers."""
    tiers = dict(world.site().tiers)
    for name in ("warm", "cold"):
        tiers[name] = DvcStore(DirectoryBlobs(tmp_path / name), name=name, tier_class=name, domain=name)
    world.changes = {"tiers": tiers}
    world.open()
    return world


def save(world, step, **contents):
    for name, data in contents.items():
        world.disk.write(OUT / f"step-{step}" / f"{name}.bin", data)
    world.clock.wait(seconds=10)
    sweep(world.site(), move=False)
    return world.at(step).record.id


def passes(world, count=4):
    for _ in range(count):
        world.clock.wait(hours=3)
        demote(world.site(), RUN)


def said(world):
    rules = Rules(
        now=world.clock(), rpo=timedelta(days=9), idle_after=timedelta(days=9), domains={"warm": "warm", "cold": "cold"},
        copies=1, data=False,
    )  # fmt: skip
    return [one for one in problems_of(world.state(), rules) if one.colour == RED]


def held_right(world, record, contents):
    where = OUT.with_name(f"back-{record[:8]}")
    restore(world.site(), RUN, record, to=where)
    for name, data in contents.items():
        assert world.disk.read(where / f"{name}.bin") == data
    world.disk.remove(where)


def test_both_in_one_checkpoint_stay_in_hot_for_good(world):
    both = save(world, 100, a=ONE, b=OTHER)
    newer = [save(world, step, a=b"%d" % step) for step in (200, 300, 400)]
    passes(world)
    assert set(world.at(100).replicas) == {world.hot.place}
    assert set(world.at(100).refused) == {WARM, COLD}
    assert world.kinds().count("replica_refused") == 2
    assert world.hot.holds(both)
    held_right(world, both, {"a": ONE, "b": OTHER})
    assert all({WARM, COLD} <= set(world.state().records[one].replicas) for one in newer)
    red = said(world)
    assert len(red) == 2
    assert all(both[:12] in one.what and "MD5" in one.what for one in red)


def test_in_two_records_the_second_keeps_its_hot_and_the_first_its_object(world):
    first, second = save(world, 100, a=ONE), save(world, 200, a=OTHER)
    for step in (300, 400, 500):
        save(world, step, a=b"%d" % step)
    passes(world)
    assert {WARM, COLD} == set(world.at(100).replicas)
    assert set(world.at(200).replicas) == {world.hot.place}
    assert verify(world.site(), list(world.state().records.values())).damaged == []
    for record, data in ((first, ONE), (second, OTHER)):
        held_right(world, record, {"a": data})


def test_by_hand_it_is_refused_with_the_same_words_and_recorded_once(world):
    save(world, 100, a=ONE)
    replicate(world.site(), RUN, world.at(100).record.id, to="warm")
    second = save(world, 200, a=OTHER)
    for _ in range(2):
        with pytest.raises(NameTaken) as told:
            replicate(world.site(), RUN, second, to="warm")
        assert told.value.exit_code == Refused.exit_code
    assert world.kinds().count("replica_refused") == 1
    tiers, _ = present(world.site())
    waiting = [one.why for one in plan(world.site(), RUN, tiers).moves.waiting if one.record == second]
    assert any("can't hold it" in why for why in waiting)
    assert replicate(world.site(), RUN, second, to="cold").replicas[COLD].sound


def test_a_repair_of_one_never_touches_the_other(world, tmp_path):
    first = save(world, 100, a=ONE)
    replicate(world.site(), RUN, first, to="warm")
    second = save(world, 200, a=OTHER)
    with pytest.raises(NameTaken):
        replicate(world.site(), RUN, second, to="warm")
    place = next(
        path for path in (tmp_path / "warm" / "files").rglob("*") if path.is_file() and path.read_bytes() == ONE
    )
    place.chmod(0o644)
    place.write_bytes(b"rotten")
    assert verify(world.site(), [world.at(100)], tier="warm").damaged
    assert replicate(world.site(), RUN, first, to="warm").replicas[WARM].sound
    assert place.read_bytes() == ONE


def test_it_is_forgotten_once_the_tier_holds_it_after_all(world):
    first = save(world, 100, a=ONE)
    replicate(world.site(), RUN, first, to="warm")
    second = save(world, 200, a=OTHER)
    with pytest.raises(NameTaken):
        replicate(world.site(), RUN, second, to="warm")
    warm = world.site().store("warm")
    warm.drop(warm.load(first), now=world.clock())
    later = datetime(2027, 1, 1, tzinfo=UTC)
    warm.collect(now=later, grace=timedelta(hours=1), needed=[])
    warm.collect(now=later + timedelta(days=1), grace=timedelta(hours=1), needed=[])
    assert replicate(world.site(), RUN, second, to="warm").refused == {}
    assert said(world) == []


@pytest.mark.parametrize("data", [b"", b"{", b"\x00garbage"], ids=["empty", "cut", "garbage"])
def test_a_spoiled_claim_blames_the_tier_alone_and_the_next_pass_mends_it(world, tmp_path, data):
    record = save(world, 100, a=b"a")
    replicate(world.site(), RUN, record, to="warm")
    claim = tmp_path / "warm" / "lakemark" / "records" / f"{record}.json"
    claim.chmod(0o644)
    claim.write_bytes(data)
    tiers = dict(world.site().tiers)
    tiers["warm"] = DvcStore(DirectoryBlobs(tmp_path / "warm"), name="warm", tier_class="warm", domain="warm")
    world.changes = {"tiers": tiers}
    seen = verify(world.site(), [world.at(100)])
    assert [look.place.tier for look in seen.damaged] == ["warm"]
    assert seen.looks[0].error is None
    assert world.at(100).replicas[world.hot.place].sound
    passes(world, 1)
    assert world.at(100).replicas[WARM].sound
    assert world.at(100).replicas[COLD].sound
    assert verify(world.site(), [world.at(100)]).damaged == []
