"""What data a save was trained with: what its process had open, else ambiguous, never a guess."""

from dataclasses import replace
from datetime import timedelta

import pytest

from lakemark.errors import Refused
from lakemark.model.checkpoints.record import DataRef, Evidence
from lakemark.model.ledger.entry import Attachments, Draft
from lakemark.ports.site import Watched
from lakemark.services.back.rollback_request import request
from lakemark.services.health.status import Rules, problems_of
from lakemark.services.runs.bind import bind, bind_run
from lakemark.services.saves.commit import Commit, commit
from tests.services.world import OUT, RUN, World


def data(world, step):
    return [(ref.commit, ref.evidence) for ref in world.at(step).record.data]


def two_versions(world):
    """The commits before and after the data branch moved; the run is open on the first."""
    first = world.data.head("data", "main")
    world.open()
    return first, world.change_data(2)


def test_a_save_announced_under_the_first_data_says_so_after_a_repin(world):
    first, second = two_versions(world)
    trainer = world.trainer()
    trainer.save(100)
    world.repin()
    world.sweep()
    assert data(world, 100) == [(first, Evidence.OPENED)]
    world.trainer().save(200)
    world.sweep()
    assert data(world, 200) == [(second, Evidence.OPENED)]


def test_a_trainer_that_did_not_read_again_still_has_the_first_data_open(world):
    first, _ = two_versions(world)
    trainer = world.trainer()
    world.repin()
    trainer.save(100)
    world.sweep()
    assert data(world, 100) == [(first, Evidence.OPENED)]


def test_an_unannounced_save_across_a_repin_is_ambiguous_and_no_target(world):
    first, second = two_versions(world)
    world.save(100)
    world.repin()
    world.sweep()
    assert sorted(data(world, 100)) == sorted([(first, Evidence.AMBIGUOUS), (second, Evidence.AMBIGUOUS)])
    assert not world.at(100).record.bound
    world.clock.wait(hours=1)
    with pytest.raises(Refused, match="nobody knows"):
        request(world.site(), world.wish(100))
    bind(world.site(), RUN, world.at(100).record.id, data=f"data/{first}", reason="the log says so")
    assert data(world, 100) == [(first, Evidence.DECLARED)]
    assert request(world.site(), world.wish(100)).state == "requested"


def test_status_says_at_the_first_ambiguous_save_what_it_may_be_and_what_to_type(world):
    first, second = two_versions(world)
    week = timedelta(days=7)

    def said():
        rules = Rules(now=world.clock(), rpo=week, idle_after=week, domains={}, copies=1, data=True)
        return [one.next for one in problems_of(world.state(), rules)]

    world.save(100)
    world.sweep()
    assert said() == []
    world.repin()
    world.save(200)
    world.sweep()
    either = " or ".join(f"data/{commit}" for commit in sorted([first, second]))
    one = f"lakemark bind {world.at(200).record.id[:12]} --data {either} --reason …; the run's log says what it read"
    assert said() == [one]
    world.save(300)
    world.sweep()
    assert said() == [one.replace(world.at(200).record.id[:12], RUN)]
    bind_run(world.site(), RUN, data=f"data/{second}", reason="the log says so")
    assert said() == []


def test_an_unannounced_save_before_any_repin_is_declared(world):
    first, _ = two_versions(world)
    world.save(100)
    world.sweep()
    assert data(world, 100) == [(first, Evidence.DECLARED)]


def test_a_new_attempt_after_a_repin_has_the_second_data(world):
    _, second = two_versions(world)
    world.repin()
    world.clock.wait(minutes=1)
    world.open(job="2")
    world.clock.wait(minutes=1)
    world.save(100)
    world.sweep()
    assert data(world, 100) == [(second, Evidence.DECLARED)]


def test_without_times_to_trust_a_new_attempt_does_not_decide(world):
    two_versions(world)
    world.repin()
    world.open(job="2")
    world.save(100)
    world.sweep(simulated_clock=True)
    assert {evidence for _, evidence in data(world, 100)} == {Evidence.AMBIGUOUS}


def test_a_save_in_a_timeline_of_its_own_making_is_not_given_the_newest_data(world):
    """A restarted trainer opened a timeline; it may have either version open, whatever the newest is."""
    first, second = two_versions(world)
    for step in (100, 200):
        world.save(step)
        world.sweep()
    world.repin()
    world.save(200, "again")
    world.sweep()
    assert world.at(200).record.timeline == 2
    assert sorted(data(world, 200)) == sorted([(first, Evidence.AMBIGUOUS), (second, Evidence.AMBIGUOUS)])


def test_no_data_at_all_is_recorded_and_no_target_until_bound():
    bare = World()
    bare.changes = {"data": None, "default_repository": None}
    bare.open()
    bare.save(100)
    bare.sweep()
    assert bare.at(100).record.data == ()
    bare.clock.wait(hours=1)
    bare.changes = {}
    with pytest.raises(Refused, match="nobody knows") as raised:
        request(bare.site(), bare.wish(100))
    assert "lakemark bind" in raised.value.advice
    commit = bare.data.head("data", "main")
    bind(bare.site(), RUN, bare.at(100).record.id, data=f"data/{commit}", reason="that was it")
    assert request(bare.site(), bare.wish(100)).state == "requested"


def test_binding_a_run_is_for_what_nobody_knows_and_for_saves_from_then_on(world):
    world.changes = {"data": None, "default_repository": None}
    world.open()
    world.save(100)
    world.sweep()
    world.changes = {}
    commit = world.data.head("data", "main")
    bind_run(world.site(), RUN, data=f"data/{commit}", reason="found the mount")
    assert data(world, 100) == [(commit, Evidence.DECLARED)]
    world.clock.wait(minutes=1)
    world.open(job="2")
    world.clock.wait(minutes=1)
    world.save(200)
    world.sweep()
    assert data(world, 200) == [(commit, Evidence.DECLARED)]


@pytest.mark.parametrize("simulated", [False, True])
def test_a_repin_after_a_process_went_back_by_itself_does_not_decide_either(world, simulated):
    world.changes = {"simulated_clock": simulated}
    first, second = two_versions(world)
    for content in ("first try", "second try"):
        world.save(100, content)
        world.sweep()
    assert sorted(world.state().timelines) == [1, 2]
    world.save(200)
    world.repin()
    world.sweep()
    assert world.state().timeline == 2
    assert world.at(200).record.timeline == 2
    assert sorted(data(world, 200)) == sorted([(first, Evidence.AMBIGUOUS), (second, Evidence.AMBIGUOUS)])


def test_the_last_announcement_of_a_path_is_the_one_that_counts(world):
    _, second = two_versions(world)
    world.trainer().save(100)
    world.repin()
    world.clock.wait(minutes=1)
    world.trainer().save(100, "again, with the second data")
    world.sweep()
    assert data(world, 100) == [(second, Evidence.OPENED)]
    assert len(world.state().records) == 1
    assert list(world.spool.spooled(world.site().spool_of(RUN))) == []


def test_a_commit_by_hand_takes_what_the_trainer_said_of_it(world):
    first, _ = two_versions(world)
    path = world.trainer().save(100, metrics={"loss": 2.0})
    world.repin()
    world.clock.wait(minutes=1)
    elsewhere = Draft(
        kind="attempt", timeline=1, body={"attempt": "b" * 16}
    )  # another node's, which sees nothing of it
    world.ledger.append(RUN, lambda _: elsewhere, world.site().stamp("attempt"))
    made = commit(world.site(), Commit(path=path, run=RUN, step=100, metrics={"accuracy": 0.5})).record
    assert data(world, 100) == [(first, Evidence.OPENED)]
    assert made.metrics == {"loss": 2.0, "accuracy": 0.5}
    assert list(world.spool.spooled(world.site().spool_of(RUN))) == []


def test_what_is_found_by_a_name_that_counts_something_else_is_of_the_announced_step(world):
    """Looked for between its save and the next look at the spool: `model-0003` is of epoch 3, and of step 24."""
    first, _ = two_versions(world)
    trainer = world.trainer()
    path = trainer.save(3, announce=False)
    trainer.announce(path, 24)
    assert commit(world.site(), Commit(path=path, run=RUN, step=3, found=True)).record.step == 24
    assert data(world, 24) == [(first, Evidence.OPENED)]
    world.sweep()
    assert len(world.state().records) == 1


def test_a_process_that_started_after_a_rollback_without_resuming_may_have_either_data(world):
    first, second = two_versions(world)
    world.saves(100)
    world.repin()
    world.clock.wait(minutes=1)
    world.open(job="2")
    world.clock.wait(minutes=1)
    world.roll_back(100)
    world.clock.wait(minutes=1)
    world.save(200)
    world.sweep()
    assert world.at(200).record.timeline == 1
    assert sorted(data(world, 200)) == sorted([(first, Evidence.AMBIGUOUS), (second, Evidence.AMBIGUOUS)])


def test_in_a_directory_nobody_bound_the_newest_attempt_is_only_a_guess(world):
    first, second = two_versions(world)
    world.repin()
    world.clock.wait(minutes=1)
    world.open(job="2")
    world.clock.wait(minutes=1)
    world.journal.forget_all()
    world.save(100)
    world.sweep()
    assert sorted(data(world, 100)) == sorted([(first, Evidence.AMBIGUOUS), (second, Evidence.AMBIGUOUS)])


def test_a_save_of_the_instant_an_attempt_began_may_be_of_the_one_before(world):
    first, second = two_versions(world)
    world.repin()
    world.clock.wait(minutes=1)
    world.save(100)
    world.open(job="2")
    world.sweep()
    assert sorted(data(world, 100)) == sorted([(first, Evidence.AMBIGUOUS), (second, Evidence.AMBIGUOUS)])


def test_files_of_the_future_do_not_say_who_wrote_them(world):
    first, second = two_versions(world)
    world.policies = replace(world.policies, quiet_seconds=0.0)
    world.repin()
    world.clock.wait(minutes=1)
    world.open(job="2")
    world.clock.wait(days=10)
    world.save(100)
    world.clock.wait(days=-10)
    world.sweep()
    assert sorted(data(world, 100)) == sorted([(first, Evidence.AMBIGUOUS), (second, Evidence.AMBIGUOUS)])


def test_bind_keeps_what_it_can_not_speak_for(world):
    dvc = DataRef(kind="dvc", repository="data", commit="3f" * 16, path="train.dvc")
    newer = DataRef(kind="iceberg", repository="tables", commit="77", evidence=Evidence.AMBIGUOUS)
    nothing = DataRef(kind="none")
    world.open()
    world.save(100)
    world.sweep()
    found = world.at(100).record
    old = found.data
    draft = Draft(
        kind="bound",
        timeline=1,
        record=found.id,
        contents=Attachments(record=found.with_data((dvc, *old, newer, nothing))),
    )
    world.ledger.append(RUN, lambda _: draft, world.site().stamp("by hand"))
    commit = world.change_data(2)
    bind(world.site(), RUN, found.id, data=f"data/{commit}", reason="it was that one")
    assert world.at(100).record.data[:2] == (dvc, newer)
    assert data(world, 100)[2:] == [(commit, Evidence.DECLARED)]


@pytest.mark.parametrize("watched", [True, False], ids=["run open --watch", "watch:"])
def test_the_newest_open_that_the_directory_saw_counts_also_without_naming_it_again(world, watched):
    if not watched:
        world.changes = {"watch": (Watched(path=OUT, run=RUN),)}
    world.open(watch=OUT if watched else None)
    world.save(100)
    world.sweep()
    world.clock.wait(minutes=1)
    second = world.change_data(2)
    world.repin()
    world.clock.wait(minutes=1)
    opened = world.open(watch=None)
    world.clock.wait(minutes=1)
    world.save(200)
    world.sweep()
    record = world.at(200).record
    assert record.attempt == opened.attempt
    assert [(ref.commit, ref.evidence) for ref in record.data] == [(second, "declared")]


def test_what_lay_there_before_the_newest_open_stays_what_it_was(world):
    world.open()
    first = world.state().attempt.id
    world.save(100)
    world.clock.wait(minutes=1)
    world.open(watch=None)
    world.sweep()
    assert world.at(100).record.attempt == first
