"""Disks that fail under the command line: whatever fails, no good copy is lost, nobody blamed, and the next pass converges."""

import errno
import json
import shutil
import subprocess
import sys
import time

import pytest

from lakemark.trainer import Run
from tests.cli.conftest import environment, save
from tests.support.bad_disk import Fault, Machine, read_only


@pytest.fixture(scope="session")
def built(tmp_path_factory, require_command):
    require_command("gcc")
    return tmp_path_factory.mktemp("bad-disk")


@pytest.fixture
def machine(tmp_path, built):
    """A solo site with the steps 1 and 2, of which nothing is in cold yet."""
    home = tmp_path / "site"
    home.mkdir()
    environ = environment(home) | {"LAKEMARK_CONFIG": str(home / "lakemark.yaml"), "PYTHONDONTWRITEBYTECODE": "1"}
    made = Machine(home, environ, built)
    ok(made("init", home, "--profile", "solo"))
    ok(made("run", "open", "r1", "--watch", home / "out"))
    for step in (1, 2):
        ok(made("commit", save(home / "out", step), "--run", "r1", "--step", step))
    return made


def ok(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def in_words(done):
    """It ended by a rule or an error of ours, never by one that nobody expected."""
    assert done.returncode in (0, 3, 4, 5, 6, 7, 8), done.stderr
    assert "Traceback" not in done.stderr
    return done


def everything_is_there(machine, *steps):
    """The next pass, on disks that work: every acknowledged step is sound in each tier, and nothing is called damaged."""
    ok(machine("sweep"))
    checked = ok(machine("verify"))
    assert checked["damaged"] == [], checked
    records = {one["step"]: one for one in ok(machine("ls", "r1"))["records"]}
    assert sorted(records) == sorted(steps)
    for step in steps:
        assert {copy["tier"] for copy in records[step]["replicas"]} >= {"cold"}, records[step]
        back = machine.home / f"back-{step}"
        ok(machine("restore", f"r1@{step}", "--to", back))
        assert (back / "weights.bin").read_bytes() == f"weights {step}".encode() * 100


HOT, COLD, LEDGER, OUT = "hot", "cold", "ledger.git", "out"
SWEEP = [
    ("a read of hot", lambda home: [Fault("read", home / HOT, count=1)]),
    ("every fsync in cold", lambda home: [Fault("fsync", home / COLD)]),
    ("one fsync in cold", lambda home: [Fault("fsync", home / COLD, count=1)]),
    ("a later fsync in cold", lambda home: [Fault("fsync", home / COLD, skip=3, count=1)]),
    ("reads of cold", lambda home: [Fault("read", home / COLD)]),
    ("no room in cold", lambda home: [Fault("write", home / COLD, error=errno.ENOSPC)]),
    ("no room in hot", lambda home: [Fault("write", home / HOT, error=errno.ENOSPC)]),
    ("an fsync in hot", lambda home: [Fault("fsync", home / HOT, count=1)]),
    ("fsyncs in the ledger", lambda home: [Fault("fsync", home / LEDGER)]),
    ("no room in the ledger", lambda home: [Fault("write", home / LEDGER, error=errno.ENOSPC)]),
    ("hot mounted read-only", lambda home: read_only(home / HOT)),
]


@pytest.mark.parametrize(("what", "faults"), SWEEP, ids=[name for name, _ in SWEEP])
def test_a_sweep(machine, what, faults):
    save(machine.home / "out", 3)
    in_words(machine("sweep", faults=faults(machine.home)))
    if "hot" not in what:
        assert machine.hits, "the fault was never met"
    everything_is_there(machine, 1, 2, 3)


def test_hot_only_saves_are_sunk_from_a_hot_that_is_mounted_read_only(machine):
    swept = ok(machine("sweep", faults=read_only(machine.home / HOT)))
    assert machine.hits
    assert {one["tier"] for one in swept["replicated"]} == {"cold"}
    assert len(swept["replicated"]) == 2
    ok(machine("restore", "r1@1", "--to", machine.home / "back-a", faults=read_only(machine.home / HOT)))
    assert ok(machine("verify", faults=read_only(machine.home / HOT)))["damaged"] == []


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EROFS])
def test_where_the_ledger_can_t_be_written_restore_and_verify_work(machine, error):
    ok(machine("sweep"))
    home = machine.home
    places = [home / name for name in (LEDGER, "ledger.index.sqlite", "ledger.journal.sqlite")]
    calls = ("write", "openw", "mkdir") if error == errno.EROFS else ("write",)
    faults = [Fault(call, place, error=error) for place in places for call in calls]
    ok(machine("restore", "r1@1", "--to", home / "back-a", faults=faults))
    ok(machine("restore", "r1@2", "--to", home / "back-b", "--from", "cold", faults=faults))
    checked = ok(machine("verify", faults=faults))
    assert (checked["checked"], checked["damaged"]) == (4, [])
    everything_is_there(machine, 1, 2)


@pytest.mark.parametrize("call", ["read", "fsync"])
def test_a_release(machine, call):
    """A survivor that can't be read is none; nothing goes."""
    ok(machine("sweep"))
    record = next(one["record"] for one in ok(machine("ls", "r1"))["records"] if one["step"] == 1)
    in_words(machine("release", record, "--from", "hot", faults=[Fault(call, machine.home / COLD)]))
    everything_is_there(machine, 1, 2)


@pytest.mark.parametrize("place", [HOT, COLD])
def test_a_restore_takes_the_other_copy(machine, place):
    ok(machine("sweep"))
    bad = machine.home / (f"{HOT}/r1" if place == HOT else f"{COLD}/files")
    ok(machine("restore", "r1@1", "--to", machine.home / "back-a", faults=[Fault("read", bad)]))
    everything_is_there(machine, 1, 2)


def test_a_resume_takes_the_other_copy_and_shows_nothing_that_is_half_written(machine):
    ok(machine("sweep"))
    out = machine.home / OUT
    shutil.rmtree(out / "step-2")
    no_room = [Fault("write", out, error=errno.ENOSPC)]
    assert in_words(machine("resume", "r1", "--to", out, "--job", "1", faults=no_room)).returncode != 0
    assert machine.hits
    assert not (out / "step-2").exists()
    ok(machine("resume", "r1", "--to", out, "--job", "1", faults=[Fault("read", machine.home / HOT / "r1")]))
    assert (out / "step-2" / "weights.bin").read_bytes() == b"weights 2" * 100


def test_the_service_outlives_what_fails_and_loses_nothing(machine):
    """Fsyncs in cold and reads of hot fail; what could not be sunk meanwhile is sunk by the next pass."""
    faults = [Fault("fsync", machine.home / COLD, count=5), Fault("read", machine.home / HOT / "r1", count=3)]
    service = subprocess.Popen(
        [sys.executable, "-m", "lakemark.cli", "watch", "--every", "1s"],
        env=machine.environment(*faults),
        cwd=machine.home,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        save(machine.home / "out", 3)
        deadline = time.monotonic() + 240
        while not (machine.hits and len(ok(machine("ls", "r1"))["records"]) == 3):
            assert service.poll() is None, "the service ended"
            assert time.monotonic() < deadline, machine.hits
            time.sleep(1)
        assert service.poll() is None
    finally:
        service.terminate()
        service.wait(180)
    everything_is_there(machine, 1, 2, 3)


def test_an_announcement_that_can_t_be_read_now_is_not_set_aside(machine):
    run = Run.open("r1", environ={"LAKEMARK_HOME": str(machine.home)})
    run.saved(save(machine.home / OUT, 3), step=3, metrics={"loss": 1.5})
    in_words(machine("sweep", faults=[Fault("open", machine.home / "spool")]))
    assert machine.hits
    ok(machine("sweep"))
    assert ok(machine("show", "r1@3"))["metrics"] == {"loss": 1.5}


PLACES = [
    ("a stale mount", lambda cold: [Fault(call, cold, error=errno.ESTALE) for call in ("open", "stat", "list")]),
    ("an identity that breaks off", lambda cold: [Fault("read", cold / "lakemark-tier.json")]),
]


@pytest.fixture
def two_disks(machine):
    """Step 3 is in neither of the two cold tiers yet, 1 and 2 are in both."""
    file = machine.home / "lakemark.yaml"
    text = file.read_text()
    file.write_text(
        text.replace("\n# Verified replicas", "  usb: {class: cold, kind: directory, path: usb}\n\n# Verified replicas")
        .replace("settle: 10m", "settle: 0s")
        .replace("admit: retained", "admit: all")
    )
    ok(machine("tier", "init", "usb"))
    for step in (1, 2):
        ok(machine("replicate", f"r1@{step}", "--to", "usb"))
    ok(machine("sweep"))
    ok(machine("commit", save(machine.home / "out", 3), "--run", "r1", "--step", 3))
    return machine


@pytest.mark.parametrize(("what", "faults"), PLACES, ids=[name for name, _ in PLACES])
def test_a_tier_whose_place_fails_is_red_and_the_others_go_on(two_disks, what, faults):
    machine, bad = two_disks, faults(two_disks.home / COLD)
    seen = in_words(machine("status", faults=bad))
    assert machine.hits
    red = [one["what"] for one in json.loads(seen.stdout)["problems"] if one["colour"] == "red"]
    assert seen.returncode == 4
    assert [one for one in red if "tier cold" in one], red
    swept = json.loads(in_words(machine("sweep", faults=bad)).stdout)
    assert [one for one in swept["pending"] if one["what"] == "tier cold" and one["transient"]], swept["pending"]
    checked = json.loads(in_words(machine("verify", faults=bad)).stdout)
    assert checked["damaged"] == []
    assert {one["tier"] for one in checked["unreachable"]} == {"cold"}
    listed = json.loads(in_words(machine("tiers", faults=bad)).stdout)["tiers"]
    assert {one["name"]: one["state"] for one in listed} == {"hot": "present", "cold": "away", "usb": "present"}
    ok(machine("replicate", "r1@3", "--to", "usb", faults=bad))
    ok(machine("sweep"))
    everything_is_there(machine, 1, 2, 3)


def test_what_was_released_goes_once_hot_takes_something_again(two_disks):
    """The entry stands, and its tree is left; neither this command nor the next pass ends in an error that nobody expected."""
    machine = two_disks
    ok(machine("sweep"))
    bad = read_only(machine.home / HOT)
    in_words(machine("release", "r1@1", "--from", "hot", "--reason", "room", faults=bad))
    assert machine.hits
    in_words(machine("sweep", faults=bad))
    assert machine.hits
    everything_is_there(machine, 1, 2, 3)
    assert len(list((machine.home / HOT / "r1").iterdir())) == 2


def test_a_listing_that_breaks_off_blames_nobody_and_removes_nothing(two_disks):
    bad = [Fault("list", two_disks.home / COLD)]
    swept = json.loads(in_words(two_disks("sweep", faults=bad)).stdout)
    assert two_disks.hits
    assert all(one["transient"] for one in swept["pending"]), swept["pending"]
    ok(two_disks("replicate", "r1@3", "--to", "usb", faults=bad))
    everything_is_there(two_disks, 1, 2, 3)


@pytest.mark.parametrize("skip", [1, 3])
def test_what_can_t_be_looked_at_any_more_is_inspected_as_far_as_it_was(machine, skip):
    in_words(machine("inspect", machine.home / OUT, faults=[Fault("stat", machine.home / OUT, skip=skip)]))
    assert machine.hits


def test_a_watched_directory_that_can_t_be_looked_at_is_said(machine):
    bad = [Fault("stat", machine.home / OUT, error=errno.ESTALE)]
    seen = in_words(machine("status", faults=bad))
    assert [one for one in json.loads(seen.stdout)["problems"] if "the directory of r1" in one["what"]], seen.stdout
