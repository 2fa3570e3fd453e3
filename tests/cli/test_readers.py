"""What doctor says of who can read each tier on a disk of this machine, against what the tier's `access:` says."""

import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from lakemark.cli.checks.readers import examinations
from lakemark.cli.options import Options
from lakemark.cli.session import Session
from lakemark.services.health.doctor import examine
from tests.cli.conftest import Cli, environment


@pytest.fixture
def site(capsys, monkeypatch):
    """In a folder that everybody may enter: pytest's own are closed to others."""
    home = Path(tempfile.mkdtemp(prefix="lakemark-readers-"))
    home.chmod(0o755)
    monkeypatch.chdir(home)
    made = Cli(home, capsys, monkeypatch, environment(home))
    made.ok("init", ".", "--profile", "solo")
    yield made
    shutil.rmtree(home)


def said(cli, tier):
    """What doctor says of it; its other checks take their time, and are not asked for each answer here."""
    here = Session(options=Options(config=cli.home / "lakemark.yaml"), environ=cli.environ)
    (found,) = [one for one in examine(examinations(here)) if one.name == f"who reads {tier}"]
    here.close()
    return found


def test_doctor_says_it(site):
    document = site.ok("doctor")
    assert [one["name"] for one in document["checks"] if one["name"].startswith("who reads")] == [
        "who reads hot",
        "who reads cold",
    ]


def test_a_root_that_lakemark_made_is_as_access_says(site):
    cold, hot = said(site, "cold"), said(site, "hot")
    assert cold.ok
    assert str(site.home / "cold") in cold.detail
    assert "0700" in cold.detail
    assert "alone can read it" in cold.detail
    assert hot.ok
    assert "0755" in hot.detail


@pytest.mark.parametrize(("mode", "access"), [(0o755, "owner"), (0o755, "group"), (0o750, "owner"), (0o711, "owner")])
def test_a_root_that_is_wider_is_not_ok_and_the_line_that_is_said_mends_it(site, mode, access):
    if access != "owner":
        site.settings("path: cold", f"path: cold\n    access: {access}")
    (site.home / "cold").chmod(mode)
    one = said(site, "cold")
    assert not one.ok
    assert f"`access: {access}`" in one.detail
    assert f"{mode:04o}" in one.detail
    subprocess.run(shlex.split(one.advice), check=True)
    assert said(site, "cold").ok


@pytest.mark.parametrize("access", ["group", "all"])
def test_a_root_that_lets_in_fewer_than_it_says_is_told(site, access):
    site.settings("path: cold", f"path: cold\n    access: {access}")
    one = said(site, "cold")
    assert (one.ok, one.noted) == (True, True)
    assert f"`access: {access}`" in one.detail
    subprocess.run(["sh", "-c", one.detail.partition("if they are to: ")[2]], check=True)
    assert (said(site, "cold").ok, said(site, "cold").noted) == (True, False)


def test_a_parent_that_keeps_others_out_is_named_and_enough(site):
    (site.home / "cold").chmod(0o755)
    site.home.chmod(0o700)
    one = said(site, "cold")
    assert one.ok
    assert f"{site.home} " in one.detail
    assert "keeps others out" in one.detail
    assert not (os.stat(site.home).st_mode & 0o077)
