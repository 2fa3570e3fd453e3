"""What may not be read or written: exit code 8, the value named, and no more kept from a person than must be."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager

import pytest

RIGHTS = "-dac_override,-dac_read_search"


@pytest.fixture
def mortal(trained, require_command):
    """The command line of somebody to whom permissions apply; answers (exit code, stdout, stderr)."""
    over = []
    if os.geteuid() == 0:
        over = [require_command("setpriv"), f"--bounding-set={RIGHTS}", f"--inh-caps={RIGHTS}"]

    def call(*words):
        command = [*over, sys.executable, "-m", "lakemark.cli", *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=trained.environ)
        return done.returncode, done.stdout, done.stderr

    return call


@contextmanager
def closed(path, mode=0):
    before = path.stat().st_mode
    path.chmod(mode)
    try:
        yield path
    finally:
        path.chmod(before)


@pytest.mark.parametrize("words", [("ls",), ("status",), ("sweep",), ("run", "open", "r2")])
def test_a_ledger_that_may_not_be_read_is_8(trained, mortal, words):
    with closed(trained.home / "ledger.git"):
        code, out, err = mortal(*words, "--json")
    error = json.loads(err)["error"]
    assert (code, out, error["kind"]) == (8, "", "Denied")
    assert "ledger.git" in error["message"]


@pytest.mark.parametrize("tier", ["hot", "cold"])
def test_status_answers_although_a_tier_may_not_be_read(trained, mortal, tier):
    with closed(trained.home / tier):
        code, out, _ = mortal("status", "--json")
    problems = [one["what"] for one in json.loads(out)["problems"]]
    assert code == 4  # a removable one, too: it is there, and takes nothing from this account
    assert any(f"the tier {tier} can't be read" in what and "may not be read" in what for what in problems)


def test_a_checkpoint_that_can_be_seen_and_not_entered_is_8(trained, mortal):
    path = trained.save(7, under="seen")
    with closed(path.parent, 0o600):
        code, _, err = mortal("inspect", path, "--json")
    assert code == 8
    assert str(path) in json.loads(err)["error"]["message"]


@pytest.mark.parametrize("dry_run", [(), ("--dry-run",)])
def test_where_nothing_may_be_restored_is_named_as_it_was_given(trained, mortal, dry_run):
    (trained.home / "no").mkdir()
    target = trained.home / "no" / "back"
    with closed(target.parent):
        code, _, err = mortal("restore", "r1@100", "--to", target, *dry_run, "--json")
    error = json.loads(err.splitlines()[-1])["error"]
    assert (code, error["kind"]) == (8, "Denied")
    assert repr(str(target)) in error["message"]
