"""The disk of the ledger, journal or index fails anywhere in a command: it says so in our words, and no save is lost."""

import errno
import json
from dataclasses import dataclass, field

import pytest

from tests.cli.conftest import environment, save
from tests.support.bad_disk import Fault, Machine

LEDGER = ("ledger.git",)
ALL = (*LEDGER, "ledger.journal.sqlite", "ledger.journal.sqlite-wal", "ledger.index.sqlite", "ledger.index.sqlite-wal")
IO = ("read", "open", "stat", "list", "fsync", "rename", "write")
FEW, MANY = (0, 9, 26), range(0, 72, 3)


@dataclass
class Site:
    """A solo site on disks that fail as told. saved: every step that a commit was given."""

    machine: Machine
    saved: list = field(default_factory=list)

    @property
    def home(self):
        return self.machine.home

    @property
    def hit(self):
        """Whether anything was made to fail."""
        return bool(self.machine.hits)

    def ok(self, *words):
        done = self.machine(*words)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def fails(self, call, *, skip, error=errno.EIO, count=-1, places=LEDGER):
        return [Fault(call, self.home / place, error=error, skip=skip, count=count) for place in places]

    def commit(self, *, faults=()):
        step = len(self.saved) + 1
        self.saved.append(step)
        return self.machine("commit", save(self.home / "out", step), "--run", "r1", "--step", step, faults=faults)


def in_words(done):
    """It ended well, by a rule or in an error of ours, never in one that nobody expected."""
    return done.returncode in (0, 3, 4, 5, 6, 7, 8) and "Traceback" not in done.stderr


@pytest.fixture(scope="session")
def built(tmp_path_factory, require_command):
    require_command("gcc")
    return tmp_path_factory.mktemp("bad-ledger")


@pytest.fixture
def site(tmp_path, built):
    home = tmp_path / "site"
    home.mkdir()
    environ = environment(home) | {"LAKEMARK_CONFIG": str(home / "lakemark.yaml")}
    made = Site(Machine(home, environ, built))
    made.ok("init", home, "--profile", "solo")
    made.ok("run", "open", "r1", "--watch", home / "out")
    made.commit()
    made.ok("sweep")
    return made


def commits_while_it_fails(site, call, skips):
    """Sealed at least: with the record, or waiting for it; the next pass on a disk that works brings all of them in."""
    for skip in skips:
        for count in (1, -1):
            done = site.commit(faults=site.fails(call, skip=skip, count=count))
            where = f"{call}, {count} after {skip}: {done.returncode} {done.stderr}"
            assert done.returncode == 0, where
            said = json.loads(done.stdout)
            assert said.get("pending") is True or len(said["record"]) == 64, where
            if not site.hit:
                break
    assert len(site.saved) > 3
    swept = site.ok("sweep")
    records = {one["step"]: one["record"] for one in site.ok("ls", "r1", "--limit", "500")["records"]}
    assert sorted(records) == site.saved, swept["pending"]
    assert site.ok("verify")["damaged"] == []
    last = site.home / "back"
    site.ok("restore", f"id:{records[site.saved[-1]]}", "--to", last)
    assert (last / "weights.bin").read_bytes() == f"weights {site.saved[-1]}".encode() * 100


@pytest.mark.parametrize("call", IO)
def test_a_commit_seals_whatever_the_ledger_s_disk_does(site, call):
    commits_while_it_fails(site, call, FEW)


@pytest.mark.campaign
@pytest.mark.parametrize("call", IO)
def test_a_commit_seals_whenever_the_ledger_s_disk_fails(site, call):
    commits_while_it_fails(site, call, MANY)


def commands(home):
    """Nearly all that work with a ledger, those that only ask first; a run that is closed is the last."""
    asking = [
        ("ls",),
        ("status",),
        ("show", "r1@1"),
        ("log", "r1"),
        ("run", "ls"),
        ("run", "show", "r1"),
        ("as-of", "r1", "1h"),
        ("tiers",),
        ("pins",),
        ("inspect", home / "out"),
        ("doctor",),
        ("verify",),
        ("verify", "--invariants"),
        ("rollback", "ls"),
        ("rollback", "plan", "r1", "--to", "1", "--reason", "a bad disk", "--while-running"),
        ("ledger", "recover", "--dry-run"),
        ("sweep", "--dry-run"),
    ]
    changing = [
        ("init", home),
        ("metric", "r1@1", "loss=1", "--reason", "a bad disk"),
        ("replicate", "r1@1", "--to", "cold"),
        ("sweep",),
        ("restore", "r1@1", "--to", home / "back-a"),
        ("resume", "r1", "--to", home / "out"),
        ("run", "open", "r2"),
        ("run", "open", "r1", "--watch", home / "out"),
        ("rollback", "request", "r1", "--to", "1", "--reason", "a bad disk", "--while-running"),
        ("release", "r1@1", "--from", "hot", "--reason", "a bad disk"),
        ("ledger", "recover"),
        ("run", "close", "r1", "--reason", "a bad disk"),
    ]
    return [*asking, *changing]


def no_command_fails_unexpectedly(site, calls, skips, places):
    site.commit()
    unexpected = []
    for words in commands(site.home):
        for call in calls:
            for skip in skips:
                done = site.machine(*words, faults=site.fails(call, skip=skip, places=places))
                if not in_words(done):
                    unexpected.append(f"{' '.join(map(str, words))}: {call} after {skip}: {done.stderr}")
                if not site.hit:
                    break
    assert unexpected == []
    site.ok("sweep")
    assert site.ok("verify")["damaged"] == []


@pytest.mark.parametrize(("call", "skip"), [("read", 2), ("stat", 3), ("open", 12)])
def test_no_command_ends_in_an_error_that_nobody_expected(site, call, skip):
    no_command_fails_unexpectedly(site, [call], [skip], ALL)


@pytest.mark.campaign
@pytest.mark.parametrize("call", IO)
@pytest.mark.parametrize("place", [*ALL, "runs", "spool", "hot", "cold", "out"])
def test_no_command_ends_unexpectedly_wherever_a_disk_fails(site, call, place):
    no_command_fails_unexpectedly(site, [call], (0, 1, 3, 8, 20, 40), [place])
