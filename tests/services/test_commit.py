"""Commit: one durable entry binds a checkpoint to its data; the same again is a no-op, other bytes are never lost."""

from dataclasses import replace

import pytest

from lakemark.errors import Conflict, Incomplete, NotFound, Refused
from lakemark.model.checkpoints.record import Code
from lakemark.model.ledger.entry import Draft
from lakemark.services.back.resume import resume
from lakemark.services.runs.close_run import close_run, reopen_run
from lakemark.services.saves.commit import Commit, commit
from tests.services.world import OUT, RUN, files


def asked(path, step, **more):
    return Commit(path=path, run=RUN, step=step, **more)


def test_commit_seals_the_very_bytes_and_remembers_them(world):
    world.open()
    path = world.save(100)
    made = commit(world.site(), asked(path, 100, metrics={"loss": 1.5}, code=Code(repository="r", commit="c")))
    found = world.at(100)
    assert made.new
    assert found.record == made.record
    assert found.record.metrics == {"loss": 1.5}
    assert found.record.code.commit == "c"
    sealed = world.hot.path(world.hot.load(found.record.id).record)
    assert files(world.disk, sealed) == files(world.disk, path)
    assert all(world.journal.known(file) == found.record.id for file in world.disk.identities(path))


def test_the_same_bytes_again_are_the_same_record(world):
    world.open()
    path = world.save(100)
    first = commit(world.site(), asked(path, 100))
    second = commit(world.site(), asked(path, 100))
    assert (second.record, second.new) == (first.record, False)
    assert world.kinds().count("committed") == 1
    assert world.hot.records().records == (first.record.id,)


def test_other_bytes_at_a_step_collide_and_change_nothing(world):
    world.open()
    first = commit(world.site(), asked(world.save(100), 100)).record
    path = world.save(100, "another loss")
    before = world.state().sequence
    with pytest.raises(Conflict, match=first.id[:12]):
        commit(world.site(), asked(path, 100))
    assert world.state().sequence == before
    assert world.hot.records().records == (first.id,)
    made = commit(world.site(), asked(path, 100, supersede=True)).record
    assert made.supersedes == first.id
    assert world.state().records[first.id].superseded_by == made.id
    assert world.latest().record.id == made.id


def test_nothing_lands_where_another_tier_s_disk_is_mounted(world):
    world.open()
    world.saves(100)
    before = world.hot.records().records
    world.hot._tier.identity = replace(world.hot.identity(), id="another tier's")
    with pytest.raises(Refused, match="the place of the tier hot"):
        commit(world.site(), asked(world.save(200), 200))
    assert world.hot.records().records == before


def test_what_is_not_a_checkpoint_yet_is_incomplete(world):
    world.open()
    world.disk.mkdir(OUT / "step-1")
    with pytest.raises(Incomplete):
        commit(world.site(), asked(OUT / "step-1", 1))
    world.disk.write(OUT / "step-1" / "model.tmp", b"x")
    with pytest.raises(Incomplete):
        commit(world.site(), asked(OUT / "step-1", 1))
    with pytest.raises(NotFound):
        commit(world.site(), asked(OUT / "step-2", 2))
    assert world.kinds() == ["opened", "attempt"]


def test_a_file_that_changes_while_it_is_hashed_leaves_nothing(world):
    world.open()
    path = world.save(100)

    class Meddler:
        def step(self, name):
            pass

        def expect(self, what, size_bytes):
            pass

        def advance(self, size_bytes):
            world.disk.write(path / "model.bin", b"still at it")

    with pytest.raises(Incomplete, match="changed"):
        commit(world.site(progress=Meddler()), asked(path, 100))
    assert world.hot.records().records == ()
    world.restart()
    assert world.hot.clean() == 0


def test_what_is_written_after_landing_is_another_save(world):
    """Remembering must be of the files that were sealed, not of those that lie there when the entry is made."""
    world.open()
    path = world.save(100)

    class Overwriter:
        def step(self, name):
            if name == "commit.recorded":
                world.disk.replace(path / "model.bin", b"saved a moment later")

        def expect(self, what, size_bytes):
            pass

        def advance(self, size_bytes):
            pass

    commit(world.site(progress=Overwriter()), asked(path, 100))
    assert any(world.journal.known(file) is None for file in world.disk.identities(path))
    world.sweep()
    assert [found.record.step for found in world.state().records.values()] == [100, 100]


def test_full_disk_and_what_was_saved_after_the_close_are_refused(world):
    world.open()
    path = world.save(100)
    world.hot.free_share, world.hot.min_free_share = 0.05, 0.1
    with pytest.raises(Refused, match="min_free"):
        commit(world.site(), asked(path, 100))
    world.hot.free_share = 0.5
    world.clock.wait(minutes=1)
    close_run(world.site(), RUN, reason="done")
    before = world.hot.records().records
    world.clock.wait(minutes=1)
    path = world.save(200)
    with pytest.raises(Refused, match="closed"):
        commit(world.site(), asked(path, 200))
    assert world.hot.records().records == before
    reopen_run(world.site(), RUN, reason="not done")
    assert commit(world.site(), asked(path, 200)).new
    with pytest.raises(NotFound):
        commit(world.site(), Commit(path=path, run="nobody", step=1))


def test_a_run_closed_while_committing_keeps_the_save_and_stays_closed(world):
    world.open()
    path = world.save(100)

    class Closer:
        def step(self, name):
            if name == "commit.adopted" and not world.state().closed:
                world.ledger.append(RUN, lambda _: Draft(kind="closed", timeline=1), world.site().stamp("closed"))

        def expect(self, what, size_bytes):
            pass

        def advance(self, size_bytes):
            pass

    made = commit(world.site(progress=Closer()), asked(path, 100))
    assert world.kinds()[-2:] == ["closed", "committed"]
    assert world.state().closed
    assert world.hot.records().records == (made.record.id,)


def test_a_save_placed_anew_keeps_its_bytes(world):
    """The run goes to another timeline between naming the tree and its entry: the tree is named again, nothing is lost."""
    world.open()
    world.saves(100, 200)
    path = world.save(300)
    moved = []

    class Mover:
        def step(self, name):
            if name == "commit.adopted" and not moved:
                moved.append(name)
                again = world.save(200, "again")
                commit(world.site(), asked(again, 200, found=True, directory=OUT, quiet_seconds=0))

        def expect(self, what, size_bytes):
            pass

        def advance(self, size_bytes):
            pass

    made = commit(world.site(progress=Mover()), asked(path, 300, found=True, directory=OUT, quiet_seconds=0)).record
    assert made.timeline == world.state().timeline == 2
    assert set(world.hot.records().records) == set(world.state().records)
    assert world.hot.verify(world.hot.load(made.id), progress=world.site().progress) == ()


def test_a_find_taken_too_early_is_superseded_by_the_whole(world):
    world.open()
    path = world.save(100)
    world.sweep()
    early = world.at(100).record
    world.disk.write(path / "extra.bin", b"written late")
    world.sweep()
    late = world.at(100).record
    assert late.supersedes == early.id
    assert world.latest().record.id == late.id
    assert world.state().timeline == 1


def test_a_restarted_trainer_that_saves_a_step_again_is_protected(world):
    world.open()
    for step in (500, 550, 600):
        world.save(step)
        world.sweep()
    old = world.at(550).record
    for step in (550, 600):
        world.save(step, f"again {step}")
        world.sweep()
    state = world.state()
    # It only wrote steps anew so far, which a conversion does as well.
    assert (state.timeline, state.timelines[2].inferred) == (1, True)
    assert state.timelines[2].fork.record == world.at(500).record.id
    assert world.latest().record.id == world.at(600, timeline=1).record.id
    assert [world.at(step).record.timeline for step in (550, 600)] == [2, 2]
    assert state.records[old.id].stands
    world.save(650, "again 650")
    world.sweep()
    assert world.at(650).record.timeline == 2
    assert world.at(650).record.parent == world.at(600).record.id
    assert world.state().timeline == 2


def test_a_restarted_announcing_trainer_goes_on_in_its_own_new_timeline(world):
    world.open()
    world.saves(500, 550, 600)
    again = world.trainer()
    for step in (550, 600, 650):
        world.clock.wait(minutes=10)
        again.save(step, f"again {step}")
        world.sweep()
    assert world.state().timeline == 2
    assert [world.at(step).record.timeline for step in (550, 600, 650)] == [2, 2, 2]
    assert world.latest().record.step == 650


def test_announced_saves_that_the_trainer_removed_are_not_waited_for(world):
    world.open()
    trainer = world.trainer()
    world.disk.remove(trainer.save(100))
    trainer.save(200)
    swept = world.sweep()
    assert [why for _, why in swept.incomplete] == ["step 100 was gone before it was committed"]
    assert not world.sweep().incomplete


def test_an_announcement_outlives_the_disk_that_is_not_mounted(world):
    """Its directory is there, and empty: that is how a mount point looks whose disk is away."""
    world.open()
    trainer = world.trainer()
    path = trainer.save(100, metrics={"loss": 2.5})
    away = [(at, node) for at, node in world.disk.walk(path)]
    assert away
    world.disk.rename(path, OUT.with_name("unmounted"))
    (said,) = [why for _, why in world.sweep().incomplete]
    assert "is its disk mounted" in said
    world.disk.rename(OUT.with_name("unmounted"), path)
    world.sweep()
    assert world.at(100).record.metrics == {"loss": 2.5}


def test_an_early_announcement_keeps_its_metrics_and_roles(world):
    world.open()
    trainer = world.trainer()
    trainer.save(100, metrics={"loss": 2.0}, roles={"model.bin": "weights", "optim/state.bin": "optimizer"})
    world.sweep()
    record = world.at(100).record
    assert record.metrics == {"loss": 2.0}
    assert record.roles == ("weights", "optimizer")
    assert record.resumable is False
    assert record.gaps == ("no scheduler", "no rng")


def test_explicit_commit_below_a_fork_goes_where_its_step_belongs(world):
    world.open()
    world.saves(100, 300, 400)
    world.roll_back(300)
    resume(world.site(), RUN, to=OUT, job="1")
    made = commit(world.site(), asked(world.save(200, out=OUT.with_name("elsewhere")), 200)).record
    assert made.timeline == 1
    assert world.latest().record.step == 300
    path = world.save(100, "other", out=OUT.with_name("elsewhere"))
    with pytest.raises(Conflict):
        commit(world.site(), asked(path, 100))


def test_a_trainer_that_goes_below_its_fork_by_itself_opens_another_timeline(world):
    world.open()
    world.saves(100, 200, 300, 400)
    world.roll_back(300)
    resume(world.site(), RUN, to=OUT, job="1")
    world.save(250, "went back further")
    world.sweep()
    state = world.state()
    assert (state.timeline, world.latest().record.step) == (2, 300)
    assert state.timelines[3].fork.step == 200
    world.save(275, "went on")
    world.sweep()
    assert (world.state().timeline, world.latest().record.step) == (3, 275)
