"""Announcements that come after their save was recorded complete the record; what is not taken is said, nothing is silent."""

from dataclasses import replace

import pytest

from lakemark.errors import StoreUnavailable
from lakemark.model.checkpoints.record import Evidence
from lakemark.services.health.saves import problems_of_lost
from lakemark.services.node.sweep import sweep
from lakemark.services.node.watch import Watch
from lakemark.services.runs.bind import bind
from lakemark.services.runs.close_run import close_run
from lakemark.services.saves.complete import add_metrics
from lakemark.services.saves.waiting import noted
from tests.services.world import OUT, RUN
from tests.support.memory.lookout import MemoryLookout


@pytest.fixture
def trainer(world):
    world.open()
    return world.trainer()


def identity(world, path):
    """As trainers tell what lay there when they announced."""
    return {one.path: (one.file.inode, one.file.size_bytes, one.file.mtime_ns) for one in world.files.regular(path)}


def found_first(world, trainer, step=100, content=None):
    """A save that a pass took before its trainer announced it; what it lay as."""
    path = trainer.save(step, content, announce=False)
    world.sweep()
    return path, identity(world, path)


def announce(world, trainer, lay, step=100, path=None, **more):
    trainer.announce(path or OUT / f"step-{step}", step, identity=lay, **more)
    return world.sweep()


def evidence(record):
    return [(ref.commit, ref.evidence) for ref in record.data]


def spooled(world):
    return list(world.spool.spooled(world.site().spool_of(RUN)))


@pytest.mark.parametrize("fate", ["lies there", "deleted", "written over"])
def test_it_has_its_metrics_and_its_data_whatever_became_of_its_files(world, trainer, fate):
    commit = world.data.head("data", "main")
    path, lay = found_first(world, trainer)
    record = world.at(100).record
    assert evidence(record) == [(commit, Evidence.DECLARED)]
    if fate == "deleted":
        world.disk.remove(path)
        trainer.save(50, announce=False)
    elif fate == "written over":
        world.clock.wait(minutes=1)
        world.disk.write(path / "model.bin", b"another's, in the same place")
    swept = announce(world, trainer, lay, metrics={"val_loss": 1.5})
    told = world.state().records[record.id].record
    assert (evidence(told), told.metrics) == ([(commit, Evidence.OPENED)], {"val_loss": 1.5})
    assert (spooled(world), [why for _, why in swept.incomplete if "gone" in why or "before" in why]) == ([], [])
    announce(world, trainer, lay, metrics={"val_loss": 1.5})
    assert [world.kinds().count(kind) for kind in ("metric_added", "bound")] == [1, 1], "said again, it is no news"


def test_nothing_is_landed_for_it(world, trainer):
    _, lay = found_first(world, trainer)
    trainer.announce(OUT / "step-100", 100, identity=lay, metrics={"val_loss": 1.5})
    world.hot.land = None
    (done,) = sweep(world.site(), move=False).committed
    assert (done.new, done.record.metrics) == (False, {"val_loss": 1.5})


def test_several_announcements_of_one_save_are_one_word(world, trainer):
    path = trainer.save(100, announce=False)
    for more in ({"val_loss": 2.0, "acc": 0.5}, {}, {"val_loss": 1.5}):
        trainer.announce(path, 100, identity=identity(world, path), metrics=more)
        world.clock.wait(seconds=1)
    swept = world.sweep()
    assert world.at(100).record.metrics == {"val_loss": 1.5, "acc": 0.5}
    assert any("val_loss was announced as 2, then as 1.5" in said for said in swept.said)
    assert (spooled(world), swept.incomplete) == ([], [])


def test_several_late_ones_add_what_each_says(world, trainer):
    _, lay = found_first(world, trainer)
    announce(world, trainer, lay, metrics={"val_loss": 2.0})
    swept = announce(world, trainer, lay, metrics={"val_loss": 1.5, "acc": 0.5})
    assert world.at(100).record.metrics == {"val_loss": 2.0, "acc": 0.5}
    assert any("val_loss stays 2, and not 1.5" in said for said in swept.said)


def test_a_metric_that_somebody_added_stays_and_that_is_said(world, trainer):
    _, lay = found_first(world, trainer)
    add_metrics(world.site(), RUN, world.at(100).record.id, {"val_loss": 1.0}, reason="an evaluation")
    swept = announce(world, trainer, lay, metrics={"val_loss": 1.5})
    assert world.at(100).record.metrics == {"val_loss": 1.0}
    assert any("val_loss stays 1, and not 1.5" in said for said in swept.said)


def test_another_attempt_s_word_adds_nothing_and_that_is_said(world, trainer):
    first = trainer.save(100, announce=False)
    lay = identity(world, first)
    announce(world, trainer, lay, metrics={"val_loss": 1.5})
    record = world.at(100).record
    world.open(job="2")
    swept = announce(world, world.trainer(), lay, metrics={"val_loss": 9.0, "acc": 0.1})
    assert world.at(100).record == record
    assert any("announced it, too" in said and record.attempt in said for said in swept.said)
    assert spooled(world) == []


def test_of_two_attempts_that_announce_the_same_files_the_first_made_them(world, trainer):
    path = trainer.save(100, announce=False)
    trainer.announce(path, 100, identity=identity(world, path), metrics={"val_loss": 1.5})
    world.clock.wait(minutes=1)
    other = replace(trainer.file, attempt="f" * 16)
    late = world.trainer()
    late.file = other
    late.announce(path, 100, identity=identity(world, path), metrics={"val_loss": 9.0})
    swept = world.sweep()
    assert (world.at(100).record.attempt, world.at(100).record.metrics) == (trainer.file.attempt, {"val_loss": 1.5})
    assert any(f"attempt {'f' * 16} announced it, too" in said for said in swept.said)


def test_a_guess_whose_it_is_gives_way_to_its_process(world, trainer):
    """Found after another attempt began on the directory; its own process read other data."""
    first = world.data.head("data", "main")
    world.change_data(2)
    world.repin()
    world.clock.wait(minutes=1)
    world.open(job="2")
    world.clock.wait(minutes=1)
    _, lay = found_first(world, trainer)
    guessed = world.at(100).record
    assert guessed.attempt != trainer.file.attempt
    swept = announce(world, trainer, lay)
    found = world.at(100).record
    assert (found.id, found.attempt) == (guessed.id, trainer.file.attempt)
    assert evidence(world.at(100).record) == [(first, Evidence.OPENED)]
    assert any("its process had" in said for said in swept.said)


def test_what_was_bound_by_hand_after_its_process_spoke_stays(world, trainer):
    path = trainer.save(100, announce=False)
    lay = identity(world, path)
    announce(world, trainer, lay)
    second = world.change_data(2)
    bind(world.site(), RUN, world.at(100).record.id, data=f"data/{second}", reason="its loader was misled")
    swept = announce(world, trainer, lay, metrics={"acc": 0.5})
    assert evidence(world.at(100).record) == [(second, Evidence.DECLARED)]
    assert world.at(100).record.metrics == {"acc": 0.5}
    assert any("it stays bound to" in said for said in swept.said)


def test_an_announcement_that_can_t_be_added_now_is_asked_again(world, trainer):
    _, lay = found_first(world, trainer)
    trainer.announce(OUT / "step-100", 100, identity=lay, metrics={"val_loss": 1.5})
    append = world.ledger.append

    def refuse(run, decide, stamp):
        raise StoreUnavailable("the disk is away", advice="Mount it.")

    world.ledger.append = refuse
    world.sweep()
    assert len(spooled(world)) == 1
    world.ledger.append = append
    world.sweep()
    assert (world.at(100).record.metrics, spooled(world)) == ({"val_loss": 1.5}, [])


def test_broken_off_between_its_two_entries_the_rest_is_added_later(world, trainer):
    _, lay = found_first(world, trainer)
    trainer.announce(OUT / "step-100", 100, identity=lay, metrics={"val_loss": 1.5})
    append = world.ledger.append

    def once(run, decide, stamp):
        if stamp.request.startswith("bound:"):
            raise StoreUnavailable("the disk is away", advice="Mount it.")
        return append(run, decide, stamp)

    world.ledger.append = once
    world.sweep()
    assert (world.at(100).record.metrics, world.at(100).record.announced) == ({"val_loss": 1.5}, False)
    assert len(spooled(world)) == 1
    world.ledger.append = append
    world.sweep()
    assert [ref.evidence for ref in world.at(100).record.data] == [Evidence.OPENED]
    assert [world.kinds().count(kind) for kind in ("metric_added", "bound")] == [1, 1]
    assert spooled(world) == []


def test_one_that_comes_after_the_run_was_closed_is_no_late_save(world, trainer):
    _, lay = found_first(world, trainer)
    close_run(world.site(), RUN, reason="over")
    world.sweep()
    world.clock.wait(minutes=1)
    swept = announce(world, trainer, lay, metrics={"val_loss": 1.5})
    assert world.at(100).record.metrics == {"val_loss": 1.5}
    assert [one.what for one in swept.pending] == []


# Announced saves that are gone before a pass could take them


def lost(world):
    return [(one.colour, one.what) for one in problems_of_lost(RUN, noted(world.site(), RUN))]


def test_a_deleted_one_is_named_once_and_amber_until_a_later_one_is_a_record(world, trainer):
    trainer.save(50)
    world.sweep()
    path = trainer.save(100)
    world.disk.remove(path)
    swept = world.sweep()
    assert swept.incomplete == [(path, "step 100 was gone before it was committed")]
    assert spooled(world) == []
    for _ in range(2):
        assert world.sweep().incomplete == []
        ((colour, what),) = lost(world)
        assert (colour, "step 100" in what) == ("amber", True)
    world.clock.wait(minutes=1)
    trainer.save(200)
    world.sweep()
    assert lost(world) == []


def test_one_whose_whole_folder_went_is_lost_too(world, trainer):
    trainer.save(50)
    world.sweep()
    inner = OUT / "step-100" / "deep"
    world.disk.write(inner / "model.bin", b"weights")
    trainer.announce(inner, 100, identity=identity(world, inner))
    world.disk.remove(OUT / "step-100")
    assert world.sweep().incomplete == [(inner, "step 100 was gone before it was committed")]
    assert spooled(world) == []


def test_each_that_was_written_over_is_named(world, trainer):
    place = OUT / "last"
    for step in (100, 200, 300):
        world.disk.write(place / "model.bin", f"weights of step {step}".encode())
        trainer.announce(place, step, identity=identity(world, place))
        world.clock.wait(minutes=1)
    swept = world.sweep()
    assert swept.incomplete == [(place, f"step {step} was overwritten before it was committed") for step in (100, 200)]
    assert [found.record.step for found in world.state().records.values()] == [300]
    assert lost(world) == [], "a later one is kept"


def test_one_written_over_by_what_says_another_step_is_named(world, trainer):
    world.disk.write(OUT / "last" / "model.bin", b"weights of step 100")
    trainer.announce(OUT / "last", 100, identity=identity(world, OUT / "last"))
    world.clock.wait(minutes=1)
    world.disk.write(OUT / "last" / "model.bin", b"nobody knows of what step")
    swept = world.sweep()
    assert any("step 100 was overwritten before it was committed" in why for _, why in swept.incomplete)


def test_another_save_of_the_step_is_not_taken_for_the_record(world, trainer):
    """Of the same sizes, written later, announced, and gone: what was said of it is said of no other."""
    path, _ = found_first(world, trainer)
    record = world.at(100).record
    world.clock.wait(minutes=5)
    world.disk.remove(path)
    trainer.save(100, "step 111", announce=False)
    lay = identity(world, path)
    world.disk.remove(path)
    trainer.save(50, announce=False)
    swept = announce(world, trainer, lay, metrics={"val_loss": 9.0})
    assert world.at(100).record == record
    assert (path, "step 100 was gone before it was committed") in swept.incomplete


@pytest.fixture
def service(world):
    said = []
    watch = Watch(world.site(), MemoryLookout(world.disk), say=said.append)
    return watch, said


def test_the_service_says_both_once(world, trainer, service):
    watch, said = service
    path, lay = found_first(world, trainer)
    trainer.announce(path, 100, identity=lay, metrics={"val_loss": 1.5})
    add_metrics(world.site(), RUN, world.at(100).record.id, {"val_loss": 1.0}, reason="an evaluation")
    gone = trainer.save(200)
    world.disk.remove(gone)
    for _ in range(3):
        watch.announced(None)
        watch.found(None)
        assert [what for _, what in lost(world)] != []
    assert len([one for one in said if "val_loss stays 1, and not 1.5" in one]) == 1
    assert len([one for one in said if one.startswith("lost ") and "step 200 was gone" in one]) == 1
    # Another process of the node noted nothing else meanwhile, and a service that starts anew knows it still.
    Watch(world.site(), MemoryLookout(world.disk), say=said.append).found(None)
    assert [what for _, what in lost(world)] != []
    world.clock.wait(minutes=1)
    trainer.save(300)
    watch.announced(None)
    assert lost(world) == []
