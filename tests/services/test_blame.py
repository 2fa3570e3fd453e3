"""Whose bytes are wrong: a side is damaged only after it was itself read and differed, twice; else nothing is said of it."""

import random

import pytest

from lakemark.errors import AnswerDamaged, Corrupt, Refused, SourceDamaged, StoreUnavailable, TargetDamaged
from lakemark.model.ledger.run import Place
from lakemark.services.back.restore import restore
from lakemark.services.back.resume import resume
from lakemark.services.node.sweep import sweep
from lakemark.services.tiers.demote import demote
from lakemark.services.tiers.replicate import replicate
from lakemark.services.tiers.unshare import unshare
from lakemark.services.tiers.verify import verify
from tests.services.crashing import At, Killed
from tests.services.world import OUT, RUN, files
from tests.support.faulty_store import Always, Cut, Eio, FaultyStore, Flip, Lie, Reset

WARM, COLD = Place(tier="warm"), Place(tier="cold")
ONCE_WRONG = [Flip(), Flip(at=7), Cut(), Cut(after=5), Eio(), Eio(after=3)]


@pytest.fixture
def saved(world):
    """One record, in hot only."""
    world.open()
    world.save(100)
    world.clock.wait(seconds=10)
    sweep(world.site(), move=False)
    return world.at(100).record.id


def with_faults(world, **faults):
    """From now on the world's tiers fail like this; answers them by name."""
    tiers = dict(world.site().tiers)
    tiers |= {name: FaultyStore(tiers[name], **how) for name, how in faults.items()}
    world.changes = {"tiers": tiers, "hot": tiers["hot"]}
    return tiers


def replica(world, record, place):
    return world.state().records[record].replicas.get(place)


def rot(world, record, path="model.bin"):
    """Other bytes in hot, under a name the trainer has no more."""
    world.forget(100)
    place = world.hot.path(world.hot.load(record).record) / path
    world.disk.remove(place)
    world.disk.write(place, b"rotten")


@pytest.mark.parametrize("fault", ONCE_WRONG, ids=str)
def test_one_bad_reading_of_a_source_is_read_again_and_blames_nobody(world, saved, fault):
    with_faults(world, hot={"open": [fault]})
    found = replicate(world.site(), RUN, saved, to="warm")
    assert found.replicas[WARM].sound
    assert found.replicas[world.hot.place].sound
    assert "verified" not in world.kinds()


@pytest.mark.parametrize("fault", [*ONCE_WRONG, Reset(), Reset(after=4)], ids=str)
def test_a_source_that_reads_badly_for_a_while_is_sunk_by_the_next_pass(world, saved, fault):
    with_faults(world, hot={"open": Always(fault)})
    with pytest.raises((StoreUnavailable, AnswerDamaged)):
        replicate(world.site(), RUN, saved, to="warm")
    assert [one.transient for one in demote(world.site(), RUN).pending if "to warm" in one.what] == [True]
    assert replica(world, saved, world.hot.place).sound
    world.changes = {}
    demote(world.site(), RUN)
    assert replica(world, saved, WARM).sound


@pytest.mark.parametrize("fault", ONCE_WRONG, ids=str)
def test_a_shared_source_is_blamed_no_sooner_than_a_node_s_own(world, saved, fault):
    replicate(world.site(), RUN, saved, to="warm")
    rot(world, saved)
    with_faults(world, warm={"open": [fault]})
    found = replicate(world.site(), RUN, saved, to="cold")
    assert found.replicas[WARM].sound
    assert found.replicas[COLD].sound
    assert found.replicas[world.hot.place].damaged


@pytest.mark.parametrize("fault", [Eio(), Reset()], ids=str)
@pytest.mark.parametrize("tier", ["warm", "cold"])
def test_what_goes_wrong_while_writing_is_the_target_s(world, saved, fault, tier):
    with_faults(world, **{tier: {"put": [fault]}})
    with pytest.raises((TargetDamaged, StoreUnavailable)):
        replicate(world.site(), RUN, saved, to=tier)
    assert replica(world, saved, world.hot.place).sound
    assert "verified" not in world.kinds()
    assert replicate(world.site(), RUN, saved, to=tier).replicas[Place(tier=tier)].sound


def test_a_source_that_is_damaged_says_so_and_nothing_is_written(world, saved):
    rot(world, saved)
    with pytest.raises(SourceDamaged, match=r"model\.bin"):
        replicate(world.site(), RUN, saved, to="warm")
    assert replica(world, saved, world.hot.place).damaged
    assert world.shelves["warm"].markers == {}


def test_a_linked_file_with_new_stamps_is_read_before_anybody_goes_on_without_it(world, saved):
    same = world.disk.read(OUT / "step-100" / "model.bin")
    world.disk.write(OUT / "step-100" / "model.bin", same)
    assert world.hot.changed(saved)
    assert replicate(world.site(), RUN, saved, to="warm").replicas[WARM].sound
    assert "verified" not in world.kinds()


def test_a_suspect_that_reads_right_is_a_source_again(world, saved):
    world.disk.write(OUT / "step-100" / "model.bin", world.disk.read(OUT / "step-100" / "model.bin"))
    sweep(world.site(), move=False)
    assert replica(world, saved, world.hot.place).suspect
    replicate(world.site(), RUN, saved, to="warm")
    assert replica(world, saved, world.hot.place).sound


@pytest.mark.parametrize("lie", [Lie(), Lie(missing=True), Lie(path="")], ids=str)
def test_verify_reads_again_before_it_records_damage(world, saved, lie):
    replicate(world.site(), RUN, saved, to="warm")
    with_faults(world, warm={"verify": [lie]})
    seen = verify(world.site(), [world.state().records[saved]], tier="warm")
    assert [look.ok for look in seen.looks] == [True]
    assert [look.unsteady for look in seen.looks] == [True]
    assert replica(world, saved, WARM).sound


def test_readings_that_never_agree_are_the_reading_s_fault(world, saved):
    replicate(world.site(), RUN, saved, to="warm")
    with_faults(world, warm={"verify": [Lie(path=str(number)) for number in range(9)]})
    seen = verify(world.site(), [world.state().records[saved]], tier="warm")
    assert [type(look.error) for look in seen.looks] == [AnswerDamaged]
    assert replica(world, saved, WARM).sound


@pytest.mark.parametrize("fault", [*ONCE_WRONG, Reset(after=2)], ids=str)
def test_a_restore_asks_the_same_replica_again_before_it_is_blamed(world, saved, fault):
    replicate(world.site(), RUN, saved, to="warm")
    with_faults(world, warm={"open": [fault]})
    done = restore(world.site(), RUN, saved, to=OUT.with_name("back"), tier="warm")
    assert files(world.disk, OUT.with_name("back")) == files(world.disk, OUT / "step-100")
    assert done.restored.files_by_place == {"warm": 3}
    assert done.restored.damaged == ()
    assert replica(world, saved, WARM).sound


def test_only_damaged_bytes_where_it_was_asked_for_is_corrupt_and_not_missing(world, saved):
    rot(world, saved)
    with pytest.raises(Corrupt):
        restore(world.site(), RUN, saved, to=OUT.with_name("back"), tier="hot")
    assert replica(world, saved, world.hot.place).damaged
    assert not world.disk.exists(OUT.with_name("back"))


def test_faults_of_every_side_in_turn_leave_each_record_sunk_and_nobody_damaged(world):
    world.open()
    faults = [Flip(), None, Cut(after=2), Reset(), None, Eio(after=1), None]
    with_faults(
        world,
        hot={"open": faults * 2, "verify": [Lie()]},
        warm={"put": [Reset(), None, Eio()], "open": faults, "verify": [Lie(), None, Reset()]},
        cold={"put": [Eio(), Reset(), None, Eio()], "verify": [None, Lie()]},
    )
    world.saves(100, 200, 300, minutes=1)
    for _ in range(8):
        world.sweep()
    for found in world.state().records.values():
        assert {place.tier for place in found.replicas} == {"hot", "warm", "cold"}
        assert all(one.sound for one in found.replicas.values())


def test_a_machine_that_only_reads_still_refuses_nothing(world, saved):
    rot(world, saved)
    with pytest.raises((Corrupt, Refused)):
        restore(world.site(reads_only=True), RUN, saved, to=OUT.with_name("back"))
    assert replica(world, saved, world.hot.place).sound


@pytest.mark.parametrize("lie", [Lie(), Lie(missing=True)], ids=str)
def test_a_tree_without_an_entry_is_not_undone_for_one_bad_reading(world, lie):
    world.open()
    world.save(100)
    world.clock.wait(seconds=10)
    kill = At("commit.adopted", lambda: (_ for _ in ()).throw(Killed("commit.adopted")))
    with pytest.raises(Killed):
        sweep(world.site(progress=kill), move=False)
    world.restart()
    world.forget(100)
    with_faults(world, hot={"verify": [lie]})
    sweep(world.site(), move=False)
    assert world.at(100).replicas[world.hot.place].sound
    assert world.hot.holds(world.at(100).record.id)


def test_a_linked_only_copy_is_not_given_up_for_one_bad_reading(world, saved):
    with_faults(world, hot={"verify": [Lie()]})
    unshare(world.site(), world.state())
    found = replica(world, saved, world.hot.place)
    assert found.sound
    assert not world.hot.verify(world.hot.load(saved), progress=world.site().progress)


def test_a_repair_without_a_right_source_takes_nothing_away(world, saved):
    replicate(world.site(), RUN, saved, to="warm")
    rot(world, saved)
    digest = next(file.digest for file in world.ledger.manifest(RUN, saved).files if file.path == "model.bin")
    world.shelves["warm"].objects[digest] = b"rotten too"
    assert len(verify(world.site(), [world.state().records[saved]]).damaged) == 2
    hot, warm = (
        dict(files(world.disk, world.hot.path(world.hot.load(saved).record))),
        dict(world.shelves["warm"].objects),
    )
    for tier in ("hot", "warm"):
        with pytest.raises(SourceDamaged):
            replicate(world.site(), RUN, saved, to=tier)
    assert files(world.disk, world.hot.path(world.hot.load(saved).record)) == hot
    assert world.shelves["warm"].objects == warm
    assert saved in world.shelves["warm"].markers


@pytest.mark.parametrize("seed", range(30))
def test_whatever_reads_and_writes_badly_for_a_while_loses_and_blames_nothing(world, seed):
    """Drawn faults of every side while steps are saved and sunk; once they end, one pass leaves all of it right."""
    drawn = random.Random(seed)
    reading = [None, None, None, Flip(), Flip(at=3), Cut(), Cut(after=4), Reset(), Reset(after=2), Eio(), Eio(after=2)]
    looking = [None, None, None, Lie(), Lie(missing=True), Lie(path="optim/state.bin"), Reset()]
    writing = [None, None, Eio(), Reset()]
    world.open()
    faults = {
        tier: {
            "open": drawn.choices(reading, k=40),
            "verify": drawn.choices(looking, k=20),
            **({"put": drawn.choices(writing, k=20)} if tier != "hot" else {}),
        }
        for tier in ("hot", "warm", "cold")
    }
    with_faults(world, **faults)
    world.saves(100, 200, 300, minutes=20)
    world.sweep()
    world.changes = {}
    world.sweep()
    world.sweep()
    for found in world.state().records.values():
        assert {"warm", "cold"} <= {place.tier for place in found.replicas}
        assert all(one.sound for one in found.replicas.values())
    done = resume(world.site(), RUN, to=OUT, job="7")
    assert (done.found.record.step, done.timeline, done.passed_over) == (300, 1, ())
