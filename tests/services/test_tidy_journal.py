"""The journal forgets what is proven to be gone, and nothing else."""

import os

import pytest

from lakemark.adapters.node.files import LocalFiles
from lakemark.adapters.node.journal import SqliteJournal
from lakemark.ports import Mark, MarkKind
from lakemark.services.node.sweep import sweep
from lakemark.services.node.tidy_journal import tidy_journal
from lakemark.services.tiers.register import register_all
from tests.services.crashing import At, Killed
from tests.services.world import START, Clock, World

RECORD = "a" * 64


class Node:
    """A journal and a disk that are real, a clock that is not; the rest of a site in memory."""

    def __init__(self, home):
        self.out = home / "disk" / "out"
        self.out.mkdir(parents=True)
        self.clock = Clock(START)
        self.world = World(clock=self.clock)
        self.journal = SqliteJournal(home / "journal.sqlite", now=self.clock)
        self.files = LocalFiles()

    def site(self, **changes):
        return self.world.site(journal=self.journal, files=self.files, **changes)

    def tidied(self):
        return tidy_journal(self.site())

    def save(self, *names):
        for name in names:
            (self.out / name).write_text(name)
        files = self.files.identities(self.out)
        self.journal.remember(files, record=RECORD, why="committed")
        return {os.path.basename(file.place): file for file in files}

    def known(self, files):
        return sorted(name for name, file in files.items() if self.journal.known(file))


@pytest.fixture
def node(tmp_path):
    made = Node(tmp_path)
    yield made
    made.journal.close()


def dies():
    raise Killed


def test_files_that_are_gone_for_long_are_forgotten(node):
    files = node.save("a", "b")
    (node.out / "a").unlink()
    assert node.tidied() == 0, "not yet"
    node.clock.wait(days=91)
    assert node.tidied() == 1
    assert node.known(files) == ["b"]
    (node.out / "b").write_text("other")
    node.clock.wait(hours=23)
    assert node.tidied() == 0, "once a day"
    node.clock.wait(hours=2)
    assert node.tidied() == 1


def test_what_was_seen_lately_or_lies_there_stays_known(node):
    files = node.save("a", "b", "c")
    for name in ("a", "b"):
        (node.out / name).rename(node.out.parent / name)
    node.clock.wait(days=80)
    assert node.journal.all_known(node.files.identities(node.out.parent / "a"), at=node.clock())
    node.clock.wait(days=20)
    assert node.tidied() == 1
    assert node.known(files) == ["a", "c"]


def test_a_file_whose_disk_is_away_stays_known(node, monkeypatch):
    files = node.save("a")
    away = node.out.parent.rename(node.out.parent.with_name("elsewhere"))
    node.clock.wait(days=91)
    real = os.stat

    def of_another_disk(path, **named):
        found = real(path, **named)
        return os.stat_result([*found[:2], found.st_dev + 1, *found[3:]])

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", of_another_disk)
        assert node.tidied() == 0
    away.rename(node.out.parent)
    node.clock.wait(days=2)
    assert node.tidied() == 0
    assert node.known(files) == ["a"]


def test_many_are_forgotten_in_one_go(node):
    node.save(*(f"f{number}" for number in range(2500)))
    for path in node.out.iterdir():
        if not path.name.endswith("7"):
            path.unlink()
    node.clock.wait(days=91)
    assert node.tidied() == 2250


def test_looks_for_copies_go_by_age(node):
    old, new, other = Mark(MarkKind.COPY, "llama:1"), Mark(MarkKind.COPY, "llama:2"), Mark(MarkKind.CLOSED, "llama")
    for mark in (old, other):
        node.journal.marks.set(mark, at=node.clock())
    node.clock.wait(days=60)
    node.journal.marks.set(new, at=node.clock())
    node.clock.wait(days=31)
    node.tidied()
    assert [mark for mark in (old, new, other) if node.journal.marks.get(mark)] == [new, other]


def test_killed_in_its_middle_it_forgot_nothing_that_is_there(node):
    files = node.save("a", "b", "c")
    (node.out / "a").unlink()
    node.clock.wait(days=91)
    with pytest.raises(Killed):
        tidy_journal(node.site(progress=At("journal.forgotten", dies)))
    for _ in range(2):
        assert node.known(files) == ["b", "c"]
        node.tidied()


def test_a_sweep_does_it(node):
    files = node.save("a")
    (node.out / "a").unlink()
    node.clock.wait(days=91)
    register_all(node.site())
    sweep(node.site(), move=False)
    assert node.known(files) == []
