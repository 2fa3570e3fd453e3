"""kill -9 at every named step of every service, on real adapters: then a sweep, and everything promised still holds."""

import os
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from lakemark.model.back.rollback_plan import Flags
from lakemark.services.back import rollback_apply, rollback_decide, rollback_request
from lakemark.services.back.resume import resume
from lakemark.services.node.sweep import sweep
from lakemark.services.runs.open_run import Opening, open_run
from lakemark.services.saves.commit import Commit, commit
from lakemark.services.tiers.release import release
from lakemark.services.tiers.replicate import replicate
from tests.faults.site_on_disk import Clock, broken_promises, killed_at, make_site, write_checkpoint

RUN = "llama"


class Bench:
    """One prepared site; `site()` opens it anew, as another process would, with a connection of its own to the server."""

    def __init__(self, home, server, repository):
        self.home, self.server, self.repository, self.clock = home, server, repository, Clock()
        self.out = home / "out"
        self.out.mkdir(parents=True)
        self.acknowledged = set()

    def site(self, progress=None, actor="ana@node-a"):
        return make_site(self.home, self.server.data(), self.clock, progress=progress, actor=actor)

    def prepared(self, *steps):
        """Opened, and each of `steps` saved, committed and acknowledged."""
        here = self.site()
        open_run(here, Opening(run=RUN, data=[f"{self.repository}/main"], watch=self.out))
        for step in steps:
            self.clock.pass_(hours=6)
            path = write_checkpoint(self.out / f"step-{step}", f"weights of {step} ")
            self.acknowledged.add(commit(here, Commit(path=path, run=RUN, step=step)).record.id)
        return here

    def at(self, site, step):
        return next(f for f in site.ledger.run(RUN).records.values() if f.record.step == step and f.stands)


@pytest.fixture
def folder(tmp_path):
    """In memory where that is possible: what is durable is the power cut's business, not this test's."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as made:
        yield Path(made)


@pytest.fixture(scope="module")
def repository(lakefs):
    scratch = lakefs.scratch()
    scratch.put("main", {"train/a": b"a" * 100, "train/b": b"b" * 100})
    return scratch


def committing(bench):
    bench.prepared(100)
    bench.clock.pass_(hours=6)
    write_checkpoint(bench.out / "step-200", "weights of 200 ")
    return lambda site: commit(site, Commit(path=bench.out / "step-200", run=RUN, step=200))


def replicating(bench):
    site = bench.prepared(100, 200)
    record = bench.at(site, 100).record.id
    return lambda site: replicate(site, RUN, record, to="warm")


def releasing(bench):
    site = bench.prepared(100, 200)
    record = bench.at(site, 100).record.id
    for tier in ("warm", "cold"):
        replicate(site, RUN, record, to=tier)
    bench.clock.pass_(hours=2)

    def work(site):
        if site.hot.place in site.ledger.run(RUN).records[record].replicas:
            release(site, RUN, record, tier="hot")

    return work


def resuming(bench):
    site = bench.prepared(100, 200, 300)
    identity = bench.at(site, 100).record.id
    replicate(site, RUN, identity, to="warm")
    bench.clock.pass_(days=1)
    flags = Flags(while_running=True)
    wish = rollback_request.Wish(run=RUN, record=identity, reason="bad", requester="ana", flags=flags)
    standing = rollback_request.request(site, wish)
    rollback_decide.approve(bench.site(actor="bea@node-a"), standing.id, digest=standing.digest)
    rollback_apply.apply(site, standing.id)
    (bench.out / "step-100" / "weights.bin").write_bytes(b"the trainer wrote over it")
    return lambda site: resume(site, RUN, to=bench.out, job="night-1")


def rolling_back(bench):
    site = bench.prepared(100, 200, 300)
    identity = bench.at(site, 100).record.id
    bench.clock.pass_(days=1)

    def work(site):
        states = site.ledger.run(RUN).rollbacks
        wish = rollback_request.Wish(run=RUN, record=identity, reason="bad", requester="ana", key="night-1")
        standing = next(iter(states.values())) if states else rollback_request.request(site, wish)
        if standing.state == "requested":
            rollback_decide.approve(replace(site, actor="bea@node-a"), standing.id, digest=standing.digest)
        rollback_apply.apply(site, standing.id)

    return work


def sweeping(bench):
    bench.prepared(100, 200)
    bench.clock.pass_(hours=6)
    write_checkpoint(bench.out / "step-300", "weights of 300 ")
    return sweep


@pytest.mark.parametrize(
    "prepare", [committing, replicating, releasing, resuming, rolling_back, sweeping], ids=lambda work: work.__name__
)
def test_killed_at_every_step(folder, lakefs, repository, prepare):
    number, passed = 0, []
    while True:
        number += 1
        bench = Bench(folder / str(number), lakefs, repository.repository)
        work = prepare(bench)
        dead, passed = killed_at(lambda steps, bench=bench, work=work: work(bench.site(steps)), number)
        after = bench.site()
        sweep(after)
        assert broken_promises(bench.site(), bench.acknowledged) == [], f"killed at step {number}, then swept"
        work(bench.site())
        sweep(bench.site())
        assert broken_promises(bench.site(), bench.acknowledged) == [], f"killed at step {number}, finished, swept"
        tip = bench.site().ledger.run(RUN).sequence
        again = sweep(bench.site())
        assert (again.committed, again.replicated, again.released, again.said) == ([], [], [], []), f"step {number}"
        assert bench.site().ledger.run(RUN).sequence == tip
        if not dead:
            break
    assert len(passed) >= 2, f"{prepare.__name__} has too few named steps to be killed at: {passed}"


def test_a_commit_told_of_twice_is_one_entry(folder, lakefs, repository):
    bench = Bench(folder / "site", lakefs, repository.repository)
    site = bench.prepared(100)
    before = site.ledger.run(RUN).sequence
    again = commit(bench.site(), Commit(path=bench.out / "step-100", run=RUN, step=100))
    assert (again.new, again.record.id) == (False, bench.at(site, 100).record.id)
    assert bench.site().ledger.run(RUN).sequence == before


def test_the_checker_itself_sees_a_lost_record_and_damage(folder, lakefs, repository):
    bench = Bench(folder / "site", lakefs, repository.repository)
    site = bench.prepared(100)
    replicate(site, RUN, bench.at(site, 100).record.id, to="warm")
    victim = max(
        (bench.home / "warm" / "files").rglob("*"), key=lambda path: path.stat().st_size if path.is_file() else -1
    )
    victim.chmod(0o644)
    victim.write_bytes(b"rot")
    wrong = broken_promises(bench.site(), bench.acknowledged | {"f" * 64})
    assert any("lost" in line for line in wrong)
    assert any("in warm" in line for line in wrong)


def test_two_sweeps_at_once_are_as_if_one_after_the_other(folder, lakefs, repository):
    bench = Bench(folder / "site", lakefs, repository.repository)
    bench.prepared(100, 200)
    write_checkpoint(bench.out / "step-300", "weights of 300 ")
    dead, _ = killed_at(lambda steps: _both(bench), None)
    assert not dead
    assert broken_promises(bench.site(), bench.acknowledged) == []
    kinds = [entry.kind for entry, _ in bench.site().ledger.entries(RUN)]
    assert kinds.count("committed") == 3
    assert sweep(bench.site()).said == []


def _both(bench):
    """Two processes that sweep the same site."""
    other = os.fork()
    sweep(bench.site())
    if other == 0:
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(other, 0)[1]) == 0
