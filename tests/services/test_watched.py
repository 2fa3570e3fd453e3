"""Directories that `watch:` names: patterns, containers that see them elsewhere, the data a run is opened on."""

from dataclasses import replace
from pathlib import Path

import pytest

from lakemark.ports import Watched
from lakemark.services.back.resume import resume
from lakemark.services.directories import directories
from lakemark.services.runs.close_run import close_run
from lakemark.services.runs.open_run import Opening, open_run
from lakemark.services.runs.open_watched import open_watched
from tests.services.world import OUT, RUN
from tests.support.memory.lookout import MemoryLookout

INSIDE = Path("/workspace/out")
PATTERN = Watched(path=Path("/train/job-*/out"), run="exp-{name}")


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        ("exp-a", "/train/job-a/out"),
        ("exp-a.b-c", "/train/job-a.b-c/out"),
        ("x-6578702d41", "/train/job-A/out"),  # exp-A, mapped to a run's name
        ("exp", None),
        ("other-a", None),
        ("x-6578702d2e2e", None),  # exp-..
        ("x-6578702d612f62", None),  # exp-a/b
    ],
)
def test_a_pattern_names_the_directory_of_a_run(run, expected):
    assert PATTERN.directory(run) == (None if expected is None else Path(expected))


def test_a_plain_name_is_that_run_s_alone():
    watched = Watched(path=OUT, run=RUN)
    assert watched.directory(RUN) == OUT
    assert watched.directory("llama-2") is None


def test_paths_of_a_container_are_translated_both_ways():
    watched = replace(PATTERN, seen_as=INSIDE)
    assert watched.here("exp-a", INSIDE / "step-1") == Path("/train/job-a/out/step-1")
    assert watched.there("exp-a", Path("/train/job-a/out/step-1")) == INSIDE / "step-1"
    assert watched.here("exp-a", Path("/elsewhere/step-1")) == Path("/elsewhere/step-1")
    assert watched.here("other", INSIDE / "step-1") == INSIDE / "step-1"


def test_saves_are_found_below_a_pattern(world):
    world.changes = {"watch": (Watched(path=OUT.with_name("*"), run="{name}"),)}
    world.open("out", watch=None)
    assert list(directories(world.site(), world.state("out"))) == [OUT]
    world.save(100)
    world.sweep()
    assert [found.record.step for found in world.state("out").records.values()] == [100]


def test_a_trainer_in_a_container_announces_and_resumes_by_its_own_paths(world):
    world.changes = {"watch": (Watched(path=OUT, run=RUN, seen_as=INSIDE),)}
    world.open(watch=None)
    trainer = world.trainer(out=OUT)
    world.save(100)
    trainer.announce(INSIDE / "step-100", 100, metrics={"loss": 1.0})
    swept = world.sweep()
    assert swept.incomplete == []
    assert [done.record.metrics for done in swept.committed] == [{"loss": 1.0}]
    done = resume(world.site(), RUN, to=OUT)
    assert done.path == OUT / "step-100"
    told = world.spool.read_run_file(world.site().run_file(RUN)).resume
    assert told["path"] == str(INSIDE / "step-100")


def test_a_trainer_in_a_container_may_see_other_inodes(world):
    world.changes = {"watch": (Watched(path=OUT, run=RUN, seen_as=INSIDE),)}
    world.open(watch=None)
    trainer = world.trainer(out=OUT)
    for step in (100, 200):
        path = world.save(step)
        seen = {one.path: one.file for one in world.files.regular(path)}
        identity = {name: (one.inode + 1000, one.size_bytes, one.mtime_ns) for name, one in seen.items()}
        trainer.announce(INSIDE / f"step-{step}", step, metrics={"loss": 1.0}, identity=identity)
    world.disk.write(OUT / "step-200" / "model.bin", b"another")
    world.sweep()
    assert [world.at(step).record.metrics for step in (100, 200)] == [{"loss": 1.0}, {}]


def test_a_run_is_opened_on_the_data_that_its_directory_names(world):
    world.data.set_branch("data", "dev", world.data.head("data", "main"))
    world.data.commit("data", "dev", {"rows": b"other"})
    world.changes = {"watch": (Watched(path=OUT, run=RUN, data="data/dev"),)}
    opened = open_run(world.site(), Opening(run=RUN))
    assert [(ref.branch, ref.commit) for ref in opened.data] == [("dev", world.data.head("data", "dev"))]


def test_a_watched_directory_opens_no_run_by_itself(world):
    world.changes = {"watch": (Watched(path=OUT, run=RUN, data="data/main"),)}
    world.save(100)
    world.clock.wait(hours=1)
    world.sweep()
    assert list(world.ledger.runs()) == []


def test_a_directory_is_the_run_s_that_was_opened_on_it_last(world):
    """Else a run that nobody closed, and that comes first, would take the saves of the one that goes on."""
    world.open("a")
    world.save(100)
    world.sweep()
    world.open("b")
    world.save(200)
    world.sweep()
    steps = {run: [found.record.step for found in world.state(run).records.values()] for run in ("a", "b")}
    assert steps == {"a": [100], "b": [200]}
    close_run(world.site(), "b", reason="it was a mistake")
    world.clock.wait(seconds=1)
    world.save(300)
    world.sweep()
    assert max(found.record.step for found in world.state("a").records.values()) == 300


def test_a_directory_whose_name_differs_from_a_run_s_only_in_case_opens_none(world):
    world.changes = {"watch": (Watched(path=OUT.with_name("*"), run="{name}", data="data/main"),)}
    world.open("llama", watch=None)
    world.save(100, out=OUT.with_name("Llama"))
    opened = open_watched(world.site(), MemoryLookout(world.disk))
    assert [(one.what, "differs from only in case" in one.why) for one in opened.pending] == [
        (f"opening a run for {OUT.with_name('Llama')}", True)
    ]
    assert world.ledger.runs() == ("llama",)
