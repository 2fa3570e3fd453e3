"""The rollback flow on Prefect's real engine and server: the ledger and the form, either way round."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from flows.rollback import roll_back
from flows.sweep import sweep
from lakemark.errors import LakemarkError, NotFound, Refused, Usage
from lakemark.services.back import rollback_apply, rollback_decide
from tests.flows.stage import until

pytestmark = pytest.mark.xdist_group("prefect")


def ends(engine, identity, name, why):
    """The flow run finishes, green, and says what the ledger says: who and why."""
    engine.run(roll_back, identity)
    state = engine.stage.flow_run(str(identity))["state"]
    assert (state["type"], state["name"]) == ("COMPLETED", name), state
    assert re.search(why, state["message"]), state["message"]


def names(stage, *identities):
    return sorted(stage.flow_run(str(identity))["name"] for identity in identities)


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
    assert standing.digest[:12] in stage.api.get(f"/flow_runs/{identity}/input/suspended-approval-1-description")
    for nothing in (
        {"run_input": {}},
        {},
        {"run_input": {"decision": "maybe", "approver": "bea", "plan_digest": "0" * 8}},
        {"run_input": {"decision": "approve", "plan_digest": "0" * 8}},
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
    assert sweep()["resumed"] == names(stage, identity)
    assert engine.run(roll_back, identity)["timeline"] == 2
    assert [given["actor"] for given in stage.rollbacks(run)[0].approvals] == ["bea@laptop"]
    assert sweep()["resumed"] == []


def test_applied_without_prefect_meanwhile(engine):
    stage = engine.stage
    run = stage.trained("ledger-done", 100, 200)
    identity, standing = engine.suspended(roll_back, run)
    rollback_decide.approve(stage.site("bea@laptop"), standing.id, digest=standing.digest[:12])
    applied = rollback_apply.apply(stage.site("bea@laptop"), standing.id)
    assert sweep()["resumed"] == names(stage, identity)
    assert engine.run(roll_back, identity)["timeline"] == applied.timeline == 2
    assert decisions(stage, run).count("rolled_back") == 1


def test_refused_in_the_ledger(engine):
    stage = engine.stage
    run = stage.trained("ledger-no", 100, 200)
    identity, standing = engine.suspended(roll_back, run)
    rollback_decide.refuse(stage.site("bea@laptop"), standing.id, reason="wrong run")
    assert sweep()["resumed"] == names(stage, identity)
    ends(engine, identity, "Refused", f"{standing.id} was refused by bea@laptop: wrong run")
    assert decisions(stage, run) == ["rollback_requested", "rollback_refused"]


def test_refused_in_the_form(engine):
    stage = engine.stage
    run = stage.trained("form-no", 100, 200)
    identity, standing = engine.suspended(roll_back, run)
    answer(engine, identity, standing, decision="refuse", plan_digest="", reason="the data is fine")
    ends(engine, identity, "Refused", f"{standing.id} was refused by bea: the data is fine")
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
    assert left > timedelta(hours=24), "the ledger ends it, with words; Prefect would only say that it failed"
    stage.wait_in_time(hours=25)
    assert sweep()["resumed"] == names(stage, identity)
    ends(engine, identity, "Expired", f"{standing.id} is expired: it expired")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"approver": "ANA@elsewhere"}, "a second person must approve"),
        ({"approver": "the ledger"}, "does not show a decision"),
        ({"plan_digest": "00000000"}, "not the one requested"),
        ({"plan_digest": ""}, "not the one requested"),
        ({"decision": "refuse", "reason": "no"}, "a refusal needs a reason"),
        ({"decision": "refuse"}, "a refusal needs a reason"),
    ],
)
def test_an_answer_that_does_not_count_is_asked_again(engine, given, why):
    stage = engine.stage
    run = stage.trained(f"form-wrong-{len(stage.editions)}", 100, 200)
    identity, standing = engine.suspended(roll_back, run)
    answer(engine, identity, standing, **given)
    assert engine.run(roll_back, identity) is None
    assert stage.state_name(str(identity)) == "Suspended"
    assert why in stage.api.get(f"/flow_runs/{identity}/input/suspended-approval-2-description")
    assert decisions(stage, run) == ["rollback_requested"]
    answer(engine, identity, standing)
    assert engine.run(roll_back, identity)["rollback"] == standing.id
    assert decisions(stage, run) == ["rollback_requested", "rollback_approved", "rolled_back"]


def test_an_answer_that_did_not_count_does_not_count_later(engine):
    """ana's approval came too early; by the time that bea refuses, ana might approve alone."""
    stage = engine.stage
    run = stage.trained("too-early", 100, 200)
    identity, standing = engine.suspended(roll_back, run)
    answer(engine, identity, standing, approver="ana")
    assert engine.run(roll_back, identity) is None
    stage.wait_in_time(hours=1)
    answer(engine, identity, standing, decision="refuse", reason="it was a spike")
    ends(engine, identity, "Refused", "by bea: it was a spike")
    assert decisions(stage, run) == ["rollback_requested", "rollback_refused"]


def cancel(stage, identity):
    asked = {"state": {"type": "CANCELLING"}, "force": False}
    stage.api.post(f"/flow_runs/{identity}/set_state", asked)
    until(lambda: stage.flow_run(str(identity))["state_type"] == "CANCELLED")


def test_prefects_cancel_refuses_the_request_once_nobody_else_waits_for_it(engine):
    stage = engine.stage
    run = stage.trained("cancelled", 100, 200)
    one, standing = engine.suspended(roll_back, run)
    other = engine.create("rollback", asked(run, rollback=standing.id))
    assert engine.run(roll_back, other) is None
    cancel(stage, one)
    sweep()
    assert stage.rollbacks(run)[0].state == "requested"
    cancel(stage, other)
    sweep()
    (found,) = stage.rollbacks(run)
    assert found.state == "refused"
    assert "was cancelled in Prefect" in found.ended_why
    sweep()
    assert decisions(stage, run) == ["rollback_requested", "rollback_refused"]


def test_the_plan_is_shown_once_and_runs_are_named_apart(engine):
    stage = engine.stage
    run = stage.trained("named", 100, 200, 300)
    one, first = engine.suspended(roll_back, run)
    two, second = engine.suspended(roll_back, run, to="200", requester="cleo")
    assert names(stage, one, two) == [f"rollback-{run}-to-100-{first.id}", f"rollback-{run}-to-200-{second.id}"]
    answer(engine, one, first)
    engine.run(roll_back, one)
    assert names(stage, one) == [f"rollback-{run}-to-100-{first.id}"]
    found = stage.api.post("/artifacts/filter", {"artifacts": {"key": {"any_": [f"rollback-plan-{first.id}"]}}})
    (plan,) = found
    assert plan["description"]
    assert first.plan["target"]["record"] not in plan["data"], "short ids are for people"
    assert sweep()["resumed"] == names(stage, two)
    ends(engine, two, "Overtaken", "the run went on in timeline 2")


def asked(run, **change):
    return {"run": run, "to": "100", "reason": "the loss went up", "requester": "ana"} | change


def test_two_flow_runs_that_ask_the_same_share_the_decision(engine):
    stage = engine.stage
    run = stage.trained("shared", 100, 200)
    one, first = engine.suspended(roll_back, run)
    two, second = engine.suspended(roll_back, run)
    assert first.id == second.id
    rollback_decide.refuse(stage.site("bea@laptop"), first.id, reason="not now")
    assert sorted(sweep()["resumed"]) == names(stage, one, two)
    for identity in (one, two):
        ends(engine, identity, "Refused", f"{first.id} was refused")
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
    identity = engine.create("rollback", asked(other, rollback=standing.id))
    with pytest.raises(Usage, match=f"is of the run {one}"):
        engine.run(roll_back, identity)


@pytest.mark.parametrize(
    ("change", "error"), [({"run": "never"}, NotFound), ({"to": "7"}, LakemarkError), ({"to": "soon"}, LakemarkError)]
)
def test_what_cannot_be_planned_ends_before_anybody_is_asked(engine, change, error):
    stage = engine.stage
    run = stage.trained(f"unplanned-{len(stage.editions)}", 100, 200)
    identity = engine.create("rollback", asked(run) | change)
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
    ends(engine, two, "Overtaken", f"{second.id} is overtaken: the run went on in timeline 2")
    assert decisions(stage, run).count("rolled_back") == 1
