"""Twins (records with the same bytes) beside collectors without any grace: who is overtaken, at whatever step, loses nothing."""

from dataclasses import replace
from datetime import timedelta
from itertools import count

import pytest

from lakemark.adapters.dvc import layout as dvc_layout
from lakemark.adapters.dvc.store import DvcStore
from lakemark.contract import blobs
from lakemark.contract.store import source
from lakemark.errors import StoreUnavailable
from lakemark.ports import Quiet
from tests.adapters.blobs_stepped import Hours, MemoryBlobs
from tests.adapters.test_dvc import checkpoint_of, sound
from tests.contract.store_places import NOW

CONTENTS = {"weights.bin": b"w" * 30}
NO_GRACE = timedelta()
NEVER = NOW + timedelta(days=10_000)


class Scene:
    """Records 1 and 2 are twins that lie in the tier, 3 is one that is put. Each who does something is a process of its own."""

    claimed_at = NEVER

    def __init__(self):
        self.blobs = MemoryBlobs()
        self.hours_waited = Hours()
        self.hours = count(1)
        self.store(self.blobs.again()).claim("ledger", now=NOW)
        self.first, self.second = self.put(1), self.put(2)
        self.third = None

    def store(self, blobs=None):
        store = DvcStore(
            blobs or self.blobs.again(), name="cold", tier_class="cold", patience=self.hours_waited.patience()
        )
        if blobs is None:
            assert store.identity() is not None
        return store

    def put(self, step, blobs=None):
        """Mostly far in the collectors' future: they take its claim for no dead writer's. None where it is told to wait."""
        checkpoint = checkpoint_of(CONTENTS, step)
        try:
            stored = self.store(blobs).put(checkpoint, source(CONTENTS), now=self.claimed_at, progress=Quiet())
        except StoreUnavailable:
            return None
        return replace(checkpoint, objects=stored.objects)

    def write(self, blobs=None):
        """Once more where it was told to wait, by a process that knows its claim already."""
        for _ in range(2):
            self.third = self.third or self.put(3, blobs)

    def drop(self, checkpoint, blobs=None):
        self.store(blobs).drop(checkpoint, now=NOW)

    def collect(self, blobs=None):
        now = NOW + next(self.hours) * timedelta(hours=1)
        return self.store(blobs).collect(now=now, grace=NO_GRACE, needed=())

    def judge(self):
        """What was acknowledged is whole, and stays so; what is dropped by everybody goes to the last byte."""
        for _ in range(3):
            assert self.third is None or sound(self.store(), self.third)
            self.collect()
        if self.third is None:
            self.write()
        assert sound(self.store(), self.third)
        for one in (self.first, self.second, self.third):
            self.drop(one)
        for _ in range(3):
            self.collect()
        assert list(self.blobs.held) == ["lakemark-tier.json"]


def at_each_step(prepare, work, meanwhile):
    """How many steps `work` has, each of which was interrupted once, in a scene of its own."""
    for step in count(1):
        scene = Scene()
        prepare(scene)
        scene.blobs.interrupt(step, lambda scene=scene: meanwhile(scene))
        work(scene)
        if scene.blobs.steps < step:
            return step - 1
        scene.judge()
    return None


def others(scene):
    scene.drop(scene.first)
    scene.drop(scene.second)
    scene.collect()
    scene.collect()
    scene.write()


def nothing(_):
    pass


@pytest.mark.parametrize("check", blobs.CHECKS, ids=lambda check: check.name)
def test_the_blobs_of_these_tests_are_fit(check):
    check.run(MemoryBlobs())


@pytest.mark.parametrize("twin", ["first", "second"])
def test_a_dropper_that_others_overtake_takes_nothing_from_a_twin(twin):
    assert at_each_step(nothing, lambda scene: scene.drop(getattr(scene, twin), scene.blobs), others) >= 4


def test_a_dropper_that_is_overtaken_by_one_of_the_same_record_takes_nothing_from_a_twin():
    def same(scene):
        scene.drop(scene.first)
        scene.collect()
        scene.write()

    def prepare(scene):
        scene.drop(scene.second)

    assert at_each_step(prepare, lambda scene: scene.drop(scene.first, scene.blobs), same) >= 4


def test_a_writer_that_droppers_and_collectors_overtake_loses_nothing():
    def overtake(scene):
        scene.drop(scene.first)
        scene.drop(scene.second)
        scene.collect()
        scene.collect()

    assert at_each_step(nothing, lambda scene: scene.write(scene.blobs), overtake) > 9


def test_a_collector_that_droppers_and_writers_overtake_takes_nothing_from_them():

    def prepare(scene):
        scene.drop(scene.first)

    def overtake(scene):
        scene.drop(scene.second)
        scene.write()

    assert at_each_step(prepare, lambda scene: scene.collect(scene.blobs), overtake) > 9
    assert at_each_step(overtake, lambda scene: scene.collect(scene.blobs), Scene.write) > 9

    def let_all_go(scene):
        scene.drop(scene.first)
        scene.drop(scene.second)

    assert at_each_step(let_all_go, lambda scene: scene.collect(scene.blobs), Scene.write) > 9


def test_a_collector_that_another_overtakes_takes_nothing_from_a_writer():
    def let_all_go(scene):
        scene.drop(scene.first)
        scene.drop(scene.second)

    def overtake(scene):
        scene.collect()
        scene.write()

    assert at_each_step(let_all_go, lambda scene: scene.collect(scene.blobs), overtake) > 9


def test_a_collector_takes_no_other_s_mark_for_its_own():
    """One removed everything, a writer wrote it anew, and one that looked before all that marks it: it sees the claim yet."""

    def overtake(scene):
        scene.collect()
        scene.write()
        for name in scene.first.objects.values():
            scene.blobs.held[dvc_layout.going_key(name, "0" * 16)] = b""

    def let_all_go(scene):
        scene.drop(scene.first)
        scene.drop(scene.second)

    assert at_each_step(let_all_go, lambda scene: scene.collect(scene.blobs), overtake) > 9


def test_what_is_used_until_just_now_has_its_whole_grace():
    """Whatever step of a pass the last user is dropped at, its bytes stay: the other's grace is not theirs."""
    grace, late = timedelta(hours=72), NOW + timedelta(hours=73)

    for step in count(1):
        scene = Scene()
        scene.drop(scene.first)
        scene.blobs.interrupt(step, lambda scene=scene: scene.store().drop(scene.second, now=late))
        assert scene.store(scene.blobs).collect(now=late, grace=grace, needed=()) == 0
        names = [key for key in scene.blobs.held if key.startswith(dvc_layout.OBJECTS)]
        assert len(names) == 2
        if scene.blobs.steps < step:
            break
        assert scene.store().collect(now=late + grace, grace=grace, needed=()) > 0
    assert step > 5


def clear(scene):
    scene.drop(scene.first)
    scene.drop(scene.second)
    scene.collect()
    assert list(scene.blobs.held) == ["lakemark-tier.json"]


def leave_a_dead_writer_s_claim(scene):
    clear(scene)
    dead = checkpoint_of(CONTENTS, 3)
    claim = dvc_layout.Claim(record=dead.record, manifest=dead.manifest, objects=scene.first.objects, claimed_at=NOW)
    scene.blobs.replace(dvc_layout.claim_key(dead.record.id), claim.to_bytes())


def test_a_writer_that_is_back_and_claims_anew_is_not_taken_for_dead():
    """Its first claim is forgotten: whatever step of that the second one falls into, it stands when the put is answered."""
    assert at_each_step(leave_a_dead_writer_s_claim, lambda scene: scene.collect(scene.blobs), Scene.write) > 9


def test_a_writer_whose_claim_is_forgotten_meanwhile_is_told_so():
    """It takes longer than the grace: a pass takes it for dead."""

    def prepare(scene):
        clear(scene)
        scene.claimed_at = NOW

    def overtake(scene):
        scene.collect()
        scene.collect()

    assert at_each_step(prepare, lambda scene: scene.write(scene.blobs), overtake) > 9


@pytest.mark.parametrize("fresh", [True, False])
def test_a_writer_whose_record_is_dropped_meanwhile_is_told_so(fresh):
    """fresh: nothing of it is there; else all is, and it is read back."""

    def prepare(scene):
        clear(scene)
        if not fresh:
            scene.third = scene.put(3)

    def work(scene):
        scene.third = scene.put(3, scene.blobs)

    def drop(scene):
        scene.drop(replace(checkpoint_of(CONTENTS, 3), objects=scene.first.objects))

    assert at_each_step(prepare, work, drop) > 5
