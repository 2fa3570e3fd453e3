"""A ledger that lacks entries somebody knows: nothing is appended, undone, dropped or overwritten, and saves wait, sealed."""

from dataclasses import replace
from datetime import timedelta

import pytest

from lakemark.errors import AnswerDamaged, Denied, InDistress, StoreUnavailable
from lakemark.services.back.restore import restore
from lakemark.services.back.rollback_apply import apply, leftovers
from lakemark.services.node.duties import collect
from lakemark.services.node.sweep import sweep
from lakemark.services.recovery.keep_copies import keep_copies
from lakemark.services.recovery.recover import recover
from lakemark.services.runs.close_run import close_run, reopen_run
from lakemark.services.runs.open_run import Opening, open_run
from lakemark.services.saves.commit import Commit, commit
from lakemark.services.soundness import distress, look, require_sound
from lakemark.services.tiers.release import drop_released, drop_unclaimed, release
from lakemark.services.tiers.verify import verify
from tests.services.world import OUT, RUN, World
from tests.support.memory import MemoryLedger

SITE = "site"


@pytest.fixture
def world():
    return World()


def commit_step(world, step, **changes):
    return commit(world.site(**changes), Commit(path=world.save(step), run=RUN, step=step))


def yesterday_and_today(world):
    """Two saves; a backup; two more, everywhere by now; then the backup in the ledger's place."""
    world.open()
    world.saves(100, 200)
    backup = world.ledger.backup()
    world.clock.wait(hours=2)
    world.saves(300, 400, minutes=60)
    world.clock.wait(hours=2)
    world.sweep()
    return backup


def all_of(world):
    shelves = {
        name: (dict(shelf.markers), dict(shelf.objects), dict(shelf.ledger)) for name, shelf in world.shelves.items()
    }
    return shelves, world.hot.records().records, dict(world.hot._tier.ledger), world.ledger.tips()


def lost_journal(world):
    world.journal.forget_all()


def tiers_away(world):
    for shelf in world.shelves.values():
        shelf.reachable = False
    world.hot._tier.ledger.clear()


def only_copies(world):
    """Neither the journal nor hot's marks: what tiers keep of the ledger is all that tells."""
    world.journal.forget_all()
    world.hot._tier.recorded.clear()


def only_hot(world):
    world.journal.forget_all()
    tiers_away(world)


@pytest.mark.parametrize("left", [lambda _: None, lost_journal, tiers_away, only_copies, only_hot])
def test_yesterday_s_ledger_takes_nothing_with_it(world, left):
    world.ledger = yesterday_and_today(world)
    left(world)
    before = all_of(world)
    for _ in range(3):
        world.clock.wait(days=10)
        swept = world.sweep()
        assert swept.pending[0].what == "the ledger"
        assert "llama" in swept.pending[0].why
        assert (swept.released, swept.replicated, swept.thinned) == ([], [], [])
    (shelves, trees, *rest), (_, _, *rest_before) = all_of(world), before
    assert (shelves, rest) == (before[0], rest_before)
    assert set(trees) >= set(before[1])  # without its journal the node seals what it finds once more


@pytest.mark.parametrize("branch", [SITE, RUN])
def test_one_branch_lost(world, branch):
    yesterday_and_today(world)
    world.ledger.lose(branch)
    before = all_of(world)
    world.clock.wait(days=10)
    swept = world.sweep()
    assert branch in swept.pending[0].why
    assert all_of(world) == before


def test_an_empty_ledger_in_its_place(world):
    yesterday_and_today(world)
    world.ledger = MemoryLedger(world.ledger.id)
    before = all_of(world)
    assert world.sweep().pending[0].what == "the ledger"
    assert all_of(world) == before


def test_a_ledger_that_is_ahead_or_equal_is_sound(world):
    backup = yesterday_and_today(world)
    assert look(world.site()) == ()
    # A tip that was replaced by a descendant: the backup first, then the newer one again.
    newer, world.ledger = world.ledger, backup
    assert look(world.site())
    world.ledger = newer
    assert look(world.site()) == ()
    assert distress(world.site()) is None
    world.sweep()


def test_two_living_copies_undo_nothing_of_each_other(world):
    """One folder copied, the tiers and hot shared: what either acknowledged stays."""
    world.open()
    world.saves(100)
    first, second = world.ledger, world.ledger.backup()
    world.clock.wait(hours=2)
    one = commit_step(world, 200).record
    world.ledger, world.journal = second, type(world.journal)()
    world.forget(200)
    two = commit_step(world, 300)
    swept = world.sweep()
    assert swept.pending[0].what == "the ledger"
    assert set(world.hot.records().records) >= {one.id, two.record.id}
    world.ledger = first
    assert world.hot.load(one.id).record == one


def test_a_tree_that_some_ledger_s_entry_committed_is_never_undone(world):
    """Also where its step is taken by another, and nothing else tells that there is another ledger."""
    world.open()
    world.saves(100)
    second = world.ledger.backup()
    one = commit_step(world, 200).record
    world.ledger, world.journal = second, type(world.journal)()
    world.forget(200)
    world.save(200, "other")
    recorded = world.hot._tier.recorded.copy()
    world.hot._tier.recorded.clear()
    commit(world.site(), Commit(path=OUT / "step-200", run=RUN, step=200))
    world.hot._tier.recorded.update(recorded)
    world.sweep()
    assert one.id in world.hot.records().records


def test_the_same_bytes_committed_by_a_copy_that_then_fails_leave_the_tree(world):
    """What an undone commit takes back is its own landing, not a tree that was there."""
    world.open()
    world.saves(100)
    second = world.ledger.backup()
    one = commit_step(world, 200).record
    world.ledger, world.journal = second, type(world.journal)()
    with pytest.raises(RuntimeError):
        commit(world.site(progress=Falls("commit.adopted")), Commit(path=OUT / "step-200", run=RUN, step=200))
    assert one.id in world.hot.records().records


class Falls:
    def __init__(self, at):
        self.at = at

    def step(self, name):
        if name == self.at:
            raise RuntimeError(name)

    def __getattr__(self, _):
        return lambda *_, **__: None


# Saves


def test_a_save_is_sealed_and_waits(world):
    world.ledger = yesterday_and_today(world)
    done = commit_step(world, 500)
    assert done.pending is not None
    assert done.record.step == 500
    assert "llama" in done.pending
    tips = world.ledger.tips()
    again = commit_step(world, 500)
    assert again.pending is not None
    for _ in range(2):
        world.sweep()
    assert done.record.id in world.hot.records().records
    assert world.hot.load(done.record.id).record == done.record
    assert world.ledger.tips() == tips


@pytest.mark.parametrize("lost", [SITE, RUN, "everything"])
def test_a_save_waits_whatever_branch_is_lost(world, lost):
    yesterday_and_today(world)
    if lost == "everything":
        world.ledger = MemoryLedger(world.ledger.id)
    else:
        world.ledger.lose(lost)
    done = commit_step(world, 500)
    assert done.pending is not None
    assert done.record.id in world.hot.records().records
    recover(world.site())
    assert world.state().records[done.record.id].record == done.record
    assert world.latest().record.id == done.record.id


def test_a_save_of_a_run_that_the_old_ledger_calls_closed(world):
    """It may have been opened again by an entry that is missing."""
    world.open()
    world.saves(100)
    close_run(world.site(), RUN, reason="done")
    backup = world.ledger.backup()
    reopen_run(world.site(), RUN, reason="not done")
    world.clock.wait(minutes=1)
    world.ledger = backup
    assert commit_step(world, 200).pending is not None


def test_an_announced_save_waits_with_what_was_said_of_it(world):
    backup = yesterday_and_today(world)
    trainer = world.trainer()
    world.ledger = backup
    trainer.save(500, metrics={"loss": 1.5})
    swept = world.sweep()
    assert any("waits for its entry" in one.why for one in swept.pending)
    (found,) = [world.hot.load(one) for one in world.hot.records().records if world.hot.load(one).record.step == 500]
    assert found.record.metrics == {"loss": 1.5}
    assert found.record.attempt == trainer.file.attempt
    assert not list(world.spool.spooled(world.site().spool_of(RUN)))


def test_a_save_of_a_run_that_the_old_ledger_does_not_know(world):
    world.open("older")
    backup = world.ledger.backup()
    newest = world.change_data(2)
    world.open()
    world.ledger = backup
    done = commit_step(world, 100)
    assert done.pending is not None
    assert [ref.commit for ref in done.record.data] == [newest]


def test_a_right_ledger_put_back_takes_what_waited(world):
    backup = yesterday_and_today(world)
    right, world.ledger = world.ledger, backup
    done = commit_step(world, 500)
    world.ledger = right
    swept = world.sweep()
    assert any("finished the commit of llama@500" in said for said in swept.said)
    assert done.record.id in world.state().records


def test_a_waiting_save_whose_step_is_taken_is_kept_beside_it(world):
    backup = yesterday_and_today(world)
    right, world.ledger = world.ledger, backup
    world.forget(400)
    world.save(400, "other bytes")
    done = commit(world.site(), Commit(path=OUT / "step-400", run=RUN, step=400))
    assert done.pending is not None
    world.ledger = right
    world.sweep()
    found = world.state().records[done.record.id]
    assert found.conflicts_with is not None
    assert world.latest().record.id != done.record.id


# Everything that drops, overwrites or decides asks


def destructive(world):
    record = world.at(100).record.id
    site = world.site
    return {
        "append": lambda: open_run(site(), Opening(run=RUN, repin=True)),
        "release": lambda: release(site(), RUN, record, tier="hot"),
        "unclaimed": lambda: drop_unclaimed(site()),
        "released": lambda: drop_released(site(), site().tiers["warm"]),
        "copies": lambda: keep_copies(site()),
        "apply": lambda: apply(site(), "0" * 12),
        "leftovers": lambda: leftovers(site()),
        "sound": lambda: require_sound(site()),
    }


@pytest.mark.parametrize(
    "what", ["append", "release", "unclaimed", "released", "copies", "apply", "leftovers", "sound"]
)
def test_nothing_acts_on_a_ledger_in_distress(world, what):
    world.ledger = yesterday_and_today(world)
    before = all_of(world)
    with pytest.raises(InDistress) as found:
        destructive(world)[what]()
    assert found.value.exit_code == 7
    assert "lakemark ledger recover" in found.value.advice
    assert all_of(world) == before


def test_reading_goes_on(world):
    world.ledger = yesterday_and_today(world)
    record = world.at(100).record.id
    restore(world.site(), RUN, record, to=OUT.with_name("back"))
    assert verify(world.site(), [world.at(100)], tier="warm").damaged == []


def test_a_copy_with_more_than_the_ledger_is_not_replaced(world):
    """The pass found out only now: the copy itself is what tells."""
    world.ledger = yesterday_and_today(world)
    lost_journal(world)
    before = {name: dict(shelf.ledger) for name, shelf in world.shelves.items()}
    failed = keep_copies(world.site())
    assert {type(error) for error in failed.values()} == {InDistress}
    assert {name: dict(shelf.ledger) for name, shelf in world.shelves.items()} == before


class Unread:
    """A store whose copies of the ledger can't be read just now, though all else goes well."""

    def __init__(self, store, error, slots=(None,)):
        self._store = store
        self._error = error
        self._slots = slots

    def __getattr__(self, name):
        return getattr(self._store, name)

    def open_ledger(self, slot=None):
        if slot in self._slots:
            raise self._error
        return self._store.open_ledger(slot)


@pytest.mark.parametrize("error", [StoreUnavailable, Denied, AnswerDamaged], ids=lambda error: error.__name__)
def test_a_copy_that_can_t_be_read_now_is_not_replaced(world, error):
    """It may be all that is left of the newest entries."""
    world.ledger = yesterday_and_today(world)
    only_copies(world)
    before = dict(world.shelves["cold"].ledger)
    site = world.site()
    cold = Unread(site.tiers["cold"], error("it is not to be had", advice="Wait."))
    failed = keep_copies(replace(site, tiers={"cold": cold}))
    assert list(failed) == ["cold"]
    assert dict(world.shelves["cold"].ledger) == before


def test_a_copy_of_last_week_with_more_than_the_ledger_is_not_replaced(world):
    """The newest copy was lost; one of the days is all that tells."""
    world.ledger = yesterday_and_today(world)
    only_copies(world)
    for shelf in world.shelves.values():
        shelf.ledger["sunday"] = shelf.ledger.pop(None)
    before = {name: dict(shelf.ledger) for name, shelf in world.shelves.items()}
    failed = keep_copies(world.site())
    assert failed.keys() >= {"warm", "cold"}
    assert {name: dict(shelf.ledger) for name, shelf in world.shelves.items()} == before


def test_a_copy_that_is_none_is_replaced(world):
    world.open()
    world.saves(100)
    world.clock.wait(hours=2)
    world.sweep()
    world.shelves["cold"].ledger[None] = b"garbage"
    world.saves(200)
    world.clock.wait(hours=2)
    world.sweep()
    with world.site().tiers["cold"].open_ledger() as copy:
        assert world.ledger.heads_of(copy)[RUN]


def test_the_last_copies_are_kept_a_week(world):
    world.open()
    for step in range(100, 1100, 100):
        world.saves(step)
        world.clock.wait(days=1)
    world.sweep()
    for shelf in world.shelves.values():
        assert len([slot for slot in shelf.ledger if slot]) == 7
    heads = [
        world.ledger.heads_of(world.site().tiers["cold"].open_ledger(slot)) for slot in world.shelves["cold"].ledger
    ]
    assert all(world.ledger.contains(RUN, one[RUN]) for one in heads)
    assert len({one[RUN] for one in heads}) > 5


def test_collect_drops_nothing(world):
    from lakemark.services.node.swept import Swept

    world.ledger = yesterday_and_today(world)
    world.clock.wait(days=30)
    before = all_of(world)
    swept = Swept()
    collect(world.site(), swept)
    assert swept.pending
    assert all_of(world) == before


def test_others_who_append_are_not_taken_for_a_loss(world):
    """Another process appends between two looks of this one."""
    world.open()
    world.saves(100)
    here, there = world.site(), world.site()
    for step in (200, 300, 400):
        commit(here, Commit(path=world.save(step), run=RUN, step=step))
        world.clock.wait(minutes=1)
        sweep(there)
    assert look(here) == ()
    assert timedelta(0) < world.clock() - world.latest().recorded_at


# One bad object


def test_a_damaged_manifest_comes_from_a_tier_and_stops_nothing(world):
    world.open()
    world.saves(100, 200)
    world.clock.wait(hours=2)
    world.sweep()
    record = world.at(100).record.id
    world.ledger.damage(RUN, record)
    site = world.site()
    restore(site, RUN, record, to=OUT.with_name("back"))
    assert world.ledger.manifest(RUN, record) == site.tiers["warm"].load(record).manifest  # and it is back where it was


@pytest.mark.parametrize("keeps", [True, False])
def test_one_damaged_object_stops_neither_the_look_at_linked_files_nor_the_copies(world, keeps):
    world.open()
    world.saves(100, 200)
    world.clock.wait(hours=2)
    world.sweep()
    record = world.at(100).record.id
    world.ledger.damage(RUN, record)
    if not keeps:
        for shelf in world.shelves.values():
            shelf.markers.pop(record, None)
        world.hot._tier.sealed.pop(record, None)
    before = dict(world.shelves["warm"].ledger)
    world.save(300)
    world.clock.wait(hours=2)
    world.disk.write(OUT / "step-200" / "model.bin", b"written over")
    swept = world.sweep()
    assert any("llama@200 in hot may have changed" in said for said in swept.said)
    assert world.at(300)
    assert (world.shelves["warm"].ledger != before) is keeps


def test_another_record_s_manifest_is_not_taken_for_it(world):
    from dataclasses import replace

    from lakemark.errors import Corrupt

    world.open()
    world.saves(100, 200)
    world.clock.wait(hours=2)
    world.sweep()
    one, two = world.at(100).record.id, world.at(200).record.id
    for shelf in world.shelves.values():
        if one in shelf.markers:
            shelf.markers[one] = replace(shelf.markers[one], manifest=world.ledger.manifest(RUN, two))
    world.hot._tier.sealed.pop(one, None)
    world.ledger.damage(RUN, one)
    with pytest.raises(Corrupt):
        world.site().ledger.manifest(RUN, one)
