"""What a ledger keeps through kills, power loss, many writers and packing beside them."""

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from lakemark.adapters.git.ledger import GitLedger
from lakemark.adapters.git.make import init
from tests.faults.ledger_writer import RUN
from tests.support.power_loss import disk

WRITER = Path(__file__).with_name("ledger_writer.py")
ROOT = Path(__file__).parents[2]


@contextmanager
def writer(path, node, count="forever"):
    """A process of `ledger_writer`; it is killed where it still runs at the end."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    command = [sys.executable, str(WRITER), str(path), node, str(count)]
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.communicate()


def said(lines):
    """(sequence, request) of whole lines."""
    return [(int(line.split()[0]), line.split()[1]) for line in lines if line.endswith("\n")]


def fsck(path):
    done = subprocess.run(
        ["git", "-C", str(path), "fsck", "--full", "--strict", "--no-dangling"],
        capture_output=True,
        text=True,
        check=False,
    )
    problems = [
        line
        for line in (done.stdout + done.stderr).splitlines()
        if "unborn branch" not in line and "No default" not in line
    ]
    assert (done.returncode, problems) == (0, [])


def check(path, acknowledged):
    """Everything acknowledged is there, in order and whole; what is there besides was written whole, too."""
    fsck(path)
    ledger = GitLedger(path)
    entries = [entry for entry, _ in ledger.entries(RUN)]
    assert [entry.sequence for entry in entries] == list(range(1, len(entries) + 1))
    requests = {entry.sequence: entry.request for entry in entries}
    assert [(sequence, requests.get(sequence)) for sequence, _ in acknowledged] == acknowledged
    for record in list(ledger.run(RUN).records)[-5:]:
        assert ledger.manifest(RUN, record).regular
    tags = subprocess.run(["git", "-C", str(path), "tag"], capture_output=True, text=True, check=True).stdout.split()
    replicated = [entry for entry in entries if entry.kind == "replicated"]
    assert {f"records/{entry.record[:12]}" for entry in replicated[:-1]} <= set(tags)
    ledger.close()


def age_locks(path):
    """As if a minute had passed since the kill."""
    for lock in Path(path).rglob("refs/**/*.lock"):
        os.utime(lock, (time.time() - 120, time.time() - 120))


def kill_often(path, rounds, *, age):
    acknowledged = []
    choose = random.Random(rounds)
    for number in range(rounds):
        if age:
            age_locks(path)
        with writer(path, f"node-{number % 3}") as process:
            lines = [process.stdout.readline() for _ in range(choose.randrange(1, 12))]
            time.sleep(choose.random() * 0.004)
            process.send_signal(signal.SIGKILL)
            lines += process.stdout.readlines()
            problems = process.stderr.read()
        assert said(lines), problems
        acknowledged += said(lines)
    check(path, acknowledged)
    return len(acknowledged)


def test_a_killed_writer_loses_nothing_it_acknowledged(tmp_path):
    init(tmp_path / "ledger.git")
    kill_often(tmp_path / "ledger.git", 12, age=True)


@pytest.mark.campaign
def test_writers_killed_hundreds_of_times(tmp_path):
    init(tmp_path / "ledger.git")
    kill_often(tmp_path / "ledger.git", 300, age=False)


def lose_power_often(folder, file_system, find, rounds):
    acknowledged = []
    choose = random.Random(rounds)
    with disk(folder, file_system, find) as drive:
        path = drive.path / "ledger.git"
        init(path)
        for number in range(rounds):
            age_locks(path)
            with writer(path, f"node-{number % 3}") as process:
                lines = [process.stdout.readline() for _ in range(choose.randrange(1, 25))]
                time.sleep(choose.random() * 0.004)
                drive.cut()
                process.send_signal(signal.SIGKILL)
                lines += process.stdout.readlines()
                problems = process.stderr.read()
            assert said(lines), problems
            acknowledged += said(lines)
            drive.revive()
        check(path, acknowledged)


@pytest.mark.usefixtures("require_root")
@pytest.mark.parametrize("file_system", ["ext4", "xfs"])
def test_power_loss_takes_nothing_acknowledged(tmp_path, file_system, require_command):
    lose_power_often(tmp_path, file_system, require_command, 4)


@pytest.mark.campaign
@pytest.mark.usefixtures("require_root")
@pytest.mark.parametrize("file_system", ["ext4", "xfs"])
def test_power_lost_a_hundred_times(tmp_path, file_system, require_command):
    lose_power_often(tmp_path, file_system, require_command, 100)


@pytest.mark.usefixtures("require_root")
def test_a_new_ledger_survives_power_loss(tmp_path, require_command):
    with disk(tmp_path, "ext4", require_command) as drive:
        identity = init(drive.path / "ledger.git")
        drive.cut()
        drive.revive()
        ledger = GitLedger(drive.path / "ledger.git")
        assert ledger.id == identity
        ledger.close()
        fsck(drive.path / "ledger.git")


def test_four_processes_take_turns(tmp_path):
    path = tmp_path / "ledger.git"
    init(path)
    acknowledged = []
    with writer(path, "a", 50) as a, writer(path, "b", 50) as b, writer(path, "c", 50) as c, writer(path, "d", 50) as d:
        for process in (a, b, c, d):
            out, problems = process.communicate(timeout=240)
            assert (process.returncode, problems) == (0, "")
            acknowledged += said(out.splitlines(keepends=True))
    assert sorted(sequence for sequence, _ in acknowledged) == list(range(1, 201))
    check(path, acknowledged)


def test_packing_beside_appends_loses_nothing(tmp_path):
    path = tmp_path / "ledger.git"
    init(path)
    ledger = GitLedger(path)
    packed, acknowledged = 0, []
    with writer(path, "a", 80) as a, writer(path, "b", 80) as b:
        while a.poll() is None or b.poll() is None:
            packed += ledger.pack()
        for process in (a, b):
            out, problems = process.communicate(timeout=240)
            assert (process.returncode, problems) == (0, "")
            acknowledged += said(out.splitlines(keepends=True))
    packed += ledger.pack()
    assert packed > 160 * 3
    assert len(acknowledged) == 160
    check(path, acknowledged)
    loose = sum(len(list(folder.iterdir())) for folder in (path / "objects").glob("[0-9a-f][0-9a-f]"))
    assert loose == 0
    assert len(list((path / "objects" / "pack").glob("*.pack"))) < 16


def test_a_killed_packer_loses_nothing(tmp_path):
    path = tmp_path / "ledger.git"
    init(path)
    lines = ["from pathlib import Path", "from lakemark.adapters.git.ledger import GitLedger", "print(1, flush=True)"]
    program = "\n".join([*lines, f"GitLedger(Path({str(path)!r})).pack()"])
    acknowledged = []
    choose = random.Random(1)
    for _ in range(6):
        with writer(path, "a", 20) as process:
            out, _ = process.communicate(timeout=240)
            acknowledged += said(out.splitlines(keepends=True))
        packer = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        packer.stdout.readline()
        time.sleep(choose.random() * 0.03)
        packer.kill()
        packer.communicate()
        check(path, acknowledged)
    ledger = GitLedger(path)
    ledger.pack()
    check(path, acknowledged)
