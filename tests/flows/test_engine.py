"""Flows on Prefect's real engine and server, in this process."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from datetime import timedelta

import pytest
from prefect import flow
from prefect.exceptions import ParameterBindError, PrefectHTTPStatusError, SignatureMismatchError
from prefect.settings import (
    PREFECT_RESULTS_PERSIST_BY_DEFAULT,
    PREFECT_TASKS_DEFAULT_PERSIST_RESULT,
    temporary_settings,
)

from flows import _edge
from flows.commit import commit
from flows.demote import demote
from flows.restore import restore
from flows.resume import resume
from flows.rollback import roll_back
from flows.sweep import sweep
from flows.verify import verify
from lakemark.errors import Corrupt, LakemarkError, NotFound, Refused, StoreUnavailable
from lakemark.services.tiers.verify import verify as verify_records
from lakemark.trainer import Run

pytestmark = pytest.mark.xdist_group("prefect")


def announced(stage, run, step):
    """A save of a trainer that says so."""
    trainer = Run.open(run, environ=stage.environ)
    trainer.saved(stage.save(run, step), step=step)


def steps(stage, run):
    return [found.record.step for found in stage.state(run).records.values()]


def at_once(work):
    """What `work` answered twice, in two threads with this one's settings."""
    with ThreadPoolExecutor(2) as pool:
        return [run.result() for run in [pool.submit(copy_context().run, work) for _ in range(2)]]


def test_commit_seals_a_save_once(engine):
    stage = engine.stage
    stage.open("committing")
    path = stage.save("committing", 100)
    first, again = (commit(run="committing", step=100, name=path.name) for _ in range(2))
    assert (first["new"], again["new"]) == (True, False)
    assert first["record"] == again["record"] == next(iter(stage.state("committing").records))
    with pytest.raises(NotFound, match="no registered directory on node-a"):
        commit(run="never-opened", step=1, name="step-1")


def test_sweep_finds_what_a_trainer_announced(engine):
    engine.stage.open("sweeping")
    announced(engine.stage, "sweeping", 100)
    (record,) = sweep()["committed"]
    assert engine.stage.state("sweeping").records[record].record.step == 100
    assert sweep()["committed"] == []


def test_two_demotions_at_once_are_as_one_after_the_other(engine):
    stage = engine.stage
    run = stage.trained("demoting", 100, 200, 300)
    one, two = at_once(lambda: demote(run=run))
    moved = [(row["record"], row["tier"]) for done in (one, two) for row in done["replicated"]]
    state = stage.state(run)
    everywhere = {(identity, tier) for identity in state.records for tier in ("warm", "cold")}
    assert set(moved) == everywhere
    added = [
        (item["record"], item["tier"])
        for entry, _ in stage.site().ledger.entries(run)
        if entry.kind == "replicated"
        for item in entry.body.get("items", [entry.body | {"record": entry.record}])
    ]
    assert sorted(added) == sorted(everywhere)
    looked = verify_records(stage.site(), list(state.records.values()))
    assert len(looked.looks) == 9
    assert all(look.ok for look in looked.looks)
    # Settled: what is proven below leaves hot, and again nothing twice.
    stage.wait_in_time(hours=3)
    one, two = at_once(lambda: demote(run=run))
    gone = [row["record"] for done in (one, two) for row in done["released"]]
    assert set(gone) == {found.record.id for found in state.records.values() if found.record.step == 100}
    assert all(look.ok for look in verify_records(stage.site(), list(stage.state(run).records.values())).looks)


def test_restore_brings_the_bytes_back_below_restore_root(engine):
    stage = engine.stage
    run = stage.trained("restoring", 100)
    (record,) = stage.state(run).records
    done = restore(run=run, record=record, name="back")
    found = {path.name: path.read_bytes() for path in (stage.home / "restores" / "back").iterdir()}
    assert found == {path.name: path.read_bytes() for path in (stage.out(run) / "step-100").iterdir()}
    assert (done["path"], done["verified"]) == (str(stage.home / "restores" / "back"), True)
    assert sum(source["files"] for source in done["sources"]) == 2
    with pytest.raises(LakemarkError, match="back"):
        restore(run=run, record=record, name="back")


def test_resume_fills_the_registered_directory(engine):
    stage = engine.stage
    run = stage.trained("resuming", 100, 200)
    shutil.rmtree(stage.out(run))
    done = resume(run=run, job="night-2")
    assert (done["step"], done["path"].startswith(str(stage.out(run)))) == (200, True)
    assert resume(run=run, job="night-2")["record"] == done["record"]


def test_resume_passes_gaps_over_until_they_are_accepted(engine):
    """torchtitan saves no random-number state: that is a gap, and somebody has to say that it is meant."""
    stage = engine.stage
    stage.open("gapped")
    path = stage.save("gapped", 100)
    trainer = Run.open("gapped", environ=stage.environ)
    trainer.saved(path, step=100, roles={"model.bin": "weights", "optim.bin": "optimizer"}, present=["scheduler"])
    assert sweep()["committed"]
    with pytest.raises(NotFound, match="step 100, has no rng"):
        resume(run="gapped", job="1")
    with pytest.raises(NotFound, match="no rng"):
        resume(run="gapped", job="1", without=["dataloader"])
    done = resume(run="gapped", job="1", without=["rng"])
    assert (done["step"], done["accepted_gaps"], done["passed_over"]) == (100, ["no rng"], [])


def test_verify_fails_after_it_recorded_the_damage(engine):
    stage = engine.stage
    run = stage.trained("verifying", 100)
    demote(run=run)
    assert verify(run=run) == {"checked": 3, "ok": 3}
    for path in (stage.home / "cold" / "files").rglob("*"):
        if path.is_file() and b"moments of verifying at 100" in path.read_bytes():
            path.chmod(0o644)
            path.write_bytes(b"rot" * 10)
    with pytest.raises(Corrupt, match=f"1 replica.*{run}@100 in cold"):
        verify(run=run)
    (found,) = stage.state(run).records.values()
    assert {place.tier: replica.sound for place, replica in found.replicas.items()} == {
        "hot": True,
        "warm": True,
        "cold": False,
    }


@pytest.mark.parametrize(
    ("run", "parameters"),
    [
        (commit, {"run": "x", "step": 1, "name": "n", "node": "node-b"}),
        (sweep, {"node": "node-b"}),
        (demote, {"node": "node-b"}),
        (restore, {"run": "x", "record": "0" * 64, "name": "n", "node": "node-b"}),
        (resume, {"run": "x", "job": "1", "node": "node-b"}),
        (verify, {"run": "guarded", "node": "node-b"}),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_run_for_another_node_does_nothing_here(engine, run, parameters):
    kinds = engine.stage.kinds("guarded")
    with pytest.raises(Refused, match="for node node-b, and this worker is node-a"):
        run(**parameters)
    assert engine.stage.kinds("guarded") == kinds


@pytest.mark.parametrize(
    ("minutes", "tags", "late"), [(11, ["auto-scheduled"], True), (9, ["auto-scheduled"], False), (11, [], False)]
)
def test_only_a_scheduled_run_that_waited_too_long_is_left_out(engine, minutes, tags, late):
    run = f"late-{minutes}-{len(tags)}"
    engine.stage.open(run)
    announced(engine.stage, run, 100)
    identity = engine.create("sweep", {"stale_after_minutes": 10}, waited=timedelta(minutes=minutes), tags=tags)
    done = engine.run(sweep, identity)
    assert (done == {"late": True}) is late
    assert steps(engine.stage, run) == ([] if late else [100])
    sweep()


@pytest.mark.parametrize(
    ("error", "calls"), [(StoreUnavailable, 4), (Refused, 1), (Corrupt, 1), (NotFound, 1), (ValueError, 1)]
)
def test_only_a_store_out_of_reach_is_asked_again(engine, error, calls):
    asked = []

    def reach():
        asked.append(1)
        raise error("no", advice="") if issubclass(error, LakemarkError) else error("no")

    step = _edge.step(reach).with_options(retry_delay_seconds=0)

    @flow(name="reaching")
    def reaching():
        return step()

    with pytest.raises(error):
        reaching()
    assert len(asked) == calls


def test_a_store_that_comes_back_is_used(engine):
    asked = []

    @_edge.step
    def reach():
        asked.append(1)
        if len(asked) < 3:
            raise StoreUnavailable("away", advice="")
        return "there"

    @flow(name="reaching")
    def reaching():
        return reach.with_options(retry_delay_seconds=0)()

    assert (reaching(), len(asked)) == ("there", 3)


def is_json(path):
    try:
        json.loads(path.read_bytes())
    except ValueError:
        return False
    return True


def test_nothing_is_pickled_even_where_prefect_is_told_to_keep_everything(engine, tmp_path):
    storage = tmp_path / "prefect" / "storage"
    run = engine.stage.trained("keeping", 100)

    @flow(name="control")
    def control():
        return object

    with temporary_settings({PREFECT_RESULTS_PERSIST_BY_DEFAULT: True, PREFECT_TASKS_DEFAULT_PERSIST_RESULT: True}):
        sweep()
        demote(run=run)
        assert not storage.exists()
        with pytest.raises(Refused):
            demote(run=run, node="node-b")
        assert all(is_json(path) for path in storage.iterdir())
        control()
    assert not all(is_json(path) for path in storage.iterdir()), "this Prefect pickles elsewhere: look there"


def test_an_unknown_run_is_said_and_leaves_nothing(engine):
    runs = list(engine.stage.site().ledger.runs())
    for name in ("no-such-run", "../../x", "site"):
        with pytest.raises(LakemarkError):
            restore(run=name, record="0" * 64, name="x")
        with pytest.raises(LakemarkError):
            resume(run=name, job="1")
    assert list(engine.stage.site().ledger.runs()) == runs


def test_a_wrong_parameter_is_refused_before_there_is_a_run_or_before_it_does_anything(engine):
    good = {"run": "r", "to": "3d", "reason": "loss up", "requester": "ana"}
    for bad in ({"reason": "x"}, {"reason": "x" * 1001}, {"to": ""}, {"run": ""}, {"requester": "a"}):
        with pytest.raises(PrefectHTTPStatusError, match=r"409.*Validation failed"):
            engine.create("rollback", good | bad)
    # Prefect takes a name it does not know, and the run fails at its start.
    for name, of, given in (
        ("sweep", sweep, {"stale_after_minuts": 10}),
        ("rollback", roll_back, good | {"too": "3d"}),
    ):
        identity = engine.create(name, given)
        with pytest.raises((SignatureMismatchError, ParameterBindError)):
            engine.run(of, identity)
