"""Hints from the kernel: that they come, that they survive what directories do, and what is said when there can be none."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from lakemark.adapters.node.hints import FolderLookout
from tests.support.memory import MemoryDisk
from tests.support.memory.lookout import MemoryLookout


@pytest.fixture
def lookout():
    made = FolderLookout()
    yield made
    made.close()


def heard(lookout, folder, *, seconds=180):
    """Waits for a hint of `folder`; others may come."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if folder in lookout.wait(0.5):
            return True
    return False


def test_a_name_that_appears_gives_a_hint(lookout, tmp_path):
    lookout.follow([tmp_path])
    (tmp_path / "step-100").mkdir()
    assert heard(lookout, tmp_path)


def test_so_does_one_that_is_renamed_into_it_and_one_that_goes(lookout, tmp_path):
    spool = tmp_path / "spool"
    spool.mkdir()
    lookout.follow([spool])
    (tmp_path / "new").write_text("{}")
    os.rename(tmp_path / "new", spool / "1.json")
    assert heard(lookout, spool)
    (spool / "1.json").unlink()
    assert heard(lookout, spool)


def test_what_is_deeper_gives_none(lookout, tmp_path):
    (tmp_path / "out" / "step-100").mkdir(parents=True)
    lookout.follow([tmp_path / "out"])
    for number in range(50):
        (tmp_path / "out" / "step-100" / str(number)).write_text("x")
    (tmp_path / "mark").mkdir()
    assert lookout.wait(0.3) == frozenset()


def test_nothing_is_heard_of_what_is_not_followed_any_more(lookout, tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
    lookout.follow([tmp_path / "a"])
    lookout.follow([tmp_path / "b"])
    (tmp_path / "a" / "x").touch()
    (tmp_path / "b" / "x").touch()
    assert heard(lookout, tmp_path / "b")
    assert lookout.wait(0.3) == frozenset()


def test_folders_that_come_later_that_go_and_that_are_replaced(lookout, tmp_path):
    out = tmp_path / "out"
    assert not lookout.follow([out])
    assert lookout.whole
    out.mkdir()
    assert heard(lookout, out), "it came"
    assert not lookout.whole
    assert lookout.follow([out])
    assert lookout.whole
    assert not lookout.follow([out])
    (out / "1").touch()
    assert heard(lookout, out)
    (out / "1").unlink()
    out.rmdir()
    assert heard(lookout, out), "it went"
    assert not lookout.whole
    lookout.follow([out])
    out.mkdir()
    lookout.follow([out])
    (out / "2").touch()
    assert heard(lookout, out)
    out.rename(tmp_path / "old")
    out.mkdir()
    lookout.follow([out])
    (out / "3").touch()
    assert heard(lookout, out)


def test_one_that_was_made_anew_with_the_same_number_is_followed_again(lookout, disk_path):
    """File systems give an inode's number to the next directory at once."""
    out, mark = disk_path / "out", disk_path / "mark"
    for folder in (out, mark):
        folder.mkdir()
    lookout.follow([out, mark])
    out.rmdir()
    out.mkdir()
    (mark / "x").touch()
    assert heard(lookout, mark)
    lookout.follow([out, mark])
    (out / "1").touch()
    assert heard(lookout, out)


def test_what_can_t_be_read_is_passed_over(lookout, tmp_path):
    good, file = tmp_path / "good", tmp_path / "file"
    good.mkdir()
    file.touch()
    lookout.follow([tmp_path / "none", file, tmp_path / "file" / "below", good])
    assert lookout.trouble is None
    (good / "x").touch()
    assert heard(lookout, good)


def test_wake_ends_a_wait_from_another_thread_and_from_before(lookout):
    lookout.wake()
    begun = time.monotonic()
    assert lookout.wait(60) == frozenset()
    threading.Timer(0.05, lookout.wake).start()
    assert lookout.wait(60) == frozenset()
    assert time.monotonic() - begun < 60


def test_without_hints_it_only_waits(tmp_path):
    lookout = FolderLookout(hints=False)
    lookout.follow([tmp_path])
    (tmp_path / "x").touch()
    assert lookout.wait(0.2) == frozenset()
    assert lookout.trouble == "hints are switched off"
    lookout.close()
    lookout.wake()


def test_hundreds_of_folders(lookout, tmp_path):
    folders = [tmp_path / str(number) for number in range(400)]
    for folder in folders:
        folder.mkdir()
    lookout.follow(folders)
    for folder in (folders[0], folders[399]):
        (folder / "x").touch()
        assert heard(lookout, folder)


LIMITED = """
import sys, time
from pathlib import Path
from lakemark.adapters.node.hints import FolderLookout

open(f"/proc/sys/user/max_inotify_{sys.argv[2]}", "w").write(sys.argv[3])
folders = sorted(Path(sys.argv[1]).iterdir())
lookout = FolderLookout()
lookout.follow(folders)
print(lookout.trouble)
(folders[0] / "x").touch()
end = time.monotonic() + float(sys.argv[4])
while time.monotonic() < end:
    if folders[0] in lookout.wait(0.2):
        print("heard")
        break
"""


@pytest.mark.parametrize(
    ("what", "most", "said", "hears"), [("watches", 7, "5 of 20", True), ("instances", 0, "0 of 20", False)]
)
def test_the_kernel_s_limits_leave_the_most_important_folders_and_are_said(
    tmp_path, require_command, what, most, said, hears
):
    for number in range(20):
        (tmp_path / f"{number:02}").mkdir()
    command = [require_command("unshare"), "-Ur", sys.executable, "-c", LIMITED, str(tmp_path), what, str(most)]
    done = subprocess.run([*command, "180" if hears else "1"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"{said} folders give hints")
    assert ("heard" in done.stdout) == hears


# Patterns, on a real disk and in memory


class Both:
    def __init__(self, tmp_path, clock):
        self.root = tmp_path
        self.disk = MemoryDisk(clock)
        self.lookouts = [FolderLookout(hints=False), MemoryLookout(self.disk)]

    def folders(self, *names):
        for name in names:
            (self.root / name).mkdir(parents=True)
            self.disk.mkdir(self.root / name)

    def matching(self, pattern):
        first, second = (
            [str(at.relative_to(self.root)) for at in one.folders(self.root / pattern)] for one in self.lookouts
        )
        assert first == second
        return first


@pytest.fixture
def both(tmp_path):
    from tests.services.world import Clock

    made = Both(tmp_path, Clock())
    yield made
    for one in made.lookouts:
        one.close()


def test_a_star_is_part_of_one_name(both):
    both.folders("a", "b/out", "job-1/out", "job-2/out", "job-3", ".hidden", "x[1]/out", "xy/out")
    (both.root / "file").touch()
    assert both.matching("*") == ["a", "b", "job-1", "job-2", "job-3", "x[1]", "xy"]
    assert both.matching("job-*/out") == ["job-1/out", "job-2/out"]
    assert both.matching("a") == ["a"]
    assert both.matching("none") == []
    assert both.matching("none*") == []
    assert both.matching("x[1]/out") == ["x[1]/out"]
    assert both.matching("x[*/out") == ["x[1]/out"]
    assert both.matching("j?b-*") == []


def test_links_to_directories_count(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "dangling").symlink_to("gone")
    lookout = FolderLookout(hints=False)
    assert lookout.folders(tmp_path / "*") == (tmp_path / "link", tmp_path / "real")
    lookout.close()


def test_names_that_are_no_text(tmp_path):
    strange = Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), b"caf\xe9")))
    strange.mkdir()
    lookout = FolderLookout()
    assert lookout.folders(tmp_path / "*") == (strange,)
    lookout.follow([strange, tmp_path])
    (tmp_path / "x").touch()
    assert heard(lookout, tmp_path)
    lookout.close()
