"""A site whose every part is in memory, a clock that stands until somebody waits, and trainers that save on its disk."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

from lakemark.model.back.rollback_plan import Flags
from lakemark.model.runs.timeline import latest
from lakemark.model.tiers.residence import Residence
from lakemark.ports import Policies, Quiet, Site, Spooled
from lakemark.services.back.rollback_apply import apply
from lakemark.services.back.rollback_decide import approve
from lakemark.services.back.rollback_request import Wish, request
from lakemark.services.node.sweep import sweep
from lakemark.services.runs.open_run import Opening, open_run
from lakemark.services.soundness import GuardedLedger
from lakemark.services.tiers.register import register_all
from tests.support.memory import (
    MemoryData,
    MemoryDisk,
    MemoryFiles,
    MemoryHot,
    MemoryJournal,
    MemoryLedger,
    MemoryNotes,
    MemoryPointers,
    MemoryRecogniser,
    MemoryRestorer,
    MemoryShelf,
    MemorySpool,
    MemoryStore,
)

RUN = "llama"
OUT = Path("/train/out")
START = datetime(2026, 11, 26, 12, tzinfo=UTC)
HOT, WARM, COLD = timedelta(minutes=10), timedelta(hours=1), timedelta(hours=2)
POLICIES = Policies(
    residence={
        "hot": Residence(keep_last=2, settle=HOT),
        "warm": Residence(keep_for=timedelta(days=7), settle=WARM),
        "cold": Residence(settle=COLD),
    }
)


class Clock:
    def __init__(self, now=START):
        self.now = now

    def __call__(self):
        return self.now

    def wait(self, **time):
        self.now += timedelta(**time)


@dataclass
class World:
    """What outlives a process; `site()` is the next process's look at it."""

    policies: Policies = POLICIES
    clock: Clock = field(default_factory=Clock)
    guarding: bool = True

    def __post_init__(self):
        self.disk = MemoryDisk(self.clock)
        self.hot = MemoryHot(self.disk, name="hot", node="node-a")
        self.shelves = {"warm": MemoryShelf(), "cold": MemoryShelf()}
        self.ledger = MemoryLedger()
        self.data = MemoryData(self.clock)
        self.data.create("data", guarding=self.guarding)
        self.spool, self.notes = MemorySpool(), MemoryNotes()
        self.files, self.restorer = MemoryFiles(self.disk, self.notes), MemoryRestorer(self.disk)
        self.pointers = MemoryPointers(self.disk)
        self.journal = MemoryJournal()
        self.changes = {}
        self._spooled = count(1)
        self.change_data(1)

    def site(self, *, actor="ana@node-a", progress=None, **changes):
        """`changes`: fields of the site that differ from what is usual."""
        tiers = {
            "hot": self.hot,
            "warm": MemoryStore(self.shelves["warm"], name="warm", tier_class="warm", domain="array", kind="s3"),
            "cold": MemoryStore(self.shelves["cold"], name="cold", tier_class="cold", domain="hdd"),
        }
        ledger = self.ledger
        found = Site(
            name="test",
            node="node-a",
            actor=actor,
            home=Path("/home"),
            ledger=GuardedLedger(lambda: ledger, self.journal, stores=tiers.values),
            hot=self.hot,
            tiers=tiers,
            data=self.data,
            files=self.files,
            restorer=self.restorer,
            pointers=self.pointers,
            spool=self.spool,
            notes=self.notes,
            journal=self.journal,
            recogniser=MemoryRecogniser(self.disk),
            now=self.clock,
            policies=self.policies,
            restore_root=Path("/restores"),
            default_repository="data",
            default_branch="main",
            progress=progress or Quiet(),
        )
        return replace(found, **(self.changes | changes))

    def restart(self):
        """The process ended, however; the next one finds what was durable."""
        self.hot = self.hot.restarted()

    def change_data(self, number):
        """A new commit of the data branch; answers its id."""
        return self.data.commit("data", "main", {"rows": b"%d" % number}, message=f"data {number}")

    def open(self, run=RUN, **asked):
        asked.setdefault("watch", OUT)
        register_all(self.site())
        return open_run(self.site(), Opening(run=run, **asked))

    def repin(self, run=RUN, **asked):
        return open_run(self.site(), Opening(run=run, repin=True, **asked))

    def trainer(self, run=RUN, out=OUT, *, reads_resume=True):
        """A process that starts now: it reads the run file once."""
        return Trainer(self, run, out, reads_resume=reads_resume)

    def save(self, step, content=None, *, out=OUT):
        """An unannounced save, by whoever."""
        return write_checkpoint(self.disk, out / f"step-{step}", content or f"step {step}")

    def forget(self, step, *, out=OUT):
        """The trainer removes a save of its own."""
        self.disk.remove(out / f"step-{step}")

    def sweep(self, **site):
        """Waits until files are quiet, then sweeps."""
        self.clock.wait(seconds=10)
        return sweep(self.site(**site))

    def saves(self, *steps, minutes=10):
        """Announced saves, each swept."""
        trainer = self.trainer()
        for step in steps:
            self.clock.wait(minutes=minutes)
            trainer.save(step)
            self.sweep()
        return trainer

    def state(self, run=RUN):
        return self.ledger.run(run)

    def at(self, step, *, timeline=None, run=RUN):
        """The newest record of a step."""
        state = self.state(run)
        rows = [
            found
            for found in state.records.values()
            if found.record.step == step and timeline in (None, found.record.timeline)
        ]
        return max(rows, key=lambda found: found.sequence)

    def latest(self, run=RUN):
        found = latest(self.state(run))
        assert found is not None
        return found

    def kinds(self, run=RUN):
        return [entry.kind for entry, _ in self.ledger.entries(run)]

    def wish(self, step, **wish):
        """What `rollback request --to STEP` asks for; the trainer has been silent for long enough."""
        wish.setdefault("reason", "the loss went up")
        wish.setdefault("requester", "ana@node-a")
        record = self.at(step, timeline=wish.pop("timeline", None)).record.id
        return Wish(run=RUN, record=record, **wish)

    def roll_back(self, step, **wish):
        """Requested, approved by a second person, applied; told that the run may be written still."""
        self.clock.wait(hours=1)
        wish.setdefault("flags", Flags(while_running=True))
        asked = request(self.site(), self.wish(step, **wish))
        approve(self.site(actor="bob@node-b"), asked.id, digest=asked.digest)
        return apply(self.site(), asked.id)


class Trainer:
    """Knows what the run file said when it started, and nothing newer."""

    def __init__(self, world, run, out, *, reads_resume=True):
        self.world, self.run, self.out = world, run, out
        self.file = world.spool.read_run_file(world.site().run_file(run))
        self.resume = self.file.resume if reads_resume else None

    def save(self, step, content=None, *, announce=True, **more):
        path = write_checkpoint(self.world.disk, self.out / f"step-{step}", content or f"step {step}")
        if announce:
            self.announce(path, step, **more)
        return path

    def announce(self, path, step, **more):
        number = next(self.world._spooled)
        spooled = Spooled(
            file=self.file.spool / f"{step}-{number}.json",
            run=self.run,
            path=path,
            step=step,
            saved_at=self.world.clock(),
            attempt=self.file.attempt,
            timeline=self.resume["timeline"] if self.resume else None,
            data=self.file.data,
            **more,
        )
        self.world.spool.announce(spooled)
        return spooled


def write_checkpoint(disk, path, content):
    """As trainers do: new files, beside whatever was there before."""
    disk.remove(path)
    disk.write(path / "model.bin", f"weights of {content}".encode())
    disk.write(path / "optim" / "state.bin", f"moments of {content}".encode())
    disk.write(path / "run.sh", b"#!/bin/sh\n", executable=True)
    disk.symlink(path / "best", "model.bin")
    disk.mkdir(path / "logs")
    return path


def files(disk, path):
    """Contents by relative path, for comparing two trees."""
    found = {}
    for at, node in disk.walk(path):
        found[str(at.relative_to(path))] = getattr(node, "data", getattr(node, "target", None))
    return found
