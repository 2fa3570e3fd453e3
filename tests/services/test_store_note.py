"""What a pass notes of stores that remove things by themselves: told later without asking them, with when it was seen."""

from datetime import timedelta

import pytest

from lakemark.errors import StoreUnavailable
from lakemark.ports import Expiry
from lakemark.services.health.status import AMBER, RED, problems_of_stores
from lakemark.services.node.sweep import sweep
from lakemark.services.tiers.store_note import StoreNote, note_stores, place_of

UNKNOWN = Expiry(rule="AccessDenied", known=False)
AWAY = StoreUnavailable("the store does not answer", advice="Start it.")


class Rules:
    """A store whose rules are asked for; all else is the store's behind it."""

    def __init__(self, store, answer):
        self._store, self.answer = store, answer

    def __getattr__(self, name):
        return getattr(self._store, name)

    def expires(self):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def warm(world):
    world.open()
    tiers = dict(world.site().tiers)
    tiers["warm"] = Rules(tiers["warm"], UNKNOWN)
    world.changes = {"tiers": tiers}
    return tiers["warm"]


def told(world, *, assured=False, tiers=("hot", "warm", "cold")):
    note = StoreNote.read(world.site().notes.load(place_of(world.site().home)))
    return list(problems_of_stores(note, assured=dict.fromkeys(tiers, assured), now=world.clock()))


def test_rules_that_nobody_can_read_are_amber_by_the_tier_s_name_until_they_are_read(world, warm):
    begun = world.clock()
    sweep(world.site())
    world.clock.wait(minutes=7)
    (one,) = told(world)
    assert (one.colour, one.since) == (AMBER, begun)
    assert "the tier warm" in one.what
    assert "AccessDenied" in one.what
    assert one.what.endswith("seen 7m ago")
    assert "expires: never" in one.next
    warm.answer = None
    sweep(world.site())
    assert told(world) == []


def test_what_was_seen_stays_while_the_store_is_out_of_reach(world, warm):
    sweep(world.site())
    warm.answer = AWAY
    world.clock.wait(hours=2)
    sweep(world.site())
    (one,) = told(world)
    assert one.what.endswith("seen 2h ago")


def test_a_rule_that_removes_things_is_red_whatever_the_site_says_of_it(world, warm):
    sweep(world.site())
    world.clock.wait(hours=1)
    warm.answer = Expiry(rule="a-week")
    note_stores(world.site(), ["warm"])
    (one,) = told(world, assured=True)
    assert (one.colour, one.since, "a-week" in one.what) == (RED, world.clock(), True)


def test_the_site_s_word_answers_what_nobody_can_read_and_a_tier_that_is_gone_is_not_told(world, warm):
    sweep(world.site())
    assert told(world, assured=True) == []
    assert told(world, tiers=("hot", "cold")) == []


def test_what_a_pass_saw_first_keeps_its_time(world, warm):
    begun = world.clock()
    for _ in range(3):
        sweep(world.site())
        world.clock.wait(minutes=30)
    assert [one.since for one in told(world)] == [begun]
    assert world.clock() - begun == timedelta(minutes=90)


def test_a_site_without_such_stores_has_no_note(world):
    world.open()
    sweep(world.site())
    assert world.site().notes.load(place_of(world.site().home)) is None
