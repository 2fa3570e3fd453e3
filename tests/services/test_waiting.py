"""What waits although it is whole, and what a search can't look into: each is said."""

import contextlib
import json
import os
from datetime import timedelta
from pathlib import Path

import pytest

from lakemark.errors import NoRoom
from lakemark.formats import recogniser
from lakemark.ports.site import Watched
from lakemark.services.health.status import RED, problems_of_room
from lakemark.services.node.sweep import sweep
from lakemark.services.node.watch import Watch
from lakemark.services.runs.open_watched import nobody_s
from lakemark.services.saves.waiting import WaitingSave, place_of
from tests.services.world import OUT, RUN
from tests.support.memory.lookout import MemoryLookout


def noted(world, run=RUN):
    site = world.site()
    document = site.notes.json.get(place_of(site.home, run))
    return [] if document is None else list(WaitingSave.read(json.loads(json.dumps(document))))


@pytest.fixture
def full(world):
    """Two saves, one of them announced, and no room."""
    world.open()
    world.hot.free_share, world.hot.min_free_share = 0.05, 0.1
    trainer = world.trainer()
    trainer.save(100)
    world.save(200)
    return world


def test_whole_saves_that_wait_for_room_are_noted_until_they_are_committed(full):
    swept = full.sweep()
    assert [one.what for one in swept.pending if "less than min_free" in one.why] == [
        str(OUT / "step-100"),
        str(OUT / "step-200"),
    ]
    assert [one.path for one in noted(full)] == [str(OUT / "step-100"), str(OUT / "step-200")]
    now = noted(full)[0].since + timedelta(minutes=90)
    (problem,) = problems_of_room(RUN, noted(full), now=now)
    assert (problem.colour, problem.since) == (RED, noted(full)[0].since)
    assert problem.what.startswith(f"2 whole save(s) of {RUN} wait for room, the first for 1h 30m: ")
    full.hot.free_share = 1.0
    full.sweep()
    assert noted(full) == []
    assert list(problems_of_room(RUN, noted(full), now=now)) == []


def test_the_service_notes_them_too(full):
    said = []
    watch = Watch(full.site(), MemoryLookout(full.disk), say=said.append)
    full.clock.wait(seconds=10)
    watch.announced(None)
    assert [one.path for one in noted(full)] == [str(OUT / "step-100")]
    watch.found(None)
    watch.announced(None)
    assert [one.path for one in noted(full)] == [str(OUT / "step-100"), str(OUT / "step-200")]
    full.hot.free_share = 1.0
    watch.found(None)
    assert noted(full) == []


def test_no_room_is_said_as_what_is_refused():
    error = NoRoom("the disk is full", advice="Make room.")
    assert (error.kind, error.exit_code) == ("Refused", 7)


# Watched directories that nobody opened


@pytest.mark.parametrize("data", [None, "data/main"])
def test_a_sweep_says_which_watched_directories_nobody_opened(world, data):
    world.changes = {"watch": (Watched(path=Path("/train/*"), run="{name}", data=data),)}
    for name in ("a", "b", "c"):
        world.disk.mkdir(Path("/train") / name)
    world.open("b", watch=None)
    lookout = MemoryLookout(world.disk)
    (pending,) = (one for one in sweep(world.site(), lookout=lookout).pending if one.what.startswith("saves in"))
    assert pending.what == "saves in /train/a"
    assert pending.why.startswith("nobody opened a: lakemark run open a (and so for 1 more)")
    assert ("lakemark watch" in pending.why) == (data is not None)
    assert len(list(nobody_s(world.site(), lookout, opening=True))) == (data is None)
    assert not [one for one in sweep(world.site()).pending if one.what.startswith("saves in")]


def test_one_whose_name_differs_from_a_run_s_only_in_case_is_not_to_be_opened(world):
    world.changes = {"watch": (Watched(path=Path("/train/*"), run="{name}"),)}
    for name in ("llama", "Llama"):
        world.disk.mkdir(Path("/train") / name)
    world.open("llama", watch=None)
    (pending,) = nobody_s(world.site(), MemoryLookout(world.disk))
    assert pending.what == "saves in /train/Llama"
    assert pending.why == "'Llama' differs from the run 'llama' only in case: rename the directory"


# Directories that can't be looked into


@contextlib.contextmanager
def closed(folder):
    """Also to root, who may read everything."""
    for above in (folder, *folder.parents):
        if "pytest-of-" in str(above) or "lakemark-tests-" in str(above):
            above.chmod(above.stat().st_mode | 0o755)
    folder.chmod(0)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
        folder.chmod(0o755)


KNOWN = recogniser()
"""Loaded before somebody else's rights apply."""


def unreadable(root):
    told = []
    list(KNOWN.find(root, unreadable=lambda path, why: told.append((path, why))))
    return told


DEEP = "1/2/3/4/5/6/7/8"


def test_directories_that_cannot_be_listed_are_named(tmp_path):
    for name in ("private/step-9", "step-1/inside", ".lakemark-aside/7", "a/b", "notes/inside", f"{DEEP}/9"):
        (tmp_path / name).mkdir(parents=True)
    with closed(tmp_path / "private"):
        assert unreadable(tmp_path) == [(tmp_path / "private", "Permission denied")]
        assert [path for path, _ in unreadable(tmp_path / "private")] == [tmp_path / "private"]
    for name in ("step-1", "step-1/inside"):  # a checkpoint says so itself
        with closed(tmp_path / name):
            assert unreadable(tmp_path) == []
            assert "Permission denied" in next(KNOWN.find(tmp_path)).why
    for name, told in (
        (".lakemark-aside", False),
        ("a/b", True),
        ("notes/inside", True),
        (DEEP, True),
        (f"{DEEP}/9", False),
    ):
        with closed(tmp_path / name):
            assert bool(unreadable(tmp_path)) == told
    assert unreadable(tmp_path / "gone") == []


class Closed:
    """A search that comes upon one directory that can't be listed."""

    def __init__(self, recogniser, path):
        self._recogniser, self._path = recogniser, path

    def __getattr__(self, name):
        return getattr(self._recogniser, name)

    def find(self, root, *, unreadable=None, **how):
        if unreadable is not None:
            unreadable(self._path, "Permission denied")
        return self._recogniser.find(root, **how)


def test_a_directory_that_is_passed_over_is_said_once(world):
    world.open()
    world.save(100)
    recogniser = Closed(world.site().recogniser, OUT / "private")
    swept = world.sweep(recogniser=recogniser)
    assert swept.unreadable == [(OUT / "private", "Permission denied")]
    assert [done.record.step for done in swept.committed] == [100]
    told = []
    watch = Watch(world.site(recogniser=recogniser), MemoryLookout(world.disk), say=told.append)
    for _ in range(3):
        watch.announced(None)
        watch.found(None)
    assert told == [f"could not be read: {OUT / 'private'}: Permission denied"]
