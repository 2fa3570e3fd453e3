"""A bucket that was deleted and made anew, empty: whoever needs it says so by name, and how it goes on."""

import pytest

from lakemark.errors import Refused
from lakemark.services.back.restore import restore
from lakemark.services.saves.commit import Commit, commit
from lakemark.services.tiers.register import register_tier
from lakemark.services.tiers.release import release
from lakemark.services.tiers.replicate import replicate
from lakemark.services.tiers.verify import verify
from tests.services.world import OUT, RUN, World
from tests.support.memory import MemoryShelf

WHAT = "the place of the tier warm has no identity file"


@pytest.fixture
def emptied():
    world = World()
    world.open()
    world.saves(100, 200)
    world.shelves["warm"] = MemoryShelf()
    return world


def says_how(advice):
    assert "emptied or made anew" in advice
    assert "lakemark tier init" in advice
    assert "disk mounted" not in advice


def test_a_sweep_names_it_and_goes_on_without_it(emptied):
    emptied.trainer().save(300)
    swept = emptied.sweep()
    (pending,) = [one for one in swept.pending if one.what == "tier warm"]
    assert WHAT in pending.why
    says_how(pending.next)
    assert [done.record.step for done in swept.committed] == [300]
    emptied.clock.wait(days=30)
    released = [one for one in emptied.sweep().released if one.survivor.tier == "warm"]
    assert released == []


def test_a_commit_that_only_needs_hot_goes_on(emptied):
    emptied.clock.wait(minutes=10)
    path = emptied.save(300)
    made = commit(emptied.site(), Commit(path=path, run=RUN, step=300))
    assert made.new


def test_whoever_needs_it_is_refused(emptied):
    record = emptied.at(100).record.id
    site = emptied.site()
    unsunk = commit(site, Commit(path=emptied.save(400), run=RUN, step=400))
    for work in (
        lambda: replicate(site, RUN, unsunk.record.id, to="warm"),
        lambda: restore(site, RUN, record, to=OUT.with_name("back"), tier="warm"),
        lambda: register_tier(site, site.tiers["warm"]),
    ):
        with pytest.raises(Refused, match=WHAT) as found:
            work()
        says_how(found.value.advice)


def test_nothing_is_let_go_for_its_sake(emptied):
    emptied.clock.wait(hours=3)
    emptied.shelves["cold"] = MemoryShelf()
    with pytest.raises(Refused) as found:
        release(emptied.site(), RUN, emptied.at(100).record.id, tier="hot")
    assert "warm" in str(found.value)


def test_a_verify_reports_it_as_not_reached(emptied):
    looks = verify(emptied.site(), list(emptied.state().records.values())).looks
    away = [one for one in looks if one.error is not None]
    assert {one.place.tier for one in away} == {"warm"}
    says_how(away[0].error.advice)
