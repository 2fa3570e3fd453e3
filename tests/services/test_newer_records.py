"""What `resume` leaves behind: every newer record is named with why, and one that is only suspect is read, or it refuses."""

import pytest

from lakemark.errors import NotFound, Refused
from lakemark.model.ledger.entry import Draft
from lakemark.model.ledger.run import Place
from lakemark.ports import Damage
from lakemark.services.back.resume import decided, resume
from lakemark.services.tiers.replicate import replicate
from lakemark.services.tiers.sources import note_damage, note_suspect
from tests.services.world import OUT, RUN

WARM = Place(tier="warm")
CHANGED = [Damage(path="model.bin", why="was written since it was sealed", suspect=True)]


@pytest.fixture
def saved(world):
    """Steps 100, 200 and 300, in hot alone, gone from where the trainer saved them."""
    world.open()
    world.shelves["warm"].reachable = world.shelves["cold"].reachable = False
    world.saves(100, 200, 300)
    for step in (100, 200, 300):
        world.forget(step)
    return world


def suspect(world, step, *, node=None):
    place = world.hot.place if node is None else Place(tier="hot", node=node)
    note_suspect(world.site(), world.at(step), place, CHANGED)
    assert world.at(step).replicas[place].suspect


def rot(world, step):
    place = world.hot.path(world.hot.load(world.at(step).record.id).record) / "model.bin"
    world.disk.remove(place)
    world.disk.write(place, b"rotten")


def append(world, kind, step, reason, **body):
    record = world.at(step).record.id
    world.ledger.append(
        RUN, lambda _: Draft(kind=kind, record=record, reason=reason, body=body), world.site().stamp(f"{kind}{step}")
    )


def passed(done):
    return [(one.found.record.step, one.why) for one in done.passed_over]


def test_a_suspect_that_reads_right_is_where_it_goes_on(saved):
    suspect(saved, 300)
    done = resume(saved.site(), RUN, to=OUT, job="7")
    assert done.found.record.step == 300
    assert done.timeline == 1
    assert passed(done) == []
    assert saved.at(300).replicas[saved.hot.place].sound


def test_a_suspect_that_reads_wrong_twice_is_named_as_damaged(saved):
    suspect(saved, 300)
    rot(saved, 300)
    done = resume(saved.site(), RUN, to=OUT, job="7")
    assert done.found.record.step == 200
    ((step, why),) = passed(done)
    assert step == 300
    assert "no sound replica" in why
    assert "damaged in hot of node-a" in why


def test_the_newest_only_suspect_where_nobody_here_can_read_it_is_refused(saved):
    saved.shelves["warm"].reachable = True
    replicate(saved.site(), RUN, saved.at(300).record.id, to="warm")
    note_suspect(saved.site(), saved.at(300), WARM, CHANGED)
    rot(saved, 300)
    note_damage(saved.site(), saved.at(300), saved.hot.place, [Damage(path="model.bin", why="has other bytes")])
    saved.shelves["warm"].reachable = False
    before = saved.state().sequence
    with pytest.raises(Refused, match=r"llama@300 .*suspect.* in warm") as told:
        resume(saved.site(), RUN, to=OUT, job="7")
    assert saved.at(300).record.id[:12] in told.value.advice
    assert saved.state().sequence == before
    with pytest.raises(Refused, match="llama@300"):
        decided(saved.site(), saved.state(), attempt="x", record=None, to=OUT, without=())
    saved.shelves["warm"].reachable = True
    assert resume(saved.site(), RUN, to=OUT, job="7").found.record.step == 300


def test_every_newer_record_is_named_whatever_keeps_it(saved):
    append(saved, "quarantined", 300, "the loss spiked")
    rot(saved, 200)
    note_damage(saved.site(), saved.at(200), saved.hot.place, [Damage(path="model.bin", why="has other bytes")])
    done = resume(saved.site(), RUN, to=OUT, job="7")
    assert done.found.record.step == 100
    said = dict(passed(done))
    assert "the loss spiked" in said[300]
    assert "no sound replica" in said[200]


def test_pruned_and_conflicting_ones_are_named_too(saved):
    append(saved, "pruned", 300, None, items=[{"record": saved.at(300).record.id, "reasons": ["old"]}])
    done = resume(saved.site(), RUN, to=OUT, job="7")
    assert passed(done) == [(300, "it was pruned: old")]


def test_nothing_to_go_on_from_says_what_became_of_the_newest(saved):
    for step in (100, 200, 300):
        rot(saved, step)
        suspect(saved, step)
    with pytest.raises(NotFound, match=r"the newest, step 300.*no sound replica"):
        resume(saved.site(), RUN, to=OUT, job="7")
    assert all(saved.at(step).replicas[saved.hot.place].damaged for step in (100, 200, 300))


def test_what_a_person_names_is_read_too(saved):
    suspect(saved, 300)
    done = resume(saved.site(), RUN, to=OUT, record=saved.at(300).record.id)
    assert done.found.record.step == 300
