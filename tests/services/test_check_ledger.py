"""A bounded share of the ledger is read in each pass: what can't be read is named by its record, and comes back where it can."""

import pytest

from lakemark.services.health.status import problems_of_ledger
from lakemark.services.ledger import checkpoint
from lakemark.services.recovery import check as checking
from lakemark.services.recovery.check import EVERY, LedgerNote, check_ledger, place_of
from tests.services.world import RUN, World


@pytest.fixture
def world():
    made = World()
    made.open()
    made.saves(100, 200)
    return made


def note(world):
    return LedgerNote.read(world.notes.load(place_of(world.site().home)))


def due(world):
    world.clock.wait(seconds=EVERY.total_seconds())


def damage(world, step, *, held=False):
    """Of a manifest that no tier has either, unless `held`."""
    found = world.at(step)
    if not held:
        for shelf in world.shelves.values():
            shelf.reachable = False
        world.hot.drop(checkpoint(world.site(), found), now=world.clock.now)
    world.ledger.damage(RUN, found.record.id)
    return found.record.id


def test_a_manifest_comes_back_from_a_tier_by_itself(world):
    due(world)
    record = damage(world, 100, held=True)
    swept = world.sweep()
    assert world.ledger.manifest(RUN, record)
    assert not note(world).broken
    assert not [one for one in swept.pending if "ledger" in one.what]


def test_what_no_tier_in_reach_has_is_named_until_it_can_be_read(world):
    due(world)
    record = damage(world, 100)
    (said,) = check_ledger(world.site())
    assert f"{RUN}@100 ({record[:12]}): manifest.json" in said
    (problem,) = problems_of_ledger(note(world))
    assert (problem.colour, problem.since) == ("red", world.clock.now)
    assert f"{RUN}@100 ({record[:12]})" in problem.what
    assert "tier" in problem.next
    due(world)
    assert check_ledger(world.site()) == []  # said once
    for shelf in world.shelves.values():
        shelf.reachable = True
    due(world)
    (said,) = check_ledger(world.site())
    assert said.endswith("can be read again")
    assert list(problems_of_ledger(note(world))) == []


def test_each_pass_reads_its_share_and_the_next_goes_on_there(world):
    total = sum(world.ledger.run(run).sequence for run in world.ledger.runs()) + world.ledger.site().sequence
    world.notes.save(place_of(world.site().home), None)
    seen, passes = set(), 0
    while note_of(world) is None or note_of(world).ended_at is None:
        due(world)
        before = note_of(world)
        check_ledger(world.site(), share=3)
        seen.add((note(world).branch, note(world).after))
        passes += 1
        assert before is None or (before.branch, before.after) != (note(world).branch, note(world).after)
    assert passes == -(-total // 3)
    assert len(seen) == passes


def note_of(world):
    document = world.notes.load(place_of(world.site().home))
    return LedgerNote.read(document) if document is not None else None


def test_nothing_is_read_again_within_minutes(world):
    due(world)
    check_ledger(world.site())
    first = note(world)
    world.clock.wait(minutes=1)
    damage(world, 100)
    assert check_ledger(world.site()) == []
    assert note(world) == first
    assert check_ledger(world.site(), now_due=True)


def test_a_clock_that_went_back_keeps_nothing_from_being_read(world):
    due(world)
    check_ledger(world.site())
    world.clock.wait(days=-3)
    damage(world, 100)
    assert check_ledger(world.site())


@pytest.mark.parametrize("text", [{"format": checking.FORMAT}, [], {"format": "other"}, None])
def test_a_note_that_can_t_be_read_is_begun_anew(world, text):
    world.notes.save(place_of(world.site().home), text)
    check_ledger(world.site(), now_due=True)
    assert note(world).ended_at == world.clock.now


def test_a_note_reads_back_as_it_was_written(world):
    damage(world, 100)
    due(world)
    check_ledger(world.site())
    assert note(world).broken
    assert LedgerNote.read(note(world).as_json()) == note(world)
