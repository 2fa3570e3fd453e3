"""A large ledger is kept in tiers by what goes on from a whole copy of it; both together bring all of it back."""

import io

import pytest

from lakemark.services.recovery.keep_copies import keep_copies
from lakemark.services.recovery.recover import recover
from lakemark.services.soundness import SINCE, distress
from tests.services.test_destructive import killed_anywhere
from tests.services.world import RUN, World
from tests.support.memory import MemoryLedger


def keep(site):
    """As where every ledger is a large one."""
    assert keep_copies(site, small_bytes=0) == {}


def hours(world, count, *, step=1000):
    for number in range(count):
        world.clock.wait(hours=1)
        world.save(step + number)
        world.sweep_without_copies()
        keep(world.site())


class Large(World):
    def sweep_without_copies(self):
        """Saves are committed; the copies are left to `keep`."""
        from lakemark.services.saves.find import commit_found

        self.clock.wait(seconds=10)
        assert commit_found(self.site()).failed == []


@pytest.fixture
def large():
    return made()


def made(saves=30):
    world = Large()
    world.open()
    for number in range(saves):
        world.save(100 + number)
    world.sweep_without_copies()
    keep(world.site())
    return world


def kept(world, tier="cold"):
    return world.shelves[tier].ledger


def from_alone(world, tier="cold"):
    """What comes back with nothing but that tier's newest copy."""
    again = MemoryLedger(world.ledger.id)
    for slot in (None, SINCE):
        if slot in kept(world, tier):
            for branch, head in again.take(io.BytesIO(kept(world, tier)[slot])).items():
                again.forward(branch, head)
    return again.tips()


def test_an_hour_sends_what_is_new_and_not_the_history(large):
    whole, base = len(kept(large)[None]), kept(large)[None]
    hours(large, 3)
    assert kept(large)[None] == base
    assert len(kept(large)[SINCE]) < whole / 4
    assert from_alone(large) == dict(large.ledger.tips())


def test_a_whole_one_comes_when_what_was_sent_beside_it_has_its_size_and_each_week(large):
    base = kept(large)[None]
    for hour in range(200):
        hours(large, 1, step=1000 + hour)
        assert from_alone(large) == dict(large.ledger.tips())
        if kept(large)[None] != base:
            break
    assert 4 < hour < 60
    base = kept(large)[None]
    large.clock.wait(days=7)
    hours(large, 1, step=2000)
    assert kept(large)[None] != base


def test_the_days_copies_go_on_from_whole_ones_that_are_there(large):
    """However old: each of them with the whole copies beside it is taken in."""
    for day in range(9):
        large.clock.wait(hours=23)
        hours(large, 1, step=1000 + day)
    slots = kept(large)
    assert len(slots) == 9
    whole = [text for text in slots.values() if not large.ledger.needs_of(io.BytesIO(text))]
    assert len(whole) >= 2, "a whole copy lies there twice"
    for one in whole:
        again = MemoryLedger(large.ledger.id)
        again.take(io.BytesIO(one))
    again.take(io.BytesIO(slots[None]))
    for text in slots.values():
        again.take(io.BytesIO(text))


def test_a_whole_copy_that_went_bad_is_sent_anew(large):
    hours(large, 2)
    rotten = kept(large)[None].replace(b"committed", b"committee", 1)
    assert rotten != kept(large)[None]
    kept(large)[None] = rotten
    large.clock.wait(days=1)
    hours(large, 1, step=2000)
    assert kept(large)[None] != rotten
    assert large.ledger.reads_whole(io.BytesIO(kept(large)[None]))
    assert from_alone(large) == dict(large.ledger.tips())


def test_another_node_goes_on_from_the_copy_that_lies_there_or_sends_its_own(large):
    """Without this node's note of what was sent a whole one comes, and what the other left beside it does no harm."""
    hours(large, 2)
    for node in ("node-a", "node-b"):
        large.notes.save(large.site().home / "ledger-copies" / "cold.json", {"of": node})
        hours(large, 2, step=2000 if node == "node-a" else 3000)
        assert from_alone(large) == dict(large.ledger.tips())


@pytest.mark.parametrize("lost", ["everything", "what came since", "the newest"])
def test_recover_reads_both(large, lost):
    old = large.ledger.backup()
    hours(large, 3)
    tips = dict(large.ledger.tips())
    for tier in ("warm", "hot"):
        (kept(large, tier) if tier == "warm" else large.hot._tier.ledger).clear()
    if lost == "the newest":
        kept(large)[None] = b"rotten"
        kept(large)["monday"] = kept(large).pop(next(slot for slot in kept(large) if slot not in (None, SINCE)))
    large.ledger = MemoryLedger(large.ledger.id) if lost == "everything" else old
    for shelf in large.shelves.values():
        shelf.markers.clear()
    assert distress(large.site()) is not None
    recover(large.site())
    assert all(large.ledger.contains(branch, tip) for branch, tip in tips.items())


def test_killed_anywhere_all_that_was_kept_comes_back():
    def prepared():
        world = made(saves=3)
        hours(world, 2)
        world.known = dict(world.ledger.tips())
        world.clock.wait(days=1)
        world.save(3000)
        world.sweep_without_copies()
        return world

    for world in killed_anywhere(prepared, lambda _, site: keep(site)):
        for tier in ("warm", "cold"):
            tips = from_alone(world, tier)
            assert set(tips) == set(world.known)
            assert tips[RUN] in (world.known[RUN], world.ledger.tip(RUN))
        world.clock.wait(hours=2)
        keep(world.site())
        assert from_alone(world) == dict(world.ledger.tips())
