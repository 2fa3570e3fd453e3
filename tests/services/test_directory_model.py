"""Any sequence of what happens in a run's directory, against a plain account of which process wrote what, reading which data.

Never a wrong owner and never a wrong data commit: where nobody could know, the data is ambiguous or nobody's.
"""

from dataclasses import dataclass
from itertools import count
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from hypothesis.strategies import booleans, integers, sampled_from

from lakemark.errors import LakemarkError
from lakemark.model.checkpoints.record import Evidence
from lakemark.services.back.restore import restore
from lakemark.services.back.resume import resume
from lakemark.services.runs.close_run import close_run, reopen_run
from tests.services.world import OUT, World
from tests.support.memory.disk import Inode, Link

RUN, OTHER = "llama", "other"
_SURE = {Evidence.DECLARED, Evidence.OPENED, Evidence.READ}


@dataclass(frozen=True)
class Wrote:
    """Which run's attempt wrote these bytes, reading which data; None: nobody whom lakemark knows."""

    run: str | None
    attempt: str | None
    data: str | None


class Directory(RuleBasedStateMachine):
    """One run's directory, another run's beside it, and a place that nobody watches."""

    def __init__(self):
        super().__init__()
        self.world = World()
        self.numbers = count(1)
        self.wrote = {}
        self.reads = {}
        self.step = {RUN: 0, OTHER: 0}
        self.trainers = {}
        self.silent = []
        self.open(RUN)
        self.open(OTHER)

    def out(self, run):
        return OUT / run

    def saves_in(self, run):
        return [name for name in self.world.disk.names(self.out(run)) if not name.startswith(".")]

    def open(self, run, **more):
        self.world.clock.wait(minutes=1)
        opened = self.world.open(run, watch=self.out(run), job=str(next(self.numbers)), **more)
        self.reads[opened.attempt] = opened.data[0].commit
        self.trainers[run] = (opened.attempt, self.world.trainer(run, self.out(run)))
        self.world.clock.wait(minutes=1)

    def content(self, run, attempt, data):
        text = f"bytes {next(self.numbers)}"
        inode = Inode(0, f"weights of {text}".encode(), 0)
        self.wrote[inode.describe("model.bin").digest] = Wrote(run, attempt, data)
        return text

    # What trainers do

    @rule(run=sampled_from([RUN, OTHER]), announce=booleans(), further=integers(1, 2))
    def save(self, run, announce, further):
        attempt, trainer = self.trainers[run]
        self.world.clock.wait(minutes=2)
        self.step[run] += further
        text = self.content(run, attempt, self.reads[attempt])
        path = trainer.save(self.step[run], text, announce=False)
        if announce:
            trainer.announce(path, self.step[run], identity=self.seen(path))
        else:
            self.silent.append((trainer, path, self.step[run], self.seen(path)))

    def seen(self, path):
        files = self.world.files.regular(path)
        return {one.path: (one.file.inode, one.file.size_bytes, one.file.mtime_ns) for one in files}

    @precondition(lambda self: self.silent)
    @rule()
    def announce_late(self):
        """A pass may have found it, its trainer may have removed it, another may have saved there since."""
        trainer, path, step, seen = self.silent.pop()
        trainer.announce(path, step, identity=seen)

    @rule(run=sampled_from([RUN, OTHER]))
    def restart(self, run):
        """A new process; its predecessor is gone."""
        self.open(run)

    @rule(run=sampled_from([RUN, OTHER]), back=integers(1, 3))
    def restart_lower(self, run, back):
        """By itself, without a word: the same attempt as far as anybody was told, from an older step."""
        self.step[run] = max(0, self.step[run] - back)

    @rule(run=sampled_from([RUN, OTHER]))
    def rotate(self, run):
        """The trainer removes its oldest save."""
        here = sorted(self.saves_in(run))
        if here:
            self.world.disk.remove(self.out(run) / here[0])

    @rule(run=sampled_from([RUN, OTHER]))
    def resume_it(self, run):
        self.world.sweep()
        self.world.clock.wait(minutes=1)
        try:
            done = resume(self.world.site(), run, to=self.out(run), job=str(next(self.numbers)))
        except LakemarkError:
            return
        self.reads[done.attempt] = done.data[0].commit
        self.trainers[run] = (done.attempt, self.world.trainer(run, self.out(run)))
        self.step[run] = done.found.record.step
        self.world.clock.wait(minutes=1)

    # What people do

    @rule()
    def data_moves(self):
        self.world.change_data(next(self.numbers))

    @rule(run=sampled_from([RUN, OTHER]))
    def repin(self, run):
        """The process that runs goes on with what it has open; the next one reads the new data."""
        self.world.clock.wait(minutes=1)
        self.world.change_data(next(self.numbers))
        self.world.repin(run)

    @rule(source=sampled_from([RUN, OTHER]), into=sampled_from([RUN, OTHER]), step=integers(1, 12), times=booleans())
    def copy(self, source, into, step, times):
        """`cp -a` or `cp -r` of a save, under another step. The node's service has seen it before."""
        self.world.sweep()
        here = self.saves_in(source)
        to = self.out(into) / f"step-{step}"
        if not here or self.world.disk.exists(to):
            return
        self.world.clock.wait(minutes=1)
        top = self.out(source) / here[-1]
        # Files of now, of bytes that nobody knows: no trace tells them from a trainer's own.
        if not times and self.world.disk.inode(top / "model.bin").describe("model.bin").digest not in self.recorded():
            return
        for at, node in list(self.world.disk.walk(top)):
            if isinstance(node, Inode):
                made = self.world.disk.write(to / at.relative_to(top), node.data, executable=node.executable)
                made.mtime_ns = node.mtime_ns if times else made.mtime_ns
            elif isinstance(node, Link):
                self.world.disk.symlink(to / at.relative_to(top), node.target)
            else:
                self.world.disk.mkdir(to / at.relative_to(top))

    @rule(into=sampled_from([RUN, OTHER]), step=integers(1, 12))
    def foreign(self, into, step):
        """Somebody unpacks a save of last year there."""
        to = self.out(into) / f"step-{step}"
        if self.world.disk.exists(to):
            return
        before = self.world.clock.now
        self.world.clock.wait(days=-400)
        made = self.world.disk.write(to / "model.bin", f"weights of {self.content(None, None, None)}".encode())
        self.world.clock.now = before
        made.mtime_ns -= 400 * 86_400 * 10**9

    @rule(run=sampled_from([RUN, OTHER]), to=sampled_from([RUN, OTHER]), step=integers(1, 12))
    def restore_and_move(self, run, to, step):
        records = list(self.world.state(run).records)
        target, place = Path(f"/restored/{next(self.numbers)}"), self.out(to) / f"step-{step}"
        if not records or self.world.disk.exists(place):
            return
        try:
            restore(self.world.site(), run, records[step % len(records)], to=target)
        except LakemarkError:
            return
        self.world.disk.rename(target, place)

    @rule(run=sampled_from([RUN, OTHER]))
    def close_and_reopen(self, run):
        try:
            close_run(self.world.site(), run, reason="over")
        except LakemarkError:
            return
        self.world.clock.wait(minutes=1)
        reopen_run(self.world.site(), run, reason="not over")

    @precondition(lambda self: self.world.state(RUN).records)
    @rule()
    def lose_the_journal(self):
        self.world.sweep()
        self.world.journal.forget_all()

    @rule()
    def sweep(self):
        """Afterwards there is nothing of a run's own process that is not kept."""
        self.world.sweep()
        kept = self.recorded()
        for run in (RUN, OTHER):
            for name in self.saves_in(run):
                digest = self.world.disk.inode(self.out(run) / name / "model.bin").describe("model.bin").digest
                assert digest in kept or self.wrote[digest].run != run, f"{run}/{name} of {self.wrote[digest]}"

    def recorded(self):
        ids = [(run, found.record.id) for run in (RUN, OTHER) for found in self.world.state(run).records.values()]
        return {file.digest for run, record in ids for file in self.world.ledger.manifest(run, record).regular}

    # What must hold

    @invariant()
    def no_owner_is_wrong_and_no_data(self):
        for run in (RUN, OTHER):
            for found in self.world.state(run).records.values():
                record = found.record
                files = {file.path: file.digest for file in self.world.ledger.manifest(run, record.id).regular}
                wrote = self.wrote[files["model.bin"]]
                sure = {ref.commit for ref in record.data if ref.evidence in _SURE}
                told = f"{run}@{record.step} of {wrote}: attempt {record.attempt}, {record.data}"
                assert sure <= {wrote.data}, told
                if sure:
                    assert wrote.run == run, told
                    assert record.attempt == wrote.attempt, told


TestDirectory = Directory.TestCase
TestDirectory.settings = settings(
    max_examples=25,
    stateful_step_count=15,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
