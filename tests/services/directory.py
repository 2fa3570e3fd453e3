"""One output directory as Hypothesis drives it: who wrote each save, and what its process read, is known beside.

Several processes, one after the other or at once, told of by `run open` and `resume` or started by hand, at the newest step, at
an older one or at none; saves announced at once, later, or never; rotation, copies of other runs' saves and of own ones,
re-pins, closes, and a node that forgets all it knew.
"""

from contextlib import suppress
from itertools import count
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from lakemark.errors import LakemarkError, Refused
from lakemark.model.checkpoints.record import Evidence
from lakemark.services.back.restore import restore
from lakemark.services.back.resume import resume
from lakemark.services.runs.close_run import close_run, reopen_run
from lakemark.services.runs.open_run import Opening, open_run
from tests.services.world import OUT, RUN, Trainer, World, write_checkpoint
from tests.support.memory.disk import Inode

OTHER = "mistral"
ELSEWHERE = Path("/train/other")
STEPS = st.integers(1, 6).map(lambda number: number * 100)


class Written:
    """run, step and data of the process that wrote it."""

    def __init__(self, run, step, commit):
        self.run, self.step, self.commit = run, step, commit


class DirectoryMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.world = World()
        self.numbers, self.jobs = count(1), count(1)
        self.truth = {}

    @initialize()
    def start(self):
        self.world.open(OTHER, watch=ELSEWHERE)
        self.others = Trainer(self.world, OTHER, ELSEWHERE)
        self.world.change_data(next(self.numbers))
        self.world.open()
        self.trainer = Trainer(self.world, RUN, OUT)
        self.silent = []

    # Trainers

    def written(self, trainer, step):
        self.world.clock.wait(minutes=1)
        content = f"number {next(self.numbers)}"
        path = write_checkpoint(self.world.disk, trainer.out / f"step-{step}", content)
        digest = Inode(0, f"weights of {content}".encode(), 0).describe("x").digest
        self.truth[digest] = Written(trainer.run, step, trainer.file.data[0].commit)
        return path

    def steps(self, out=OUT):
        return sorted(int(name[5:]) for name in self.world.disk.names(out) if name.startswith("step-"))

    def announced(self, path):
        return any(one.path == path for one in self.world.spool._spooled.values())

    @rule(announce=st.booleans())
    def save(self, announce):
        step = max(self.steps(), default=0) + 100
        path = self.written(self.trainer, step)
        if announce or self.announced(path):
            self.trainer.announce(path, step)
        else:
            self.silent.append((self.trainer, path, step))

    @rule()
    def announce_what_was_silent(self):
        """Late: a pass may have found it meanwhile; another may have written over it."""
        if not self.silent:
            return
        trainer, path, step = self.silent.pop()
        found = path / "model.bin"
        if self.world.disk.exists(found):
            said = self.truth.get(self.world.disk.inode(found).describe("x").digest)
            if said is not None and said.commit == trainer.file.data[0].commit and said.step == step:
                trainer.announce(path, step)

    @rule(step=STEPS, announce=st.booleans())
    def a_process_begins_by_hand_at_a_step(self, step, announce):
        """It reads the data that the run file names, and says nothing of where it goes on from."""
        self.trainer = Trainer(self.world, RUN, OUT, reads_resume=False)
        path = self.written(self.trainer, step)
        if announce or self.announced(path):
            self.trainer.announce(path, step)

    @rule()
    def the_other_run_saves(self):
        step = max(self.steps(ELSEWHERE), default=0) + 100
        self.others.announce(self.written(self.others, step), step)

    @rule(keep=st.integers(0, 3))
    def rotate(self, keep):
        for step in self.steps()[: len(self.steps()) - keep]:
            self.world.disk.remove(OUT / f"step-{step}")

    # People

    @rule(step=STEPS)
    def somebody_copies_a_save_of_the_other_run_here(self, step):
        # One that is a record: of others nobody could know.
        steps = sorted({found.record.step for found in self.world.state(OTHER).live()} & set(self.steps(ELSEWHERE)))
        if steps and step not in self.steps():
            self.copied(ELSEWHERE / f"step-{steps[-1]}", OUT / f"step-{step}")

    @rule(step=STEPS)
    def somebody_copies_one_to_another_step(self, step):
        steps = self.steps()
        if steps and step not in steps:
            self.copied(OUT / f"step-{steps[-1]}", OUT / f"step-{step}")

    def copied(self, source, target):
        """As `cp -a`: times come along."""
        self.world.clock.wait(minutes=1)
        disk = self.world.disk
        for at, node in list(disk.walk(source)):
            place = target / at.relative_to(source)
            if isinstance(node, Inode):
                made = disk.write(place, node.data, executable=node.executable)
                made.mtime_ns = node.mtime_ns
            else:
                disk.place(place, node)

    @rule(which=st.integers(0, 9), step=STEPS)
    def somebody_restores_one_here(self, which, step):
        run, record = self.any_record(which)
        if record is None or step in self.steps():
            return
        with suppress(Refused):
            restore(self.world.site(), run, record, to=OUT / f"step-{step}")
            raise AssertionError("a watched directory is no place to restore to")

    @rule(which=st.integers(0, 9), step=STEPS)
    def somebody_restores_one_elsewhere_and_moves_it_here(self, which, step):
        run, record = self.any_record(which)
        if record is None or step in self.steps():
            return
        place = Path(f"/scratch/{next(self.numbers)}")
        with suppress(LakemarkError):
            restore(self.world.site(), run, record, to=place)
            self.world.disk.rename(place, OUT / f"step-{step}")

    def any_record(self, which):
        records = [(run, one) for run in (RUN, OTHER) for one in self.world.state(run).records]
        return records[which % len(records)] if records else (None, None)

    # Runs, data, passes

    @rule()
    def new_data(self):
        self.world.change_data(next(self.numbers))

    @rule()
    def repin(self):
        open_run(self.world.site(), Opening(run=RUN, repin=True))

    @rule()
    def a_job_opens_the_run(self):
        self.world.clock.wait(minutes=1)
        open_run(self.world.site(), Opening(run=RUN, watch=OUT, job=str(next(self.jobs))))
        self.trainer = Trainer(self.world, RUN, OUT)

    @rule(which=st.integers(0, 9), older=st.booleans())
    def a_job_resumes(self, which, older):
        self.world.clock.wait(minutes=1)
        record = None
        if older and self.world.state().records:
            records = list(self.world.state().records)
            record = records[which % len(records)]
        with suppress(LakemarkError):
            resume(self.world.site(), RUN, to=OUT, job=str(next(self.jobs)), record=record)
            self.trainer = Trainer(self.world, RUN, OUT)

    @rule()
    def close_and_reopen(self):
        with suppress(LakemarkError):
            close_run(self.world.site(), RUN, reason="done")
            reopen_run(self.world.site(), RUN, reason="not quite")

    @rule()
    def the_node_forgets(self):
        self.world.journal.forget_all()

    @rule()
    def sweep(self):
        self.world.sweep()

    # What always holds

    @invariant()
    def nobody_s_save_is_another_s(self):
        for run in (RUN, OTHER):
            for found in self.world.state(run).records.values():
                said = self.said(run, found)
                sure = [ref.commit for ref in found.record.data if ref.evidence != Evidence.AMBIGUOUS]
                # Two runs may come to the same bytes by themselves: what nobody can tell apart is kept, and vouches for nothing.
                assert said.run == run or not sure, f"{run}@{found.record.step} was written by {said.run}"
                assert set(sure) <= {said.commit}, f"{run}@{found.record.step} read other data"

    def said(self, run, found):
        manifest = self.world.ledger.manifest(run, found.record.id)
        return self.truth[next(file.digest for file in manifest.files if file.path == "model.bin")]
