"""What a service looks at again: a directory in which nothing changed is not read, and whatever changes there is found."""

import os
import sys
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import pytest

from lakemark.adapters.node import survey as surveying
from lakemark.adapters.node.files import LocalFiles
from lakemark.model.checkpoints.survey import NEWEST, FileStamp, Survey
from lakemark.services.saves import looks as looking
from lakemark.services.saves.find import commit_run
from lakemark.services.saves.looks import Looks
from lakemark.services.saves.outcomes import Saves
from lakemark.services.tiers.verify import verify
from tests.services.on_disk import RUN, Yard, plain

FILES = 30
STEPS = 20
LISTINGS = Counter()
LISTED = ("os.scandir", "os.listdir")


def _heard(event, arguments):
    if event in LISTED and LISTINGS["on"]:
        LISTINGS[os.fspath(arguments[0]) if isinstance(arguments[0], (str, Path)) else "descriptor"] += 1


sys.addaudithook(_heard)


@contextmanager
def listings(below):
    """Directories at or below it that were listed meanwhile, and how often."""
    LISTINGS.clear()
    LISTINGS["on"] = 1
    found = Counter()
    try:
        yield found
    finally:
        del LISTINGS["on"]
        found.update({at: count for at, count in LISTINGS.items() if at.startswith(str(below))})


class Asked(LocalFiles):
    """Counts what is asked of it. stamps: how many files and directories `same` was asked of."""

    def __init__(self):
        self.stamps = self.surveys = self.identified = 0

    def survey(self, root):
        self.surveys += 1
        return super().survey(root)

    def same(self, before):
        self.stamps += len(before.folders) + len(before.files)
        return super().same(before)

    def identities(self, path):
        found = super().identities(path)
        self.identified += len(found)
        return found


class Service:
    """Looks through the run's directory as the service does, every 30 seconds by a stopwatch of its own."""

    def __init__(self, yard):
        self.seconds = 0.0
        self.files = Asked()
        self.site = yard.site(files=self.files, seconds=lambda: self.seconds)
        self.looks = Looks()

    def look(self, after=30.0):
        self.seconds += after
        saves = Saves()
        commit_run(self.site, self.site.ledger.run(RUN), saves, looks=self.looks)
        return saves

    def looks_that_read(self, count=1):
        before = self.files.surveys
        for _ in range(count):
            self.look()
        return self.files.surveys - before


@pytest.fixture
def yard(tmp_path):
    yard = Yard(tmp_path)
    yard.open()
    return yard


@pytest.fixture
def service(yard):
    """It has seen three steps long enough to read them no more."""
    for step in (100, 200, 300):
        plain(yard.out, step)
    service = Service(yard)
    assert len(service.look().committed) == 3
    service.look()
    service.look()
    assert service.looks_that_read(3) == 0
    return service


def test_an_idle_look_lists_nothing_and_stats_two_files_of_an_old_step(yard):
    for step in range(STEPS):
        plain(yard.out, step, **{f"part-{number:02}": f"{step} {number}" for number in range(FILES)})
    service = Service(yard)
    assert len(service.look().committed) == STEPS
    service.files.identified = 0
    with listings(yard.out) as before:
        service.look()
    assert service.files.identified == STEPS * FILES
    assert before.total() >= 2 * STEPS
    service.look()
    service.files.identified = 0
    with listings(yard.out) as after:
        saves = service.look()
    assert (after, service.files.identified) == ({}, 0)
    assert len(saves.passed_over) == STEPS, "it answers as if it had read"
    folders, newest, old = 1 + STEPS, NEWEST * FILES, 2 * (STEPS - NEWEST)
    assert service.files.stamps <= folders + newest + old


def new_step(out):
    plain(out, 400)
    return 400


def step_in_a_new_folder(out):
    plain(out / "later", 400)
    return 400


def more_in_a_step(out):
    (out / "step-100" / "more.bin").write_bytes(b"more")
    return 100


def written_in_place(out):
    with (out / "step-200" / "model.bin").open("r+b") as file:
        file.write(b"WEIGHTS")
    return 200


def renamed_over(out):
    (out / "new").write_bytes(b"other weights")
    os.rename(out / "new", out / "step-200" / "model.bin")
    return 200


def step_renamed(out):
    os.rename(out / "step-300", out / "step-350")
    (out / "step-350" / "more.bin").write_bytes(b"more")
    return 350


CHANGES = [new_step, step_in_a_new_folder, more_in_a_step, written_in_place, renamed_over, step_renamed]


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_changes_is_found_by_the_next_look(yard, service, change):
    step = change(yard.out)
    saves = service.look()
    told = [made.record.step for made in saves.committed] + [saves.steps[path] for path, _ in saves.failed]
    assert told == [step]


def test_what_is_gone_is_told_no_more(yard, service):
    for name in ("model.bin", "optim.bin"):
        (yard.out / "step-100" / name).unlink()
    (yard.out / "step-100").rmdir()
    assert {path.name for path, _ in service.look().passed_over} == {"step-200", "step-300"}


def test_a_save_without_a_step_is_looked_at_file_by_file(yard, service):
    for step in range(1000, 1000 + 2 * NEWEST):
        plain(yard.out, step)
    plain(yard.out, "best")
    for _ in range(4):
        service.look()
    assert service.looks_that_read() == 0
    (yard.out / "step-best" / "model.bin").write_bytes(b"other weights")
    assert service.looks_that_read() == 1


def test_an_unfinished_save_is_looked_at_until_it_is_whole(yard, service):
    half = yard.out / "step-400" / "model.bin.tmp"
    half.parent.mkdir()
    half.write_bytes(b"half")
    half.with_name("optim.bin").write_bytes(b"moments 400")
    for _ in range(4):
        assert [path.name for path, _ in service.look().incomplete] == ["step-400"]
    assert service.looks_that_read() == 0
    half.write_bytes(b"half and more")
    assert service.looks_that_read() == 1
    os.rename(half, half.with_suffix(""))
    assert [made.record.step for made in service.look().committed] == [400]


def test_logs_beside_saves_do_not_count(yard, service):
    log = yard.out / "train.log"
    log.write_text("one line\n")
    for _ in range(3):
        service.look()
    with log.open("a") as file:
        file.write("another\n")
    assert service.looks_that_read() == 0


def test_two_looks_within_two_seconds_do_not_settle_it(yard):
    plain(yard.out, 100)
    service = Service(yard)
    service.look()
    for _ in range(5):
        service.look(after=0.1)
    assert service.files.surveys == 6
    service.look(after=looking.SETTLED_SECONDS)
    service.look(after=0.1)
    assert service.files.surveys == 7


def test_all_is_read_again_every_ten_minutes(service):
    service.seconds += looking.FULL_SECONDS
    assert service.looks_that_read(2) == 1


def test_a_record_that_lost_its_replicas_is_looked_for_where_it_was_saved(yard, service):
    found = yard.at(200)
    weights = yard.site().hot.path(found.record) / "model.bin"
    weights.chmod(0o644)
    weights.unlink()
    weights.write_bytes(b"rot")
    service.looks_that_read(3)  # that a name of the trainer's file went is a change of it
    assert service.looks_that_read() == 0
    verify(yard.site(), [yard.at(200)], tier="hot")
    assert not yard.at(200).replicas[yard.site().hot.place].sound
    assert [(made.record.step, made.landed_again) for made in service.look().committed] == [(200, True)]


def test_an_old_step_written_over_in_whole_is_seen_at_once_and_then_watched_file_by_file():
    folders = {"/o": _stamp(0)} | {f"/o/step-{step}": _stamp(step) for step in range(2 * NEWEST)}
    files = {f"{folder}/{name}": _stamp(1, size=len(name)) for folder in folders for name in ("a", "bbb", "cc")}
    known = [folder for folder in folders if folder != "/o"]
    survey = Survey(folders, files)
    chosen = survey.chosen(known)
    assert {"/o/step-0/bbb"} <= set(chosen.files)
    assert "/o/step-0/cc" not in chosen.files
    now = Survey(folders, {path: _stamp(2, size=9) for path in files})
    assert "/o/step-0" in set(chosen.written_in_place(now))
    assert {"/o/step-0/a", "/o/step-0/bbb", "/o/step-0/cc"} <= set(now.chosen(known, whole={"/o/step-0"}).files)


def _stamp(time, *, size=4):
    return FileStamp(1, 1, size, time, time)


def test_where_the_times_of_directories_tell_nothing_there_is_no_survey(tmp_path):
    assert surveying.survey(tmp_path) is not None
    assert surveying.survey(tmp_path / "nothing") is None
    assert surveying.survey(Path("/proc/self")) is None
