"""What background work is held to, how one service of a node keeps others out, and what systemd is told."""

import io
import os
import platform
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lakemark.adapters.disk.directory_objects import DirectoryBlobs
from lakemark.adapters.disk.pacing import Pace, Paced, PacedBlobs, paced
from lakemark.adapters.dvc.store import DvcStore
from lakemark.adapters.hot.store import TreeStore
from lakemark.adapters.node.limits import _IOPRIO_SET, take_limits
from lakemark.adapters.node.service_lock import Held, holder
from lakemark.adapters.node.service_manager import ServiceManager
from lakemark.contract import blobs as blobs_contract
from lakemark.errors import Refused
from lakemark.model.checkpoints.record import record_for
from lakemark.ports import Checkpoint, Quiet

# Limits

LIMITED = """
import ctypes, os, sys
from lakemark.adapters.node.limits import take_limits

before = sorted(os.sched_getaffinity(0))
said = take_limits(cpus=int(sys.argv[1]), nice=int(sys.argv[2]), io_class=sys.argv[3])
seen = []
def look():
    io = ctypes.CDLL(None).syscall(ctypes.c_long(int(sys.argv[4])), 1, 0)
    seen.append((os.getpriority(os.PRIO_PROCESS, 0), io >> 13, len(os.sched_getaffinity(0))))
import threading
thread = threading.Thread(target=look)
thread.start()
thread.join()
print(said, *seen[0], len(before), sorted(os.sched_getaffinity(0)) == before[-len(os.sched_getaffinity(0)):])
"""
GET = {"x86_64": 252, "aarch64": 31}


def limited(cpus, nice, io_class):
    number = GET.get(platform.machine(), 252)
    command = [sys.executable, "-c", LIMITED, str(cpus), str(nice), io_class, str(number)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.skipif(platform.machine() not in GET, reason="how to ask is known for these machines")
def test_threads_that_begin_later_are_held_too():
    said, nice, io_class, cpus, before, last = limited(1, 12, "idle")
    assert (said, nice, io_class, last) == ("()", "12", "3", "True")
    assert int(cpus) == 1 <= int(before)


@pytest.mark.skipif(platform.machine() not in GET, reason="how to ask is known for these machines")
def test_none_and_a_nice_that_is_less_change_nothing():
    said, nice, io_class, cpus, before, _ = limited(4096, 0, "none")
    assert (said, io_class, cpus) == ("()", "0", before)
    assert int(nice) == os.getpriority(os.PRIO_PROCESS, 0)


def test_what_a_machine_does_not_know_is_said(monkeypatch):
    monkeypatch.delitem(_IOPRIO_SET, platform.machine(), raising=False)
    assert take_limits(cpus=4096, nice=0, io_class="none") == ()
    (said,) = take_limits(cpus=4096, nice=0, io_class="idle")
    assert "limits.io_class" in said


# Pace


class Time:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


def test_so_many_bytes_a_second_and_a_little_at_once():
    time = Time()
    pace = Pace(1000, seconds=time, sleep=time.sleep)
    for _ in range(100):
        pace.take(100)
    assert time.now - 100 == pytest.approx(10)
    time.now += 3600
    before = time.now
    pace.take(250)
    assert time.now == pytest.approx(before), "a quarter of a second's worth"
    pace.take(1000)
    assert time.now - before == pytest.approx(1)


def test_threads_share_one_pace():
    slept = []
    lock = threading.Lock()
    time = Time()

    def sleep(seconds):
        with lock:
            slept.append(seconds)

    pace = Pace(1000, seconds=time, sleep=sleep)
    threads = [threading.Thread(target=lambda: [pace.take(10) for _ in range(10)]) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(slept) == pytest.approx(1.0), "the last of 1000 bytes comes after a second"


class Counted:
    def __init__(self):
        self.taken = 0

    def take(self, size_bytes):
        self.taken += size_bytes


def test_a_paced_stream_gives_the_same_bytes_and_closes_the_one_underneath():
    content = os.urandom(3 * 2**20 + 5)
    under, pace = io.BytesIO(content), Counted()
    with paced(under, pace) as stream:
        assert stream.read() == content
    assert under.closed
    assert pace.taken == len(content)
    assert Paced(io.BytesIO(b"abc"), pace).readall() == b"abc"


def test_paced_blobs_keep_every_promise_of_blobs(tmp_path):
    blobs = PacedBlobs(DirectoryBlobs(tmp_path), Pace(10**12))
    blobs.prepare()
    for check in blobs_contract.CHECKS:
        check.run(blobs)


def test_what_is_copied_on_and_read_back_is_paced(tmp_path):
    """Hot is read twice, once for its md5; the copy is read back: three times its bytes, and no byte past the pace."""
    now = datetime(2026, 11, 26, tzinfo=UTC)
    pace = Counted()
    hot = TreeStore(tmp_path / "hot", name="hot", node="a", min_free=0, pace=pace)
    cold = DvcStore(PacedBlobs(DirectoryBlobs(tmp_path / "cold"), pace), name="cold", tier_class="cold")
    for store in (hot, cold):
        store.claim("ledger", now=now)
    (tmp_path / "out").mkdir()
    content = os.urandom(5 * 2**20)
    (tmp_path / "out" / "weights").write_bytes(content)
    landed = hot.land(tmp_path / "out", quiet_seconds=0, roles={}, progress=Quiet())
    record = record_for(landed.manifest, run="r", timeline=1, step=1, saved_at=now, node="a")
    hot.adopt(landed, record)
    held = Checkpoint(record=record, manifest=landed.manifest)
    before = pace.taken
    cold.put(held, lambda file: hot.open(held, file), now=now, progress=Quiet())
    assert 3 * len(content) <= pace.taken - before <= 3 * len(content) + 2**16
    with hot.open(held, landed.manifest.regular[0]) as stream:
        assert stream.read() == content
    assert not cold.verify(held, progress=Quiet())


# One of a kind


def test_a_second_one_is_refused_with_the_number_of_the_first(tmp_path):
    path = tmp_path / "deep" / "held"
    assert holder(path) is None
    held = Held(path, what="the service", advice="End it.")
    assert holder(path) == os.getpid()
    with pytest.raises(Refused, match=str(os.getpid())):
        Held(path, what="the service", advice="End it.")
    held.close()
    assert holder(path) is None
    Held(path, what="the service", advice="End it.").close()


def test_it_is_free_again_when_its_process_is_killed(tmp_path):
    path = tmp_path / "held"
    program = (
        "import sys, pathlib, time\nfrom lakemark.adapters.node.service_lock import Held\n"
        "held = Held(pathlib.Path(sys.argv[1]), what='x', advice='y')\nprint('held', flush=True)\ntime.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, path], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        assert holder(path) == process.pid
        process.kill()
    assert holder(path) is None
    Held(path, what="the service", advice="End it.").close()


STUCK = """
import os, pathlib, sys, threading, time
from lakemark.adapters.node.service_lock import Held
held = Held(pathlib.Path(sys.argv[1]), what="x", advice="y")
threading.Thread(target=lambda: open(sys.argv[2], "w"), daemon=True).start()
stuck = pathlib.Path(f"/proc/{os.getpid()}/task")
while not any(b") D " in (one / "stat").read_bytes() for one in stuck.iterdir()):
    time.sleep(0.02)
print("stuck", flush=True)
os._exit(0)
"""


def test_it_is_free_when_its_process_ended_though_a_disk_keeps_a_thread_of_it(tmp_path, require_root, require_command):
    path, disk, mount = tmp_path / "held", tmp_path / "disk", tmp_path / "mount"
    with disk.open("wb") as stream:
        stream.truncate(32 << 20)
    mount.mkdir()
    subprocess.run([require_command("mkfs.ext4"), "-q", disk], check=True)
    subprocess.run(["mount", "-o", "loop", disk, mount], check=True)
    freeze = require_command("fsfreeze")
    try:
        subprocess.run([freeze, "-f", mount], check=True)
        program = [sys.executable, "-c", STUCK, path, mount / "x"]
        with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout.readline() == "stuck\n"
                old = path.stat().st_ino
                until_zombie(process.pid)
                assert holder(path) is None
                held = Held(path, what="the service", advice="End it.")
                assert path.stat().st_ino != old
                assert holder(path) == os.getpid()
                with pytest.raises(Refused, match=str(os.getpid())):
                    Held(path, what="the service", advice="End it.")
            finally:
                # Until then nobody can end it, nor wait for it.
                subprocess.run([freeze, "-u", mount], check=True)
        assert holder(path) == os.getpid()
        held.close()
    finally:
        subprocess.run(["umount", "-l", mount], check=True)


def until_zombie(pid):
    ends = time.monotonic() + 30
    while b") Z " not in Path(f"/proc/{pid}/stat").read_bytes():
        assert time.monotonic() < ends
        time.sleep(0.02)


def test_a_link_in_its_place_is_not_followed(tmp_path):
    (tmp_path / "held").symlink_to(tmp_path / "other")
    with pytest.raises(Exception, match="held"):
        Held(tmp_path / "held", what="the service", advice="End it.")
    assert not (tmp_path / "other").exists()


# systemd


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_the_service_manager_is_told(tmp_path, kind):
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as ear:
        name = str(tmp_path / "notify") if kind == "path" else f"\0lakemark-{os.getpid()}"
        ear.bind(name)
        ear.settimeout(20)
        manager = ServiceManager({"NOTIFY_SOCKET": name.replace("\0", "@"), "WATCHDOG_USEC": "120000000"})
        manager.tell(READY="1", STATUS="two\nlines")
        assert ear.recv(4096) == b"READY=1\nSTATUS=two lines"
        assert manager.watchdog_seconds == 120


def test_nobody_who_listens_is_no_error(tmp_path):
    ServiceManager({}).tell(READY="1")
    ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "none")}).tell(READY="1")
    assert ServiceManager({"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"}).watchdog_seconds is None
    assert ServiceManager({"WATCHDOG_USEC": "soon"}).watchdog_seconds is None
