"""What trainers, people and schedules do at once on the site of `interleaved.py`, and what must be true in the end."""

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from itertools import count
from pathlib import Path
from random import Random

from lakemark.errors import LakemarkError, Refused
from lakemark.model.back.rollback_plan import Flags
from lakemark.services.back.restore import restore
from lakemark.services.back.resume import resume
from lakemark.services.back.rollback_apply import apply
from lakemark.services.back.rollback_decide import approve
from lakemark.services.back.rollback_request import Wish, request
from lakemark.services.health.invariants import violations
from lakemark.services.node.sweep import sweep
from lakemark.services.recovery.recover import recover
from lakemark.services.runs.open_run import Opening, open_run
from lakemark.services.saves.commit import Commit, commit
from lakemark.services.tiers.register import register_all
from lakemark.services.tiers.release import release
from lakemark.services.tiers.rename import rename_node
from lakemark.services.tiers.replicate import replicate
from lakemark.services.tiers.verify import verify
from tests.services.interleaved import Killed, Yard
from tests.services.world import Trainer, files, write_checkpoint

DAY = timedelta(days=1)
WEIGHTS = {
    "save": 6, "commit": 5, "sweep": 7, "release": 3, "copy": 2, "verify": 2, "bring_back": 2, "resume": 2, "rotate": 3,
    "recover": 2, "clock_jumps": 1, "back_up": 1, "backup_comes_back": 2, "rename": 0.3, "hot_fills": 1, "tier_goes": 1,
    "time_passes": 3, "roll_back": 1,
}  # fmt: skip
"""How often what is drawn."""


class Scene:
    """`play(steps)`: so many calls of ports in drawn order, then `judge`."""

    def __init__(self, seed):
        self.yard = Yard(seed)
        self.random = Random(self.yard.random.random())
        self.faults = self.random.choice((0.2, 0.5, 0.9))
        self.misnamed = self.random.choice((0, 0.1, 0.4))
        self.jobs, self.places = count(1), count(1)
        self.trainers = {}
        for node in self.yard.nodes:
            register_all(node.site())
            open_run(node.site(), Opening(run=node.run, watch=node.out))
            self.trainers[node] = Trainer(node, node.run, node.out)
        self.some_quiet_days()

    def some_quiet_days(self):
        """Before anything goes wrong: so that there is something to lose, and a backup to come back."""
        for _ in range(self.random.randint(1, 8)):
            node = self.random.choice(self.yard.nodes)
            if self.random.random() < 0.7:
                self.save(node, None)
            if self.random.random() < 0.4:
                self.rotate(node, None)
            self.yard.turns.now += self.random.choice((0.1, 2, 4)) * timedelta(hours=1)
            self.sweep(node, node.site())
            if self.random.random() < 0.3:
                self.back_up(node, None)

    def play(self, steps):
        self.steps = steps
        self.yard.turns.run(self.random.randint(2, 4), self.work)

    def work(self, process):
        """Commands, one after the other, each a process of its own to the site."""
        while self.yard.turns.steps < self.steps:
            [name] = self.random.choices(list(WEIGHTS), list(WEIGHTS.values()))
            node = self.random.choice(self.yard.nodes)
            process.begin(self.random, faults=self.faults)
            called = (
                self.random.choice(("node-a", "node-b", "node-x")) if self.random.random() < self.misnamed else None
            )
            self.yard.turns.tell(f"{process.name} {name} on {node.run}'s node as {called or node.called}")
            site = node.site(process, called=called)
            try:
                said = getattr(self, name)(node, site)
            except Killed:
                said = "killed"
            except LakemarkError as error:
                said = f"{type(error).__name__}: {error}"[:200]
            site.hot._find().end()
            self.yard.turns.tell(f"{process.name} {name}: {said}")
            self.yard.turns.over(process)
            self.yard.require_nothing_lost()

    # Trainers

    def steps_of(self, node):
        names = [name.removeprefix("step-") for name in node.disk.names(node.out) if name.startswith("step-")]
        return sorted(int(name) for name in names if name.isdecimal())

    def save(self, node, site):
        step = max(self.steps_of(node), default=0) + 100
        path = write_checkpoint(node.disk, node.out / f"step-{step}", f"number {next(self.yard.numbers)}")
        for at, inode in node.disk.walk(path):
            if hasattr(inode, "describe"):
                self.yard.truth[str(inode.describe(at.name).digest)] = inode.data
        if self.random.random() < 0.5:
            self.trainers[node].announce(path, step)
        return step

    def rotate(self, node, site):
        """What was acknowledged may go."""
        safe = {str(file.digest) for manifest in self.yard.acknowledged.values() for file in manifest.regular}
        for step in self.steps_of(node)[:-1]:
            path = node.out / f"step-{step}"
            inode = path / "model.bin"
            if node.disk.exists(inode) and str(node.disk.inode(inode).describe("model.bin").digest) in safe:
                node.disk.remove(path)

    def resume(self, node, site):
        done = resume(site, node.run, to=node.out, job=str(next(self.jobs)))
        self.trainers[node] = Trainer(node, node.run, node.out)
        return done.found.record.step

    # Passes and people

    def commit(self, node, site):
        steps = self.steps_of(node)
        if not steps:
            return None
        step = self.random.choice((steps[-1], steps[-1], self.random.choice(steps)))
        made = commit(site, Commit(path=node.out / f"step-{step}", run=node.run, step=step))
        self.yard.acknowledge(node.run, made.record.id)
        return f"{step} {made.record.id[:12]} {made.pending or ''}"

    def sweep(self, node, site):
        self.yard.turns.now += timedelta(seconds=10)
        swept = sweep(site)
        for made in swept.committed:
            self.yard.acknowledge(made.record.run, made.record.id)
        shown = [f"{one.what}: {one.why}"[:160] for one in swept.pending if not one.planned]
        return [f"{one.record.step} {one.record.id[:12]}" for one in swept.committed], swept.said, shown

    def any_record(self):
        run = self.random.choice(self.yard.nodes).run
        records = sorted(self.yard.ledger.run(run).records)
        return (run, self.random.choice(records)) if records else (run, None)

    def release(self, node, site):
        run, record = self.any_record()
        if record:
            tier = self.random.choice(("hot", "warm", "cold"))
            release(site, run, record, tier=tier)
            return f"{record[:12]} from {tier}"
        return None

    def copy(self, node, site):
        run, record = self.any_record()
        if record:
            tier = self.random.choice(("hot", "warm", "cold"))
            replicate(site, run, record, to=tier)
            return f"{record[:12]} to {tier}"
        return None

    def verify(self, node, site):
        records = [found for run in site.ledger.runs() for found in site.ledger.run(run).records.values()]
        damaged = [look for look in verify(site, records).looks if look.damages]
        for look in damaged:
            replica = site.ledger.run(look.run).records[look.record].replicas.get(look.place)
            if replica is None or not replica.sound:
                with suppress(LakemarkError):
                    replicate(site, look.run, look.record, to=look.place.tier)
        return [f"{look.record[:12]} {look.place.tier} {look.damages[0].why}" for look in damaged]

    def bring_back(self, node, site):
        known = sorted(self.yard.acknowledged)
        if known:
            record = self.random.choice(known)
            self.restored(node, site, record)
            return record[:12]
        return None

    def restored(self, node, site, record):
        to = Path("/back") / str(next(self.places))
        restore(site, self.yard.runs[record], record, to=to)
        found = files(node.disk, to)
        for file in self.yard.acknowledged[record].regular:
            assert found[file.path] == self.yard.truth[str(file.digest)], (
                f"wrong bytes of {record[:12]} were handed out"
            )
        node.disk.remove(to)

    def recover(self, node, site):
        return recover(site).away

    def rename(self, node, site):
        new = {"node-a": "node-a2", "node-a2": "node-a", "node-b": "node-b2", "node-b2": "node-b"}[node.called]
        rename_node(node.site(called=new), node.called, new)
        node.called = new
        return new

    def roll_back(self, node, site):
        """The data that is not there can't come back with it: the model alone."""
        records = sorted(site.ledger.run(node.run).records)
        if not records:
            return None
        flags = Flags(while_running=True, model_only=True)
        wish = Wish(
            run=node.run,
            record=self.random.choice(records),
            reason="the loss went up",
            requester=site.actor,
            flags=flags,
        )
        asked = request(site, wish)
        if asked.state == "requested":
            approve(replace(site, actor="bob@elsewhere"), asked.id, digest=asked.digest)
        apply(site, asked.id)
        return asked.id

    # What happens to all

    def clock_jumps(self, node, site):
        node.clock.off = self.random.choice((0, 0, 0, -40, -1, 1, 40)) * DAY
        return node.clock.off

    def time_passes(self, node, site):
        self.yard.turns.now += self.random.choice((0.2, 1.1, 5, 30, 80)) * timedelta(hours=1)

    def back_up(self, node, site):
        self.yard.backups.append(self.yard.ledger.backup())

    def backup_comes_back(self, node, site):
        if not self.yard.backups:
            return "there is none"
        self.yard.ledger = self.yard.own(self.random.choice(self.yard.backups).backup())
        return "it is there"

    def hot_fills(self, node, site):
        node.hot.min_free_share = self.random.choice((0, 0.5))
        node.hot.free_share = self.random.choice((0.1, 1))
        return node.hot.full()

    def tier_goes(self, node, site):
        shelf = self.random.choice(list(self.yard.shelves.values()))
        shelf.reachable = self.random.random() < 0.7
        return shelf.reachable

    # The end

    def judge(self, *, passes=4):
        """All is well again: the next passes converge, and what was acknowledged is brought back by somebody."""
        yard = self.yard
        for node in yard.nodes:
            node.clock.off, node.hot.min_free_share = timedelta(), 0
            node.hot._tier.alive.clear()
        for shelf in yard.shelves.values():
            shelf.reachable = True
        for _ in range(min(passes, 2)):
            for node in yard.nodes:
                found = self.recovered(node)
                yard.turns.tell(f"in the end recover on {node.called}: {found}")
        for _ in range(passes):
            yard.turns.now += timedelta(hours=3)
            for node in yard.nodes:
                yard.turns.tell(f"in the end on {node.called}: {self.sweep(node, node.site())}")
        for node in yard.nodes:
            yard.turns.tell(f"in the end on {node.called}: {self.verify(node, node.site())}")
            self.sweep(node, node.site())
        yard.require_nothing_lost()
        for record in yard.acknowledged:
            if not yard.let_go(record):
                self.require_restored(record)
        for node in yard.nodes:
            assert list(violations(node.site())) == []

    def recovered(self, node):
        """A name that nobody has an entry of any more is taken back, as the refusal says."""
        try:
            return recover(node.site())
        except Refused:
            known = self.yard.ledger.site().known_as(node.hot.identity().id)
            node.called = known.partition("@")[2]
            return recover(node.site())

    def require_restored(self, record):
        errors = []
        for node in self.yard.nodes:
            try:
                self.restored(node, node.site(), record)
            except LakemarkError as error:
                errors.append(f"{node.called}: {error}")
            else:
                return
        raise AssertionError(f"{record[:12]} of {self.yard.runs[record]} was acknowledged and is lost: {errors}")
