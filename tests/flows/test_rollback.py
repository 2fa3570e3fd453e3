"""The rollback flow on Prefect's real engine and server: the ledger and the form, either way round."""

from datetime import UTC, datetime, timedelta

import pytest

from flows.rollback import roll_back
from flows.sweep import sweep
from lakemark.errors import Conflict, LakemarkError, NotFound, Refused, Usage
from lakemark.services import rollback_apply, rollback_decide
from tests.flows.stage import until

pytestmark = pytest.mark.xdist_group("prefect")


def answer(engine, identity, standing, **given):
    full = {"decision": "approve", "approver": "bea", "plan_digest": standing.digest[:12]} | given
    engine.stage.deployments.answer(str(identity), full)


def decisions(stage, run):
    return [kind for kind in stage.kinds(run) if kind.startswith(("rollback", "rolled"))]


def test_approved_in_the_form(engine):
    stage = engine.stage
    run = stage.trained("form-yes", 100, 200, 300)
    identity, standing = engine.suspended(roll_back, run)
    assert standing.state == "requested"
    assert standing.digest[:12] in stage.artifact(f"rollback-plan-{standing.id}")
    assert standing.digest[:12] in stage.api.get(f"/flow_runs/{identity}/input/suspended-approval-description")
    for nothing in (
        {"run_input": {}},
        {},
        {"run_input": {"decision": "maybe", "approver": "bea", "plan_digest": "0" * 8}},
    ):
        said = stage.api.post(f"/flow_runs/{identity}/resume", nothing)
        assert said["status"] == "REJECT"
    assert stage.state_name(str(identity)) == "Suspended"
    answer(engine, identity, standing)
    done = engine.run(roll_back, identity)
    assert (done["timeline"], done["rollback"]) == (2, standing.id)
    assert decisions(stage, run) == ["rollback_requested", "rollback_approved", "rolled_back"]
    (found,) = stage.rollbacks(run)
    assert [given["actor"] for given in found.approvals] == ["bea"]
    restored = stage.home / "restores" / standing.id / "model.bin"
    assert restored.read_bytes() == (stage.out(run) / "step-100" / "model.bin").read_bytes()
    branch = done["data"][0]
    assert stage.repository.head(branch["branch"]) == branch["commit"]
    assert "back at step 100" in stage.artifact(f"rollback-result-{standing.id}")


def test_approved_in_the_ledger_first(engine):
    stage = engine.stage
    run = stage.trained("ledger-yes", 100, 200)
    identity, standing = engine.suspended(roll_back, run)
    assert sweep()["resumed"] == []
    rollback_decide.approve(stage.site("bea@laptop"), standing.id, digest=standing.digest[:12])
    assert sweep()["resumed"] == [f"rollback-{run}"]
    assert engine.run(roll_back, identity)["timeline"] == 2
    assert [given["actor"] for given in stage.rollbacks(run)[0].approvals] == ["bea@laptop"]
    assert sweep()["resumed"] == []


def test_applied_without_prefect_meanwhile(engine):
    stage = engine.stage
    run = stage.trained("ledger-done", 100, 200)
    identity, standing = engine.suspended(roll_back, run)
    rollback_decide.approve(stage.site("bea@laptop"), standing.id, digest=standing.digest[:12])
    applied = rollback_apply.apply(stage.site("bea@laptop"), standing.id)
    assert sweep()["resumed"] == [f"rollback-{run}"]
    assert engine.run(roll_back, identity)["timeline"] == applied.timeline == 2
    assert decisions(stage, run).count("rolled_back") == 1


def test_refused_in_the_ledger(engine):
    stage = engine.stage
    run = stage.trained("ledger-no", 100, 200)
    identity, standing = engine.suspended(roll_back, run)
    rollback_decide.refuse(stage.site("bea@laptop"), standing.id, reason="wrong run")
    assert sweep()["resumed"] == [f"rollback-{run}"]
    with pytest.raises(Refused, match=f"{standing.id} was refused"):
        engine.run(roll_back, identity)
    assert stage.flow_run(str(identity))["state_type"] == "FAILED"
    assert decisions(stage, run) == ["rollback_requested", "rollback_refused"]


def test_refused_in_the_form(engine):
    stage = engine.stage
    run = stage.trained("form-no", 100, 200)
    identity, standing = engine.suspended(roll_back, run)
    answer(engine, identity, standing, decision="refuse")
    with pytest.raises(Refused, match=f"{standing.id} was refused"):
        engine.run(roll_back, identity)
    assert decisions(stage, run) == ["rollback_requested", "rollback_refused"]
    assert stage.state(run).timeline == 1
    with pytest.raises(Refused, match="refused"):
        rollback_decide.approve(stage.site("bea@laptop"), standing.id, digest=standing.digest)


def test_expired_in_the_ledger(engine):
    stage = engine.stage
    run = stage.trained("expired", 100, 200)
    identity, standing = engine.suspended(roll_back, run)
    timeout = stage.flow_run(str(identity))["state"]["state_details"]["pause_timeout"]
    left = datetime.fromisoformat(timeout) - datetime.now(UTC)
    assert timedelta(hours=23) < left <= timedelta(hours=24)
    stage.wait_in_time(hours=25)
    assert sweep()["resumed"] == [f"rollback-{run}"]
    with pytest.raises(Refused, match=f"{standing.id} was expired"):
        engine.run(roll_back, identity)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"approver": "ANA@elsewhere"}, "a second person must approve"),
        ({"approver": "the ledger"}, "does not show a decision"),
    ],
)
def test_an_answer_that_does_not_count_leaves_the_request_open(engine, given, why):
    stage = engine.stage
    run = stage.trained(f"form-wrong-{len(stage.editions)}", 100, 200)
    identity, standing = engine.suspended(roll_back, run)
    answer(engine, identity, standing, **given)
    with pytest.raises(Refused, match=why):
        engine.run(roll_back, identity)
    assert decisions(stage, run) == ["rollback_requested"]


def test_another_flow_run_takes_up_what_the_first_failed_to_decide(engine):
    stage = engine.stage
    run = stage.trained("taken-up", 100, 200)
    identity, standing = engine.suspended(roll_back, run)
    answer(engine, identity, standing, plan_digest="00000000")
    with pytest.raises(Refused, match="not the one requested"):
        engine.run(roll_back, identity)
    other = engine.create("rollback", {"request": asked(run, rollback=standing.id)})
    assert engine.run(roll_back, other) is None
    answer(engine, other, standing)
    assert engine.run(roll_back, other)["rollback"] == standing.id
    assert decisions(stage, run) == ["rollback_requested", "rollback_approved", "rolled_back"]


def asked(run, **change):
    return {"run": run, "to": "100", "reason": "the loss went up", "requester": "ana"} | change


def test_two_flow_runs_that_ask_the_same_share_the_decision(engine):
    stage = engine.stage
    run = stage.trained("shared", 100, 200)
    one, first = engine.suspended(roll_back, run)
    two, second = engine.suspended(roll_back, run)
    assert first.id == second.id
    rollback_decide.refuse(stage.site("bea@laptop"), first.id, reason="no")
    assert sorted(sweep()["resumed"]) == [f"rollback-{run}"] * 2
    for identity in (one, two):
        with pytest.raises(Refused, match=f"{first.id} was refused"):
            engine.run(roll_back, identity)
    assert decisions(stage, run) == ["rollback_requested", "rollback_refused"]


def test_what_is_asked_is_settled_when_it_is_asked(engine):
    """`1h` means the hour before the request, not before the approval."""
    stage = engine.stage
    run = stage.trained("ages", 100, 200, 300)
    identity, standing = engine.suspended(roll_back, run, to="3h")
    target = standing.plan["target"]["step"]
    stage.wait_in_time(hours=20)
    answer(engine, identity, standing)
    engine.run(roll_back, identity)
    assert len(stage.rollbacks(run)) == 1
    assert stage.state(run).records[stage.rollbacks(run)[0].plan["target"]["record"]].record.step == target == 200


def test_a_request_of_another_run_is_not_shown_under_this_name(engine):
    stage = engine.stage
    one, other = stage.trained("mine", 100, 200), stage.trained("other", 100, 200)
    _, standing = engine.suspended(roll_back, one)
    identity = engine.create("rollback", {"request": asked(other, rollback=standing.id)})
    with pytest.raises(Usage, match=f"is of the run {one}"):
        engine.run(roll_back, identity)


@pytest.mark.parametrize(
    ("change", "error"), [({"run": "never"}, NotFound), ({"to": "7"}, LakemarkError), ({"to": "soon"}, LakemarkError)]
)
def test_what_cannot_be_planned_ends_before_anybody_is_asked(engine, change, error):
    stage = engine.stage
    run = stage.trained(f"unplanned-{len(stage.editions)}", 100, 200)
    identity = engine.create("rollback", {"request": asked(run) | change})
    with pytest.raises(error):
        engine.run(roll_back, identity)
    assert stage.rollbacks(run) == []


def test_the_second_of_two_rollbacks_finds_the_timeline_moved(engine):
    stage = engine.stage
    run = stage.trained("racing", 100, 200, 300)
    one, first = engine.suspended(roll_back, run)
    two, second = engine.suspended(roll_back, run, to="200", requester="cleo")
    for identity, standing in ((one, first), (two, second)):
        answer(engine, identity, standing)
    engine.run(roll_back, one)
    with pytest.raises((Conflict, Refused)):
        engine.run(roll_back, two)
    assert decisions(stage, run).count("rolled_back") == 1
    until(lambda: stage.flow_run(str(two))["state_type"] == "FAILED")
