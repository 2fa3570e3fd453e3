"""Whose the saves are that lie in a run's directories: older ones, copies, links, and what a lost journal leaves."""

import json
import os
import secrets
import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from lakemark.adapters.node.journal import SqliteJournal
from lakemark.adapters.node.notes import LocalNotes
from lakemark.errors import Denied, Refused
from lakemark.model.checkpoints.record import Evidence
from lakemark.ports.site import Watched
from lakemark.services.back.restore import restore
from lakemark.services.back.resume import resume
from lakemark.services.back.rollback_request import request
from lakemark.services.directories import MARKS, bound
from lakemark.services.runs.open_run import Opening, open_run
from lakemark.services.tiers.register import register_all
from tests.services.on_disk import RUN, age, hf, plain
from tests.services.world import OUT, World

PATTERN = Watched(path=Path("/train/*"), run="{name}", data="data/main")


def left(swept):
    return [(one.path.name, str(one.whose)) for one in swept.left]


def steps(world, run=RUN):
    return sorted(found.record.step for found in world.state(run).records.values())


def data(world, step, run=RUN):
    return [(ref.commit, ref.evidence) for ref in world.at(step, run=run).record.data]


# Older than the run


def test_what_is_older_than_the_run_is_listed_and_stays_where_it_is(world):
    path = world.save(1000)
    world.clock.wait(days=3)
    opened = world.open()
    assert [(one.path, one.step, one.written_at) for one in opened.older] == [
        (path, 1000, world.clock.now - timedelta(days=3))
    ]
    for _ in range(2):
        swept = world.sweep()
        assert (swept.committed, left(swept)) == ([], [("step-1000", "older than the run")])
    world.save(20)
    world.sweep()
    assert steps(world) == [20]
    assert world.latest().record.step == 20


def test_it_is_adopted_with_its_times_and_without_data(world):
    world.save(1000)
    world.clock.wait(days=3)
    opened = world.open(adopt=True)
    assert (opened.older, [one.step for one in opened.adopted]) == ((), [1000])
    found = world.at(1000).record
    assert (found.data, found.attempt) == ((), None)
    assert found.saved_at == world.clock.now - timedelta(days=3)
    assert left(world.sweep()) == []
    world.clock.wait(hours=1)
    with pytest.raises(Refused, match="nobody knows"):
        request(world.site(), world.wish(1000))


def test_in_a_pattern_s_directory_it_is_taken_and_its_data_ambiguous(world):
    world.save(1000, out=Path("/train/exp"))
    world.clock.wait(days=3)
    world.changes = {"watch": (PATTERN,)}
    world.open("exp", watch=None)
    world.sweep()
    world.clock.wait(minutes=1)
    world.save(1020, out=Path("/train/exp"))
    world.sweep()
    head = world.data.head("data", "main")
    assert data(world, 1000, "exp") == [(head, Evidence.AMBIGUOUS)]
    assert data(world, 1020, "exp") == [(head, Evidence.DECLARED)]


def test_where_the_clock_is_simulated_files_have_no_age(world):
    world.changes = {"simulated_clock": True}
    world.save(1000)
    world.clock.wait(days=3)
    assert world.open().older == ()
    world.sweep()
    assert steps(world) == [1000]


def test_written_while_an_earlier_attempt_was_open_there_it_is_that_one_s(world):
    """Its directory was bound anew without a look, as after a crash between the two."""
    first = world.open().attempt
    old = world.data.head("data", "main")
    world.clock.wait(minutes=1)
    path = world.save(100)
    world.disk.rename(path, Path("/elsewhere/step-100"))
    world.change_data(2)
    world.clock.wait(minutes=1)
    world.open(job="2")
    world.disk.rename(Path("/elsewhere/step-100"), path)
    world.sweep()
    assert world.at(100).record.attempt == first
    assert data(world, 100) == [(old, Evidence.DECLARED)]


def test_rights_that_somebody_changes_make_nothing_younger(yard):
    path = age(hf(yard.out, 1000), days=3)
    yard.open()
    for file in path.iterdir():
        file.chmod(0o600)
    assert left(yard.sweep()) == [("checkpoint-1000", "older than the run")]


def test_what_comes_with_an_old_time_is_kept(yard):
    yard.open()
    age(hf(yard.out, 10), days=3)
    yard.sweep()
    assert yard.steps() == [10]


def test_results_that_are_written_beside_old_weights_make_nothing_younger(yard):
    path = age(hf(yard.out, 1000), days=3)
    yard.open()
    (path / "eval.json").write_text("{}")
    assert left(yard.sweep()) == [("checkpoint-1000", "older than the run")]


# Copies


def test_a_restore_into_a_watched_directory_is_refused(world):
    world.open("a", watch=OUT / "a")
    world.save(2, out=OUT / "a")
    world.sweep()
    world.open("b", watch=OUT / "b")
    record = world.at(2, run="a").record.id
    for to in (OUT / "b" / "step-2", OUT / "b", OUT / "a" / "deep" / "step-3"):
        with pytest.raises(Refused, match="watched") as raised:
            restore(world.site(), "a", record, to=to)
        assert "lakemark resume" in raised.value.advice
    restore(world.site(), "a", record, to=Path("/elsewhere/step-2"))


def test_nor_into_one_that_would_be_a_run_s_as_soon_as_it_is_there(world):
    world.open("a", watch=OUT / "a")
    world.save(2, out=OUT / "a")
    world.sweep()
    record = world.at(2, run="a").record.id
    world.changes = {"watch": (Watched(path=Path("/exp/*/out"), run="{name}"),)}
    for to in ("/exp/new/out", "/exp/new/out/step-2"):
        with pytest.raises(Refused, match="watched"):
            restore(world.site(), "a", record, to=Path(to))
    for to in ("/exp/new/other", "/exp/.hidden/out"):
        restore(world.site(), "a", record, to=Path(to))


@pytest.mark.parametrize("opened", ["before", "after"])
def test_a_copy_of_another_run_s_save_is_not_taken_and_said(yard, opened):
    a, b = yard.out / "a", yard.out / "b"
    b.mkdir()
    yard.open("a", watch=a)
    if opened == "before":
        yard.open("b", watch=b)
    hf(a, 2)
    yard.sweep()
    if opened == "after":
        yard.open("b", watch=b)
    shutil.copytree(a / "checkpoint-2", b / "checkpoint-2")
    for _ in range(2):
        swept = yard.sweep()
        assert (swept.committed, left(swept)) == ([], [("checkpoint-2", "a copy of a@2")])
    shutil.copytree(a / "checkpoint-2", b / "checkpoint-7", copy_function=os.link)
    assert left(yard.sweep()) == [("checkpoint-2", "a copy of a@2"), ("checkpoint-7", "a copy of a@2")]
    assert yard.steps("b") == []
    assert yard.in_hot() == set(yard.state("a").records)


def test_the_same_bytes_of_another_process_are_kept_and_their_data_is_ambiguous(world):
    """Two runs of one seed begin alike; a copy without its times looks the same."""
    for run in ("a", "b"):
        world.open(run, watch=OUT / run)
        world.save(0, "seed 1", out=OUT / run)
        world.sweep()
    assert [steps(world, run) for run in ("a", "b")] == [[0], [0]]
    head = world.data.head("data", "main")
    assert (data(world, 0, "a"), data(world, 0, "b")) == ([(head, Evidence.DECLARED)], [(head, Evidence.AMBIGUOUS)])


def test_restored_files_are_known_wherever_they_are_moved(yard):
    yard.open()
    plain(yard.out, 3)
    yard.sweep()
    restore(yard.site(), RUN, yard.at(3).record.id, to=yard.home / "back")
    for name in ("step-9", "step-4"):
        (yard.home / "back").rename(yard.out / name)
        swept = yard.sweep()
        assert (swept.committed, swept.pending) == ([], [])
        (yard.out / name).rename(yard.home / "back")


def test_what_a_rollback_gave_up_does_not_come_back_as_a_save(world):
    world.open()
    world.saves(1, 2, 3)
    given_up = world.at(3).record.id
    world.roll_back(2)
    resume(world.site(), RUN, to=OUT, job="1")
    with pytest.raises(Refused, match="watched"):
        restore(world.site(), RUN, given_up, to=OUT / "step-3")
    restore(world.site(), RUN, given_up, to=Path("/elsewhere/step-3"))
    world.disk.rename(Path("/elsewhere/step-3"), OUT / "step-3")
    world.sweep()
    assert world.latest().record.step == 2


# Links


@pytest.mark.parametrize("copy", [os.link, shutil.copy2])
def test_the_same_files_at_another_step_are_a_new_save(yard, copy):
    yard.open()
    plain(yard.out, 1)
    yard.sweep()
    shutil.copytree(yard.out / "step-1", yard.out / "step-2", copy_function=copy)
    swept = yard.sweep()
    assert [done.record.step for done in swept.committed] == [2]
    assert any("step 1" in said for said in swept.said)
    for _ in range(2):
        swept = yard.sweep()
        assert (swept.committed, swept.left, len(swept.passed_over)) == ([], [], 2)
    assert yard.steps() == [1, 2]


def test_a_save_that_shares_unchanged_files_with_the_one_before_is_taken(yard):
    yard.open()
    first = plain(yard.out, 1, model="frozen", optim="moments 1")
    yard.sweep()
    second = yard.out / "step-2"
    second.mkdir()
    os.link(first / "model.bin", second / "model.bin")
    (second / "optim.bin").write_bytes(b"moments 2")
    assert [done.record.step for done in yard.sweep().committed] == [2]
    assert yard.sweep().committed == []
    assert yard.steps() == [1, 2]


# A lost journal


def test_after_a_rollback_an_old_process_s_save_is_not_the_newest_though_the_journal_is_lost(world):
    world.open()
    old = world.saves(1, 2, 3)
    world.roll_back(2)
    world.journal.forget_all()
    world.clock.wait(minutes=10)
    old.save(4, announce=False)
    world.sweep()
    assert world.latest().record.step == 2
    assert world.at(4).record.timeline == 1


@pytest.mark.parametrize("marked", [True, False])
def test_whose_directory_it_is_is_known_by_its_mark(world, marked):
    world.changes = {"watch": (Watched(path=OUT, run=RUN),)}
    world.open(watch=None)
    world.saves(1, 2)
    world.roll_back(1)
    world.journal.forget_all()
    if not marked:
        world.notes.json = {path: text for path, text in world.notes.json.items() if MARKS not in path.parts}
    world.save(9)
    world.sweep()
    assert world.latest().record.step == 1
    assert world.at(9).record.timeline == 1
    assert (world.at(9).record.attempt is not None) is marked


def mark_of(yard):
    return yard.out.parent / MARKS / "whose" / "out.json"


def anew(yard, **changes):
    """The site with an empty journal."""
    return yard.site(journal=SqliteJournal(yard.home / f"{secrets.token_hex(4)}.sqlite"), **changes)


def test_the_mark_lies_beside_an_empty_directory_and_never_in_it(yard):
    opened = yard.open()
    assert list(yard.out.iterdir()) == []
    assert mark_of(yard).exists()
    told = bound(anew(yard), yard.out)
    assert (told.run, told.timeline, told.attempt) == (RUN, 1, opened.attempt)
    plain(yard.out, 1)
    assert [done.record.step for done in yard.sweep().committed] == [1]
    assert yard.sweep().incomplete == []


class Shut(LocalNotes):
    """Beside the directory nothing may be written."""

    def save(self, path, value):
        if path.parent.name == "whose":
            raise Denied(f"{path}: Permission denied", advice="Give this user the right to it.")
        super().save(path, value)


def test_where_nothing_may_be_written_beside_it_the_mark_lies_in_it_once_there_is_something(yard):
    register_all(yard.site())
    opened = open_run(yard.site(notes=Shut()), Opening(run=RUN, watch=yard.out))
    yard.sweep(notes=Shut())
    assert (list(yard.out.iterdir()), mark_of(yard).exists()) == ([], False)
    plain(yard.out, 1)
    for _ in range(2):
        yard.sweep(notes=Shut())
    assert {path.name for path in yard.out.iterdir()} == {"step-1", MARKS}
    assert bound(anew(yard), yard.out).attempt == opened.attempt
    assert yard.steps() == [1]


@pytest.mark.parametrize(
    "change",
    [
        {"ledger": "0" * 16},
        {"attempt": "f" * 16},
        {"attempt": "../../x"},
        {"timeline": 2},
        {"timeline": True},
        {"run": "../x"},
        {"format": "else"},
    ],
    ids=str,
)
def test_a_mark_says_nothing_that_the_ledger_does_not_know(yard, change):
    yard.open()
    said = json.loads(mark_of(yard).read_text())
    assert bound(anew(yard), yard.out) is not None
    mark_of(yard).write_text(json.dumps(said | change))
    assert bound(anew(yard), yard.out) is None
    mark_of(yard).write_text("[]")
    assert bound(anew(yard), yard.out) is None


# Resuming beside what is older


def test_a_resume_leaves_what_is_older_where_it_is_and_asks_once_where_a_trainer_would_load_it(world):
    base = world.save(1000)
    world.clock.wait(days=3)
    world.open()
    world.saves(10, 20)
    world.forget(20)
    with pytest.raises(Refused, match="older than the run") as raised:
        resume(world.site(), RUN, to=OUT, job="1")
    assert "--without-step 1000" in raised.value.advice
    assert "resumed" not in world.kinds()
    done = resume(world.site(), RUN, to=OUT, job="1", without_steps=[1000])
    assert (done.found.record.step, done.moved_aside, done.uncommitted) == (20, (), ())
    assert world.disk.exists(base / "model.bin")
    again = resume(world.site(), RUN, to=OUT, job="2")
    assert (again.found.record.step, again.moved_aside) == (20, ())
    assert world.disk.exists(base / "model.bin")


def test_what_is_older_and_below_is_in_nobody_s_way(world):
    base = world.save(5)
    world.clock.wait(days=3)
    world.open()
    world.saves(10, 20)
    done = resume(world.site(), RUN, to=OUT, job="1")
    assert (done.found.record.step, done.moved_aside) == (20, ())
    assert world.disk.exists(base / "model.bin")


# Bytes that another process wrote before


def test_what_lies_where_an_announced_save_was_is_judged_by_itself(world):
    world.save(2, out=Path("/last-year"))
    world.clock.wait(days=400)
    world.open()
    trainer = world.trainer()
    world.clock.wait(minutes=1)
    path = trainer.save(2, "this year", announce=False)
    files = world.files.regular(path)
    seen = {one.path: (one.file.inode, one.file.size_bytes, one.file.mtime_ns) for one in files}
    trainer.announce(path, 2, identity=seen)
    world.disk.remove(path)
    world.disk.rename(Path("/last-year/step-2"), path)
    swept = world.sweep()
    assert (swept.committed, left(swept)) == ([], [("step-2", "older than the run")])
    assert "overwritten" in str(swept.incomplete)
    assert world.sweep().incomplete == []


def test_the_bytes_of_an_earlier_attempt_s_step_under_another_are_kept_and_their_data_is_ambiguous(world):
    world.open(job="1")
    world.save(1, "the same")
    world.sweep()
    world.open(job="2")
    world.clock.wait(minutes=1)
    world.save(5, "the same")
    swept = world.sweep()
    assert [evidence for _, evidence in data(world, 5)] == [Evidence.AMBIGUOUS]
    assert any("the bytes of llama@1" in said for said in swept.said)


def test_a_copy_found_at_another_step_vouches_for_no_data():
    world = World()
    world.open()
    world.save(100)
    world.sweep()
    before = world.at(100).record
    world.change_data(2)
    world.repin()
    world.clock.wait(minutes=1)
    world.open()
    world.disk.remove(OUT / "step-100")
    world.save(200)
    world.save(300, "step 100")
    world.sweep()
    copy, own = world.at(300).record, world.at(200).record
    assert copy.content == before.content
    assert {ref.evidence for ref in copy.data} == {Evidence.AMBIGUOUS}
    assert {ref.commit for ref in copy.data} == {ref.commit for one in (before, own) for ref in one.data}
