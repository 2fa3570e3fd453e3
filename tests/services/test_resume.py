"""Resume: the directory a trainer starts in is made right, once per job, and nothing in it is ever destroyed."""

from dataclasses import replace

import pytest

from lakemark.errors import Denied, NotFound, Refused, StoreUnavailable, Usage
from lakemark.model.ledger.entry import Draft
from lakemark.ports import Approval
from lakemark.services.back.resume import newest_resumable, resume
from lakemark.services.saves.commit import Commit, commit
from lakemark.services.saves.layout import ASIDE
from lakemark.services.tiers.release import release
from lakemark.services.tiers.replicate import replicate
from tests.services.crashing import At, Killed
from tests.services.world import OUT, POLICIES, RUN, files
from tests.support.memory import MemoryFiles


def rename_steps(world):
    return [name for name in world.disk.names(OUT) if not name.startswith(".")]


def test_resume_is_a_no_op_where_all_is_right(world):
    world.open()
    world.saves(100, 200)
    done = resume(world.site(), RUN, to=OUT, job="7")
    assert (done.found.record.step, done.changed, done.moved_aside) == (200, False, ())
    assert done.timeline == 1
    assert world.state().timeline == 1
    told = world.spool.read_run_file(done.run_file)
    assert told.resume == {"path": str(OUT / "step-200"), "step": 200, "record": done.found.record.id, "timeline": 1}
    before = world.state().sequence
    again = resume(world.site(), RUN, to=OUT, job="7")
    assert replace(again, found=done.found) == replace(done, found=done.found)
    assert world.state().sequence == before


def test_what_the_trainer_left_uncommitted_is_committed_before_anything_moves(world):
    world.open()
    world.saves(100)
    world.save(200)
    world.clock.wait(minutes=1)
    done = resume(world.site(), RUN, to=OUT, job="7")
    assert done.found.record.step == 200
    assert done.moved_aside == ()


def test_later_steps_are_moved_aside_whole_and_never_found_again(world):
    world.open()
    world.saves(100, 200, 300, 400)
    kept = {step: files(world.disk, OUT / f"step-{step}") for step in (300, 400)}
    world.roll_back(200)
    done = resume(world.site(), RUN, to=OUT, job="7")
    assert done.found.record.step == 200
    assert done.timeline == 2
    assert rename_steps(world) == ["step-100", "step-200"]
    assert done.moved_aside == tuple(OUT / ASIDE / "7" / f"step-{step}" for step in (300, 400))
    for step in (300, 400):
        assert files(world.disk, OUT / ASIDE / "7" / f"step-{step}") == kept[step]
    assert world.sweep().committed == []
    assert world.kinds().count("committed") == 4


def test_a_directory_that_is_not_right_is_moved_aside_not_overwritten(world):
    world.open()
    world.saves(100)
    expected = files(world.disk, OUT / "step-100")
    world.disk.write(OUT / "step-100" / "notes.txt", b"mine")
    world.disk.write(OUT / "step-100" / "model.tmp", b"half")
    done = resume(world.site(), RUN, to=OUT, job="7")
    assert done.changed
    assert files(world.disk, OUT / "step-100") == expected
    assert world.disk.read(OUT / ASIDE / "7" / "step-100" / "notes.txt") == b"mine"


def test_a_missing_checkpoint_comes_back_under_the_trainer_s_own_name(world):
    world.open()
    world.saves(100)
    expected = files(world.disk, OUT / "step-100")
    world.disk.remove(OUT / "step-100")
    done = resume(world.site(), RUN, to=OUT, job="7")
    assert done.path == OUT / "step-100"
    assert files(world.disk, done.path) == expected
    assert world.sweep().committed == []


def test_a_linked_replica_that_is_the_only_copy_is_copied_before_training_may_overwrite_it(world):
    world.shelves["warm"].reachable = world.shelves["cold"].reachable = False
    world.open()
    world.saves(100)
    record = world.at(100).record.id
    expected = files(world.disk, OUT / "step-100")
    resume(world.site(), RUN, to=OUT, job="7")
    world.disk.write(OUT / "step-100" / "model.bin", b"overwritten in place")
    assert files(world.disk, world.hot.path(world.hot.load(record).record)) == expected


def test_an_only_copy_that_was_overwritten_already_does_not_stop_the_training(world):
    world.shelves["warm"].reachable = world.shelves["cold"].reachable = False
    world.open()
    for step in (100, 200):  # without a sweep, which would un-share them while the other tiers are away
        commit(world.site(), Commit(path=world.save(step), run=RUN, step=step))
    world.disk.write(OUT / "step-100" / "model.bin", b"overwritten in place")
    done = resume(world.site(), RUN, to=OUT, job="7")
    assert done.found.record.step == 200
    assert not world.at(100).replicas[world.hot.place].sound


def test_the_same_job_decides_once_for_all_its_nodes(world):
    world.open()
    world.saves(100, 200)
    first = resume(world.site(), RUN, to=OUT, job="7")
    elsewhere = world.save(300, out=OUT.with_name("elsewhere"))
    commit(world.site(), Commit(path=elsewhere, run=RUN, step=300))
    other = OUT.with_name("out-b")
    again = resume(world.site(), RUN, to=other, job="7")
    assert (again.found.record.id, again.timeline, again.attempt) == (
        first.found.record.id,
        first.timeline,
        first.attempt,
    )
    assert resume(world.site(), RUN, to=other, job="8").found.record.step == 300


def test_a_job_that_was_opened_first_decides_once_too(world):
    world.open()
    world.saves(100, 200)
    world.open(job="7")
    first = resume(world.site(), RUN, to=OUT.with_name("a"), job="7")
    elsewhere = world.save(300, out=OUT.with_name("elsewhere"))
    commit(world.site(), Commit(path=elsewhere, run=RUN, step=300))
    assert resume(world.site(), RUN, to=OUT.with_name("b"), job="7").found.record.id == first.found.record.id


def test_an_older_record_needs_a_rollback_where_approval_is_required(world):
    world.open()
    world.saves(100, 200)
    with pytest.raises(Refused) as raised:
        resume(world.site(), RUN, to=OUT, record=world.at(100).record.id)
    assert "rollback request" in raised.value.advice
    assert world.state().timeline == 1
    world.policies = replace(POLICIES, approval=Approval(required=False))
    done = resume(world.site(), RUN, to=OUT, record=world.at(100).record.id)
    assert (done.timeline, done.found.record.step) == (2, 100)
    assert world.state().timelines[2].fork.step == 100
    assert rename_steps(world) == ["step-100"]


def test_going_below_a_quarantined_step_opens_a_timeline(world):
    world.open()
    world.saves(100, 200)
    bad = world.at(200).record.id
    world.ledger.append(
        RUN, lambda _: Draft(kind="quarantined", record=bad, reason="diverged"), world.site().stamp("bad")
    )
    done = resume(world.site(), RUN, to=OUT, job="7")
    assert (done.found.record.step, done.timeline) == (100, 2)
    world.trainer().save(200, "better")
    world.sweep()
    assert world.latest().record.step == 200
    assert world.latest().record.timeline == 2


def test_what_can_t_be_resumed_is_passed_over_or_refused(world):
    world.open()
    with pytest.raises(NotFound):
        resume(world.site(), RUN, to=OUT)
    with pytest.raises(NotFound):
        resume(world.site(), "nobody", to=OUT)
    trainer = world.trainer()
    world.saves(100)
    trainer.save(200, roles={"model.bin": "weights"})
    world.sweep()
    assert newest_resumable(world.state()).record.step == 100
    record = world.at(100).record.id
    world.ledger.append(
        RUN, lambda _: Draft(kind="quarantined", record=record, reason="bad"), world.site().stamp("bad")
    )
    with pytest.raises(Refused, match="quarantined"):
        resume(world.site(), RUN, to=OUT, record=record)


def test_resume_from_below_when_hot_is_lost(world):
    world.open()
    world.saves(100)
    record = world.at(100).record.id
    replicate(world.site(), RUN, record, to="cold")
    world.hot.drop(world.hot.load(record), now=world.clock())
    world.disk.remove(OUT / "step-100")
    done = resume(world.site(), RUN, to=OUT, job="7")
    assert done.found.record.id == record
    assert world.disk.exists(OUT / "step-100" / "model.bin")
    assert world.at(100).replicas[world.hot.place].damaged


@pytest.mark.parametrize("job", ["../../x", "ns/job", "..", ".", "-7", "7 of 8", "7\n", "ä" * 40])
def test_a_job_s_id_that_is_no_folder_s_name_moves_nothing_out_of_sight_of_finders(world, job):
    world.open()
    world.saves(100, 200, 300)
    world.roll_back(200)
    done = resume(world.site(), RUN, to=OUT, job=job)
    assert done.moved_aside == (OUT / ASIDE / done.attempt / "step-300",)
    assert resume(world.site(), RUN, to=OUT, job=job).attempt == done.attempt
    assert world.sweep().committed == []


@pytest.mark.parametrize("job", ["", " "])
def test_an_empty_job_id_is_refused_before_anything_is_done(world, job):
    """A variable that is not set: else every job would be the same, and go on from what the first one did."""
    world.open()
    world.saves(100)
    before = world.kinds()
    with pytest.raises(Usage, match="--job is empty"):
        resume(world.site(), RUN, to=OUT, job=job)
    with pytest.raises(Usage, match="--job is empty"):
        world.open(job=job)
    assert world.kinds() == before


class _Closed(MemoryFiles):
    """One folder of it may not be read."""

    def identities(self, path):
        if path.name == "step-100":
            raise Denied(f"{path}: Permission denied", advice="Ask its owner.")
        return super().identities(path)


def test_an_older_step_that_may_not_be_read_does_not_keep_training_from_going_on(world):
    world.open()
    world.saves(100, 200, 300)
    world.roll_back(200)
    done = resume(world.site(files=_Closed(world.disk)), RUN, to=OUT, job="7")
    assert done.moved_aside == (OUT / ASIDE / "7" / "step-300",)
    assert rename_steps(world) == ["step-100", "step-200"]


def away(world, *, reachable=False):
    """Hot is empty and the shared tiers do not answer."""
    for shelf in world.shelves.values():
        shelf.reachable = reachable


@pytest.fixture
def sunk(world):
    """Step 100 lies in warm and cold alone, and its directory is gone."""
    world.open()
    world.saves(100)
    world.clock.wait(hours=3)
    release(world.site(), RUN, world.at(100).record.id, tier="hot")
    world.disk.remove(OUT / "step-100")
    return world


def test_nothing_is_decided_while_no_replica_is_in_reach(sunk):
    away(sunk)
    before = sunk.state().sequence
    with pytest.raises(StoreUnavailable):
        resume(sunk.site(), RUN, to=OUT, job="7")
    assert sunk.state().sequence == before
    assert rename_steps(sunk) == []
    away(sunk, reachable=True)
    sunk.shelves["warm"].identity = None
    sunk.shelves["cold"].identity = None
    with pytest.raises(Refused):
        resume(sunk.site(), RUN, to=OUT, job="7")
    assert sunk.state().sequence == before


def test_a_start_that_dies_after_its_decision_goes_by_it_once_a_replica_is_in_reach(sunk):
    for name in ("resume.recorded", "resume.staged", "resume.restored", "resume.bound"):
        sunk.disk.remove(OUT / "step-100")
        with pytest.raises(Killed):
            resume(sunk.site(progress=At(name, dies)), RUN, to=OUT, job=name)
        sunk.restart()
        after = sunk.state().sequence
        away(sunk)
        if name == "resume.recorded":
            with pytest.raises(StoreUnavailable):
                resume(sunk.site(), RUN, to=OUT, job=name)
            assert sunk.state().sequence == after
        away(sunk, reachable=True)
        done = resume(sunk.site(), RUN, to=OUT, job=name)
        assert (done.found.record.step, rename_steps(sunk)) == (100, ["step-100"])


def test_what_lies_there_whole_needs_no_replica(sunk):
    resume(sunk.site(), RUN, to=OUT, job="7")
    away(sunk)
    done = resume(sunk.site(), RUN, to=OUT, job="8")
    assert (done.found.record.step, done.changed) == (100, False)


def dies():
    raise Killed
