"""A site as Hypothesis drives it: trainers save, rotate and restart, data moves, people roll back, processes die anywhere.

What must hold is said once, in `crashing.invariants`; beside it this machine knows what each save really was: its bytes,
and the data its process had open.
"""

from contextlib import suppress
from itertools import count

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lakemark.errors import LakemarkError
from lakemark.model.back.rollback_plan import Flags
from lakemark.model.checkpoints.record import Evidence
from lakemark.services.back.restore import restore
from lakemark.services.back.resume import resume
from lakemark.services.back.rollback_apply import apply
from lakemark.services.back.rollback_decide import approve
from lakemark.services.back.rollback_request import Wish, request
from lakemark.services.node.sweep import sweep
from lakemark.services.runs.open_run import Opening, open_run
from lakemark.services.saves.commit import Commit, commit
from lakemark.services.tiers.release import release
from lakemark.services.tiers.replicate import replicate
from tests.services.crashing import Fuse, Killed, fused, invariants, settled
from tests.services.world import OUT, RUN, Trainer, World, files, write_checkpoint

NEVER = 0
CRASH = st.one_of(st.just(NEVER), st.just(NEVER), st.integers(1, 40))
TIERS = st.sampled_from(["warm", "cold"])


class Machine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.world = World()
        self.numbers = count(1)
        self.acknowledged = set()
        self.truth = {}
        self.swept = True
        self.jobs = count(1)
        self.refusals = []

    # Processes that may die

    def act(self, call, crash=NEVER):
        """`call(site)` in a process that dies at its `crash`th change; None where it died or said no."""
        fuse = Fuse()
        fuse.left = crash or None
        self.swept = False
        try:
            return call(fused(self.world.site(), fuse))
        except Killed:
            self.world.restart()
        except LakemarkError as error:
            self.refusals.append(error)
        return None

    @initialize()
    def start(self):
        self.world.open()
        self.trainer = Trainer(self.world, RUN, OUT)
        self.old = []

    # Trainers

    def written(self, trainer, step):
        self.world.clock.wait(seconds=1)
        content = f"number {next(self.numbers)}"
        path = write_checkpoint(self.world.disk, OUT / f"step-{step}", content)
        self.truth[f"weights of {content}".encode()] = (step, trainer.file.data[0].commit)
        return path

    def next_step(self):
        steps = [int(name.removeprefix("step-")) for name in self.world.disk.names(OUT) if name.startswith("step-")]
        return max(steps, default=0) + 100

    @rule(announce=st.booleans())
    def save(self, announce):
        step = self.next_step()
        path = self.written(self.trainer, step)
        if announce:
            self.trainer.announce(path, step)

    @rule()
    def save_by_one_that_nobody_stopped(self):
        if self.old:
            step = self.next_step()
            self.old[-1].announce(self.written(self.old[-1], step), step)

    @rule(back=st.integers(1, 3), announce=st.booleans())
    def restart_from_its_own_older_step(self, back, announce):
        """The run file is what it was; steps are saved again with other bytes."""
        step = max(100, self.next_step() - 100 * back)
        self.trainer = Trainer(self.world, RUN, OUT)
        path = self.written(self.trainer, step)
        if announce or any(one.path == path for one in self.world.spool._spooled.values()):
            self.trainer.announce(path, step)

    @rule(announce=st.booleans())
    def overwrite_the_newest_in_place(self, announce):
        """Its linked replica changes with it."""
        path = OUT / f"step-{self.next_step() - 100}"
        if not self.world.disk.exists(path / "model.bin"):
            return
        self.world.clock.wait(seconds=1)
        step, data = int(path.name[5:]), f"weights of number {next(self.numbers)}".encode()
        self.world.disk.write(path / "model.bin", data)
        self.truth[data] = (step, self.trainer.file.data[0].commit)
        if announce or any(one.path == path for one in self.world.spool._spooled.values()):
            self.trainer.announce(path, step)

    @rule(keep=st.integers(1, 3))
    def rotate(self, keep):
        names = sorted(self.world.disk.names(OUT), key=lambda name: int(name[5:]) if name[5:].isdigit() else 0)
        for name in [name for name in names if name.startswith("step-")][:-keep]:
            self.world.disk.remove(OUT / name)

    @rule(crash=CRASH)
    def commit_newest_by_hand(self, crash):
        step = self.next_step() - 100
        asked = Commit(path=OUT / f"step-{step}", run=RUN, step=step)
        made = self.act(lambda site: commit(site, asked), crash)
        if made is not None:
            self.acknowledged.add(made.record.id)

    # Runs and data

    @precondition(lambda self: self.world.data.reachable)
    @rule()
    def new_data(self):
        self.world.change_data(next(self.numbers))

    @rule(crash=CRASH)
    def repin(self, crash):
        self.act(lambda site: open_run(site, Opening(run=RUN, repin=True)), crash)

    @rule(crash=CRASH)
    def new_attempt(self, crash):
        self.world.clock.wait(seconds=10)
        job = str(next(self.jobs))
        if self.act(lambda site: open_run(site, Opening(run=RUN, watch=OUT, job=job)), crash) is None:
            with suppress(LakemarkError):
                open_run(self.world.site(), Opening(run=RUN, watch=OUT, job=job))
        self.start_process()

    @rule(crash=CRASH)
    def resume(self, crash):
        self.world.clock.wait(seconds=10)
        job = str(next(self.jobs))
        if self.act(lambda site: resume(site, RUN, to=OUT, job=job), crash) is None:
            self.act(lambda site: resume(site, RUN, to=OUT, job=job))
        self.start_process()

    def start_process(self):
        self.old.append(self.trainer)
        self.trainer = Trainer(self.world, RUN, OUT)

    # Replicas

    @rule(crash=CRASH, tier=TIERS, which=st.integers(0, 9))
    def sink(self, crash, tier, which):
        record = self.any_record(which)
        if record:
            self.act(lambda site: replicate(site, RUN, record, to=tier), crash)

    @rule(crash=CRASH, tier=st.sampled_from(["hot", "warm", "cold"]), which=st.integers(0, 9))
    def release(self, crash, tier, which):
        record = self.any_record(which)
        if record:
            self.act(lambda site: release(site, RUN, record, tier=tier), crash)

    @rule(tier=TIERS, here=st.booleans())
    def tier_goes_away_or_comes_back(self, tier, here):
        self.world.shelves[tier].reachable = here

    @rule(here=st.booleans())
    def data_server_goes_away_or_comes_back(self, here):
        self.world.data.reachable = here

    @rule()
    def the_node_s_memory_is_lost(self):
        """It is not history: no checkpoint is lost with it."""
        self.world.journal.forget_all()

    @rule(which=st.integers(0, 9))
    def restore(self, which):
        record = self.any_record(which)
        if record is None:
            return
        place = OUT.with_name(f"back-{next(self.numbers)}")
        if self.act(lambda site: restore(site, RUN, record, to=place)) is not None:
            found = files(self.world.disk, place)
            step, _ = self.truth[found["model.bin"]]
            assert step == self.world.state().records[record].record.step

    def any_record(self, which):
        records = list(self.world.state().records)
        return records[which % len(records)] if records else None

    # Time, sweeps, rollbacks

    @rule(minutes=st.sampled_from([1, 15, 60, 60 * 24, 60 * 24 * 8]))
    def wait(self, minutes):
        self.world.clock.wait(minutes=minutes)

    @rule(crash=CRASH)
    def sweep(self, crash):
        self.world.clock.wait(seconds=10)
        swept = self.act(sweep, crash)
        if swept is not None:
            self.acknowledged.update(made.record.id for made in swept.committed)

    @rule(which=st.integers(0, 9), crash=CRASH)
    def roll_back(self, which, crash):
        record = self.any_record(which)
        if record is None:
            return
        wish = Wish(run=RUN, record=record, reason="no", requester="ana@a", flags=Flags(while_running=True))

        def decided(site):
            asked = request(site, wish)
            if asked.state == "requested":
                approve(self.world.site(actor="bob@b"), asked.id, digest=asked.digest)
            return apply(site, asked.id)

        opens = self.world.state().next_timeline
        if self.act(decided, crash) is not None:
            assert self.world.latest().record.id == record
            assert self.world.state().timeline == opens

    @precondition(lambda self: not self.swept)
    @rule()
    def everything_settles(self):
        for shelf in self.world.shelves.values():
            shelf.reachable = True
        self.world.data.reachable = True
        settled(self.world, self.acknowledged)
        self.acknowledged.update(self.world.state().records)
        self.swept = True

    # What always holds

    @invariant()
    def acknowledged_and_recorded_is_there(self):
        invariants(self.world, self.acknowledged, swept=self.swept)

    @invariant()
    def data_is_never_another_s(self):
        for found in self.world.state().records.values():
            manifest = self.world.ledger.manifest(RUN, found.record.id)
            digest = next(file.digest for file in manifest.files if file.path == "model.bin")
            step, commit_id = self.by_digest()[digest]
            assert step == found.record.step
            for ref in found.record.data:
                assert ref.evidence == Evidence.AMBIGUOUS or ref.commit == commit_id

    def by_digest(self):
        from tests.support.memory.disk import Inode

        known = self.__dict__.setdefault("_digests", {})
        for data, said in self.truth.items():
            if data not in known:
                known[data] = (Inode(0, data, 0).describe("x").digest, said)
        return dict(known.values())
