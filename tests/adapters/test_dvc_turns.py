"""Writers, droppers and collectors of a DVC tier in drawn orders of their requests, with crashes, lost answers and wrong clocks.

What was acknowledged and not dropped since is whole in the end, and of what was dropped nothing stays. Each seed is a scene.
"""

from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest

from lakemark.adapters.dvc import layout
from lakemark.adapters.dvc.store import DvcStore
from lakemark.contract.store import source
from lakemark.errors import LakemarkError, StoreUnavailable
from tests.adapters.blobs_stepped import Hours, MemoryBlobs
from tests.adapters.blobs_turns import Actor, TurnedBlobs, Turns
from tests.adapters.test_dvc import QUIET, checkpoint_of, sound
from tests.contract.store_places import NOW

A, B, C = {"a": b"a" * 5}, {"b": b"b" * 7}, {"c": b"c"}
CONTENTS = (A, A, A | B, A | B, B | C, C)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
FAR = timedelta(days=9000)
TELLING = (254, 298, 425, 428, 451, 460, 573, 718, 845, 856, 963, 1007, 1099, 1108, 1114, 1120, 1154)
"""Which lose something where a pass looks at claims only once, or a writer claims late or never looks at its claim again."""


class Scene:
    """A few records, with twins and shared files; some lie in the tier already, some were dropped, some by what died in it.

    Each belongs to one actor at a time. acknowledged: those that must be whole. free: those that nobody is at.
    """

    def __init__(self, seed):
        self.random = random = Random(seed)
        self.held = {}
        self.waited = Hours()
        self.clock = NOW
        self.grace = random.choice((timedelta(), timedelta(), 48 * HOUR, 72 * HOUR))
        self.faults, self.skew = random.choice((0, 0, 0.3, 0.7)), random.choice((timedelta(), DAY))
        self.jumps = random.random() < 0.5
        self.acknowledged, self.known = {}, {}
        self.numbers = random.sample(range(len(CONTENTS)), random.randint(1, 3))
        self.free = set(self.numbers)
        self.store().claim("ledger", now=NOW)
        for number in sorted(self.free):
            if random.random() < 0.8:
                self.put(self.store(), number, now=NOW - random.random() * 20 * DAY)
            if number in self.acknowledged and random.random() < 0.6:
                self.store().drop(self.acknowledged.pop(number), now=NOW - random.choice((0, 1, 80, 100)) * HOUR)
        if random.random() < 0.5:
            self.be_of_an_earlier_version()

    def store(self, blobs=None):
        blobs = blobs or MemoryBlobs(self.held)
        return DvcStore(blobs, name="cold", tier_class="cold", patience=blobs.patience(self.waited))

    def be_of_an_earlier_version(self):
        """It marked what it dropped, directory objects as going; some of that died half-way."""
        names = sorted({name for one in self.known.values() for name in one.objects.values()} | {"0" * 32})
        for name in self.random.sample(names, len(names) // 3):
            self.mark(name, going=self.random.random() < 0.4)
        for number in sorted(self.acknowledged)[::3]:
            name = self.acknowledged.pop(number).objects["dir"]
            if name not in [one.objects["dir"] for one in self.acknowledged.values()]:
                self.mark(name, going=True)
                self.held.pop(layout.object_key(name))

    def mark(self, name, *, going):
        at = NOW - self.random.choice((0, 1, 100)) * HOUR
        self.held[layout.mark_key(name)] = layout.Mark(condemned_at=at, going=going).to_bytes()

    def put(self, store, number, *, now):
        checkpoint = checkpoint_of(CONTENTS[number], number)
        stored = store.put(checkpoint, source(CONTENTS[number]), now=now, progress=QUIET)
        self.acknowledged[number] = self.known[number] = replace(checkpoint, objects=stored.objects)

    def work(self, actor):
        """What one process does, with its clock; it tries again what failed."""
        store, random = self.store(TurnedBlobs(self.held, actor)), actor.random
        ahead = random.uniform(-1, 1) * self.skew
        deeds = {"put": self.try_to_put, "drop": self.try_to_drop, "collect": self.try_to_collect}
        for _ in range(random.randint(1, 3)):
            if self.jumps and random.random() < 0.3:
                self.clock += random.choice((1, 10, 80)) * HOUR
            deed = deeds[random.choice(("put", "put", "drop", "collect", "collect"))]
            deed(store, random, self.clock + ahead)

    def try_to_put(self, store, random, now):
        number = random.choice(sorted(self.free) or [None])
        self.free.discard(number)
        for _ in range(4 if number is not None else 0):
            try:
                self.put(store, number, now=now if self.grace else now + FAR)  # else it is taken for dead at once
            except LakemarkError:
                continue
            break
        self.free |= {number} - {None}

    def try_to_drop(self, store, random, now):
        number = random.choice(sorted(self.free & self.acknowledged.keys()) or [None])
        if number is None:
            return
        self.free.discard(number)
        checkpoint = self.acknowledged.pop(number)
        for _ in range(3):
            try:
                store.drop(checkpoint, now=now)
            except StoreUnavailable:
                continue
            self.free.add(number)
            break

    def try_to_collect(self, store, random, now):
        """needed: as the ledger was before, or is when it is asked; records it does not have yet are missing in both."""
        for _ in range(2):
            before = list(self.acknowledged.values())[random.randint(0, 1) :]
            needed = before if random.random() < 0.5 else (one for one in list(self.acknowledged.values()))
            try:
                store.collect(now=now, grace=self.grace, needed=needed)
            except StoreUnavailable:
                continue
            break

    def play(self):
        random = self.random
        turns = Turns(random, sticky=random.choice((0.7, 0.9, 0.96)))
        actors = [Actor(turns, Random(random.random()), faults=self.faults) for _ in range(random.randint(2, 3))]
        turns.run(dict.fromkeys(actors, self.work))

    def judge(self):
        for needed in (list(self.acknowledged.values()), [], []):
            assert all(sound(self.store(), one) for one in self.acknowledged.values())
            self.store().collect(now=self.clock, grace=self.grace, needed=needed)
            self.clock += 200 * HOUR
        for number in set(self.numbers) - self.acknowledged.keys():
            self.put(self.store(), number, now=self.clock + FAR)
        for one in self.acknowledged.values():
            assert sound(self.store(), one)
            self.store().drop(one, now=self.clock)
        for _ in range(4):
            self.clock += 200 * HOUR
            self.store().collect(now=self.clock, grace=self.grace, needed=())
        assert list(self.held) == ["lakemark-tier.json"]


@pytest.mark.parametrize("seeds", [range(40), range(40, 80), TELLING])
def test_in_whatever_order_nothing_is_lost_and_nothing_stays(seeds):
    for seed in seeds:
        scene = Scene(seed)
        scene.play()
        try:
            scene.judge()
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise
