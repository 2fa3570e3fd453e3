import copy
from dataclasses import replace
from datetime import timedelta

import pytest

from lakemark.errors import Corrupt
from lakemark.model.back.rollback import (
    Flags,
    GivesUp,
    PlanData,
    RollbackPlan,
    gives_up,
    may_approve,
    moved,
    plan_rollback,
    target_of,
    unsound,
)
from lakemark.model.ledger.entry import Attachments
from tests.model.building import HOUR, Running, at, check_golden, data

EXPIRES = at(99)


def made(running, target, **more):
    more.setdefault("reason", "loss spike")
    return plan_rollback(running.state, target, requester="ana@n1", expires_at=EXPIRES, **more)


def started():
    running = Running("llama.7b").open()
    found = [running.commit(step, metrics={"loss": 1.0}) for step in (100, 200, 300)]
    return running, found


def test_golden():
    running, (first, _, _) = started()
    plan = made(running, first, at=at(2)).advised(
        source_tier="warm",
        estimated_seconds=12.5,
        data_changes={"added": 1, "removed": 0, "changed": 2},
        notes=["slow"],
    )
    check_golden("rollback.json", plan.as_json())


def test_what_it_brings_back_and_gives_up():
    running, (first, second, third) = started()
    plan = made(running, first)
    assert (plan.run, plan.timeline, plan.target.step) == ("llama.7b", 1, 100)
    assert plan.gives_up == GivesUp(records=(third.record.id, second.record.id), steps=200, hours=2.0)
    (bound,) = plan.data
    assert (bound.repository, bound.commit) == ("data", "a" * 64)
    assert bound.opens_branch.startswith("rollback-llama-7b-100-")
    assert gives_up(running.state, third) == GivesUp()


def test_to_another_timeline():
    running, (first, second, third) = started()
    running.roll_back(first)
    late = running.commit(150)
    given = gives_up(running.state, third)
    assert given.records == (late.record.id,)
    assert given.steps == 50
    assert made(running, third).timeline == 2
    assert second.record.id not in given.records


def test_digest_is_of_decisions_alone():
    running, (first, second, _) = started()
    plan = made(running, first)
    advised = plan.advised(source_tier="cold", estimated_seconds=1.0, notes=["x"], data_changes={})
    running.commit(400)
    assert advised.digest == plan.digest == made(running, first, at=at(3)).digest
    other = PlanData(repository="data", commit="a" * 64, opens_branch="other")
    changes = [
        {"run": "b"}, {"timeline": 2}, {"target": replace(plan.target, record="0" * 64)}, {"data": ()}, {"data": (other,)},
        {"flags": Flags(move_branch=True)}, {"flags": Flags(while_running=True)}, {"reason": "x"}, {"requester": "bo@n1"},
        {"expires_at": EXPIRES + HOUR},
    ]  # fmt: skip
    digests = {replace(plan, **change).digest for change in changes}
    assert len(digests) == len(changes)
    assert plan.digest not in digests
    assert made(running, second).digest != plan.digest


def test_round_trip_keeps_unknown_fields():
    running, (first, _, _) = started()
    value = made(running, first, at=at(2), flags=Flags(while_running=True)).as_json() | {"from_the_future": {"a": 1}}
    again = RollbackPlan.from_json(value)
    assert again.as_json() == value
    assert RollbackPlan.from_json(copy.deepcopy(again.as_json())) == again


@pytest.mark.parametrize(
    "change", [{"reason": "other"}, {"plan": "0" * 64}, {"format": "lakemark.plan/2"}, {"target": {}}, {"expires_at": "soon"},
               {"flags": {"model_only": True, "data_only": True}}, {"data": [{"repository": "x"}]}, {"estimated_seconds": "1"}],
)  # fmt: skip
def test_altered_or_malformed_is_corrupt(change):
    running, (first, _, _) = started()
    with pytest.raises(Corrupt):
        RollbackPlan.from_json(made(running, first).as_json() | change)


@pytest.mark.parametrize("flags", [{"model_only": True, "data_only": True}, {"model_only": True, "move_branch": True}])
def test_flags_that_contradict(flags):
    with pytest.raises(ValueError, match=r"exclude|can't move"):
        Flags(**flags)


def test_several_data_versions_get_branches_of_their_own():
    running = Running().open()
    refs = (data("a"), data("b"), data("c", repository="eval"), data("a"))
    plan = made(running, running.commit(1, refs=refs))
    assert [(item.repository, item.commit[0]) for item in plan.data] == [("data", "a"), ("data", "b"), ("eval", "c")]
    names = [item.opens_branch for item in plan.data]
    assert names[0] == names[2]
    assert names[1] == names[0] + "-2"


def test_model_only_and_data_only():
    running, (first, _, _) = started()
    assert made(running, first, flags=Flags(model_only=True)).data == ()
    only = made(running, first, flags=Flags(data_only=True))
    assert only.size_bytes == 0
    assert only.data


def test_affected():
    running, (first, _, third) = started()
    running.add("held", record=third.record.id, reason="paper")
    other, unrelated = Running("child").open(), Running("free").open()
    other.state.parent = third.record.id
    unrelated.state.parent = first.record.id
    plan = made(running, first, others=[running.state, other.state, unrelated.state])
    assert [(item.run, item.why) for item in plan.affected] == [
        ("llama.7b", "held: paper"),
        ("child", "child started from it"),
    ]


def test_a_fresh_plan_holds_and_new_commits_do_not_change_that():
    running, (first, _, _) = started()
    plan = made(running, first)
    assert moved(plan, running.state) == ()
    running.commit(400)
    running.replicate(first, "warm")
    assert moved(plan, running.state) == ()


def rebind(running, found, *refs):
    record = found.record.with_data(refs)
    running.add("bound", record=record.id, contents=Attachments(record=record))
    return running.state.records[record.id]


def spoil_timeline(running, found):
    running.roll_back(found)


def spoil_pruned(running, found):
    running.add("pruned", items=[{"record": found.record.id, "reasons": ["old"]}])


def spoil_quarantined(running, found):
    running.add("quarantined", record=found.record.id, reason="bad")


def spoil_damaged(running, found):
    running.verify(found, "hot", node="n1", ok=False)


def spoil_superseded(running, found):
    running.commit(found.record.step, text="again", supersedes=found.record.id)


def spoil_bound(running, found):
    rebind(running, found, data("f"))


def spoil_unknown(running, found):
    running.add("sharded", unknown_means="no_delete")


def spoil_ambiguous(running, found):
    rebind(running, found, data(evidence="ambiguous"))


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (spoil_timeline, "is in timeline 2, no longer in 1"), (spoil_pruned, "it was pruned"),
        (spoil_quarantined, "it is quarantined: bad"), (spoil_damaged, "no sound replica"),
        (spoil_superseded, "it was superseded by"), (spoil_bound, "bound to other data"),
        (spoil_unknown, "newer version (sharded)"), (spoil_ambiguous, "nobody knows what data"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)  # fmt: skip
def test_moved(spoil, text):
    running, (first, _, _) = started()
    plan = made(running, first)
    spoil(running, first)
    reasons = moved(plan, running.state)
    assert any(text in reason for reason in reasons), reasons


def test_moved_by_data_that_is_gone():
    running, (first, _, _) = started()
    gone = [f"data@{'a' * 64}"]
    (reason,) = moved(made(running, first), running.state, data_gone=gone)
    assert "can't be read" in reason
    assert moved(made(running, first, flags=Flags(model_only=True)), running.state, data_gone=gone) == ()


def test_model_only_needs_no_data_and_data_only_no_replica():
    running, (first, second, _) = started()
    first = rebind(running, first)
    assert moved(made(running, first), running.state)
    assert moved(made(running, first, flags=Flags(model_only=True)), running.state) == ()
    spoil_damaged(running, second)
    second = running.state.records[second.record.id]
    assert unsound(second) == ("no sound replica of it is left",)
    assert moved(made(running, second), running.state)
    assert moved(made(running, second, flags=Flags(data_only=True)), running.state) == ()


def requested():
    running, (first, _, _) = started()
    plan = made(running, first)
    running.add(
        "rollback_requested", rollback="rb1", digest=plan.digest, plan=plan.as_json(), requester="ana@n1",
        expires_at=plan.as_json()["expires_at"],
    )  # fmt: skip
    return running, plan, running.state.rollbacks["rb1"]


def asked(request, approver, plan, *, minutes=1, alone_after=timedelta(minutes=15), **more):
    now = request.requested_at + timedelta(minutes=minutes)
    return may_approve(request, approver, now=now, plan_digest=plan.digest, alone_after=alone_after, **more)


def test_a_second_person_may_at_once():
    _, plan, request = requested()
    assert target_of(request) == plan.target.record
    assert asked(request, "bo@n1", plan) is None


@pytest.mark.parametrize("approver", ["ana@n1", "ana@n2", "ANA@n1", " ana"])
def test_the_same_person_only_after_a_while(approver):
    _, plan, request = requested()
    assert "a second person" in asked(request, approver, plan)
    assert "from 2026-11-01 05:15" in asked(request, approver, plan, minutes=14)
    assert asked(request, approver, plan, minutes=15) is None
    assert "a second person" in asked(request, approver, plan, minutes=600, alone_after=None)


def test_refusals():
    running, plan, request = requested()
    assert "expired" in asked(request, "bo@n1", plan, minutes=99 * 60)
    assert "behind the request" in asked(request, "bo@n1", plan, minutes=-6)
    assert "not the one requested" in asked(request, "bo@n1", replace(plan, reason="other"))
    assert "applied already" in asked(request, "bo@n1", plan, applied=[plan.digest])
    assert "no name" in asked(request, "  ", plan)
    running.add("rollback_approved", rollback="rb1", by="bo@n1")
    request = running.state.rollbacks["rb1"]
    assert "approved already" in asked(request, "cy@n1", plan)


@pytest.mark.parametrize("kind", ["rollback_refused", "rolled_back"])
def test_decided_is_decided(kind):
    running, plan, _ = requested()
    running.add(kind, rollback="rb1", by="bo@n1")
    assert "already" in asked(running.state.rollbacks["rb1"], "cy@n1", plan)
