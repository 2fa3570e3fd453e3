"""What the ledger is told beside what it decides by: restores, ends of attempts, metrics, how long work took."""

from dataclasses import replace
from datetime import timedelta

import pytest

from lakemark.errors import NotFound, Refused, StoreUnavailable, Usage
from lakemark.model.ledger.measures import measures
from lakemark.model.ledger.run import Cause
from lakemark.ports import Objectives
from lakemark.services.back.restore import restore
from lakemark.services.back.resume import resume
from lakemark.services.runs.close_run import close_run
from lakemark.services.saves.commit import Commit, commit
from lakemark.services.saves.complete import add_metrics
from lakemark.services.soundness import GuardedLedger
from lakemark.services.tiers.replicate import replicate
from tests.services.world import OUT, RUN, World


@pytest.fixture
def world():
    world = World()
    world.open()
    return world


class Stopwatch:
    """Goes on by a second at each look."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1
        return self.now


class Full(GuardedLedger):
    """Of a disk that takes no entry any more."""

    def append(self, run, decide, stamp):
        raise Refused("it is read only", advice="Mend the disk.")


def full(world):
    return Full(lambda: world.ledger, world.journal, stores=tuple)


def entries(world, kind):
    return [entry for entry, _ in world.ledger.entries(RUN) if entry.kind == kind]


def measured(world, kind):
    return [row for entry in entries(world, kind) for row in measured_of(entry)]


def measured_of(entry):
    return [(one.work, one.seconds, one.size_bytes) for one in measures(entry)]


def test_a_plain_restore_is_history_too(world, tmp_path):
    world.saves(100)
    site, size = world.site(seconds=Stopwatch()), world.at(100).record.size_bytes
    done = restore(site, RUN, world.at(100).record.id, to=tmp_path / "back", roles=())
    (told,) = entries(world, "restored")
    files = len(world.ledger.manifest(RUN, told.record).regular)
    assert (told.record, told.body["to"]) == (world.at(100).record.id, str(tmp_path / "back"))
    assert told.body["sources"] == [{"tier": "hot", "node": "node-a", "files": files}]
    assert measured(world, "restored") == [("restored", done.seconds, size)]
    restore(site, RUN, world.at(100).record.id, to=tmp_path / "again")
    assert len(entries(world, "restored")) == 2


def test_a_restore_does_not_fail_for_a_ledger_that_takes_no_entry(world, tmp_path):
    world.saves(100)
    record = world.at(100).record.id
    done = restore(world.site(ledger=full(world)), RUN, record, to=tmp_path / "back")
    assert done.restored.size_bytes == done.found.record.size_bytes
    assert restore(world.site(reads_only=True), RUN, record, to=tmp_path / "again").restored.size_bytes


def test_a_restore_that_failed_is_none(world, tmp_path):
    world.saves(100)
    world.shelves["cold"].reachable = False
    with pytest.raises(StoreUnavailable):
        restore(world.site(), RUN, world.at(100).record.id, to=tmp_path / "back", tier="cold")
    assert entries(world, "restored") == []


def test_landing_and_replicating_say_how_long_they_took(world):
    path = world.save(100)
    world.clock.wait(seconds=10)
    site = world.site(seconds=Stopwatch())
    record = commit(site, Commit(path=path, run=RUN, step=100)).record
    replicate(site, RUN, record.id, to="cold")
    assert measured(world, "committed") == [("landed", 1.0, record.size_bytes)]
    assert measured(world, "replicated") == [("replicated", 1.0, record.size_bytes)]


def test_what_the_trainer_measured_is_told_of_its_save(world):
    trainer = world.trainer()
    trainer.save(100, saved_seconds=2.5)
    trainer.save(200)
    world.sweep()
    told = [{work: seconds for work, seconds, _ in measured_of(entry)} for entry in entries(world, "committed")]
    assert [one.get("saved") for one in told] == [2.5, None]


def test_a_resume_that_brings_bytes_says_how_long_it_took(world):
    world.saves(100)
    world.forget(100)
    resume(world.site(seconds=Stopwatch()), RUN, to=OUT, job="2")
    works = [work for work, _, _ in measured(world, "restored")]
    assert works == ["restored", "resumed"]
    assert entries(world, "restored")[0].body["attempt"] == world.state().attempt.id
    resume(world.site(), RUN, to=OUT, job="2")
    assert len(entries(world, "restored")) == 1


def ended(world):
    return [(one.body["attempt"], one.body["cause"], one.body["noticed_by"]) for one in entries(world, "attempt_ended")]


def test_the_next_attempt_s_resume_ends_the_one_before(world):
    world.saves(100)
    first = world.state().attempt.id
    resume(world.site(), RUN, to=OUT, job="2", because=Cause.NODE)
    assert ended(world) == [(first, "node", "resumed")]
    assert world.state().attempts[first].cause == "node"
    assert world.state().attempt.ended_at is None
    resume(world.site(), RUN, to=OUT, job="2", because=Cause.NODE)
    resume(world.site(node="node-b"), RUN, to=OUT, job="2")
    assert len(ended(world)) == 1


def test_attempts_without_a_job_on_two_nodes_may_be_of_one_start(world):
    world.saves(100)
    state = world.state()
    resume(world.site(), RUN, to=OUT)
    there = world.site(node="node-b")
    resume(there, RUN, to=OUT)
    assert [attempt for attempt, _, _ in ended(world)] == [state.attempt.id]


def test_a_close_ends_the_last_attempt_once(world):
    world.saves(100)
    last = world.state().attempt.id
    close_run(world.site(), RUN, reason="done", because=Cause.SOFTWARE)
    close_run(world.site(), RUN, reason="done")
    assert ended(world) == [(last, "software", "closed")]
    assert world.kinds()[-2:] == ["attempt_ended", "closed"]


def test_an_idle_run_s_attempt_has_ended_and_a_cause_may_come_later(world):
    idle = replace(world.policies, objectives=Objectives(idle_after=timedelta(days=2)))
    world.saves(100)
    last = world.state().attempt.id
    world.clock.wait(hours=47)
    world.sweep(policies=idle)
    assert ended(world) == []
    world.clock.wait(hours=2)
    swept = world.sweep(policies=idle)
    assert any("idle" in line for line in swept.said)
    world.sweep(policies=idle)
    assert ended(world) == [(last, "unknown", "idle")]
    at = world.state().attempts[last].ended_at
    resume(world.site(), RUN, to=OUT, job="2", because=Cause.PREEMPTED)
    assert ended(world)[1:] == [(last, "preempted", "resumed")]
    assert (world.state().attempts[last].cause, world.state().attempts[last].ended_at) == ("preempted", at)


def test_nobody_s_idle_time_ends_nothing(world):
    world.saves(100)
    world.clock.wait(days=99)
    world.sweep()
    assert ended(world) == []


def test_what_an_evaluation_found_is_added_to_the_record(world):
    world.saves(100)
    before = world.at(100).record
    found = add_metrics(world.site(), RUN, before.id, {"mmlu": 0.25}, reason="the evaluation of Monday")
    assert (found.id, found.metrics) == (before.id, {**before.metrics, "mmlu": 0.25})
    assert world.at(100).record == found
    add_metrics(world.site(), RUN, before.id, {"mmlu": 0.25}, reason="said again")
    add_metrics(world.site(), RUN, before.id, {"mmlu": 0.5}, reason="a mistake in the first")
    assert [entry.body["metrics"] for entry in entries(world, "metric_added")] == [{"mmlu": 0.25}, {"mmlu": 0.5}]
    assert world.at(100).record.metrics["mmlu"] == 0.5


@pytest.mark.parametrize(
    "metrics", [{}, {"x": float("nan")}, {"x": float("inf")}, {"": 1.0}, {"x" * 201: 1.0}],
)  # fmt: skip
def test_what_is_no_metric_is_refused(world, metrics):
    world.saves(100)
    with pytest.raises(Usage):
        add_metrics(world.site(), RUN, world.at(100).record.id, metrics, reason="why not")
    with pytest.raises(NotFound):
        add_metrics(world.site(), RUN, "f" * 64, {"x": 1.0}, reason="why not")
    assert entries(world, "metric_added") == []


def test_a_metric_given_when_it_is_committed_again_is_added(world):
    world.saves(100)
    path = world.save(200)
    world.clock.wait(seconds=10)
    first = commit(world.site(), Commit(path=path, run=RUN, step=200, metrics={"loss": 2.0}))
    again = commit(world.site(), Commit(path=path, run=RUN, step=200, metrics={"loss": 1.5, "mmlu": 0.25}))
    assert (again.new, again.record.id, again.notes) == (False, first.record.id, ())
    assert again.record.metrics == world.at(200).record.metrics == {"loss": 1.5, "mmlu": 0.25}
    once = world.kinds()
    commit(world.site(), Commit(path=path, run=RUN, step=200, metrics={"loss": 1.5}))
    assert world.kinds() == once


def test_a_metric_that_the_ledger_does_not_take_is_said_and_nothing_fails(world):
    path = world.save(200)
    world.clock.wait(seconds=10)
    commit(world.site(), Commit(path=path, run=RUN, step=200))
    done = commit(world.site(ledger=full(world)), Commit(path=path, run=RUN, step=200, metrics={"loss": 2.0}))
    assert done.notes == ("the metric loss=2 is not kept: it is read only",)
