"""Finds on a real disk: checkpoints of several members, what is known, what is copied, what grows, moves and vanishes."""

import contextlib
import os
import shutil
import threading
from dataclasses import replace
from datetime import timedelta

import pytest

from lakemark.adapters.hot.store import TreeStore
from lakemark.errors import Conflict, Denied, Incomplete, NoRecordAsOf, NotFound
from lakemark.model.runs.timeline import as_of
from lakemark.ports import Policies, Quiet, Spooled, Watched
from lakemark.services.back.resume import resume
from lakemark.services.ledger import committed
from lakemark.services.node.sweep import sweep
from lakemark.services.saves import layout
from lakemark.services.saves.abandoned import AGE
from lakemark.services.saves.commit import Commit, commit
from lakemark.services.saves.find import find_new
from tests.contract.store_places import flip
from tests.formats.builders import save, torch_zip
from tests.services.crashing import At, KillAt, Killed
from tests.services.on_disk import RUN, age, hf, now, plain, until

WEEK = timedelta(days=7)


class Counting:
    """Says what the recogniser is asked."""

    def __init__(self, real):
        self.real, self.judged = real, []

    def find(self, root, **more):
        for found in self.real.find(root, **more):
            self.judged.append(found.path.name)
            yield found

    def judge(self, path):
        self.judged.append(path.name)
        return self.real.judge(path)


# Members


def test_files_that_only_share_a_beginning_are_one_checkpoint(yard):
    yard.open()
    yard.unpack("keras_tf/tfckpt")
    beside = sorted(path.name for path in yard.out.iterdir())
    swept = yard.sweep()
    assert [done.record.step for done in swept.committed] == [50, 100]
    assert swept.incomplete == swept.pending == []
    for step in (50, 100):
        paths = yard.paths(step)
        assert paths == [name for name in beside if name.startswith(f"ckpt-{step}.")]
        assert len(paths) > 1
        assert yard.manifest(step).framework == "tf"
        assert {file.role for file in yard.manifest(step).regular} >= {"weights"}
    again = yard.sweep()
    assert again.committed == again.incomplete == []


def test_a_prefix_can_be_asked_for_and_announced(yard):
    opened = yard.open(watch=None)
    yard.unpack("keras_tf/tfckpt")
    first = yard.commit(yard.out / "ckpt-50", 50)
    assert first.new
    assert not yard.commit(yard.out / "ckpt-50", 50).new
    spool = yard.site().spool_of(RUN)
    spooled = Spooled(
        file=spool / "1.json",
        run=RUN,
        path=yard.out / "ckpt-100",
        step=100,
        saved_at=now(),
        attempt=opened.attempt,
        timeline=None,
        data=(),
    )
    assert yard.commit(yard.out / "ckpt-100", 100, spooled=spooled, found=True).new
    (yard.out / "ckpt-50.index").write_bytes((yard.out / "ckpt-50.index").read_bytes())
    assert not yard.commit(yard.out / "ckpt-50", 50).new
    data = next(yard.out.glob("ckpt-50.data*"))
    data.write_bytes(data.read_bytes()[:-1] + b"x")
    with pytest.raises(Conflict):
        yard.commit(yard.out / "ckpt-50", 50)
    assert yard.in_hot() == {found.record.id for found in yard.state().records.values()}


def test_a_member_written_again_later_is_another_state(yard):
    yard.open()
    yard.unpack("keras_tf/tfckpt")
    yard.sweep()
    first = yard.at(50).record
    data = next(yard.out.glob("ckpt-50.data*"))
    data.write_bytes(data.read_bytes()[:-1] + b"x")
    yard.sweep()
    assert (yard.at(50).record.supersedes, yard.at(50).conflicts_with) == (None, first.id)
    assert yard.state().timeline == 1


# What is known


def test_nothing_is_read_of_what_is_known(yard):
    yard.open()
    for step in (1, 2, 3):
        plain(yard.out, step)
    yard.sweep()
    counting = Counting(yard.site().recogniser)
    plain(yard.out, 4)
    yard.sweep(recogniser=counting)
    assert set(counting.judged) == {"step-4"}
    (yard.out / "step-2" / "late.bin").write_bytes(b"late")
    assert [found.step for found in find_new(yard.site(), yard.out)] == [2]


def test_the_newest_open_on_the_node_counts_in_every_directory_of_the_run(yard):
    yard.open(job="1")
    plain(yard.out / "run" / "checkpoints", 1)
    yard.sweep()
    attempt = yard.at(1).record.attempt
    newer = yard.open(job="2", watch=None).attempt
    plain(yard.out / "run" / "checkpoints", 2)
    yard.sweep()
    made = yard.commit(plain(yard.out / "run" / "checkpoints", 3), 3)
    assert yard.at(2).record.attempt == made.record.attempt == newer != attempt
    elsewhere = yard.commit(plain(yard.home / "elsewhere", 4), 4)
    assert elsewhere.record.attempt != attempt


def test_a_step_saved_again_deep_inside_opens_a_timeline_of_the_watched_directory(yard):
    yard.open()
    deep = yard.out / "lightning_logs" / "version_3" / "checkpoints"
    for step in (1, 2, 3):
        plain(deep, step)
        yard.sweep()
    shutil.rmtree(deep / "step-2")
    plain(deep, 2, model="again", optim="again")
    yard.sweep()
    assert (yard.state().timeline, yard.at(2).record.timeline) == (1, 2)
    assert yard.site().journal.directory(yard.out).timeline == 2
    plain(deep, 4)
    yard.sweep()
    assert yard.at(4).record.timeline == yard.state().timeline == 2


def test_two_runs_in_one_root_stay_apart(yard):
    watched = (Watched(path=yard.out / "*", run="{name}"),)
    for run in ("one", "two"):
        (yard.out / run).mkdir()
        yard.open(run, watch=None)
        plain(yard.out / run / "checkpoints", 10, model=run, optim=run)
    yard.sweep(watch=watched)
    assert yard.steps("one") == yard.steps("two") == [10]
    assert {one.record.content for run in ("one", "two") for one in yard.state(run).records.values()}.__len__() == 2


# Copies


def test_a_copy_of_a_committed_file_is_read_once_and_known(yard):
    yard.open()
    yard.unpack("keras_tf/tfckpt")
    yard.sweep()
    source = next(yard.out.glob("ckpt-50.data*"))
    shutil.copy(source, yard.out / "last.bin")
    from lakemark.ports import Found, Verdict
    from lakemark.services.saves.side_copies import Copies

    found = Found(path=yard.out / "last.bin", framework="x", step=None, verdict=Verdict.COMPLETE, why="")
    assert Copies(yard.site(), RUN).is_one(found)
    (file,) = yard.site().files.identities(found.path)
    assert yard.site().journal.known(file) == yard.at(50).record.id
    (yard.out / "last.bin").write_bytes(source.read_bytes()[:-1] + b"!")
    assert not Copies(yard.site(), RUN).is_one(found)
    with pytest.raises(NotFound):
        Copies(yard.site(), RUN).is_one(replace(found, path=yard.out / "nowhere"))


def test_a_file_that_cannot_be_compared_is_pending_and_keeps_no_other_out(yard):
    yard.open()
    yard.unpack("lightning/topk_last")
    yard.sweep()
    shutil.copy(yard.out / "epoch=1-step=16-val_loss=1.41.ckpt", yard.out / "last.ckpt")
    plain(yard.out, 99)

    class Shut(Reading):
        def digest(self, path):
            raise Denied(f"{path}: Permission denied", advice="Give this user the right to it.")

    swept = yard.sweep(files=Shut(yard.site().files))
    assert [done.record.step for done in swept.committed] == [99]
    assert [one.what for one in swept.pending] == [str(yard.out / "last.ckpt")]
    assert "Permission denied" in swept.pending[0].why
    assert yard.sweep().pending == []


@pytest.mark.parametrize(
    ("case", "name", "source"),
    [
        ("lightning/topk_last", "last.ckpt", "epoch=1-step=16-val_loss=1.41.ckpt"),
        ("fairseq/plain", "checkpoint_last.pt", "checkpoint_2_1000.pt"),
    ],
)
def test_the_copies_that_frameworks_make_are_no_findings(yard, case, name, source):
    yard.open()
    yard.unpack(case)
    shutil.copy(yard.out / source, yard.out / name)
    yard.sweep()
    assert name not in [path.name for path, _ in yard.sweep().incomplete]
    flip(yard.out / name, (yard.out / name).stat().st_size // 3)
    assert name in [path.name for path, _ in yard.sweep().incomplete]


class Reading:
    """Counts whole reads."""

    def __init__(self, real):
        self.real, self.read = real, 0

    def __getattr__(self, name):
        return getattr(self.real, name)

    def digest(self, path):
        self.read += 1
        return self.real.digest(path)


def test_a_file_that_is_no_copy_is_read_once_however_many_steps_come(yard):
    yard.open()
    save = yard.out / "final" / "model.pt"
    save.parent.mkdir()
    save.write_bytes(b"0123456789")
    from lakemark.ports import Found, Verdict
    from lakemark.services.saves.side_copies import Copies

    found = Found(
        path=save.parent, framework="x", step=None, verdict=Verdict.COMPLETE, why="", roles={"model.pt": "weights"}
    )
    reading = Reading(yard.site().files)
    for step in range(4):
        plain(yard.out, step, model=f"{step}".zfill(10), optim=f"{step}")
        yard.sweep()
        assert not Copies(yard.site(files=reading), RUN).is_one(found)
    assert reading.read == 1
    plain(yard.out, 9, model="0123456789", optim="9")
    yard.sweep()
    assert Copies(yard.site(files=reading), RUN).is_one(found)
    assert reading.read == 1


# Growing, late, vanishing, moving


def test_what_still_grows_is_not_taken_and_afterwards_is(yard):
    yard.open()
    quiet = Policies(quiet_seconds=1.0)
    path = plain(yard.out, 1)
    stop, wrote = threading.Event(), threading.Event()

    def grow():
        while not stop.wait(0.03):
            with (path / "model.bin").open("ab") as file:
                file.write(b"more")
            wrote.set()

    writer = threading.Thread(target=grow)
    writer.start()
    try:
        assert wrote.wait(180)
        for _ in range(3):
            swept = yard.sweep(policies=quiet)
            assert swept.committed == []
            assert [where for where, _ in swept.incomplete] == [path]
    finally:
        stop.set()
        writer.join()
    assert yard.in_hot() == set()
    assert [done.record.step for done in yard.sweep(policies=quiet).committed] == [1]


class During(Quiet):
    """Does something once a landing has begun to hash."""

    def __init__(self, deed):
        self.deed, self.done = deed, False

    def expect(self, what, size_bytes):
        if what == "hash" and not self.done:
            self.done = True
            self.deed()


@pytest.mark.parametrize("deed", ["a new file", "removed", "renamed", "replaced by another"])
def test_what_changes_while_it_is_hashed_is_not_taken(yard, deed):
    yard.open()
    path = plain(yard.out, 1)
    other = plain(yard.home / "other", 2)

    def swap():
        path.rename(yard.home / "was")
        other.rename(path)

    deeds = {
        "a new file": lambda: (path / "new.bin").write_bytes(b"new"),
        "removed": lambda: shutil.rmtree(path),
        "renamed": lambda: path.rename(yard.out / "elsewhere"),
        "replaced by another": swap,
    }
    progress = During(deeds[deed])
    swept = yard.sweep(progress=progress)
    assert progress.done
    assert swept.committed == []
    assert [where for where, _ in swept.incomplete] == [path]
    assert yard.in_hot() == set()
    assert list((yard.home / "site/hot/.lakemark/incoming").glob("[!.]*")) == []
    if deed in ("removed", "renamed"):
        assert "gone" in swept.incomplete[0][1]


class Swapping(Counting):
    """Another directory comes to lie under the name right after it was judged."""

    def __init__(self, real, other):
        super().__init__(real)
        self.other = other

    def judge(self, path):
        found = super().judge(path)
        if self.other.exists():
            path.rename(path.with_name(".was"))
            self.other.rename(path)
        return found


def test_what_was_judged_is_what_is_landed(yard):
    yard.open()
    path, other = plain(yard.out, 1), plain(yard.home / "other", 1, model="another", optim="another")
    swept = yard.sweep(recogniser=Swapping(yard.site().recogniser, other))
    assert ([where for where, _ in swept.incomplete], swept.committed) == ([path], [])
    assert yard.in_hot() == set()
    assert [done.record.step for done in yard.sweep().committed] == [1]


def test_files_written_after_the_marker_supersede_what_was_taken_too_early(yard):
    yard.open()
    path = hf(yard.out, 10)
    state = (path / "rng_state.pth").rename(path / "rng_state_0.pth").read_bytes()
    (path / "rng_state_1.pth").write_bytes(state)
    yard.sweep()
    early = yard.at(10).record
    (path / "rng_state_2.pth").write_bytes(state)
    swept = yard.sweep()
    assert swept.incomplete == []
    late = yard.at(10).record
    assert (late.supersedes, late.timeline) == (early.id, 1)
    assert "rng_state_2.pth" in yard.paths(10)
    assert yard.steps() == [10]


def test_a_storm_of_renames(yard):
    yard.open()
    for step in range(1, 6):
        plain(yard.out, step)
    stop = threading.Event()

    def storm():
        at = 0
        while not stop.is_set():
            at = at % 5 + 1
            here, there = yard.out / f"step-{at}", yard.out / f".moving-{at}"
            os.rename(here, there)
            os.rename(there, here)

    thread = threading.Thread(target=storm)
    thread.start()
    try:
        for _ in range(5):
            yard.sweep()
    finally:
        stop.set()
        thread.join()
    until(lambda: not yard.sweep().incomplete)
    assert yard.steps() == [1, 2, 3, 4, 5]
    assert yard.state().timeline == 1
    assert yard.in_hot() == {found.record.id for found in yard.state().records.values()}
    for step in range(1, 6):
        tree = yard.site().hot.path(yard.site().hot.load(yard.at(step).record.id).record)
        assert (tree / "model.bin").read_text() == f"weights {step}"


# Unfinished and abandoned


def test_unfinished_ones_are_listed_until_nobody_can_mean_them(yard):
    yard.open()
    path = plain(yard.out, 20, model="weights")
    (path / "model.safetensors").write_bytes(b"cut")
    for _ in range(2):
        swept = yard.sweep()
        assert [where for where, _ in swept.incomplete] == [path]
    age(path, hours=25)
    swept = yard.sweep()
    assert ([where for where, _ in swept.incomplete], swept.abandoned) == ([path], [])  # nothing newer is whole
    plain(yard.out, 30)
    swept = yard.sweep()
    assert swept.incomplete == []
    (one,) = swept.abandoned
    assert one.path == path
    assert "safetensors" in one.why
    assert now() - one.since > AGE
    assert path.exists()
    (path / "model.safetensors").write_bytes(b"somebody is at it again")
    swept = yard.sweep()
    assert ([where for where, _ in swept.incomplete], swept.abandoned) == ([path], [])


def test_where_the_clock_is_simulated_nothing_ages(yard):
    yard.open()
    path = plain(yard.out, 20)
    (path / "model.safetensors").write_bytes(b"cut")
    age(path, days=9)
    plain(yard.out, 30)
    swept = yard.sweep(simulated_clock=True)
    assert ([where for where, _ in swept.incomplete], swept.abandoned) == ([path], [])


def test_temporary_ones_are_the_trainers_own_business_until_they_are_old(yard):
    yard.open()
    path = plain(yard.out, 40).rename(yard.out / "tmp_step-40")
    plain(yard.out, 30)
    swept = yard.sweep()
    assert swept.incomplete == swept.abandoned == []
    age(path, days=2)
    assert [where for where, _ in yard.sweep().incomplete] == [path]
    plain(yard.out, 50)
    assert [one.path for one in yard.sweep().abandoned] == [path]
    assert path.exists()


# Names


def test_odd_names_are_taken_or_refused_whole(yard):
    yard.open()
    for number, name in enumerate(("a=b,c:d", "with space", "new\nline", "ünïcode"), start=1):
        path = plain(yard.out / name, number)
        (path / f"{name}.bin").write_bytes(name.encode())
    bad = plain(yard.out, 9)
    (bad / "bad\udcff.bin").write_bytes(b"x")
    swept = yard.sweep()
    assert [done.record.step for done in swept.committed] == [1, 2, 3, 4]
    assert "a=b,c:d.bin" in yard.paths(1)
    assert "new\nline.bin" in yard.paths(3)
    (refused,) = swept.pending
    assert "not UTF-8" in refused.why
    assert refused.what == str(bad)
    assert yard.in_hot() == {found.record.id for found in yard.state().records.values()}


def test_a_directory_whose_own_name_is_not_utf8_is_committed_and_named_readably(yard):
    yard.open()
    plain(yard.out / "bad\udcff", 5)
    assert [done.record.step for done in yard.sweep().committed] == [5]
    entry = next(entry for entry, _ in yard.site().ledger.entries(RUN) if entry.kind == "committed")
    assert "bad\\xff" in entry.body["source"]


# Ranks


def test_an_announcement_of_one_rank_waits_for_the_others(yard):
    opened = yard.open()
    path = plain(yard.out, 1)
    (path / "rng_0.bin").write_bytes(b"0")
    spooled = Spooled(
        file=yard.site().spool_of(RUN) / "1.json",
        run=RUN,
        path=path,
        step=1,
        saved_at=now(),
        attempt=opened.attempt,
        timeline=None,
        data=(),
        world=2,
        rank_files=("rng_{rank}.bin",),
    )
    asked = Commit(path=path, run=RUN, step=1, spooled=spooled, found=True)
    with pytest.raises(Incomplete, match=r"rng_1\.bin"):
        commit(yard.site(), asked)
    (path / "rng_1.bin").write_bytes(b"1")
    assert commit(yard.site(), asked).new


def test_what_resume_brought_back_is_not_found_again(yard):
    yard.open()
    for step in (1, 2):
        plain(yard.out, step)
    yard.sweep()
    shutil.rmtree(yard.out / "step-2")
    resume(yard.site(), RUN, to=yard.out)
    assert (yard.out / "step-2").exists()
    swept = yard.sweep()
    assert swept.committed == swept.incomplete == []


# One step under two names


def test_two_files_of_one_save_are_both_kept_in_one_timeline(yard):
    yard.open()
    yard.unpack("lightning/default_names")
    assert {path.name for path in (yard.out / "checkpoints").iterdir()} >= {
        "epoch=1-step=16.ckpt",
        "epoch=1-step=16-v1.ckpt",
    }
    swept = yard.sweep()
    assert [done.record.step for done in swept.committed] == [16, 16]
    state = yard.state()
    assert {found.record.timeline for found in state.records.values()} == {state.timeline} == {1}
    assert sum(found.stands for found in state.records.values()) == 1
    assert yard.sweep().committed == []


def test_a_step_that_was_trained_again_opens_a_timeline(yard):
    yard.open()
    for step, hours in ((8, 2), (16, 1)):
        save(yard.out / f"epoch=1-step={step}.ckpt", torch_zip({"global_step": step}))
        age(yard.out / f"epoch=1-step={step}.ckpt", hours=hours)
    yard.sweep()
    save(yard.out / "epoch=1-step=16-v1.ckpt", torch_zip({"global_step": 16, "again": 1}))
    yard.sweep()
    assert yard.at(16).record.timeline == 2


# Saves that are counted


def test_the_number_of_a_save_is_its_step_where_nobody_says_it(yard):
    yard.open()
    yard.unpack("accelerate/auto_naming")
    assert [done.record.step for done in yard.sweep().committed] == [0, 1]
    assert yard.manifest(1).extra["counted"] is True


def test_a_counter_is_no_step_among_steps_that_were_told(yard):
    yard.open()
    yard.unpack("accelerate/auto_naming")
    folder = yard.out / "checkpoints"
    yard.commit(folder / "checkpoint_0", 8)
    swept = yard.sweep()
    assert swept.committed == []
    ((path, why),) = swept.incomplete
    assert path == folder / "checkpoint_1"
    assert "step unknown" in why


def test_reports_of_ray_are_counted(yard):
    yard.open()
    yard.unpack("ray_train/run_keep2")
    assert [done.record.step for done in yard.sweep().committed] == [2, 3]


# A commit and a sweep at once


def test_a_tree_whose_commit_is_under_way_is_left_alone(yard):
    yard.open()
    sweep(yard.site(), find=False, move=False)  # says what the site says of itself
    path = plain(yard.out, 10)

    class Meanwhile(Quiet):
        """Another process sweeps between name and entry."""

        def step(self, name):
            if name == "commit.adopted":
                swept = sweep(yard.site(), find=False, move=False)
                said.extend(swept.said)
                seen.append(set(yard.state().records))

    said, seen = [], []
    done = commit(yard.site(progress=Meanwhile()), Commit(path=path, run=RUN, step=10))
    assert (said, seen) == ([], [set()])
    assert set(yard.state().records) == {done.record.id} == yard.in_hot()
    assert committed(yard.site(), yard.at(10)).source == str(path)


def test_what_a_dead_commit_left_is_the_record_it_would_have_been(yard):
    """The trainer has deleted its own files by then."""
    yard.open()
    bodies = []
    for step, progress in ((10, KillAt(2)), (11, Quiet())):
        path = hf(yard.out / "deep", step, without=("optimizer.pt", "scheduler.pt", "rng_state.pth"))
        with contextlib.suppress(Killed):
            commit(yard.site(progress=progress), Commit(path=path, run=RUN, step=step, metrics={"val_loss": 1.5}))
        shutil.rmtree(path)
        yard.sweep()
        bodies.append(committed(yard.site(), yard.at(step)))
    adopted, whole = bodies
    # What is said once of a run, is said with its first save.
    assert whole.notes == ("weights only: not resumable",)
    assert set(whole.notes) < set(adopted.notes or ())
    source = str(yard.out / "deep" / "checkpoint-10")
    assert adopted == replace(whole, notes=adopted.notes, source=source, size_bytes=adopted.size_bytes)
    first, second = (yard.at(step).record for step in (10, 11))
    assert (first.metrics, first.attempt, first.data) == (second.metrics, second.attempt, second.data)
    placed = layout.layout_of(yard.site(), yard.state(), yard.at(10), to=yard.out)
    assert placed.path == yard.out / "deep" / "checkpoint-10"


# Times of files


def test_a_step_is_not_older_than_the_one_it_came_from(yard):
    yard.open()
    age(plain(yard.out, 900), hours=2)
    age(plain(yard.out, 1000), hours=1)
    age(plain(yard.out, 1100), days=4000)
    yard.sweep()
    first, second, copied = (yard.at(step).record.saved_at for step in (900, 1000, 1100))
    assert first < second == copied
    with pytest.raises(NoRecordAsOf):
        as_of(yard.state(), now() - timedelta(days=3))
    assert as_of(yard.state(), now() - timedelta(minutes=90)).record.step == 900


@pytest.mark.parametrize("announced", [False, True])
def test_no_step_answers_for_a_day_before_the_one_it_came_from(yard, announced):
    """Neither by the time of its files, nor by the clock of the machine that announced it."""
    opened = yard.open()
    for step in (900, 10_000):
        plain(yard.out, step)
        yard.sweep()
    late = age(plain(yard.out, 20_001), days=7000)
    spooled = Spooled(
        file=yard.site().spool_of(RUN) / "1.json",
        run=RUN,
        path=late,
        step=20_001,
        saved_at=now() - timedelta(days=7000),
        attempt=opened.attempt,
        timeline=None,
        data=(),
    )
    yard.commit(late, 20_001, found=True, spooled=spooled if announced else None)
    assert yard.at(20_001).instant == yard.at(10_000).instant
    with pytest.raises(NoRecordAsOf):
        as_of(yard.state(), now() - timedelta(days=3))


def test_a_step_whose_files_are_of_the_future_was_saved_by_now(yard):
    yard.open()
    age(plain(yard.out, 100), days=-4000)
    yard.sweep()
    plain(yard.out, 200)
    yard.sweep()
    first, second = (yard.at(step) for step in (100, 200))
    assert first.record.saved_at <= first.recorded_at <= now()
    assert first.instant <= second.instant <= now()


def test_a_left_over_tree_that_is_committed_anew_while_it_is_looked_at_stays(yard):
    yard.open()
    path = plain(yard.out, 100)
    copying = {"name": "hot", "node": "node-a", "landing": "copy", "min_free": 0}
    hot = TreeStore(yard.site().hot.root, **copying)
    with pytest.raises(Killed):
        commit(yard.site(hot=hot, progress=At("commit.adopted", kill)), Commit(path=path, run=RUN, step=100))
    (record,) = yard.in_hot()
    next(hot.path(hot.load(record).record).iterdir()).unlink()

    class Meanwhile(TreeStore):
        def verify(self, checkpoint, *, progress):
            damages = super().verify(checkpoint, progress=progress)
            commit(yard.site(hot=hot), Commit(path=path, run=RUN, step=100))
            return damages

    swept = sweep(yard.site(hot=Meanwhile(hot.root, **copying)), find=False, move=False)
    assert not any("undid" in said for said in swept.said)
    assert yard.in_hot() == set(yard.state().records) == {record}
    assert hot.verify(hot.load(record), progress=Quiet()) == ()


def kill():
    raise Killed("commit.adopted")


# Runs beside each other


def test_a_directory_under_two_names_is_whose_it_was_opened_for_last(yard):
    (yard.home / "link").symlink_to(yard.out)
    yard.open(run="a", watch=yard.home / "link")
    hf(yard.out, 10)
    yard.sweep()
    yard.open(run="b", watch=yard.out)
    hf(yard.out, 20)
    for _ in range(2):
        yard.sweep()
    steps = {run: [found.record.step for found in yard.state(run).records.values()] for run in "ab"}
    assert steps == {"a": [10], "b": [20]}


def test_a_spool_that_can_t_be_listed_keeps_no_other_run_s_saves_out(yard):
    yard.open(run="a", watch=yard.home / "other")
    yard.open(run="b")
    spool = yard.site().spool_of("a")
    spool.parent.mkdir(parents=True, exist_ok=True)
    spool.write_bytes(b"no directory")
    hf(yard.out, 10)
    swept = yard.sweep()
    assert [done.record.run for done in swept.committed] == ["b"]
    assert any(str(spool) in one.what for one in swept.pending)
