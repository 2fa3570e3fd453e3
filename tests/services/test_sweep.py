"""Sweep: finds, finishes or undoes, moves; the second one finds nothing to do, and one part's trouble is not another's."""

from dataclasses import replace
from datetime import timedelta
from typing import ClassVar

import pytest

from lakemark.errors import Conflict, Refused, StoreUnavailable
from lakemark.model.ledger.entry import Draft, Means
from lakemark.model.ledger.run import Place
from lakemark.ports import Identity
from lakemark.services.back.restore import restore
from lakemark.services.back.resume import resume
from lakemark.services.back.rollback_apply import apply
from lakemark.services.back.rollback_decide import approve
from lakemark.services.back.rollback_request import request
from lakemark.services.node.duties import LEEWAY, collect
from lakemark.services.node.sweep import sweep
from lakemark.services.node.swept import Swept
from lakemark.services.runs.close_run import close_run
from lakemark.services.saves.commit import Commit, commit
from lakemark.services.saves.find import to_be_looked_through
from lakemark.services.tiers.release import drop_released, release
from lakemark.services.tiers.replicate import replicate
from tests.services.crashing import At, KillAt, Killed, invariants, read_everything, settled
from tests.services.world import OUT, RUN, World
from tests.support.memory import MemoryHot, MemoryJournal, MemoryLedger, MemoryStore


def sequences(world):
    return world.ledger.site().sequence, {run: world.state(run).sequence for run in world.ledger.runs()}


def test_the_second_sweep_is_a_no_op(world):
    world.open()
    world.saves(100, 200, 300)
    world.save(400)
    world.clock.wait(hours=3)
    world.sweep()
    before = sequences(world)
    again = world.sweep()
    assert sequences(world) == before
    assert (again.committed, again.replicated, again.released, again.thinned, again.said) == ([], [], [], [], [])
    read_everything(world)


def test_what_it_finds_it_commits_moves_and_says(world):
    world.open()
    world.trainer().save(100)
    world.save(200)
    world.disk.write(OUT / "step-300" / "model.tmp", b"half")
    world.disk.write(OUT / "best" / "model.bin", b"no step in its name")
    swept = world.sweep()
    assert [made.record.step for made in swept.committed] == [100, 200]
    assert {(move.tier, world.state().records[move.record].record.step) for move in swept.replicated} == {
        (tier, step) for tier in ("warm", "cold") for step in (100, 200)
    }
    assert dict(swept.incomplete) == {OUT / "step-300": "model.tmp is there", OUT / "best": "step unknown"}


def test_files_that_were_just_written_wait(world):
    world.open()
    world.save(100)
    assert [path for path, _ in sweep(world.site()).incomplete] == [OUT / "step-100"]
    assert [made.record.step for made in world.sweep().committed] == [100]


def test_one_bad_save_does_not_keep_the_others_out(world):
    world.open()
    world.disk.write(OUT / "step-100" / ".git" / "config", b"x")
    world.save(200)
    swept = world.sweep()
    assert [made.record.step for made in swept.committed] == [200]
    assert [one.what for one in swept.pending if "step-100" in one.what]


def test_closed_runs_are_looked_through_once_more_and_then_left_alone(world):
    world.open()
    world.clock.wait(minutes=1)
    close_run(world.site(), RUN, reason="done")
    world.clock.wait(minutes=1)
    world.save(100)
    assert world.sweep().committed == []
    assert to_be_looked_through(world.site(), world.state()) is False
    assert world.state().records == {}


@pytest.mark.parametrize("means", [Means.NO_DELETE, Means.READ_ONLY])
def test_entries_of_a_newer_version_block_deletions_not_saves(world, means):
    world.open()
    world.saves(100, 200, 300, minutes=1)
    world.ledger.append(
        RUN, lambda _: Draft(kind="dreamt", timeline=1, unknown_means=means), world.site().stamp("dream")
    )
    world.clock.wait(hours=3)
    swept = world.sweep()
    assert swept.released == []
    assert any("dreamt" in one.why for one in swept.pending)
    record = world.at(100).record.id
    with pytest.raises(Refused, match="dreamt"):
        release(world.site(), RUN, record, tier="hot")
    path = world.save(400)
    if means is Means.NO_DELETE:
        assert commit(world.site(), Commit(path=path, run=RUN, step=400)).new
    else:
        with pytest.raises(Refused, match="dreamt"):
            commit(world.site(), Commit(path=path, run=RUN, step=400))


def test_on_the_site_s_branch_too(world):
    made = world.open()
    world.ledger.append_site(lambda _: Draft(kind="dreamt"), world.site().stamp("dream"))
    close_run(world.site(), RUN, reason="done")
    swept = world.sweep()
    assert any("dreamt" in one.why for one in swept.pending)
    assert world.ledger.site().pins[made.pins[0].branch].state == "pinned"


def test_with_every_server_down_committing_still_works_and_catches_up(world):
    world.open()
    world.data.reachable = False
    for shelf in world.shelves.values():
        shelf.reachable = False
    world.trainer().save(100)
    swept = world.sweep()
    assert [made.record.step for made in swept.committed] == [100]
    assert world.at(100).record.bound
    waiting = {one.what for one in swept.pending if one.transient}
    assert waiting >= {"tier warm", "tier cold", "the data branch data/main", "the 1 pin(s) in data"}
    assert set(world.at(100).replicas) == {world.hot.place}
    with pytest.raises(StoreUnavailable):
        replicate(world.site(), RUN, world.at(100).record.id, to="warm")
    with pytest.raises(StoreUnavailable):
        world.repin()
    world.data.reachable = True
    for shelf in world.shelves.values():
        shelf.reachable = True
    swept = world.sweep()
    assert {move.tier for move in swept.replicated} == {"warm", "cold"}
    assert world.sweep().pending == []


def test_one_tier_away_keeps_the_others_going(world):
    world.open()
    world.shelves["cold"].reachable = False
    world.saves(100)
    assert {place.tier for place in world.at(100).replicas} == {"hot", "warm"}
    world.clock.wait(hours=1)
    world.saves(200, 300)
    world.clock.wait(hours=1)
    world.sweep()
    assert world.hot.place not in world.at(100).replicas


def test_a_crash_between_naming_and_the_entry_is_finished_from_where_the_trainer_saved_it(world):
    world.open()
    path = world.save(100)
    with pytest.raises(Killed):
        commit(world.site(progress=KillAt(2)), Commit(path=path, run=RUN, step=100))
    assert world.state().records == {}
    (sealed,) = world.hot.records().records
    world.restart()
    assert [made.record.id for made in world.sweep().committed] == [sealed]
    world.disk.remove(path)
    assert resume(world.site(), RUN, to=OUT, job="1").path == path


def test_and_from_hot_where_the_trainer_removed_it(world):
    world.open()
    path = world.save(100)
    with pytest.raises(Killed):
        commit(world.site(progress=KillAt(2)), Commit(path=path, run=RUN, step=100, metrics={"loss": 1.0}))
    world.disk.remove(path)
    world.restart()
    swept = world.sweep()
    assert any("finished the commit of llama@100" in said for said in swept.said)
    assert world.at(100).record.metrics == {"loss": 1.0}
    settled(world, {world.at(100).record.id})


def test_a_sealed_tree_whose_step_was_taken_meanwhile_is_undone(world):
    world.open()
    path = world.save(100)
    with pytest.raises(Killed):
        commit(world.site(progress=KillAt(2)), Commit(path=path, run=RUN, step=100))
    other = commit(world.site(), Commit(path=world.save(100, "other"), run=RUN, step=100)).record
    world.restart()
    swept = world.sweep()
    assert any("undid the commit" in said for said in swept.said)
    assert world.hot.records().records == (other.id,)
    settled(world, {other.id})


def test_a_sealed_tree_of_a_run_this_ledger_does_not_know_stays(world):
    """A ledger that was lost, or brought back from yesterday, must not take what it forgot with it."""
    world.open()
    world.saves(100)
    kept = world.hot.records().records
    identities = {name: store.identity() for name, store in world.site().tiers.items()}
    old, world.ledger = world.ledger, MemoryLedger()
    world.ledger._id = old.id
    world.disk.remove(OUT)
    for name, identity in identities.items():
        body = {"tier": "hot@node-a" if name == "hot" else name, "id": identity.id}
        world.ledger.append_site(
            lambda _, body=body: Draft(kind="tier_registered", body=body), world.site().stamp(f"tier:{name}")
        )
    swept = world.sweep()
    assert world.hot.records().records == kept
    assert [one.what for one in swept.pending] == ["the ledger"]
    assert set(world.shelves["warm"].markers) == set(kept)


def test_another_site_s_hot_is_not_touched(world):
    world.open()
    world.saves(100)
    kept = world.hot.records().records
    other = World()
    other.hot = MemoryHot(world.disk, name="hot", node="node-a")
    other.hot._tier = world.hot._tier
    other.disk = world.disk
    other.open(watch=None)
    swept = other.sweep()
    assert world.hot.records().records == kept
    assert other.state().records == {}
    assert any("of the ledger" in one.why for one in swept.pending)


def test_another_disk_under_hot_s_path_stops_everything_that_deletes(world):
    world.open()
    world.saves(100, 200, 300, minutes=1)
    world.clock.wait(hours=3)
    world.hot._tier.identity = Identity(id="e" * 32, tier_class="hot", ledger=world.ledger.id, created_at=world.clock())
    swept = world.sweep()
    assert swept.released == []
    assert len(world.hot.records().records) == 3
    assert any("eeeeeeee" in one.why for one in swept.pending)


def test_a_listing_that_did_not_end_proves_nothing(world):
    world.open()
    world.saves(100, 200, minutes=1)
    world.clock.wait(days=8)
    world.save(300)
    world.sweep()
    world.sweep()
    assert world.shelves["warm"].condemned
    held = set(world.shelves["warm"].objects)
    world.shelves["warm"].listing_complete = False
    world.clock.wait(hours=100)
    world.sweep()
    assert set(world.shelves["warm"].objects) == held


class Asked(MemoryStore):
    """Counts what takes a look at everything a tier has."""

    looks: ClassVar = {"claimed": 0, "collect": 0}

    def claimed(self):
        self.looks["claimed"] += 1
        return super().claimed()

    def collect(self, *, now, grace, needed):
        self.looks["collect"] += 1
        return super().collect(now=now, grace=grace, needed=needed)


@pytest.fixture
def looks(world):
    Asked.looks = dict.fromkeys(Asked.looks, 0)
    tiers = world.site().tiers
    warm = Asked(world.shelves["warm"], name="warm", tier_class="warm", domain="array", kind="s3")
    world.changes["tiers"] = {**tiers, "warm": warm}
    return Asked.looks


def test_what_was_released_is_looked_for_where_a_release_may_have_died(world, looks):
    world.open()
    world.saves(100, 200, 300, minutes=1)
    world.clock.wait(days=8)
    world.sweep()
    assert Place(tier="warm") in world.at(100).released
    world.clock.wait(minutes=15)
    world.sweep()
    looks["claimed"] = 0
    for _ in range(4 * 20):
        world.clock.wait(minutes=15)
        world.sweep()
    assert looks["claimed"] == 0
    progress = At("release.recorded", lambda: (_ for _ in ()).throw(Killed("release.recorded")))
    with pytest.raises(Killed):
        release(world.site(progress=progress), RUN, world.at(300).record.id, tier="warm")
    assert any("dropped the released" in said for said in world.sweep().said)
    assert looks["claimed"] == 1
    world.clock.wait(minutes=15)
    world.sweep()
    looks["claimed"] = 0
    world.clock.wait(minutes=15)
    world.sweep()
    assert looks["claimed"] == 0


def test_another_node_s_release_that_died_is_found_by_the_daily_look(world, looks):
    world.open()
    world.saves(100, minutes=1)
    world.clock.wait(days=8)
    record = world.at(100).record.id
    progress = At("release.recorded", lambda: (_ for _ in ()).throw(Killed("release.recorded")))
    with pytest.raises(Killed):
        release(world.site(progress=progress, journal=MemoryJournal()), RUN, record, tier="warm")
    world.clock.wait(days=1)
    world.sweep()
    assert record not in world.shelves["warm"].markers


def test_one_look_serves_what_is_dropped_hour_by_hour(world, looks):
    world.open()
    world.sweep()
    shelf, grace, days = world.shelves["warm"], world.policies.grace, 10
    for hour in range(24 * days):
        shelf.objects[f"{hour:064}"] = b"let go"
        shelf.condemned[f"{hour:064}"] = world.clock()
        world.clock.wait(hours=1)
        world.sweep()
        assert all(world.clock() - since <= grace + grace / LEEWAY for since in shelf.condemned.values())
    assert len(shelf.condemned) >= grace / timedelta(hours=1) - 1
    assert 4 <= looks["collect"] <= 4 * days + days


def test_a_release_from_a_shared_tier_that_died_is_finished(world):
    world.open()
    world.saves(100, minutes=1)
    record = world.at(100).record.id
    world.clock.wait(days=8)
    progress = At("release.recorded", lambda: (_ for _ in ()).throw(Killed("release.recorded")))
    with pytest.raises(Killed):
        release(world.site(progress=progress), RUN, record, tier="warm")
    assert record in world.shelves["warm"].markers
    world.restart()
    assert any("dropped the released" in said for said in world.sweep().said)
    assert record not in world.shelves["warm"].markers
    assert world.shelves["warm"].condemned
    settled(world, {record})


class Reread(MemoryLedger):
    """Counts how often a run's entries are read once more."""

    def __init__(self):
        super().__init__()
        self.readings = 0

    def entries(self, *branch, **after):
        self.readings += 1
        return super().entries(*branch, **after)


def test_what_was_released_is_known_without_reading_the_run_again(world):
    world.ledger = Reread()
    world.open()
    world.saves(100, minutes=1)
    record = world.at(100).record.id
    world.clock.wait(days=8)
    progress = At("release.recorded", lambda: (_ for _ in ()).throw(Killed("release.recorded")))
    with pytest.raises(Killed):
        release(world.site(progress=progress), RUN, record, tier="warm")
    assert world.at(100).released == {Place(tier="warm")}
    before = world.ledger.readings
    assert drop_released(world.site(), world.site().store("warm")) == [record]
    assert drop_released(world.site(), world.site().store("warm")) == []
    assert world.ledger.readings == before


def test_what_came_back_while_others_were_dropped_stays(world):
    world.open()
    world.saves(100, 200, minutes=1)
    records = [world.at(step).record.id for step in (100, 200)]
    world.clock.wait(days=8)
    for record in records:
        progress = At("release.recorded", lambda: (_ for _ in ()).throw(Killed("release.recorded")))
        with pytest.raises(Killed):
            release(world.site(progress=progress), RUN, record, tier="warm")

    class Meanwhile(MemoryStore):
        def drop(self, checkpoint, *, now):
            freed = super().drop(checkpoint, now=now)
            (other,) = {*records} - {checkpoint.record.id}
            replicate(world.site(), RUN, other, to="warm")
            return freed

    store = Meanwhile(world.shelves["warm"], name="warm", tier_class="warm", domain="array", kind="s3")
    site = world.site()
    dropped = drop_released(replace(site, tiers={**site.tiers, "warm": store}), store)
    assert len(dropped) == 1
    invariants(world, {*records})


def test_what_comes_back_before_it_is_dropped_stays(world):
    world.open()
    world.saves(100, minutes=1)
    record = world.at(100).record.id
    world.clock.wait(days=8)
    at = At("release.recorded", lambda: replicate(world.site(), RUN, record, to="warm"))
    release(world.site(progress=at), RUN, record, tier="warm")
    assert at.done
    assert Place(tier="warm") in world.at(100).replicas
    invariants(world, {record})


def test_a_copy_on_its_way_into_a_shared_tier_is_not_taken_for_a_released_one(world):
    world.open()
    world.save(100)
    world.clock.wait(seconds=10)
    sweep(world.site(), move=False)
    record = world.at(100).record.id
    at = At("replicate.stored", lambda: collect(world.site(), Swept()))
    replicate(world.site(progress=at), RUN, record, to="warm")
    assert at.done
    invariants(world, {record})


def test_two_copies_into_a_tier_at_once_are_recorded_once(world):
    world.open()
    world.save(100)
    world.clock.wait(seconds=10)
    sweep(world.site(), move=False)
    record = world.at(100).record.id
    at = At("replicate.stored", lambda: replicate(world.site(), RUN, record, to="warm"))
    replicate(world.site(progress=at), RUN, record, to="warm")
    assert world.kinds().count("replicated") == 1


def interrupted(world, site):
    """Every operation a second process could be amid."""
    asked = request(site, world.wish(200))
    approve(replace(site, actor="bob@node-b"), asked.id, digest=asked.digest)
    apply(site, asked.id)
    resume(site, RUN, to=OUT, job="7")
    sweep(site)


def steps_of(prepare, operate):
    world = prepare()
    progress = KillAt(0)
    operate(world, world.site(progress=progress))
    return sorted(set(progress.steps))


def prepared():
    world = World()
    world.open()
    world.saves(100, 200, 300)
    world.clock.wait(hours=3)
    world.save(400)
    world.clock.wait(hours=3)
    return world


@pytest.mark.parametrize("step", steps_of(prepared, interrupted))
def test_a_whole_sweep_at_the_very_moment_of_any_step_changes_no_outcome(step):
    world = prepared()
    at = At(step, lambda: sweep(world.site()))
    interrupted(world, world.site(progress=at))
    assert at.done
    assert world.state().timeline == 2
    assert world.latest().record.step == 200
    assert world.kinds().count("rolled_back") == 1
    settled(world, set(world.state().records))


@pytest.mark.parametrize("step", ["rollback.restored", "rollback.data_opened", "rollback.recorded", "rollback.told"])
def test_two_applies_at_the_same_moment_are_one(step):
    world = prepared()
    world.sweep()
    world.clock.wait(hours=5)
    asked = request(world.site(), world.wish(200))
    approve(world.site(actor="bob@node-b"), asked.id, digest=asked.digest)
    inner = []
    at = At(step, lambda: inner.append(apply(world.site(), asked.id)))
    outer = apply(world.site(progress=at), asked.id)
    assert inner == [outer]
    assert world.kinds().count("rolled_back") == 1
    assert world.state().timeline == 2


def test_two_rollbacks_at_the_same_moment_are_as_if_one_after_the_other():
    world = prepared()
    world.sweep()
    world.clock.wait(hours=5)
    ids = {}
    for step in (100, 200):
        asked = request(world.site(), world.wish(step))
        approve(world.site(actor="bob@node-b"), asked.id, digest=asked.digest)
        ids[step] = asked.id
    at = At("rollback.data_opened", lambda: apply(world.site(), ids[100]))
    with pytest.raises(Conflict):
        apply(world.site(progress=at), ids[200])
    assert world.state().timeline == 2
    assert world.latest().record.step == 100
    assert world.state().rollbacks[ids[200]].state == "overtaken"
    settled(world, set(world.state().records))


@pytest.mark.parametrize("step", ["commit.landed", "commit.adopted", "commit.recorded", "commit.remembered"])
def test_two_sweeps_that_find_the_same_save(step):
    world = World()
    world.open()
    world.trainer().save(100)
    world.save(200)
    world.clock.wait(minutes=1)
    at = At(step, lambda: sweep(world.site()))
    sweep(world.site(progress=at))
    assert at.done
    assert world.kinds().count("committed") == 2
    settled(world, set(world.state().records))


@pytest.mark.parametrize("step", ["release.checked", "release.recorded"])
def test_a_restore_that_reads_while_its_replica_is_released(step):
    world = prepared()
    world.sweep()
    record = world.at(100).record.id
    world.policies = replace(world.policies, residence={})
    replicate(world.site(), RUN, record, to="warm")
    world.clock.wait(hours=5)
    place = OUT.with_name("back")
    at = At(step, lambda: restore(world.site(), RUN, record, to=place))
    release(world.site(progress=at), RUN, record, tier="warm")
    assert world.disk.exists(place / "model.bin")
    assert Place(tier="cold") in world.at(100).replicas


def test_a_store_out_of_reach_is_asked_once_in_a_pass(world):
    world.open()
    world.saves(100, 200, 300)
    world.shelves["warm"].reachable = False
    swept = world.sweep()
    told = [one.what for one in swept.pending if "warm" in one.what or "warm" in one.why]
    assert len(told) == len(set(told)), "each thing is said once"
    assert sum(what == "tier warm" for what in told) == 1


class CountingLedger(MemoryLedger):
    """Counts the manifests that are read of it."""

    manifests = 0

    def manifest(self, run, record):
        self.manifests += 1
        return super().manifest(run, record)


@pytest.mark.parametrize("move", [True, False])
def test_an_idle_sweep_over_linked_records_reads_no_manifest(world, move):
    world.ledger = CountingLedger()
    world.policies = replace(world.policies, residence={})
    world.open()
    world.saves(*range(100, 2500, 100))
    world.sweep()
    place = world.hot.place
    linked = [one for one in world.state().records.values() if place in one.replicas and one.replicas[place].linked]
    assert len(linked) == 24
    sweep(world.site(), move=move)
    world.ledger.manifests = 0
    world.clock.wait(minutes=1)
    assert (sweep(world.site(), move=move).said, world.ledger.manifests) == ([], 0)
