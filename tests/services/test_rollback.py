"""Roll back: decided from the ledger, approved by people, applied once; the checkpoint and its data, both or neither."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from lakemark.errors import Conflict, NotFound, Refused, StoreUnavailable
from lakemark.model.back.rollback_plan import Flags
from lakemark.model.ledger.entry import Draft, Means
from lakemark.ports import Approval
from lakemark.services.back.move_branch import move_branches
from lakemark.services.back.resume import resume
from lakemark.services.back.rollback_apply import apply, leftovers
from lakemark.services.back.rollback_decide import approve, expire, refuse
from lakemark.services.back.rollback_request import plan, request
from lakemark.services.runs.bind import bind
from tests.services.world import OUT, POLICIES, RUN, files
from tests.support.memory import MemoryData

BOB = "bob@node-b"


@pytest.fixture
def run(world):
    """Steps 100 to 300, each with a data commit of its own; silent for an hour."""
    world.commits = {}
    for number, step in enumerate((100, 200, 300), start=1):
        world.commits[step] = world.data.head("data", "main")
        (world.open if number == 1 else world.repin)()
        world.saves(step)
        world.change_data(number + 1)
    world.clock.wait(hours=1)
    return world


def requested(world, step=200, **wish):
    return request(world.site(), world.wish(step, **wish))


def approved(world, step=200, **wish):
    asked = requested(world, step, **wish)
    return approve(world.site(actor=BOB), asked.id, digest=asked.digest[:12])


def note(world, kind, record, **draft):
    world.ledger.append(RUN, lambda _: Draft(kind=kind, record=record, **draft), world.site().stamp(f"{kind}:{record}"))


def test_a_plan_says_what_it_takes_and_changes_nothing(run):
    before = run.state().sequence
    made = plan(run.site(), run.wish(200))
    assert run.state().sequence == before
    assert (made.target.step, made.source_tier) == (200, "hot")
    assert made.gives_up.records == (run.at(300).record.id,)
    assert made.gives_up.steps == 100
    assert [(item.repository, item.commit) for item in made.data] == [("data", run.commits[200])]
    assert made.data_changes == {"added": 0, "removed": 0, "changed": 1}
    assert run.notes.json[Path("/home/plans") / f"{made.digest}.json"] == made.as_json()


def test_both_come_back(run):
    expected = files(run.disk, OUT / "step-200")
    done = run.roll_back(200)
    assert (done.timeline, done.record) == (2, run.at(200).record.id)
    assert files(run.disk, done.checkpoint_dir) == expected
    ((repository, branch, commit),) = done.data
    assert (repository, commit) == ("data", run.commits[200])
    assert run.data.head("data", branch) == commit
    told = run.spool.read_run_file(done.run_file)
    assert told.timeline == 2
    assert told.resume["record"] == done.record
    assert [(ref.branch, ref.commit) for ref in told.data] == [(branch, commit)]
    assert run.latest().record.id == done.record
    assert run.state().rollbacks[done.rollback].state == "applied"


def test_the_same_request_twice_is_one(run):
    first, second = requested(run), requested(run)
    assert first.id == second.id
    assert run.kinds().count("rollback_requested") == 1
    assert requested(run, reason="another").id != first.id


def test_after_it_was_applied_the_same_wish_is_a_new_one(run):
    done = run.roll_back(200)
    run.trainer().save(300, "new 300")
    run.sweep()
    run.clock.wait(hours=1)
    assert requested(run).id != done.rollback


def test_an_expired_request_does_not_stand_in_the_way(run):
    first = requested(run)
    run.clock.wait(hours=25)
    second = requested(run)
    assert second.id != first.id
    assert expire(run.site()) == [first.id]
    assert run.state().rollbacks[first.id].state == "expired"


def test_nobody_alone_at_once_and_after_a_time_marked(run):
    asked = requested(run)
    for actor in ("ana@node-a", "ana@elsewhere", "Ana@node-a"):
        with pytest.raises(Refused, match="second person"):
            approve(run.site(actor=actor), asked.id, digest=asked.digest)
    run.clock.wait(minutes=15)
    state = approve(run.site(), asked.id, digest=asked.digest)
    assert state.state == "approved"
    assert state.approvals[0]["alone"] is True
    run.policies = replace(POLICIES, approval=Approval(alone_after=None))
    other = requested(run, 100)
    run.clock.wait(hours=10)
    with pytest.raises(Refused, match="second person"):
        approve(run.site(), other.id, digest=other.digest)
    assert approve(run.site(actor=BOB), other.id, digest=other.digest, by="Bob B.").approvals[0]["alone"] is False


def test_approving_twice_is_once_and_refusing_ends_it(run):
    asked = requested(run)
    approve(run.site(actor=BOB), asked.id, digest=asked.digest)
    approve(run.site(actor=BOB), asked.id, digest=asked.digest)
    assert run.kinds().count("rollback_approved") == 1
    with pytest.raises(Refused, match="approved already"):
        approve(run.site(actor="eve@node-c"), asked.id, digest=asked.digest)
    assert refuse(run.site(), asked.id, reason="no").state == "refused"
    assert refuse(run.site(), asked.id, reason="no").state == "refused"
    assert run.kinds().count("rollback_refused") == 1
    with pytest.raises(Refused, match="refused"):
        apply(run.site(), asked.id)
    with pytest.raises(NotFound):
        refuse(run.site(), "rb-nothing", reason="no")


def test_an_approval_is_of_the_plan_that_was_seen(run):
    asked = requested(run)
    for digest in ("0" * 64, asked.digest[:7], "", asked.digest[:12] + "0"):
        with pytest.raises(Refused, match="not the one requested"):
            approve(run.site(actor=BOB), asked.id, digest=digest)
    assert run.state().rollbacks[asked.id].state == "requested"


def test_expired_is_expired_for_approving_and_applying(run):
    asked = requested(run)
    run.clock.wait(hours=24)
    with pytest.raises(Refused, match="expired"):
        approve(run.site(actor=BOB), asked.id, digest=asked.digest)
    other = approved(run, 100)
    run.clock.wait(hours=24)
    with pytest.raises(Refused, match="expired"):
        apply(run.site(), other.id)
    assert run.state().timeline == 1


def test_applying_needs_an_approval_where_the_site_wants_one(run):
    asked = requested(run)
    with pytest.raises(Refused, match="not approved"):
        apply(run.site(), asked.id)
    run.policies = replace(POLICIES, approval=Approval(required=False))
    assert apply(run.site(), asked.id).timeline == 2


@pytest.mark.parametrize("kind", ["pruned", "quarantined"])
@pytest.mark.parametrize("when", ["requested", "approved"])
def test_a_target_that_was_lost_meanwhile_is_refused(run, kind, when):
    asked = requested(run) if when == "requested" else approved(run)
    record = run.at(200).record.id
    body = {"items": [{"record": record, "reasons": ["old"]}]} if kind == "pruned" else {}
    note(run, kind, record, body=body, reason="bad")
    calls = {
        "requested": lambda: approve(run.site(actor=BOB), asked.id, digest=asked.digest),
        "approved": lambda: apply(run.site(), asked.id),
    }
    with pytest.raises(Refused, match=kind):
        calls[when]()
    assert run.state().timeline == 1
    assert not [name for name in run.data.all_branches("data") if name.startswith("rollback")]


def test_ordinary_commits_do_not_spoil_a_plan(run):
    asked = requested(run)
    run.saves(400)
    run.clock.wait(hours=1)
    approve(run.site(actor=BOB), asked.id, digest=asked.digest)
    run.saves(500)
    run.clock.wait(hours=3)
    assert apply(run.site(), asked.id).timeline == 2
    assert run.latest().record.step == 200


def test_a_run_that_is_still_written_is_refused_unless_told(run):
    run.saves(400)
    with pytest.raises(Refused, match="written still") as raised:
        requested(run)
    assert "--while-running" in raised.value.advice
    assert requested(run, flags=Flags(while_running=True)).state == "requested"


def test_a_plan_whose_timeline_moved_is_a_conflict(run):
    first = approved(run, 200)
    second = requested(run, 100)
    apply(run.site(), first.id)
    with pytest.raises(Conflict):
        approve(run.site(actor=BOB), second.id, digest=second.digest)
    assert run.state().timeline == 2


def test_the_data_of_that_day_whatever_became_of_its_branch(run):
    run.data.set_branch("data", "main", None)
    run.data.branch_at("data", "main", run.commits[100])
    run.data.commit("data", "main", {"rows": b"another story"})
    done = run.roll_back(200)
    assert done.data[0][2] == run.commits[200]
    assert b"".join(run.data.read("data", done.data[0][2], "rows")) == b"2"


def test_collected_bytes_refuse_and_name_what_is_lost(run):
    asked = requested(run)
    run.data.lose("data", run.commits[200], "rows")
    with pytest.raises(Refused, match="rows"):
        approve(run.site(actor=BOB), asked.id, digest=asked.digest)
    with pytest.raises(Refused, match="rows") as raised:
        requested(run, reason="again")
    assert "--model-only" in raised.value.advice
    made = requested(run, flags=Flags(model_only=True))
    approve(run.site(actor=BOB), made.id, digest=made.digest)
    done = apply(run.site(), made.id)
    assert done.data == ()
    entry = [entry for entry, _ in run.ledger.entries(RUN) if entry.kind == "rolled_back"][-1]
    assert entry.body["flags"]["model_only"] is True


def test_bytes_lost_after_the_approval_refuse_too(run):
    asked = approved(run)
    run.data.lose("data", run.commits[200], "rows")
    with pytest.raises(Refused, match="rows"):
        apply(run.site(), asked.id)
    assert run.state().timeline == 1


def test_a_pin_keeps_the_bytes_that_branches_dropped(run):
    run.data.set_branch("data", "main", run.commits[100])
    run.data.collect_garbage("data")
    assert run.roll_back(200).data[0][2] == run.commits[200]


def test_data_only_leaves_the_model_where_it_is(run):
    asked = approved(run, flags=Flags(data_only=True))
    done = apply(run.site(), asked.id)
    assert done.checkpoint_dir is None
    assert run.data.head("data", done.data[0][1]) == run.commits[200]
    assert run.latest().record.step == 300
    assert run.state().timelines[2].fork.step == 300


def moving(run, step=200):
    """Applied, its plan naming the branch to be set back."""
    asked = approved(run, step, flags=Flags(move_branch=True))
    return asked, apply(run.site(), asked.id)


def test_a_shared_branch_is_moved_by_a_step_of_its_own_after_the_rollback(run):
    before = run.data.head("data", "main")
    asked = approved(run, flags=Flags(move_branch=True))
    with pytest.raises(Refused, match="after it was applied"):
        move_branches(run.site(), asked.id, digest=asked.digest)
    done = apply(run.site(), asked.id)
    assert run.data.head("data", "main") == before
    assert any("rollback move-branch" in note for note in done.notes)
    with pytest.raises(Refused, match="is not that of"):
        move_branches(run.site(), asked.id, digest="0" * 64)
    moved = move_branches(run.site(), asked.id, digest=asked.digest[:12])
    head = run.data.head("data", "main")
    assert [(one.branch, one.before, one.commit, one.made) for one in moved.moves] == [
        ("main", before, run.commits[200], head)
    ]
    assert run.data.resolve("data", head).parents == (before,)
    assert b"".join(run.data.read("data", head, "rows")) == b"2"
    assert run.kinds().count("branch_moved") == 1
    assert move_branches(run.site(), asked.id, digest=asked.digest).moves == moved.moves
    assert (run.data.head("data", "main"), run.kinds().count("branch_moved")) == (head, 1)
    assert not any("move-branch" in note for note in apply(run.site(), asked.id).notes)


def test_the_plan_says_where_the_branch_is_and_what_moving_it_changes(run):
    run.data.commit("data", "main", {"more": b"rows"})
    made = plan(run.site(), run.wish(200, flags=Flags(move_branch=True, while_running=True)))
    assert made.data[0].moves_from == run.data.head("data", "main")
    assert any("0 object(s) are added, 1 removed, 1 changed" in note for note in made.notes)
    other = plan(run.site(), run.wish(200, flags=Flags(while_running=True)))
    assert other.data[0].moves_from is None


def test_a_branch_that_is_elsewhere_than_planned_is_not_moved(run):
    asked, _ = moving(run)
    theirs = run.data.commit("data", "main", {"theirs": b"work"})
    with pytest.raises(Refused, match="no branch was moved") as refused:
        move_branches(run.site(), asked.id, digest=asked.digest)
    assert theirs[:12] in str(refused.value)
    assert "--data-only --move-branch" in refused.value.advice
    assert run.data.head("data", "main") == theirs


def test_a_branch_that_is_gone_is_named_in_the_plan_and_by_the_move(run):
    asked, _ = moving(run)
    run.data.set_branch("data", "main", None)
    with pytest.raises(Refused, match="there is no such branch"):
        move_branches(run.site(), asked.id, digest=asked.digest)
    with pytest.raises(Refused, match="can't be moved"):
        plan(run.site(), run.wish(200, flags=Flags(move_branch=True, while_running=True)))


def test_a_plan_that_moves_nothing_moves_nothing(run):
    asked = approved(run)
    apply(run.site(), asked.id)
    with pytest.raises(Refused, match="moves no branch"):
        move_branches(run.site(), asked.id, digest=asked.digest)


@pytest.fixture
def two(world):
    """A run on two repositories, whose plan sets both branches back."""
    world.data.create("other")
    world.data.commit("other", "main", {"rows": b"1"})
    world.open(data=["data/main", "other/main"])
    world.saves(100)
    world.change_data(2)
    world.data.commit("other", "main", {"rows": b"2"})
    world.clock.wait(hours=1)
    return world


def heads(world):
    return [world.data.head(name, "main") for name in ("data", "other")]


def test_one_that_can_t_be_moved_keeps_all_where_they_are(two):
    asked, _ = moving(two, 100)
    before = heads(two)
    two.data.stage("other", "main", "unsaved", b"work")
    with pytest.raises(Refused, match="uncommitted"):
        move_branches(two.site(), asked.id, digest=asked.digest)
    assert heads(two) == before
    assert "branch_moved" not in two.kinds()


class Refusing(MemoryData):
    """Refuses the move of one repository's branch once everything was looked at, as a hook does."""

    def move_branch(self, repository, branch, commit, **named):
        if repository == "other":
            raise Refused("a hook says no", advice="see it")
        return super().move_branch(repository, branch, commit, **named)


def test_one_that_refuses_after_the_preflight_has_the_others_set_back(two):
    asked, _ = moving(two, 100)
    before = heads(two)
    two.data.__class__ = Refusing
    with pytest.raises(Refused, match="no branch stays moved"):
        move_branches(two.site(), asked.id, digest=asked.digest)
    assert "branch_moved" not in two.kinds()
    for name, head, old in zip(("data", "other"), heads(two), before, strict=True):
        diff = two.data.diff(name, old, head)
        assert (diff.added, diff.removed, diff.changed) == (0, 0, 0)
    two.data.__class__ = MemoryData


def test_a_crash_between_two_moves_is_finished_by_the_next_call(two):
    asked, _ = moving(two, 100)

    class Dies(BaseException):
        pass

    class Dying(MemoryData):
        def move_branch(self, repository, branch, commit, **named):
            if repository == "other":
                raise Dies
            return super().move_branch(repository, branch, commit, **named)

    two.data.__class__ = Dying
    with pytest.raises(Dies):
        move_branches(two.site(), asked.id, digest=asked.digest)
    two.data.__class__ = MemoryData
    done = move_branches(two.site(), asked.id, digest=asked.digest)
    assert [one.made for one in done.moves] == heads(two)
    assert {
        b"".join(two.data.read(name, head, "rows")) for name, head in zip(("data", "other"), heads(two), strict=True)
    } == {b"1"}


def test_applying_again_finishes_the_same_and_opens_nothing(run):
    asked = approved(run)
    first = apply(run.site(), asked.id, directory=Path("/back"))
    before = run.state().sequence
    assert apply(run.site(), asked.id, directory=Path("/back")) == first
    assert run.state().sequence == before


def test_applying_again_does_not_take_the_run_file_back(run):
    asked = approved(run)
    apply(run.site(), asked.id)
    done = resume(run.site(), RUN, to=OUT, job="9")
    apply(run.site(), asked.id)
    assert run.spool.read_run_file(done.run_file).attempt == done.attempt


def test_data_bound_otherwise_is_another_plan(run):
    asked = requested(run)
    bind(run.site(), RUN, run.at(200).record.id, data=f"data/{run.commits[100]}", reason="it was that one")
    with pytest.raises(Refused, match="other data"):
        approve(run.site(actor=BOB), asked.id, digest=asked.digest)
    assert run.roll_back(200, reason="now").data[0][2] == run.commits[100]


def test_a_branch_left_by_an_apply_that_ended_is_removed_unless_somebody_wrote(run):
    names = {}
    for step in (100, 200):
        asked = approved(run, step)
        names[step] = asked.plan["data"][0]["opens_branch"]
        run.data.branch_at("data", names[step], run.commits[step])
        refuse(run.site(), asked.id, reason="no")
    run.data.commit("data", names[100], {"mine": b"work"})
    run.data.reachable = False
    assert "rollbacks" in [one.what for one in run.sweep().pending]
    run.data.reachable = True
    said = " ".join(run.sweep().said)
    assert f"removed the branch data/{names[200]}" in said
    assert run.data.head("data", names[200]) is None
    assert run.data.head("data", names[100]) is not None
    assert run.sweep().said == []


class Says404:
    """What is between this node and the data server, for a moment: no single thing is there, lists are right."""

    def __init__(self, data):
        self._data = data

    def __getattr__(self, name):
        return getattr(self._data, name)

    def head(self, *_):
        return None


def test_what_is_left_is_gone_by_the_repository_s_own_list_alone(run):
    asked = approved(run, 200)
    name = asked.plan["data"][0]["opens_branch"]
    run.data.branch_at("data", name, run.commits[200])
    refuse(run.site(), asked.id, reason="no")
    assert leftovers(run.site(data=Says404(run.data))) == [
        f"removed the branch data/{name}, left by a rollback that was not applied"
    ]
    assert run.data.head("data", name) is None


def test_a_newer_ledger_blocks_deciding_and_applying(run):
    asked = requested(run)
    draft = Draft(kind="dreamt", unknown_means=Means.NO_DELETE)
    run.ledger.append(RUN, lambda _: draft, run.site().stamp("dream"))
    for call in (
        lambda: approve(run.site(actor=BOB), asked.id, digest=asked.digest),
        lambda: requested(run, 100),
    ):
        with pytest.raises(Refused, match="dreamt"):
            call()


def test_without_the_data_server_deciding_says_try_again(run):
    asked = approved(run)
    run.data.reachable = False
    with pytest.raises(StoreUnavailable):
        requested(run, 100)
    with pytest.raises(StoreUnavailable):
        apply(run.site(), asked.id)
    run.data.reachable = True
    assert apply(run.site(), asked.id).timeline == 2


def test_from_the_slowest_tier_when_nothing_else_is_left(run):
    run.clock.wait(days=8)
    run.save(400)
    run.sweep()
    run.sweep()
    assert {place.tier for place in run.at(200).replicas} == {"cold"}
    run.clock.wait(hours=1)
    assert plan(run.site(), run.wish(200)).source_tier == "cold"
    assert run.roll_back(200).checkpoint_dir is not None


def test_a_second_approver_s_words_are_kept(run):
    asked = requested(run)
    state = approve(run.site(actor=BOB), asked.id, digest=asked.digest, by="Bob")
    assert (state.approvals[0]["by"], state.approvals[0]["actor"]) == ("Bob", BOB)
    assert timedelta(0) < state.expires_at - run.clock()
