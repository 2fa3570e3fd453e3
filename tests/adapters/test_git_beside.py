"""Git programs, and stopped processes, beside the ledger: what they remove is put back, and nobody waits for them in vain."""

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from lakemark.adapters.git import objects as git_objects, pack as git_pack
from lakemark.adapters.git.file_lock import Locked
from lakemark.adapters.git.ledger import GitLedger
from lakemark.adapters.git.refs import Turn
from lakemark.model.ledger.entry import Draft, Stamp
from tests.adapters.test_git_ledger import RUN, START, Told, git

PATIENCE_SECONDS = 120


@pytest.fixture
def told(tmp_path):
    return Told(tmp_path / "ledger.git")


def loose(path):
    found = (path / "objects").glob("[0-9a-f][0-9a-f]/*")
    return [one for one in found if len(one.name) == 38]


def lost(path):
    """What `git fsck` misses."""
    done = subprocess.run(["git", "-C", str(path), "fsck"], capture_output=True, text=True, check=False)
    return [line for line in (done.stdout + done.stderr).splitlines() if "missing" in line or "error" in line]


def reads_back(path, steps):
    ledger = GitLedger(path)
    records = ledger.run(RUN).records.values()
    assert [found.record.step for found in records] == list(steps)
    for found in records:
        assert ledger.manifest(RUN, found.record.id).content == found.record.content
    return True


@contextmanager
def again_and_again(path, *arguments):
    stop = threading.Event()

    def work():
        while not stop.is_set():
            subprocess.run(["git", "-C", str(path), *arguments], capture_output=True, check=False)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("arguments", [("gc", "--prune=now", "-q"), ("gc", "-q"), ("repack", "-adq")])
def test_no_entry_is_lost_and_none_fails_beside_a_loop_of(told, arguments):
    with again_and_again(told.path, *arguments):
        for step in range(40):
            told.commit(step)
    assert reads_back(told.path, range(40))
    git_objects.put_back(told.path)
    assert lost(told.path) == []


def test_what_was_pruned_after_the_append_is_put_back_when_it_is_read(told):
    told.commit(1)
    told.commit(2)
    for one in loose(told.path):
        one.unlink()
    assert reads_back(told.path, [1, 2])
    assert lost(told.path) == []


def test_what_was_pruned_is_in_the_bundle(told, tmp_path):
    told.commit(1)
    for one in loose(told.path):
        one.unlink()
    copy = tmp_path / "ledger.bundle"
    with told.ledger.bundle() as bundle:
        copy.write_bytes(bundle.read())
    git(tmp_path, "clone", "-q", "-b", f"runs/{RUN}", str(copy), "clone")
    assert lost(tmp_path / "clone") == []


def test_an_append_goes_on_top_of_what_was_pruned(told):
    told.commit(1)
    for one in loose(told.path):
        one.unlink()
    told.commit(2)
    assert reads_back(told.path, [1, 2])


@pytest.mark.parametrize("harm", ["pruned", "cut"])
def test_objects_that_went_before_the_reference_moved_are_written_anew(told, harm):
    made = git_objects.Made(told.path)
    oid = made.add("blob", b"an entry")
    made.store("0" * 40)
    found = told.path / "objects" / oid[:2] / oid[2:]
    found.unlink()
    if harm == "cut":  # as a crash leaves it; the next append makes the same object
        found.write_bytes(b"")
        made.store("0" * 40)
    else:
        made.look_again()
    assert git(told.path, "cat-file", "blob", oid) == "an entry"


def test_a_copy_that_a_crash_cut_short_gives_what_is_whole(told):
    made = git_objects.Made(told.path)
    first, second = made.add("blob", b"one"), made.add("blob", b"two")
    made.store("0" * 40)
    copy = told.path / git_objects.RECENT / ("0" * 40)
    copy.write_bytes(copy.read_bytes()[:-3])
    assert first in git_objects.kept(told.path, copy.name)
    assert second not in git_objects.kept(told.path, copy.name)


DIES = """
import os, resource, signal, sys
from pathlib import Path
from lakemark.adapters.git import objects
made = objects.Made(Path(sys.argv[1]))
made.add("blob", os.urandom(1 << 16))
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 14, 1 << 14))
made.store("0" * 40)
"""


def test_a_writer_that_dies_in_the_middle_leaves_no_copy_by_that_name(told):
    done = subprocess.run([sys.executable, "-c", DIES, told.path], check=False)
    assert done.returncode == -signal.SIGXFSZ
    assert "0" * 40 not in os.listdir(told.path / git_objects.RECENT)
    git_objects.clear_drafts(told.path, now=time.time() + 1e6)
    left = os.listdir(told.path / git_objects.RECENT)
    assert not [name for name in left if name.startswith("draft-")]


def test_copies_go_once_a_pack_that_git_keeps_has_their_objects(told):
    for step in range(5):
        told.commit(step)
    assert len(git_objects.names(told.path)) == 6
    told.ledger.pack()
    assert git_objects.names(told.path) == []
    packs = list((told.path / "objects" / "pack").glob("*.pack"))
    assert packs
    assert all(pack.with_suffix(".keep").exists() for pack in packs)
    git(told.path, "gc", "--prune=now", "-q")
    assert all(pack.exists() for pack in packs)
    assert reads_back(told.path, range(5))


def test_many_short_runs_are_packed_too(told):
    for number in range(40):
        for count in range(10):
            stamp = Stamp(at=START, node="node-a", actor="ana", request=f"{number}-{count}")
            told.ledger.append(f"run-{number}", lambda _: Draft(kind="opened", timeline=1), stamp)
    assert git_pack.loose_estimate(told.path) < 1200


def test_no_removed_pack_stays_open(told):
    ledger = GitLedger(told.path)
    for round_ in range(6):
        told.commit(round_)
        git(told.path, "gc", "-q")
        assert len(ledger.run(RUN).records) == 2 * round_ + 1
        told.commit(100 + round_)
        told.ledger.run(RUN)
        git(told.path, "repack", "-adq")
        ledger.manifest(RUN, next(iter(ledger.run(RUN).records)))
        told.ledger.manifest(RUN, next(iter(told.ledger.run(RUN).records)))
    names = [os.readlink(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd") if _open(number)]
    assert not [name for name in names if str(told.path) in name and "deleted" in name]
    mapped = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    assert not [line for line in mapped if str(told.path) in line and "deleted" in line]


def _open(number):
    return os.path.islink(f"/proc/self/fd/{number}")


@contextmanager
def stopped_writer(path, branch):
    """Another process' turn, as it keeps it while it is stopped: an open file of its own."""
    with (path / "lakemark" / "locks" / branch).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def test_a_stopped_writer_of_one_run_keeps_no_thread_from_another_run(told):
    told.commit(1)
    done = threading.Event()

    def others():
        told.ledger.run(RUN)
        stamp = Stamp(at=START, node="node-a", actor="ana", request="other")
        told.ledger.append("other", lambda _: Draft(kind="opened", timeline=1), stamp)
        list(told.ledger.entries(RUN))
        done.set()

    with stopped_writer(told.path, RUN):
        waiting = threading.Thread(target=told.commit, args=(2,))
        waiting.start()
        beside = threading.Thread(target=others)
        beside.start()
        went_on = done.wait(PATIENCE_SECONDS / 4)
        still_waiting = waiting.is_alive()
    waiting.join(PATIENCE_SECONDS)
    beside.join(PATIENCE_SECONDS)
    assert went_on
    assert still_waiting
    assert reads_back(told.path, [1, 2])


def test_nobody_waits_for_ever_for_a_stopped_writer(told):
    with stopped_writer(told.path, RUN):
        for _ in range(3):
            with pytest.raises(Locked):
                Turn(told.path, RUN, patience_seconds=0.05)
    names = {thread.name for thread in threading.enumerate()}
    for thread in threading.enumerate():
        if thread.name.startswith("waits for"):
            thread.join(PATIENCE_SECONDS)
    assert sum(name.startswith("waits for") for name in names) <= 1
    with Turn(told.path, RUN):
        pass
