"""The node's service on adapters in memory: it finds, commits, opens, moves and keeps run files fresh, and says things once."""

import gc
import itertools
import tracemalloc
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from lakemark.errors import Refused, StoreUnavailable
from lakemark.model.ledger.entry import Draft
from lakemark.model.tiers.residence import Residence
from lakemark.model.values.names import run_for
from lakemark.ports.site import Watched
from lakemark.services.back.refresh_run_file import freshen
from lakemark.services.back.resume import resume
from lakemark.services.node.watch import Watch
from lakemark.services.runs.close_run import close_run
from lakemark.services.saves.commit import Commit, commit
from lakemark.services.tiers.register import register_all
from tests.services.crashing import KillAt, Killed, invariants, read_everything, settled
from tests.services.world import OUT, POLICIES, RUN, World, write_checkpoint
from tests.support.memory.lookout import MemoryLookout

DATA = "data/main"
PATTERN = Watched(path=Path("/train/*"), run="{name}", data=DATA)


class Service:
    """A watch whose rounds are done by hand."""

    def __init__(self, world, **site):
        self.world = world
        self.said = []
        register_all(world.site())
        self.lookout = MemoryLookout(world.disk)
        self.watch = Watch(world.site(**site), self.lookout, say=self.said.append)

    def round(self, *, seconds=10):
        """Everything once, as the rounds do side by side."""
        self.world.clock.wait(seconds=seconds)
        for work in self.watch.works().values():
            work(None)

    def heard(self):
        said, self.said[:] = list(self.said), []
        return said


@pytest.fixture
def service(world):
    return Service(world)


def told(world, run=RUN):
    return world.spool.read_run_file(world.site().run_file(run))


def test_it_commits_what_is_announced_and_what_is_found_and_moves_it(world, service):
    world.open()
    world.trainer().save(100)
    world.save(200)
    service.round()
    assert sorted(found.record.step for found in world.state().records.values()) == [100, 200]
    assert {place.tier for place in world.at(100).replicas} == {"hot", "warm", "cold"}
    assert {place.tier for place in world.at(200).replicas} == {"hot", "warm", "cold"}
    read_everything(world)
    settled(world, set(world.state().records))


def test_a_sweep_after_it_finds_its_work_done(world, service):
    world.open()
    world.trainer().save(100)
    world.save(200)
    service.round()
    before = world.state().sequence
    swept = world.sweep()
    assert (swept.committed, swept.replicated, swept.released) == ([], [], [])
    assert world.state().sequence == before


def test_a_commit_that_broke_off_is_finished_from_where_the_trainer_saved_it(world, service):
    """Only there its name is known, and with it where a resume has to put it."""
    world.open()
    path = world.save(100)
    with pytest.raises(Killed):
        commit(world.site(progress=KillAt(2)), Commit(path=path, run=RUN, step=100))
    service.watch.tended(None)
    assert world.state().records == {}
    service.round()
    world.disk.remove(path)
    assert resume(world.site(), RUN, to=OUT, job="1").path == path


def test_and_from_hot_at_a_later_pass_where_the_trainer_removed_it(world, service):
    world.open()
    path = world.save(100)
    with pytest.raises(Killed):
        commit(world.site(progress=KillAt(2)), Commit(path=path, run=RUN, step=100))
    world.disk.remove(path)
    service.round()
    assert world.state().records == {}
    service.round(seconds=600)
    assert any("finished the commit of llama@100" in said for said in service.heard())
    assert [found.record.step for found in world.state().records.values()] == [100]


def test_it_finds_the_work_of_a_sweep_done(world, service):
    world.open()
    world.trainer().save(100)
    world.sweep()
    before = world.state().sequence
    service.round()
    assert world.state().sequence == before
    assert [line for line in service.said if line.startswith(("committed", "replicated"))] == []


def test_announcements_alone_look_into_no_directory(world, service):
    world.open()
    world.save(100)
    world.clock.wait(seconds=10)
    service.watch.announced(None)
    assert world.state().records == {}


def test_only_the_runs_that_are_named(world, service):
    for run in ("a", "b"):
        world.open(run, watch=OUT / run)
        world.save(100, out=OUT / run)
    world.clock.wait(seconds=10)
    service.watch.found(frozenset(["b"]))
    assert [len(world.state(run).records) for run in ("a", "b")] == [0, 1]


def test_a_run_that_another_round_is_busy_with_comes_again(world, service):
    world.open()
    world.trainer().save(100)
    with service.watch._turns.of(RUN):
        done = service.watch.announced(None)
        assert world.state().records == {}
    assert done.again == {RUN}
    assert service.watch.announced(None).again == frozenset()
    assert len(world.state().records) == 1


def test_closed_runs_are_looked_through_once_more_and_then_left_alone(world, service):
    world.open()
    close_run(world.site(), RUN, reason="over")
    world.clock.wait(minutes=1)
    world.save(100)
    service.round()
    service.round()
    assert world.state().records == {}
    assert OUT not in service.watch.places()


def test_runs_opened_while_it_runs_are_seen(world, service):
    service.round()
    world.open("late", watch=OUT)
    world.save(100)
    service.round()
    assert [found.record.step for found in world.state("late").records.values()] == [100]
    assert service.watch.places()[OUT] == "late"


# Opening runs by itself


def test_a_directory_that_appears_is_opened_with_the_data_of_its_entry(world):
    service = Service(world, watch=(PATTERN,))
    service.round()
    assert list(world.ledger.runs()) == []
    world.save(100, out=Path("/train/exp-1"))
    world.save(100, out=Path("/train/Exp 2"))
    service.round()
    assert set(world.ledger.runs()) == {"exp-1", run_for("Exp 2")}
    state = world.state("exp-1")
    assert [(ref.repository, ref.branch) for ref in state.interval.data] == [("data", "main")]
    assert state.interval.data[0].commit == world.data.head("data", "main")
    # It was there before anybody saw the directory; what comes next is of the data that the run was opened on.
    assert [found.record.bound for found in state.records.values()] == [False]
    world.save(200, out=Path("/train/exp-1"))
    service.round()
    assert world.at(200, run="exp-1").record.bound
    assert told(world, "exp-1").data[0].commit == state.interval.data[0].commit
    opened = world.state("exp-1").attempts
    service.round()
    assert world.state("exp-1").attempts == opened


def test_entries_without_data_open_nothing(world):
    service = Service(world, watch=(replace(PATTERN, data=None),))
    world.save(100, out=Path("/train/exp-1"))
    world.save(100, out=Path("/train/exp-2"))
    service.round()
    assert list(world.ledger.runs()) == []
    said = "saves in /train/exp-1: nobody opened exp-1: lakemark run open exp-1 (and so for 1 more)"
    assert service.heard().count(said) == 1
    service.round()
    assert service.heard() == []
    for run in ("exp-1", "exp-2"):
        world.open(run, watch=None)
    service.round()
    assert "over: saves in /train/exp-1" in service.heard()
    assert service.watch.problems.count() == 0


def test_with_the_data_s_server_away_nothing_is_opened_and_it_is_asked_once(world):
    service = Service(world, watch=(PATTERN,))
    for number in range(5):
        world.save(100, out=Path(f"/train/exp-{number}"))
    world.data.reachable = False
    calls = []
    real = world.data.resolve

    def resolve(*asked):
        calls.append(asked)
        return real(*asked)

    world.data.resolve = resolve
    assert service.watch.tended(None).transient
    assert len(calls) == 1
    assert [line for line in service.heard() if "opening a run for /train/exp-" in line] != []
    assert service.watch.problems.count() >= 5
    world.clock.wait(seconds=30)
    service.watch.tended(None)
    assert [line for line in service.heard() if "opening" in line] == [], "said once"
    world.data.reachable = True
    world.clock.wait(seconds=30)
    service.round()
    assert len(world.ledger.runs()) == 5
    assert len([line for line in service.heard() if line.startswith("over: opening a run for")]) == 5
    assert all(len(world.state(run).records) == 1 for run in world.ledger.runs())


def test_a_name_that_can_be_no_run_s_is_said_and_does_not_keep_others_out(world):
    service = Service(world, watch=(PATTERN,))
    world.save(100, out=Path("/train") / ("Ä" * 40))
    world.save(100, out=Path("/train/fine"))
    service.round()
    assert list(world.ledger.runs()) == ["fine"]
    assert any("can't be mapped" in line for line in service.said)


def test_a_closed_run_is_not_opened_again(world):
    service = Service(world, watch=(PATTERN,))
    world.save(100, out=Path("/train/fine"))
    service.round()
    close_run(world.site(), "fine", reason="over")
    service.round()
    assert world.state("fine").closed


def test_hidden_directories_are_no_runs(world):
    service = Service(world, watch=(PATTERN,))
    world.save(100, out=Path("/train/.cache"))
    service.round()
    assert list(world.ledger.runs()) == []


def test_a_directory_that_is_another_run_s_is_no_pattern_s(world):
    fix = Watched(path=Path("/train/fix"), run="named", data=DATA)
    service = Service(world, watch=(PATTERN, fix))
    world.open(watch=OUT)
    world.save(100)
    world.clock.wait(seconds=1)  # the same bytes in the same instant would be a copy
    world.save(100, out=Path("/train/fix"))
    service.round()
    assert set(world.ledger.runs()) == {RUN, "named"}
    assert [len(world.state(run).records) for run in (RUN, "named")] == [1, 1]


def test_a_container_s_paths_all_the_way(world):
    inside = Path("/workspace/out")
    watched = Watched(path=Path("/train/*/out"), run="exp-{name}", data=DATA, seen_as=inside)
    service = Service(world, watch=(watched,))
    world.changes = {"watch": (watched,)}
    out = Path("/train/a/out")
    world.disk.mkdir(out)
    service.round()
    trainer = world.trainer("exp-a", out)
    world.save(100, out=out)
    trainer.announce(inside / "step-100", 100, metrics={"loss": 2.0})
    service.round()
    (found,) = world.state("exp-a").records.values()
    assert found.record.metrics == {"loss": 2.0}
    assert told(world, "exp-a").resume["path"] == str(inside / "step-100")
    world.disk.remove(out / "step-100")
    service.round()
    assert told(world, "exp-a").resume["path"] == str(inside / "step-100"), "hot is not seen in there"


# Run files


def test_the_run_file_names_the_newest_record(world, service):
    world.open()
    trainer = world.trainer()
    assert told(world).resume is None
    for step in (100, 200):
        trainer.save(step)
        service.round()
        resume_to = told(world).resume
        assert resume_to == {
            "path": str(OUT / f"step-{step}"),
            "step": step,
            "record": world.at(step).record.id,
            "timeline": 1,
        }


def test_a_save_the_trainer_rotated_away_is_named_where_hot_has_it(world, service):
    world.open()
    trainer = world.trainer()
    trainer.save(100)
    service.round()
    world.disk.remove(OUT / "step-100")
    service.round()
    path = Path(told(world).resume["path"])
    assert path != OUT / "step-100"
    assert world.disk.exists(path / "model.bin")


def test_a_rollback_elsewhere_shows_in_the_run_file(world, service):
    world.open()
    for step in (100, 200, 300):
        world.clock.wait(minutes=10)
        world.trainer().save(step)
        service.round()
    before = told(world)
    world.roll_back(200)
    applied = told(world)
    world.spool.write_run_file(world.site().run_file(RUN), before)  # this node was not the one that applied it
    service.round()
    now = told(world)
    assert (now.timeline, now.resume["step"], now.resume["record"]) == (2, 200, world.at(200).record.id)
    assert now.attempt == applied.attempt
    assert [ref.commit for ref in now.data] == [ref.commit for ref in applied.data]


def test_what_was_decided_for_a_job_stays_until_it_saved_something(world, service):
    """Another node of the job may read its file later than this one: all must go on from the same record."""
    world.open()
    trainer = world.trainer()
    for step in (100, 200):
        world.clock.wait(minutes=10)
        trainer.save(step)
        service.round()
    resume(world.site(), RUN, to=OUT, job="night-1")
    again = world.trainer()
    again.save(300)
    service.round()
    assert told(world).resume["step"] == 300
    resume(world.site(), RUN, to=OUT, job="night-1")
    assert told(world).resume["step"] == 200
    service.round()
    assert told(world).resume["step"] == 200, "decided for the job"
    world.trainer().save(400)
    service.round()
    assert told(world).resume["step"] == 400


def test_a_straggler_of_another_attempt_does_not_change_what_a_job_was_told(world, service):
    world.open()
    old = world.trainer()
    old.save(100)
    service.round()
    resume(world.site(), RUN, to=OUT, job="night-1")
    old.save(200)
    service.round()
    assert world.latest().record.step == 200
    assert told(world).resume["step"] == 100


def test_a_file_that_is_right_is_not_written_again(world, service):
    world.open()
    world.trainer().save(100)
    service.round()
    before = told(world)
    service.round()
    assert told(world) is before
    assert not freshen(world.site(), RUN)


def test_runs_of_other_nodes_get_no_file_here(world):
    world.open(watch=None)
    world.spool._run_files.clear()
    service = Service(world)
    service.round()
    assert told(world) is None


# Trouble


def test_trouble_is_said_once_and_so_is_its_end(world, service):
    world.open()
    world.shelves["warm"].reachable = False
    for step in (100, 200, 300):
        world.trainer().save(step)
        service.round(seconds=60)
    said = [line for line in service.heard() if line.startswith("tier warm")]
    assert len(said) == 1
    assert [found.record.step for found in world.state().records.values()] == [100, 200, 300]
    assert all("cold" in {place.tier for place in found.replicas} for found in world.state().records.values())
    world.shelves["warm"].reachable = True
    service.round(seconds=301)
    assert len([line for line in service.heard() if line == "over: tier warm"]) == 1
    assert all("warm" in {place.tier for place in found.replicas} for found in world.state().records.values())


@pytest.mark.parametrize("what", ["tier", "bytes"])
def test_what_was_out_of_reach_is_tried_at_the_next_round(world, service, what):
    world.open()
    warm = service.watch.site.tiers["warm"]
    real = warm.put

    def put(*given, **more):
        raise StoreUnavailable("the connection broke", advice="Try again.")

    world.trainer().save(100)
    if what == "tier":
        world.shelves["warm"].reachable = False
    else:
        warm.put = put
    service.round()
    service.round()
    assert "warm" not in {place.tier for place in world.at(100).replicas}
    world.shelves["warm"].reachable, warm.put = True, real
    service.round()
    assert "warm" in {place.tier for place in world.at(100).replicas}


def test_one_run_s_trouble_is_not_over_because_another_run_moved(world, service):
    for run in ("a", "b"):
        world.open(run, watch=OUT / run)
    real = service.watch.site.tiers["warm"].put

    def put(checkpoint, *given, **more):
        if checkpoint.record.run == "a":
            raise Refused("warm is full", advice="Make room.")
        return real(checkpoint, *given, **more)

    service.watch.site.tiers["warm"].put = put
    world.save(100, out=OUT / "a")
    service.round()
    assert "a@100 to warm: warm is full" in service.heard()
    world.save(100, "b's own", out=OUT / "b")
    service.round()
    assert {place.tier for found in world.state("b").records.values() for place in found.replicas} == {
        "hot",
        "warm",
        "cold",
    }
    assert [line for line in service.heard() if "a@100" in line] == []
    assert [problem.what for problem in service.watch.problems.listed()] == ["a@100 to warm"]


def test_an_unforeseen_error_in_one_run_is_its_own(world, service):
    for run in ("a", "b"):
        world.open(run, watch=OUT / run)
        world.save(100, out=OUT / run)
    real = service.watch.site.recogniser

    class Broken:
        def find(self, root, **more):
            if root.name == "a":
                raise RuntimeError("what nobody thought of")
            return real.find(root, **more)

        def __getattr__(self, name):
            return getattr(real, name)

    service.watch.site = replace(service.watch.site, recogniser=Broken())
    service.round()
    assert [len(world.state(run).records) for run in ("a", "b")] == [0, 1]
    assert any("saves of a: unexpected RuntimeError" in line for line in service.said)


def test_unfinished_saves_are_said_only_when_they_stay_so(world, service):
    world.open()
    world.disk.write(OUT / "step-300" / "model.tmp", b"half")
    service.round()
    assert [line for line in service.heard() if "incomplete" in line] == []
    service.round(seconds=700)
    assert len([line for line in service.heard() if "incomplete" in line]) == 1
    service.round(seconds=700)
    assert [line for line in service.heard() if "incomplete" in line] == []


def test_directories_may_vanish_and_come_back(world, service):
    world.open()
    world.save(100)
    service.round()
    world.disk.remove(OUT)
    service.round()
    world.save(200)
    service.round()
    assert sorted(found.record.step for found in world.state().records.values()) == [100, 200]


def test_nothing_more_is_begun_once_it_is_to_stop(world, service):
    world.open()
    world.trainer().save(100)
    service.watch.stopping = True
    service.round()
    assert world.state().records == {}


def test_where_to_look(world):
    service = Service(world, watch=(PATTERN, Watched(path=Path("/fix/out"), run="fix")))
    world.open(watch=OUT)
    site = world.site()
    assert service.watch.places() == {
        site.home / "runs": None,
        site.home / "spool": None,
        site.spool_of(RUN): RUN,
        Path("/train"): None,
        Path("/fix"): None,
        OUT: RUN,
        Path("/train") / RUN: RUN,
    }


# A day


RPO = timedelta(minutes=30)


def test_a_day_with_nobody_but_it_keeps_the_recovery_point():
    """No Prefect anywhere; S3 is away four times for a quarter of an hour, lakeFS for two hours."""
    residence = {
        "hot": Residence(keep_last=2, settle=timedelta(minutes=10)),
        "warm": Residence(keep_for=timedelta(days=7)),
    }
    world = World(policies=replace(POLICIES, residence=residence))
    service = Service(world)
    world.open("a", watch=OUT / "a")
    world.open("b", watch=OUT / "b")
    trainer = world.trainer("a", OUT / "a")
    worst, saved = timedelta(0), {}
    for minute in range(0, 24 * 60, 5):
        world.clock.wait(minutes=5)
        hour = minute / 60
        world.shelves["warm"].reachable = not any(start <= hour < start + 0.25 for start in (3, 9, 15, 21))
        world.data.reachable = not 12 <= hour < 14
        if minute % 20 == 0:
            trainer.save(minute + 1, content=f"a {minute}")
            saved["a", minute + 1] = world.clock.now
        if minute % 30 == 0:
            write_checkpoint(world.disk, OUT / "b" / f"step-{minute + 1}", f"b {minute}")
            saved["b", minute + 1] = world.clock.now
        service.round(seconds=0)
        for (run, step), at in list(saved.items()):
            found = next((one for one in world.state(run).records.values() if one.record.step == step), None)
            if found is not None and "warm" in {place.tier for place in found.replicas}:
                worst = max(worst, world.clock.now - at)
                del saved[run, step]
    assert all(world.clock.now - at <= RPO for at in saved.values())
    assert timedelta(0) < worst <= RPO
    assert len(world.state("a").records) == 72
    assert len(world.state("b").records) == 48
    hot = [found for found in world.state("a").records.values() if world.hot.place in found.replicas]
    assert len(hot) <= 6, "hot is emptied as it goes"
    invariants(world, set(world.state("a").records) | set(world.state("b").records))


def test_out_of_reach_is_told_to_whoever_waits_longer_then(world, service):
    world.open()
    world.trainer().save(100)
    world.clock.wait(seconds=10)
    service.watch.announced(None)
    world.shelves["warm"].reachable = False
    to_warm, to_cold = (service.watch.works()[name] for name in ("to warm", "to cold"))
    assert to_warm(None).transient
    assert not to_cold(None).transient
    world.shelves["warm"].reachable = True
    assert not to_warm(None).transient
    with pytest.raises(StoreUnavailable):
        raise StoreUnavailable("only", advice="so that the class is the one that is meant")


def test_hours_of_rounds_need_no_more_memory_than_the_first(world):
    """Hundreds of rounds over runs that go on saving nothing, a store that comes and goes, an error that differs each time."""
    for number in range(5):
        world.open(f"run-{number}", watch=OUT / f"run-{number}")
        world.save(100, out=OUT / f"run-{number}")
    world.disk.write(OUT / "run-0" / "step-300" / "model.tmp", b"half")
    service = Service(world)
    real, count = service.watch.site.recogniser, itertools.count()

    class Broken:
        def find(self, root, **more):
            if root.name == "run-1":
                raise OSError(f"request {next(count)} of {next(count):016x} failed")
            return real.find(root, **more)

        def __getattr__(self, name):
            return getattr(real, name)

    service.watch.site = replace(service.watch.site, recogniser=Broken())

    def rounds(many):
        for number in range(many):
            world.shelves["warm"].reachable = number % 100 < 90
            service.round(seconds=30)
            service.said.clear()

    rounds(200)
    tracemalloc.start()
    try:
        rounds(200)
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        rounds(500)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Less than an error's text in each round: 90 bytes and more. What is there is the site's newest entries, read once.
    assert after - before < 64 * 500, f"{after - before} bytes more"


def test_twenty_nodes_ask_the_data_s_server_about_as_often_as_one(world):
    """Each look serves all of them. What is wrong is looked at again soon."""
    service = Service(world)
    world.open()
    asked = []
    real = world.data.branches

    def branches(*given, **named):
        asked.append(world.clock())
        return real(*given, **named)

    world.data.branches = branches

    def in_an_hour():
        asked.clear()
        for _ in range(120):
            service.round(seconds=30)
        return len(asked)

    assert in_an_hour() in (11, 12, 13)
    for number in range(1, 20):
        body = {"tier": f"hot@node-{number}", "id": f"id-{number}", "class": "hot", "tier_kind": "tree", "domain": "n"}
        world.ledger.append_site(
            lambda _, body=body: Draft(kind="tier_registered", body=body), world.site().stamp(f"tier:{number}")
        )
    service.round(seconds=300)
    assert in_an_hour() <= 2
    world.data.reachable = False
    in_an_hour()
    assert in_an_hour() in (11, 12, 13)
