"""The node's service killed anywhere: the next one finishes or undoes what it left, and every promise holds."""

import json
import os
import random
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from lakemark.ports import Watched
from lakemark.services.node.watch import Watch
from tests.services.crashing import Fuse, Killed, fused, read_everything, settled
from tests.services.world import OUT, RUN, World, write_checkpoint
from tests.support.memory.lookout import MemoryLookout

TRAINER = """
import os, sys, time
from pathlib import Path
from lakemark.trainer import Run

out, home, first, last = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
for step in range(first, last):
    draft, path = out / f".step-{step}.tmp", out / f"step-{step}"
    draft.mkdir(parents=True)
    for name in ("weights.bin", "optimizer.bin"):
        (draft / name).write_bytes(os.urandom(200_000))
    draft.rename(path)
    if step % 2 and (Path(home) / "runs" / f"{out.name}.json").exists():
        Run.open(out.name, environ={"LAKEMARK_HOME": home}).saved(path, step=step)
    time.sleep(0.15)
"""
SITE = """
site: killed
node: node-a
data: {{endpoint: {endpoint}, repository: {repository}, branch: main, require_pin: guarded}}
tiers: {{hot: {{class: hot, kind: tree, path: hot, min_free: 0%}}, cold: {{class: cold, kind: directory, path: cold}}}}
residence: {{hot: {{keep_last: 1000, settle: 10m}}, cold: {{admit: all}}}}
watch: [{{path: {home}/train/*, run: "{{name}}", data: {repository}/main}}]
limits: {{cpus: 2, nice: 0, io_class: none, bandwidth: null}}
"""
RUNS = ("exp-1", "exp-2")
STEPS = 40


@pytest.fixture(scope="module")
def repository(lakefs):
    return lakefs.scratch().repository


@pytest.fixture
def site(tmp_path, lakefs, repository):
    """lakemark on a site whose runs nobody opens: `lakemark(*words)` answers its JSON document."""
    home = Path("/dev/shm") / f"lakemark-{os.getpid()}-{tmp_path.name}" if os.access("/dev/shm", os.W_OK) else tmp_path
    home.mkdir(exist_ok=True)
    (home / "lakemark.yaml").write_text(SITE.format(endpoint=lakefs.endpoint, repository=repository, home=home))
    keys = {"LAKEFS_ACCESS_KEY_ID": lakefs.access_key_id, "LAKEFS_SECRET_ACCESS_KEY": lakefs.secret_access_key}
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("LAKEMARK_", "PREFECT_"))}
    made = Site(home, environ | keys | {"PYTHONWARNINGS": "ignore"})
    made("init", home)
    yield made
    shutil.rmtree(home)


class Site:
    def __init__(self, home, environ):
        self.home, self.environ = home, environ

    def command(self, *words):
        return [sys.executable, "-m", "lakemark.cli", *map(str, words), "--config", str(self.home / "lakemark.yaml")]

    def __call__(self, *words):
        done = subprocess.run(
            self.command(*words, "--json"), env=self.environ, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def watch(self):
        with (self.home / "watch.log").open("ab") as log:
            return subprocess.Popen(self.command("watch", "--every", "1s"), env=self.environ, stdout=log, stderr=log)

    def records(self, run):
        if run not in {one["run"] for one in self("run", "ls")["runs"]}:
            return []
        return self("ls", run, "--all-timelines", "--limit", "1000")["records"]


def test_killed_at_random_while_trainers_save(site, repository):
    rng = random.Random(4)
    trainers = []
    for run in RUNS:
        (site.home / "train" / run).mkdir(parents=True)
        command = [sys.executable, "-c", TRAINER, site.home / "train" / run, site.home, "1", str(STEPS)]
        trainers.append(subprocess.Popen(command, env=site.environ))
    for _ in range(6):
        process = site.watch()
        time.sleep(rng.uniform(0.5, 4))
        process.kill()
        process.wait()
    assert [trainer.wait(300) for trainer in trainers] == [0, 0]
    wanted = list(range(1, STEPS))
    process = site.watch()
    try:
        end = time.monotonic() + 300
        while True:
            found = {run: sorted(one["step"] for one in site.records(run)) for run in RUNS}
            moved = all(len(one["replicas"]) == 2 for run in RUNS for one in site.records(run))
            if moved and found == dict.fromkeys(RUNS, wanted):
                break
            assert time.monotonic() < end, found
            time.sleep(0.5)
    finally:
        process.terminate()
        assert process.wait(180) == 0
    records = [one for run in RUNS for one in site.records(run)]
    assert {one["timeline"] for one in records} == {1}
    assert all(one["data"][0]["repository"] == repository for one in records)
    swept = site("sweep")
    assert (swept["committed"], swept["replicated"], swept["said"]) == ([], [], [])
    checked = site("verify", "--invariants")
    assert (checked["damaged"], checked["violations"]) == ([], [])


# In memory: at every change one after the other


def prepared():
    world = World()
    world.changes = {"watch": (Watched(path=OUT.with_name("*"), run="{name}", data="data/main"),)}
    world.open(watch=OUT)
    world.trainer().save(100)
    world.save(200)
    write_checkpoint(world.disk, OUT.with_name("new") / "step-1", "of a run that nobody opened")
    world.clock.wait(seconds=10)
    return world


def rounds(world, fuse=None):
    site = world.site() if fuse is None else fused(world.site(), fuse)
    watch = Watch(site, MemoryLookout(world.disk), say=lambda _: None)
    for work in watch.works().values():
        work(None)
    return watch


def test_killed_at_every_change():
    passed = 0
    while True:
        passed += 1
        world, fuse = prepared(), Fuse()
        fuse.left = passed
        try:
            rounds(world, fuse)
        except Killed:
            world.restart()
        else:
            break
        world.clock.wait(minutes=6)
        rounds(world)
        world.clock.wait(minutes=6)
        watch = rounds(world)
        assert watch.problems.count() == 0, [problem.what for problem in watch.problems.listed()]
        states = {run: world.state(run) for run in world.ledger.runs()}
        steps = {run: sorted(found.record.step for found in state.records.values()) for run, state in states.items()}
        assert steps == {"new": [1], RUN: [100, 200]}
        for run in ("new", RUN):
            assert all(len(found.replicas) == 3 for found in world.state(run).records.values())
            resume = world.spool.read_run_file(world.site().run_file(run)).resume
            assert resume["step"] == max(found.record.step for found in world.state(run).records.values())
        read_everything(world)
        settled(world, set(world.state().records))
    assert passed > 20


def test_two_services_that_should_not_be_waste_work_and_nothing_else():
    world = prepared()
    sites = [replace(world.site(), actor=f"ana@{number}") for number in range(2)]
    watches = [Watch(site, MemoryLookout(world.disk), say=lambda _: None) for site in sites]
    for watch in (*watches, *watches):
        for work in watch.works().values():
            work(None)
    assert [len(world.state(run).records) for run in ("new", RUN)] == [1, 2]
    read_everything(world)
