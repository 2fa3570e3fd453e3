"""`ledger recover`: what any copy, tier or tree knows is in the ledger again, whichever way it was lost."""

from dataclasses import replace

import pytest

from lakemark.errors import Refused, StoreUnavailable
from lakemark.model.ledger.entry import Draft
from lakemark.model.ledger.run import Place
from lakemark.model.tiers.retention import RetentionPolicy
from lakemark.services.back.restore import restore
from lakemark.services.health.invariants import violations
from lakemark.services.node.sweep import sweep
from lakemark.services.recovery.recover import recover
from lakemark.services.saves.commit import Commit, commit
from lakemark.services.soundness import GuardedLedger, distress, look
from lakemark.services.tiers.register import register_all
from lakemark.services.tiers.release import release
from lakemark.services.tiers.rename import rename_node
from tests.services.crashing import Killed
from tests.services.test_distress import (
    SITE,
    commit_step,
    lost_journal,
    only_copies,
    only_hot,
    tiers_away,
    yesterday_and_today,
)
from tests.services.test_names import called
from tests.services.test_thinning import full_world
from tests.services.world import OUT, RUN, World, files
from tests.support.memory import MemoryLedger, MemoryStore


@pytest.fixture
def world():
    return World()


def recovered(world):
    """Recovered, proven, and sound."""
    found = recover(world.site())
    assert found.away == []
    assert list(violations(world.site())) == []
    assert distress(world.site()) is None
    assert look(world.site()) == ()
    assert not any(one.what == "the ledger" for one in world.sweep().pending)
    return found


def all_restored(world, records):
    for record in records:
        place = OUT.with_name(f"back-{record[:8]}")
        restore(world.site(), RUN, record, to=place)
        step = world.state().records[record].record.step
        assert files(world.disk, place)["model.bin"].decode().startswith(f"weights of step {step}")


@pytest.mark.parametrize("left", [lambda _: None, lost_journal, only_copies])
def test_yesterday_s_ledger(world, left):
    backup = yesterday_and_today(world)
    tips, records = world.ledger.tips(), set(world.state().records)
    world.ledger = backup
    left(world)
    waits = commit_step(world, 500).record if left is not lost_journal else None
    found = recovered(world)
    assert found.missing == []
    assert all(world.ledger.contains(branch, tip) for branch, tip in tips.items())
    assert set(world.state().records) >= records | ({waits.id} if waits else set())
    assert found.entries > 0
    assert found.records >= 2
    assert world.kinds()[-1] == "ledger_recovered" or "ledger_recovered" in world.kinds()
    all_restored(world, records)


NAMES = pytest.mark.parametrize("names", [{"node": "node-b"}, {"node": "node-x"}, {"tier": "nvme"}], ids=str)


@NAMES
@pytest.mark.parametrize("rehearsed", [True, False])
def test_under_another_name_no_tree_is_brought_back(world, names, rehearsed):
    """They would become replicas of a node or tier that does not exist, which nobody can reach."""
    backup = yesterday_and_today(world)
    records = set(world.state().records)
    commit_step(world, 500)
    world.ledger = backup
    with pytest.raises(Refused, match="is known as hot of node node-a"):
        recover(called(world, **names), dry_run=rehearsed)
    assert only_node_a(world)
    recovered(world)
    assert only_node_a(world)
    all_restored(world, records)


def only_node_a(world):
    return {place.node for found in world.state().records.values() for place in found.replicas} <= {None, "node-a"}


def test_a_name_that_is_younger_than_the_backup_comes_back_with_the_copies(world):
    backup = yesterday_and_today(world)
    records = set(world.state().records)
    site = called(world, node="node-b")
    rename_node(site, "node-a", "node-b")
    world.clock.wait(hours=2)
    sweep(site)
    world.ledger = backup
    site = called(world, node="node-b")
    assert recover(site, dry_run=True).would
    assert recover(site).away == []
    assert distress(site) is None
    assert set(world.state().records) >= records
    assert {place.node for found in world.state().records.values() for place in found.replicas} <= {None, "node-b"}


def test_one_that_no_copy_has_is_given_again_after_the_recovery(world):
    backup = yesterday_and_today(world)
    records = set(world.state().records)
    rename_node(called(world, node="node-b"), "node-a", "node-b")
    world.ledger = backup
    with pytest.raises(Refused, match="is known as hot of node node-a"):
        recover(called(world, node="node-b"))
    recovered(world)
    site = called(world, node="node-b")
    rename_node(site, "node-a", "node-b")
    assert sweep(site).pending == []
    assert set(world.state().records) >= records


@NAMES
def test_nor_where_the_names_themselves_are_what_was_lost(world, names):
    yesterday_and_today(world)
    records = set(world.state().records)
    world.ledger.lose(SITE)
    with pytest.raises(Refused, match="is known as hot of node node-a"):
        recover(called(world, **names))
    recovered(world)
    assert only_node_a(world)
    all_restored(world, records)


def test_a_shared_tier_under_another_name_gives_nothing_back(world):
    backup = yesterday_and_today(world)
    records = set(world.state().records)
    world.ledger = backup
    site = world.site()
    tiers = {name: store for name, store in site.tiers.items() if name != "cold"}
    tiers["old"] = MemoryStore(world.shelves["cold"], name="old", tier_class="cold", domain="hdd")
    found = recover(replace(site, tiers=tiers))
    assert any("is known as cold" in one for one in found.away)
    assert not any(place.tier == "old" for one in world.state().records.values() for place in one.replicas)
    recovered(world)
    all_restored(world, records)


@pytest.mark.parametrize("branch", [SITE, RUN])
def test_a_branch_lost(world, branch):
    yesterday_and_today(world)
    tips = world.ledger.tips()
    world.ledger.lose(branch)
    assert recovered(world).missing == []
    assert all(world.ledger.contains(one, tip) for one, tip in tips.items())


def test_an_empty_ledger_in_its_place(world):
    yesterday_and_today(world)
    tips = world.ledger.tips()
    world.ledger = MemoryLedger(world.ledger.id)
    recovered(world)
    assert all(world.ledger.contains(one, tip) for one, tip in tips.items())


def test_no_copy_of_the_ledger_is_left_at_all(world):
    """Only what tiers and hot keep of each checkpoint."""
    yesterday_and_today(world)
    records = set(world.state().records)
    for shelf in world.shelves.values():
        shelf.ledger.clear()
    world.hot._tier.ledger.clear()
    lost_journal(world)
    world.ledger = MemoryLedger(world.ledger.id)
    recover(world.site())
    assert set(world.state().records) == records
    assert not [one for one in violations(world.site()) if one.rule != "pinned"]
    all_restored(world, records)
    assert distress(world.site()) is None


def test_records_of_a_timeline_whose_opening_is_lost(world):
    world.open()
    world.saves(100, 200)
    world.roll_back(100)
    world.trainer().save(300)
    world.sweep()
    newest = world.latest().record
    assert newest.timeline == 2
    for shelf in world.shelves.values():
        shelf.ledger.clear()
    world.hot._tier.ledger.clear()
    lost_journal(world)
    world.ledger = MemoryLedger(world.ledger.id)
    recover(world.site())
    assert world.state().records[newest.id].record == newest
    assert world.latest().record.id == newest.id
    assert not [one for one in violations(world.site()) if one.rule != "pinned"]


def test_only_hot_is_left(world):
    backup = yesterday_and_today(world)
    here = set(world.hot.records().records)
    world.ledger = backup
    only_hot(world)
    found = recover(world.site())
    assert found.away
    assert set(world.state().records) >= here
    for shelf in world.shelves.values():
        shelf.reachable = True
    recovered(world)


def test_while_a_tier_is_away_nothing_is_given_up(world):
    backup = yesterday_and_today(world)
    newest = world.ledger.tip(RUN)
    world.ledger = backup
    tiers_away(world)
    assert recover(world.site()).away
    assert distress(world.site()) is not None
    for shelf in world.shelves.values():
        shelf.reachable = True
    recovered(world)
    assert world.ledger.contains(RUN, newest)


@pytest.mark.parametrize("what", ["its copy", "its records", "a record"])
def test_nor_while_one_that_answers_gives_no_answer_to_that(world, what):
    """That a copy, a listing or a record can't be read just now does not say that it is nowhere."""
    backup = yesterday_and_today(world)
    newest = world.ledger.tip(RUN)
    only = {"cold"} if what == "its copy" else set()
    for name, shelf in world.shelves.items():
        if name not in only:
            shelf.ledger.clear()
    world.hot._tier.ledger.clear()
    for record in world.hot.records().records:
        world.hot.drop(world.hot.load(record), now=world.clock())
    world.shelves["warm"].markers.clear()
    world.ledger = backup
    site = world.site()
    found = recover(replace(site, tiers=site.tiers | {"cold": Partly(site.tiers["cold"], what)}))
    assert found.away
    assert distress(world.site()) is not None
    again = recover(world.site())
    assert again.away == []
    assert distress(world.site()) is None
    if what == "its copy":
        assert world.ledger.contains(RUN, newest)
    assert len(world.state().records) == 4


class Partly:
    """A tier that answers, but not to everything."""

    def __init__(self, store, what):
        self._store = store
        self._what = what

    def __getattr__(self, name):
        return getattr(self._store, name)

    def _asked(self, what):
        if what == self._what:
            raise StoreUnavailable("it breaks off", advice="Wait.")

    def open_ledger(self, slot=None):
        self._asked("its copy")
        return self._store.open_ledger(slot)

    def claimed(self):
        self._asked("its records")
        return self._store.claimed()

    def load(self, record):
        self._asked("a record")
        return self._store.load(record)


def test_nor_while_a_tier_that_the_ledger_knows_is_not_configured(world):
    backup = yesterday_and_today(world)
    newest = world.ledger.tip(RUN)
    world.ledger = backup
    world.shelves["warm"].ledger.clear()
    world.hot._tier.ledger.clear()
    site = world.site()
    tiers = {name: store for name, store in site.tiers.items() if name != "cold"}
    found = recover(replace(site, tiers=tiers))
    assert any("cold" in one for one in found.away)
    assert distress(world.site()) is not None
    recovered(world)
    assert world.ledger.contains(RUN, newest)


def test_what_is_nowhere_is_named_and_given_up(world):
    world.open()
    world.saves(100)
    world.clock.wait(hours=2)
    world.sweep()
    backup = world.ledger.backup()
    lost = commit_step(world, 200).record
    world.hot.drop(world.hot.load(lost.id), now=world.clock())
    world.forget(200)
    world.ledger = backup
    found = recover(world.site())
    assert any("this node knows" in one for one in found.missing)
    assert distress(world.site()) is None
    assert commit_step(world, 300).pending is None


def test_two_copies_that_parted_become_one(world):
    """What each appended is in it, as it was, and either copy goes on to it."""
    world.open()
    world.saves(100)
    second = world.ledger.backup()
    world.clock.wait(hours=2)
    world.saves(200)
    world.clock.wait(hours=2)
    world.sweep()
    first, mine = world.ledger, world.journal
    world.ledger, world.journal = second, type(mine)()
    world.forget(200)
    other = world.save(300, "other")
    with_other = commit(world.site(ledger=second), Commit(path=other, run=RUN, step=300)).record
    entries = {entry.request: entry for entry, _ in (*first.entries(RUN), *second.entries(RUN))}
    recovered(world)
    after = {entry.request: entry for entry, _ in world.ledger.entries(RUN)}
    for request, entry in entries.items():
        assert (after[request].kind, after[request].recorded_at, after[request].clock) == (
            entry.kind,
            entry.recorded_at,
            entry.clock,
        )
    assert with_other.id in world.state().records
    assert [entry.sequence for entry, _ in world.ledger.entries(RUN)] == list(range(1, len(after) + 1))
    # The other one takes it over as it is.
    with world.ledger.bundle() as bundle:
        heads = first.take(bundle)
    assert all(first.forward(branch, head) for branch, head in heads.items() if first.tip(branch) != head)
    assert look(world.site(ledger=first, journal=mine)) == ()


def test_both_copies_committed_the_same_step(world):
    world.open()
    world.saves(100)
    second = world.ledger.backup()
    world.clock.wait(hours=2)
    world.saves(200)
    one = world.latest().record
    world.clock.wait(hours=2)
    world.sweep()
    world.ledger, world.journal = second, type(world.journal)()
    world.forget(200)
    world.save(200, "step 200, other")
    two = commit(world.site(ledger=second), Commit(path=OUT / "step-200", run=RUN, step=200)).record
    recovered(world)
    records = world.state().records
    assert {one.id, two.id} <= records.keys()
    assert [records[one.id].conflicts_with, records[two.id].conflicts_with].count(None) == 1


def test_a_dry_run_changes_nothing(world):
    world.ledger = yesterday_and_today(world)
    tips = world.ledger.tips()
    found = recover(world.site(), dry_run=True)
    assert any(RUN in one for one in found.would)
    assert found.sources
    assert found.missing == []
    assert world.ledger.tips() == tips
    assert distress(world.site()) is not None


def test_a_sound_ledger_gets_nothing(world):
    yesterday_and_today(world)
    before = world.ledger.tips()
    found = recover(world.site())
    assert (found.entries, found.records, found.missing) == (0, 0, [])
    assert world.ledger.tips() == before


def test_a_record_of_other_contents_is_not_taken(world):
    """The id is worked out from the manifest before anything of it is believed."""
    from dataclasses import replace

    world.open()
    world.saves(100, 200)
    world.clock.wait(hours=2)
    world.sweep()
    one, two = world.at(100).record.id, world.at(200).record.id
    markers = world.shelves["cold"].markers | world.shelves["warm"].markers
    for shelf in world.shelves.values():
        shelf.ledger.clear()
        if one in shelf.markers:
            shelf.markers[one] = replace(markers[one], manifest=markers[two].manifest)
    world.hot._tier.ledger.clear()
    world.hot._tier.sealed.clear()
    lost_journal(world)
    world.ledger = MemoryLedger(world.ledger.id)
    found = recover(world.site())
    assert any("of other contents" in said for said in found.missing)
    assert one not in world.state().records


class Dies:
    """Kills the process at its nth step."""

    def __init__(self, left):
        self.left = left

    def step(self, _):
        self.left -= 1
        if self.left == 0:
            raise Killed

    def __getattr__(self, _):
        return lambda *_, **__: None


@pytest.mark.parametrize("lost", ["backup", "parted", "everything", "a release"])
def test_killed_anywhere_it_is_finished_by_the_next(lost):
    for at in range(1, 60):
        world = World()
        backup = yesterday_and_today(world)
        records = set(world.state().records)
        if lost == "everything":
            for shelf in world.shelves.values():
                shelf.ledger.clear()
            world.hot._tier.ledger.clear()
            world.ledger = MemoryLedger(world.ledger.id)
            lost_journal(world)
        elif lost == "a release":
            backup = world.ledger.backup()
            release(world.site(), RUN, world.at(400).record.id, tier="hot")
            replaced_by(world, backup)
        else:
            world.ledger = backup
        if lost == "parted":
            world.journal.forget_all()
            commit(world.site(ledger=backup), Commit(path=world.save(700), run=RUN, step=700))
        try:
            recover(world.site(progress=Dies(at)))
        except Killed:
            world.restart()
            recover(world.site())
            assert set(world.state().records) >= records, at
            assert not [one for one in violations(world.site()) if one.rule != "pinned"], at
            assert distress(world.site()) is None
        else:
            assert at > 3
            return
    pytest.fail("it has more steps than were tried")


def without_copies(world):
    """No copy of the ledger has the newest entries: nobody made one since."""
    for shelf in world.shelves.values():
        shelf.ledger.clear()
    world.hot._tier.ledger.clear()


def settled(world):
    """Three saves, in every tier, and a backup of the ledger of then."""
    world.open()
    world.saves(100, 200, 300, minutes=60)
    world.clock.wait(hours=3)
    world.sweep()
    return world.ledger.backup()


def replaced_by(world, backup):
    without_copies(world)
    world.ledger = backup
    assert distress(world.site()) is not None


def goes_on(world):
    """Saved, sunk and released as ever; whatever is claimed is there."""
    commit_step(world, 900)
    world.clock.wait(hours=5)
    world.sweep()
    world.clock.wait(hours=5)
    assert not [one for one in world.sweep().pending if not one.planned]
    assert list(violations(world.site())) == []


def test_a_release_that_nobody_remembers(world):
    """The old ledger claims a replica that was dropped since: it is recorded as not there, and the site goes on."""
    backup = settled(world)
    one = world.at(300).record
    release(world.site(), RUN, one.id, tier="hot")
    replaced_by(world, backup)
    found = recovered(world)
    assert any("this node knows" in said for said in found.missing)
    assert any("hot" in said and "300" in said for said in found.missing)
    assert {place.tier for place in world.state().records[one.id].replicas} == {"warm", "cold"}
    assert (world.state().records[one.id].lost, found.entries) == (None, 0)
    entry, _ = list(world.ledger.entries(RUN))[-1]
    assert entry.kind == "ledger_recovered"
    assert any("this node knows" in said for said in entry.body["missing"])
    all_restored(world, [one.id])
    goes_on(world)
    assert recover(world.site()).missing == []


def test_where_it_went_before_it_was_released_is_not_remembered_either(world):
    """Its only place of which the old ledger knows has let it go: the others have it, and are asked."""
    world.open()
    world.saves(100)
    backup = world.ledger.backup()
    one = world.at(100).record
    world.clock.wait(hours=5)
    world.sweep()
    world.clock.wait(hours=5)
    world.sweep()
    release(world.site(), RUN, one.id, tier="hot")
    replaced_by(world, backup)
    recovered(world)
    state = world.state().records[one.id]
    assert {place.tier for place in state.replicas} == {"warm", "cold"}
    assert state.lost is None
    all_restored(world, [one.id])
    goes_on(world)


def test_what_was_dropped_for_room_is_not_called_lost(world):
    """The entry that pruned it is gone with the newer ledger; this node remembers that it was meant."""
    world = full_world(RetentionPolicy(keep_last=1), 100, 200)
    for shelf in world.shelves.values():
        shelf.reachable = True
    register_all(world.site())
    for shelf in world.shelves.values():
        shelf.reachable = False
    backup = world.ledger.backup()
    (gone,) = world.sweep().thinned
    world.hot.free_share = 0.9
    for shelf in world.shelves.values():
        shelf.reachable = True
    replaced_by(world, backup)
    found = recovered(world)
    state = world.state().records[gone]
    assert (state.lost, state.thinned, dict(state.replicas)) == (None, True, {})
    assert state.pruned is not None
    assert any("100" in said for said in found.missing)
    goes_on(world)


def test_what_is_nowhere_any_more_is_lost_and_said(world):
    backup = settled(world)
    one = world.at(300).record
    for store in world.site().tiers.values():
        store.drop(store.load(one.id), now=world.clock())
    world.trainer().save(400)
    world.sweep()
    replaced_by(world, backup)
    found = recover(world.site())
    assert world.state().records[one.id].lost is not None
    assert any("300" in said and "lost" in said for said in found.missing)
    assert {rule.rule for rule in violations(world.site())} == {"copies"}
    assert distress(world.site()) is None
    assert commit_step(world, 900).pending is None


def hold(world):
    draft = Draft(kind="held", record=world.at(100).record.id, reason="paper", body={"until": None})
    world.site().ledger.append(RUN, lambda _: draft, world.site().stamp("held"))


def sink(world):
    world.clock.wait(hours=5)
    world.sweep()


@pytest.mark.parametrize("act", [hold, sink])
def test_an_entry_that_nobody_has_is_named_and_the_site_goes_on(world, act):
    world.open()
    commit_step(world, 100)
    backup = world.ledger.backup()
    act(world)
    replaced_by(world, backup)
    found = recovered(world)
    assert any("this node knows" in said for said in found.missing)
    goes_on(world)


def test_while_a_tier_is_away_nothing_is_said_to_be_gone(world):
    """The tier that is away may have the copy that says why."""
    backup = settled(world)
    one = world.at(300).record
    release(world.site(), RUN, one.id, tier="hot")
    replaced_by(world, backup)
    world.shelves["cold"].reachable = False
    tips = world.ledger.tips()
    assert recover(world.site()).away
    assert world.ledger.tips() == tips
    world.shelves["cold"].reachable = True
    recovered(world)


def test_a_listing_that_did_not_end_proves_nothing(world):
    backup = settled(world)
    one = world.at(300).record
    release(world.site(), RUN, one.id, tier="warm")
    replaced_by(world, backup)
    world.shelves["warm"].listing_complete = False
    found = recover(world.site())
    assert found.away
    assert Place(tier="warm") in world.state().records[one.id].replicas
    assert distress(world.site()) is not None
    world.shelves["warm"].listing_complete = True
    recover(world.site())
    assert Place(tier="warm") not in world.state().records[one.id].replicas


class BrokenOnce:
    """A ledger of which the first reading finds the run's branch broken, as where a disk gave nothing for a moment."""

    def __init__(self, inner, *, readings):
        self.inner, self.readings, self.aside = inner, readings, []

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def broken_branches(self):
        self.readings -= 1
        return {RUN: self.inner.tips()[RUN]} if self.readings >= 0 else {}

    def set_aside(self, branch, revision):
        self.aside.append((branch, revision))
        return False


@pytest.mark.parametrize("readings", [1, 2])
def test_a_branch_is_set_aside_for_two_readings_and_not_for_one(world, readings):
    world.open()
    world.saves(100)
    tip = world.ledger.tips()[RUN]
    ledger = BrokenOnce(world.ledger, readings=readings)
    guarded = GuardedLedger(lambda: ledger, world.journal, stores=world.site().tiers.values)
    recover(world.site(ledger=guarded))
    assert ledger.aside == ([] if readings == 1 else [(RUN, tip)])
