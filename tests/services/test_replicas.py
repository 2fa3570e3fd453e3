"""Replicate, verify, release, demote and restore: a recorded replica is a verified one, and a byte goes only when another
was read back.
"""

from dataclasses import replace
from datetime import timedelta

import pytest

from lakemark.errors import Misconfigured, NoReplica, NotFound, Refused, SourceDamaged, StoreUnavailable
from lakemark.model.ledger.entry import Draft
from lakemark.model.ledger.run import Place
from lakemark.model.tiers.retention import RetentionPolicy
from lakemark.ports import Checkpoint
from lakemark.services.back.restore import restore
from lakemark.services.back.rollback_request import request
from lakemark.services.node.sweep import sweep
from lakemark.services.saves.commit import Commit, commit
from lakemark.services.tiers.demote import demote, demote_all, in_words, plan, present, renewed
from lakemark.services.tiers.release import release
from lakemark.services.tiers.replicate import replicate
from lakemark.services.tiers.verify import verify
from tests.services.world import COLD, HOT, OUT, POLICIES, RUN, WARM, files

WARM_PLACE, COLD_PLACE = Place(tier="warm"), Place(tier="cold")


@pytest.fixture
def saved(world):
    """One record, in hot only."""
    world.open()
    world.save(100)
    world.clock.wait(seconds=10)
    sweep(world.site(), move=False)
    return world.at(100).record.id


def places(world, record):
    return {place.tier for place in world.state().records[record].replicas}


def spoil(world, tier, record, path="model.bin"):
    """Other bytes under the object's name."""
    manifest = world.ledger.manifest(RUN, record)
    digest = next(file.digest for file in manifest.files if file.path == path)
    world.shelves[tier].objects[digest] = b"rotten"


def test_replicate_copies_verifies_records(world, saved):
    found = replicate(world.site(), RUN, saved, to="warm")
    assert found.replicas[WARM_PLACE].proof == "read_back"
    assert places(world, saved) == {"hot", "warm"}
    assert world.ledger.objects(RUN, saved, "warm")["dir"].endswith(saved)
    before = world.state().sequence
    replicate(world.site(), RUN, saved, to="warm")
    assert world.state().sequence == before


def test_replicate_takes_another_source_where_the_nearest_is_rotten(world, saved):
    replicate(world.site(), RUN, saved, to="warm")
    hot = world.hot.path(world.hot.load(saved).record)
    world.disk.write(hot / "model.bin", b"rotten")
    found = replicate(world.site(), RUN, saved, to="cold")
    assert found.replicas[COLD_PLACE].sound
    assert not found.replicas[world.hot.place].sound


def test_replicate_notices_a_replica_that_is_gone(world, saved):
    replicate(world.site(), RUN, saved, to="warm")
    world.hot.drop(world.hot.load(saved), now=world.clock())
    found = replicate(world.site(), RUN, saved, to="cold")
    assert found.replicas[world.hot.place].damaged
    assert found.replicas[COLD_PLACE].sound


def test_without_a_right_source_nothing_is_recorded(world, saved):
    hot = world.hot.path(world.hot.load(saved).record)
    world.disk.write(hot / "model.bin", b"rotten")
    with pytest.raises(SourceDamaged):
        replicate(world.site(), RUN, saved, to="warm")
    assert places(world, saved) == {"hot"}
    assert world.shelves["warm"].markers == {}


def test_a_tier_that_is_away_is_asked_again_later(world, saved):
    world.shelves["warm"].reachable = False
    with pytest.raises(StoreUnavailable):
        replicate(world.site(), RUN, saved, to="warm")
    done = demote(world.site(), RUN)
    assert [one.transient for one in done.pending if one.what == "tier warm"] == [True]
    world.shelves["warm"].reachable = True
    demote(world.site(), RUN)
    assert places(world, saved) >= {"warm"}


def test_another_disk_under_a_tier_s_name_takes_no_part(world, saved):
    world.shelves["warm"].identity = replace(world.shelves["warm"].identity, id="f" * 32)
    with pytest.raises(Refused, match="ffffffff"):
        replicate(world.site(), RUN, saved, to="warm")
    world.shelves["warm"].identity = None
    with pytest.raises(Refused, match="no identity"):
        replicate(world.site(), RUN, saved, to="warm")
    assert world.shelves["warm"].objects == {}


def test_release_reads_the_survivors_back_first(world, saved):
    replicate(world.site(), RUN, saved, to="warm")
    with pytest.raises(Refused, match="settle"):
        release(world.site(), RUN, saved, tier="hot")
    world.clock.wait(minutes=11)
    release(world.site(), RUN, saved, tier="hot")
    assert places(world, saved) == {"warm"}
    assert world.hot.records().records == ()
    assert world.state().records[saved].replicas[WARM_PLACE].verified_at == world.clock()
    with pytest.raises(NotFound):
        release(world.site(), RUN, saved, tier="hot")
    with pytest.raises(Refused, match="proven"):
        release(world.site(), RUN, saved, tier="warm")


def test_a_release_that_waits_for_a_survivor_out_of_reach_may_be_tried_again(world, saved):
    replicate(world.site(), RUN, saved, to="warm")
    world.clock.wait(minutes=11)
    world.shelves["warm"].reachable = False
    with pytest.raises(StoreUnavailable):
        release(world.site(), RUN, saved, tier="hot")
    assert places(world, saved) == {"hot", "warm"}
    world.shelves["warm"].reachable = True
    release(world.site(), RUN, saved, tier="hot")
    assert places(world, saved) == {"warm"}


def test_a_survivor_that_rotted_meanwhile_is_none(world, saved):
    replicate(world.site(), RUN, saved, to="warm")
    world.clock.wait(minutes=11)
    spoil(world, "warm", saved)
    with pytest.raises(Refused, match="not the manifest's"):
        release(world.site(), RUN, saved, tier="hot")
    assert places(world, saved) == {"hot", "warm"}
    assert not world.state().records[saved].replicas[WARM_PLACE].sound
    assert world.hot.records().records == (saved,)


def test_two_replicas_in_one_domain_are_one(world, saved):
    world.policies = replace(POLICIES, copies=2)
    replicate(world.site(), RUN, saved, to="warm")
    world.clock.wait(minutes=11)
    with pytest.raises(Refused, match="needs 2 proven"):
        release(world.site(), RUN, saved, tier="hot")
    replicate(world.site(), RUN, saved, to="cold")
    world.clock.wait(minutes=11)
    release(world.site(), RUN, saved, tier="hot")
    assert places(world, saved) == {"warm", "cold"}


def test_an_open_rollback_keeps_its_target_where_it_is(world, saved):
    replicate(world.site(), RUN, saved, to="warm")
    world.clock.wait(hours=1)
    request(world.site(), world.wish(100))
    with pytest.raises(Refused, match="open rollback"):
        release(world.site(), RUN, saved, tier="hot")
    assert world.hot.records().records == (saved,)
    assert demote(world.site(), RUN).released == []


def test_demote_goes_down_step_by_step_and_releases_what_settled(world):
    world.open()
    world.saves(100, 200, 300, 400, minutes=1)
    first = world.at(100).record.id
    assert places(world, first) == {"hot", "warm", "cold"}
    world.clock.wait(seconds=(HOT - timedelta(minutes=5)).seconds)
    assert demote(world.site(), RUN).released == []
    world.clock.wait(minutes=30)
    done = demote(world.site(), RUN)
    assert {one.record for one in done.released} == {first, world.at(200).record.id}
    assert places(world, first) == {"warm", "cold"}
    assert places(world, world.at(400).record.id) == {"hot", "warm", "cold"}
    again = demote(world.site(), RUN)
    assert (again.replicated, again.released, again.rechecked) == ([], [], [])
    world.clock.wait(days=8)
    demote(world.site(), RUN)
    assert places(world, first) == {"cold"}
    assert world.shelves["warm"].condemned
    assert WARM < COLD


class Counted(dict):
    """Residence that counts how often its rules are asked for."""

    asked = 0

    def get(self, *given):
        self.asked += 1
        return super().get(*given)


def test_a_pass_with_nothing_to_do_decides_once(world):
    world.open()
    world.saves(100, 200, 300, minutes=1)
    site = world.site()
    rules = Counted(site.policies.residence)
    site = replace(site, policies=replace(site.policies, residence=rules))
    tiers, _ = present(site)
    due = plan(site, RUN, tiers)
    assert (due.is_work, renewed(site, due) is due) == (False, True)
    once, rules.asked = rules.asked, 0
    demote(site, RUN)
    assert rules.asked == once > 0
    rules.asked = 0
    demote_all(site, [RUN], tiers=tiers)
    assert rules.asked == once


def test_what_is_due_is_decided_anew_where_something_came_in_or_other_tiers_count(world, saved):
    site = world.site()
    tiers, _ = present(site)
    due = plan(site, RUN, tiers)
    assert due.is_work
    fewer = renewed(site, due, tiers=tiers[:1])
    assert (fewer.tiers, fewer.is_work) == (tuple(tiers[:1]), False)
    assert renewed(site, due, tiers=list(tiers)) is due
    replicate(site, RUN, saved, to="warm")
    assert [one.tier for one in renewed(site, due).moves.replicate] == ["cold"]


def test_a_dry_run_says_what_a_pass_then_does(world, saved):
    site = world.site()
    due = plan(site, RUN, present(site)[0])
    done = demote(site, RUN)
    assert tuple(done.replicated) == due.moves.replicate
    assert in_words(site, due) == [f"replicate {RUN}@100 to {one.tier}: {one.why}" for one in done.replicated]
    world.saves(200, 300, 400, minutes=1)
    world.clock.wait(seconds=HOT.seconds)
    due = plan(site, RUN, present(site)[0])
    done = demote(site, RUN)
    assert [one.record for one in done.released] == [saved, world.at(200).record.id]
    first, second = due.moves.release
    assert in_words(site, due) == [
        f"release {RUN}@100 from hot: {first.why}",
        f"release {RUN}@200 from hot: {second.why}",
    ]


def test_bytes_of_a_shared_tier_go_after_the_grace_and_not_those_still_used(world):
    world.open()
    world.saves(100, 200, 300, minutes=1)
    world.clock.wait(days=8)
    world.save(400)
    world.sweep()
    world.sweep()
    held = set(world.shelves["warm"].objects)
    assert world.shelves["warm"].condemned
    world.clock.wait(hours=71)
    world.sweep()
    assert set(world.shelves["warm"].objects) == held
    world.clock.wait(hours=7)
    world.sweep()
    kept = set(world.shelves["warm"].objects)
    assert kept < held
    manifest = world.ledger.manifest(RUN, world.at(400).record.id)
    assert {file.digest for file in manifest.regular} <= kept


def test_a_condemned_object_that_is_needed_again_is_written_again(world):
    world.open()
    world.saves(100, 200, minutes=1)
    record = world.at(100).record.id
    world.clock.wait(days=8)
    world.save(300)
    world.sweep()
    world.sweep()
    assert places(world, record) == {"cold"}
    replicate(world.site(), RUN, record, to="warm")
    world.clock.wait(hours=100)
    world.policies = replace(POLICIES, residence={})
    world.sweep()
    assert verify(world.site(), [world.state().records[record]]).damaged == []


def test_verify_records_what_it_saw_once_for_the_pass(world, saved):
    replicate(world.site(), RUN, saved, to="warm")
    replicate(world.site(), RUN, saved, to="cold")
    spoil(world, "cold", saved)
    before = world.state().sequence
    world.clock.wait(hours=1)
    seen = verify(world.site(), list(world.state().records.values()))
    assert world.state().sequence == before + 1
    assert [look.place.tier for look in seen.damaged] == ["cold"]
    found = world.state().records[saved]
    assert found.replicas[COLD_PLACE].damaged
    assert found.replicas[WARM_PLACE].verified_at == world.clock()
    world.sweep()
    assert world.state().records[saved].replicas[COLD_PLACE].sound


def test_a_replica_out_of_reach_is_said_not_recorded(world, saved):
    replicate(world.site(), RUN, saved, to="warm")
    world.shelves["warm"].reachable = False
    seen = verify(world.site(), [world.state().records[saved]], tier="warm")
    assert [type(look.error) for look in seen.looks] == [StoreUnavailable]
    assert world.state().records[saved].replicas[WARM_PLACE].sound


def test_restore_brings_everything_back(world, saved):
    done = restore(world.site(), RUN, saved, to=OUT.with_name("back"))
    assert files(world.disk, OUT.with_name("back")) == files(world.disk, OUT / "step-100")
    assert done.restored.files_by_place == {"hot@node-a": 3}
    assert world.disk.inode(OUT.with_name("back") / "run.sh").executable


def test_restore_fails_over_file_by_file_and_records_the_damage(world, saved):
    replicate(world.site(), RUN, saved, to="warm")
    replicate(world.site(), RUN, saved, to="cold")
    hot = world.hot.path(world.hot.load(saved).record)
    expected = files(world.disk, OUT / "step-100")
    world.disk.write(hot / "model.bin", b"rotten")
    spoil(world, "warm", saved)
    done = restore(world.site(), RUN, saved, to=OUT.with_name("back"))
    assert files(world.disk, OUT.with_name("back")) == expected
    assert done.restored.files_by_place == {"hot@node-a": 2, "cold": 1}
    replicas = world.state().records[saved].replicas
    assert [replicas[place].sound for place in (world.hot.place, WARM_PLACE, COLD_PLACE)] == [False, False, True]


def test_restore_that_finds_no_right_byte_shows_nothing_and_says_what_is_damaged(world, saved):
    hot = world.hot.path(world.hot.load(saved).record)
    world.disk.write(hot / "model.bin", b"rotten")
    with pytest.raises(SourceDamaged):
        restore(world.site(), RUN, saved, to=OUT.with_name("back"))
    assert not world.disk.exists(OUT.with_name("back"))
    assert world.state().records[saved].replicas[world.hot.place].damaged


def test_restore_from_a_tier_that_is_away_says_try_again_and_blames_nobody(world, saved):
    replicate(world.site(), RUN, saved, to="warm")
    world.clock.wait(minutes=11)
    release(world.site(), RUN, saved, tier="hot")
    world.shelves["warm"].reachable = False
    with pytest.raises(StoreUnavailable):
        restore(world.site(), RUN, saved, to=OUT.with_name("back"))
    assert world.state().records[saved].replicas[WARM_PLACE].sound
    world.shelves["warm"].reachable = True
    restore(world.site(), RUN, saved, to=OUT.with_name("back"))


def test_restore_into_a_full_directory_is_refused(world, saved):
    with pytest.raises(Refused):
        restore(world.site(), RUN, saved, to=OUT)
    with pytest.raises(Misconfigured):
        restore(world.site(), RUN, saved, to=OUT.with_name("back"), tier="tape")
    with pytest.raises(NoReplica):
        restore(world.site(), RUN, saved, to=OUT.with_name("back"), tier="cold")


def test_rotation_leaves_a_linked_replica_healthy(world, saved):
    world.disk.remove(OUT / "step-100" / "model.bin")
    world.disk.rename(OUT / "step-100" / "optim", OUT / "step-100" / "old")
    world.sweep()
    replica = world.state().records[saved].replicas[world.hot.place]
    assert replica.linked
    assert replica.sound
    assert verify(world.site(), [world.state().records[saved]], tier="hot").damaged == []


def test_an_overwritten_linked_file_makes_its_replica_suspect_and_another_serves(world, saved):
    replicate(world.site(), RUN, saved, to="warm")
    expected = files(world.disk, OUT / "step-100")
    world.disk.write(OUT / "step-100" / "model.bin", b"the next one, in place")
    assert world.hot.changed(saved)
    world.sweep()
    replica = world.state().records[saved].replicas[world.hot.place]
    assert not replica.sound
    done = restore(world.site(), RUN, saved, to=OUT.with_name("back"))
    assert files(world.disk, OUT.with_name("back")) == expected
    assert done.restored.files_by_place == {"warm": 3}


def test_the_same_bytes_written_again_are_cleared_by_a_full_read(world, saved):
    same = world.disk.read(OUT / "step-100" / "model.bin")
    world.disk.write(OUT / "step-100" / "model.bin", same)
    world.sweep()
    assert world.state().records[saved].replicas[world.hot.place].sound
    before = world.state().sequence
    world.sweep()
    assert world.state().sequence == before


def test_a_pruned_record_is_not_replicated(world, saved):
    body = {"items": [{"record": saved, "reasons": ["old"]}]}
    world.ledger.append(RUN, lambda _: Draft(kind="pruned", body=body), world.site().stamp("pruned"))
    with pytest.raises(Refused, match="pruned"):
        replicate(world.site(), RUN, saved, to="warm")


def test_shared_objects_outlive_the_drop_of_one_user(world, saved):
    store = world.site().store("warm")
    replicate(world.site(), RUN, saved, to="warm")
    sealed = world.hot.load(saved)
    other = Checkpoint(record=replace(sealed.record, step=101), manifest=sealed.manifest)
    store.put(other, lambda file: world.hot.open(sealed, file), now=world.clock(), progress=world.site().progress)
    store.drop(other, now=world.clock())
    assert world.shelves["warm"].condemned == {}
    assert store.verify(sealed, progress=world.site().progress) == ()


def test_thin_drops_last_copies_only_of_what_nobody_would_keep(world):
    world.policies = replace(POLICIES, residence={}, retention={"default": RetentionPolicy(keep_last=1)}, min_keep=1)
    world.hot.min_free_share = 0.2
    world.shelves["warm"].reachable = world.shelves["cold"].reachable = False
    world.open()
    for step in (100, 200, 300):
        world.clock.wait(seconds=10)
        commit(world.site(), Commit(path=world.save(step), run=RUN, step=step))
    hold = world.at(200).record.id
    world.ledger.append(RUN, lambda _: Draft(kind="held", record=hold, reason="paper"), world.site().stamp("held"))
    world.hot.free_share, world.hot.min_free_share = 0.1, 0.2
    assert world.sweep().thinned == []
    for step in (100, 200, 300):
        world.forget(step)
    swept = world.sweep()
    assert swept.thinned == [world.at(100).record.id]
    assert set(world.hot.records().records) == {hold, world.at(300).record.id}
    assert world.at(100).pruned is not None
    assert world.sweep().thinned == []
