"""Committing what is a record already: exit 0 means that somebody could restore it, whatever became of its replicas."""

from dataclasses import replace

import pytest

from lakemark.errors import Refused
from lakemark.model.ledger.entry import Draft
from lakemark.services.back.restore import restore
from lakemark.services.node.sweep import sweep
from lakemark.services.saves.commit import Commit, commit
from lakemark.services.tiers.release import release
from lakemark.services.tiers.replicate import replicate
from lakemark.services.tiers.sources import note_damage
from lakemark.services.tiers.verify import verify
from tests.services.crashing import KillAt, Killed, settled
from tests.services.world import OUT, POLICIES, RUN, World, files


def asked(step=100, **more):
    return Commit(path=OUT / f"step-{step}", run=RUN, step=step, **more)


@pytest.fixture
def saved(world):
    """One record, in hot alone; the trainer's files are intact. Landed by copy: damage of one is not the other's."""
    world.policies = replace(POLICIES, residence={})
    world.hot.landing = "copy"
    world.open()
    world.save(100)
    commit(world.site(), asked())
    return world.at(100)


def tree(world, found):
    return world.hot.path(world.hot.load(found.record.id).record)


def damaged(world, found):
    world.disk.write(tree(world, found) / "model.bin", b"weights of stfp 100")


def damaged_and_noted(world, found):
    damaged(world, found)
    verify(world.site(), [found])
    assert not world.at(100).replicas[world.hot.place].sound


def deleted(world, found):
    world.hot.drop(world.hot.load(found.record.id), now=world.clock())


def thinned(world, found):
    items = [{"record": found.record.id, "reasons": ["thinned"], "thinned": True}]
    world.ledger.append(RUN, lambda _: Draft(kind="pruned", body={"items": items}), world.site().stamp("thin"))
    deleted(world, found)


def pruned(world, found):
    items = [{"record": found.record.id, "reasons": ["too old"], "thinned": False}]
    world.ledger.append(RUN, lambda _: Draft(kind="pruned", body={"items": items}), world.site().stamp("prune"))
    deleted(world, found)


def warm_emptied(world, found):
    """It was sunk and released, and what was sunk is gone."""
    replicate(world.site(), RUN, found.record.id, to="warm")
    world.clock.wait(hours=2)
    release(world.site(), RUN, found.record.id, tier="hot")
    world.shelves["warm"].objects.clear()
    world.shelves["warm"].markers.clear()


LOST = [damaged, damaged_and_noted, deleted, thinned, pruned, warm_emptied]


@pytest.mark.parametrize("lose", LOST, ids=lambda lose: lose.__name__)
def test_a_record_without_a_sound_replica_is_landed_again_and_that_is_said(world, saved, lose):
    expected = files(world.disk, OUT / "step-100")
    lose(world, saved)
    made = commit(world.site(), asked())
    assert (made.record, made.new, made.landed_again) == (saved.record, False, True)
    assert "taken into hot again" in made.why
    found = world.at(100)
    assert found.pruned is None
    assert found.replicas[world.hot.place].sound
    world.disk.remove(OUT / "step-100")
    restore(world.site(), RUN, found.record.id, to=OUT.with_name("back"))
    assert files(world.disk, OUT.with_name("back")) == expected
    assert world.kinds().count("committed") == 1


@pytest.mark.parametrize("lose", [damaged_and_noted, deleted], ids=lambda lose: lose.__name__)
def test_a_sweep_takes_it_again_too_where_the_ledger_knows_of_the_loss(world, saved, lose):
    lose(world, saved)
    verify(world.site(), [world.at(100)])
    world.sweep()
    assert world.at(100).replicas[world.hot.place].sound
    assert world.hot.verify(world.hot.load(saved.record.id), progress=world.site().progress) == ()


def test_a_sweep_does_not_bring_back_what_was_thinned(world, saved):
    thinned(world, saved)
    world.journal.forget_all()
    world.sweep()
    assert world.at(100).thinned
    assert world.hot.records().records == ()


def test_nothing_is_landed_twice_where_a_sound_replica_is_elsewhere(world, saved):
    replicate(world.site(), RUN, saved.record.id, to="warm")
    world.clock.wait(hours=2)
    release(world.site(), RUN, saved.record.id, tier="hot")
    made = commit(world.site(), asked())
    assert (made.new, made.landed_again) == (False, False)
    assert world.hot.records().records == ()


def test_a_tier_that_is_away_proves_nothing(world, saved):
    replicate(world.site(), RUN, saved.record.id, to="warm")
    world.clock.wait(hours=2)
    release(world.site(), RUN, saved.record.id, tier="hot")
    world.shelves["warm"].reachable = False
    assert commit(world.site(), asked()).landed_again
    assert world.at(100).replicas[world.hot.place].sound


def test_without_room_it_is_no_success(world, saved):
    deleted(world, saved)
    world.hot.free_share, world.hot.min_free_share = 0.05, 0.1
    with pytest.raises(Refused, match="min_free"):
        commit(world.site(), asked())


def test_a_tree_that_a_crash_left_and_that_rotted_since_is_not_taken_for_the_save(world):
    """Named, without an entry, and of the right sizes: the commit that comes after it puts its own in its place."""
    world.hot.landing = "copy"
    world.open()
    world.save(100)
    with pytest.raises(Killed):
        commit(world.site(progress=KillAt(2)), asked())
    world.restart()
    (left,) = world.hot.records().records
    world.disk.write(world.hot.path(world.hot.load(left).record) / "model.bin", b"weights of stfp 100")
    made = commit(world.site(), asked())
    assert world.hot.verify(world.hot.load(made.record.id), progress=world.site().progress) == ()


@pytest.mark.parametrize("lose", LOST[:-1], ids=lambda lose: lose.__name__)
def test_killed_anywhere_while_landing_again_it_is_landed_again_later(lose):
    for number in range(1, 30):
        world = World(policies=replace(POLICIES, residence={}))
        world.hot.landing = "copy"
        world.open()
        world.save(100)
        commit(world.site(), asked())
        lose(world, world.at(100))
        try:
            commit(world.site(progress=KillAt(number)), asked())
        except Killed:
            world.restart()
            sweep(world.site())
            assert commit(world.site(), asked()).record.id == world.at(100).record.id
            settled(world, {world.at(100).record.id})
        else:
            assert number > 2
            return
    pytest.fail("it never came to an end")


def test_damage_noted_of_a_linked_file_written_over_is_another_save(world):
    """What lies at the path by now is not what was committed: that is said, not taken for it."""
    world.open()
    path = world.save(100)
    commit(world.site(), asked())
    world.disk.write(path / "model.bin", b"written over in place")
    note_damage(world.site(), world.at(100), world.hot.place, world.hot.changed(world.at(100).record.id))
    world.sweep()
    assert sum(found.record.content != world.at(100).record.content for found in world.state().records.values()) == 1


@pytest.fixture
def only_in_warm(world):
    """The record's only replica lies in warm; the trainer's files are intact."""
    world.open()
    world.save(100)
    commit(world.site(), asked())
    found = world.at(100)
    replicate(world.site(), RUN, found.record.id, to="warm")
    world.clock.wait(hours=5)
    release(world.site(), RUN, found.record.id, tier="hot")
    return world.at(100)


def test_a_replica_in_a_shared_tier_counts_after_it_was_read(world, only_in_warm):
    done = commit(world.site(), asked())
    assert (done.new, done.landed_again) == (False, False)
    assert "its replica in warm was read just now" in done.why
    assert world.hot.place not in world.at(100).replicas


def test_a_marker_over_wrong_bytes_is_no_replica(world, only_in_warm):
    """Nobody knows of the damage yet: the ledger calls it sound, and the tier's marker stands."""
    objects = world.shelves["warm"].objects
    objects.update({digest: b"x" * len(data) for digest, data in objects.items()})
    done = commit(world.site(), asked())
    assert done.landed_again
    found = world.at(100)
    assert found.replicas[world.hot.place].sound
    assert not [one for place, one in found.replicas.items() if place.tier == "warm" and one.sound]
    restore(world.site(), RUN, found.record.id, to=OUT.with_name("back"))
