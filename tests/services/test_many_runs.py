"""Passes over more runs than a ledger keeps in memory: each run is read a few times, not once for every question."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest

from lakemark.adapters.git import ledger as git
from lakemark.adapters.git.pointer import Remote
from lakemark.index import Index
from lakemark.model.ledger.entry import Draft
from lakemark.model.ledger.outline import Outline
from lakemark.model.ledger.run import Place
from lakemark.ports import Policies
from lakemark.services.node.sweep import sweep
from lakemark.services.node.watch import Watch
from lakemark.services.runs.close_run import close_run
from lakemark.services.runs.open_run import Opening, open_run
from lakemark.services.tiers.release import release
from tests.faults.site_on_disk import Clock, make_site, write_checkpoint
from tests.support.memory import MemoryDisk
from tests.support.memory.lookout import MemoryLookout

RUNS = tuple(f"run-{number}" for number in range(6))
STEPS = (100, 200)
ACTIONS = 3
"""A pass reads a run for its outline, for its saves and for its replicas."""


class Counting(Index):
    """Counts how often each run is read from the cache, which is what a ledger does that let it go from memory."""

    def __init__(self, path):
        super().__init__(path)
        self.loads = Counter()

    def known(self, run):
        self.loads[run] += 1
        return super().known(run)


@pytest.fixture
def home(tmp_path):
    """A site with six runs of two records each, all replicated."""
    clock = Clock()
    site = make_site(tmp_path, None, clock)
    for run in RUNS:
        open_run(site, Opening(run=run, watch=tmp_path / "out" / run))
        for step in STEPS:
            write_checkpoint(tmp_path / "out" / run / f"step-{step}", f"{run} {step}")
    assert len(sweep(site).committed) == len(RUNS) * len(STEPS)
    return tmp_path, clock


def with_few_in_memory(home, clock):
    """The site anew, with a ledger that keeps as many runs as have four records."""
    cache = Counting(home / "index.sqlite")
    remotes = {name: Remote(name=name, url=str(home / name), directory=True) for name in ("warm", "cold")}
    ledger = git.GitLedger(home / "ledger.git", remotes=remotes, cache=cache, kept_records=2 * len(STEPS))
    return replace(make_site(home, None, clock), ledger=ledger), cache


def test_a_sweep_reads_each_run_a_few_times(home):
    site, cache = with_few_in_memory(*home)
    sweep(site)
    assert set(cache.loads) == set(RUNS)
    assert max(cache.loads.values()) <= ACTIONS, cache.loads
    cache.loads.clear()
    sweep(site)
    assert max(cache.loads.values()) <= ACTIONS - 1, cache.loads


def test_runs_that_are_closed_and_looked_through_are_read_for_their_replicas_alone(home):
    site, cache = with_few_in_memory(*home)
    for run in RUNS:
        close_run(site, run, reason="done")
    sweep(site)
    cache.loads.clear()
    sweep(site)
    assert max(cache.loads.values()) <= 1
    cache.loads.clear()
    sweep(site, find=False, move=False)
    # Their trees share files with the trainer's, which is looked at.
    assert max(cache.loads.values()) <= 1


def test_an_outline_says_what_the_state_says(home):
    folder, clock = home
    site, _ = with_few_in_memory(folder, clock)
    for run in RUNS:
        state, outline = site.ledger.run(run), site.ledger.outline(run)
        assert outline == Outline.of(state)
        assert (outline.sequence, outline.exists, outline.begun, outline.closed) == (state.sequence, True, True, False)
        assert outline.watch == state.watch
        mine, other = set(state.records), "0" * 64
        assert outline.records_of([*mine, other]) == mine
        assert outline.kept[site.hot.place] == {
            identity for identity, found in state.records.items() if site.hot.place in found.replicas
        }
        assert {Place(tier="warm"), site.hot.place} <= outline.places
    nobody = site.ledger.outline("nobody")
    assert (nobody.exists, nobody.records_of([other])) == (False, frozenset())


def test_an_outline_follows_every_entry_whoever_appends_it(home):
    folder, clock = home
    site, _ = with_few_in_memory(folder, clock)
    other = make_site(folder, None, clock)
    before = site.ledger.outline(RUNS[0])
    assert site.ledger.outline(RUNS[0]) is before
    other.ledger.append(RUNS[0], lambda state: Draft(kind="closed", timeline=state.timeline), other.stamp("closed"))
    assert (before.closed, site.ledger.outline(RUNS[0]).closed) == (False, True)
    site = replace(site, policies=Policies(quiet_seconds=0.0))
    clock.pass_(hours=1)
    identity = min(site.ledger.run(RUNS[1]).records)
    if identity in site.ledger.outline(RUNS[1]).kept[site.hot.place]:
        release(site, RUNS[1], identity, tier="hot")
    assert identity not in site.ledger.outline(RUNS[1]).kept.get(site.hot.place, ())
    assert site.hot.place in site.ledger.outline(RUNS[1]).places
    assert timedelta(0) == clock() - site.ledger.outline(RUNS[1]).written_at


def test_the_service_reads_closed_runs_no_more(home):
    site, cache = with_few_in_memory(*home)
    for run in RUNS:
        close_run(site, run, reason="done")
    watch = Watch(site, MemoryLookout(MemoryDisk(site.now)), say=lambda _: None)
    watch.found(None)
    cache.loads.clear()
    watch.found(None)
    watch.announced(None)
    watch.places()
    assert cache.loads == Counter()
