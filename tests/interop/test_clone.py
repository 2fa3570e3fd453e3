"""No lock-in: from a fresh folder, `git clone` and `dvc pull` alone bring a checkpoint's files back, byte for byte."""

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lakemark.adapters.git.pointer import Remote
from lakemark.model.ledger.entry import Draft
from lakemark.services.node.sweep import sweep
from lakemark.services.runs.open_run import Opening, open_run
from lakemark.services.saves.commit import Commit, commit
from lakemark.services.tiers.replicate import replicate
from tests.faults.site_on_disk import Clock, make_site, write_checkpoint

RUN = "llama"


def files(path):
    """Relative path -> (sha256, executable) of every regular file."""
    return {
        str(file.relative_to(path)): (hashlib.sha256(file.read_bytes()).hexdigest(), os.access(file, os.X_OK))
        for file in sorted(path.rglob("*"))
        if file.is_file() and not file.is_symlink()
    }


@pytest.fixture(scope="module")
def site(tmp_path_factory, seaweedfs):
    """Steps 100 and 200 in cold (a directory) and warm (S3), then entries that are no replications."""
    home = tmp_path_factory.mktemp("interop") / "site"
    blobs = seaweedfs.blobs(home / "uploads")
    remote = Remote(name="warm", url=blobs.where, endpoint=seaweedfs.endpoint, region="us-east-1")
    here = make_site(home, None, Clock(), s3=(blobs, remote))
    sweep(here)
    open_run(here, Opening(run=RUN, watch=home / "out"))
    for step in (100, 200):
        path = write_checkpoint(home / "out" / f"step-{step}", f"weights of {step} ")
        (path / "na\u0308me with spaces \u00e9").write_text(str(step))
        record = commit(here, Commit(path=path, run=RUN, step=step)).record
        for tier in ("warm", "cold"):
            replicate(here, RUN, record.id, to=tier)
    here.ledger.append(RUN, lambda _: Draft(kind="held", record=record.id, reason="paper"), here.stamp("held"))
    here.ledger.append(RUN, lambda _: Draft(kind="from_the_future", body={"x": 1}), here.stamp("future"))
    return here


def cloned(site, seaweedfs, folder, *, branch, tier):
    """What a stranger gets, with a home directory of their own."""
    keys = seaweedfs.credentials
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "AWS_ACCESS_KEY_ID": keys.access_key_id,
        "AWS_SECRET_ACCESS_KEY": keys.secret_access_key,
        "DVC_NO_ANALYTICS": "1",
        "DVC_GLOBAL_CONFIG_DIR": str(folder / "dvc"),
        "DVC_SITE_CACHE_DIR": str(folder / "cache"),
    }
    ledger = str(site.home / "ledger.git")
    git = ["git", "-c", f"safe.directory={ledger}", "clone", "-q", "-b", branch, ledger, str(folder / "clone")]
    for command, where in ((git, folder), ([sys.executable, "-m", "dvc", "pull", "-q", "-r", tier], folder / "clone")):
        done = subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    return folder / "clone"


@pytest.mark.parametrize("tier", ["cold", "warm"])
def test_the_runs_branch_gives_its_newest_checkpoint(site, seaweedfs, tmp_path, tier):
    clone = cloned(site, seaweedfs, tmp_path, branch=f"runs/{RUN}", tier=tier)
    assert files(clone / "checkpoint") == files(site.home / "out" / "step-200") != {}
    status = subprocess.run(["git", "status", "--porcelain"], cwd=clone, capture_output=True, text=True, check=True)
    assert status.stdout == ""


@pytest.mark.parametrize("tier", ["cold", "warm"])
@pytest.mark.parametrize("step", [100, 200])
def test_a_records_tag_gives_that_checkpoint(site, seaweedfs, tmp_path, tier, step):
    record = next(f.record for f in site.ledger.run(RUN).records.values() if f.record.step == step)
    clone = cloned(site, seaweedfs, tmp_path, branch=f"records/{record.id[:12]}", tier=tier)
    assert files(clone / "checkpoint") == files(site.home / "out" / f"step-{step}")


def test_a_directory_tier_is_the_default(site, seaweedfs, tmp_path):
    clone = cloned(site, seaweedfs, tmp_path, branch=f"runs/{RUN}", tier="cold")
    assert "remote = cold" in (clone / ".dvc" / "config").read_text()


def test_the_lines_of_the_readme_do_what_they_say(site, seaweedfs, tmp_path):
    """Pasted one after the other into one shell, with the sandbox's keys given to DVC as the page says."""
    page = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    (keys,) = re.findall(r"`(set -a;[^`]+set \+a)`", page)
    (lines,) = re.findall(r"```console\n(git clone -b runs/[^`]+)```", page)
    record = next(f.record for f in site.ledger.run(RUN).records.values() if f.record.step == 100)
    lines = lines.replace("llama-7b", RUN).replace("8f1d03c2a7be", record.id[:12])
    (tmp_path / "ledger.git").symlink_to(site.home / "ledger.git")
    (tmp_path / "sandbox").mkdir()
    pair = seaweedfs.credentials
    (tmp_path / "sandbox" / "credentials.env").write_text(
        f"AWS_ACCESS_KEY_ID={pair.access_key_id}\nAWS_SECRET_ACCESS_KEY={pair.secret_access_key}\n"
    )
    environment = {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "HOME": str(tmp_path),
        "DVC_NO_ANALYTICS": "1",
        "DVC_GLOBAL_CONFIG_DIR": str(tmp_path / "dvc"),
        "DVC_SITE_CACHE_DIR": str(tmp_path / "cache"),
    }
    script = f"set -e\n{' '.join(keys.split())}\n{lines}"
    done = subprocess.run(
        ["sh", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert files(tmp_path / "back" / "checkpoint") == files(site.home / "out" / "step-200") != {}
    assert files(tmp_path / "then" / "checkpoint") == files(site.home / "out" / "step-100") != {}


def test_git_log_finds_a_step(site):
    found = subprocess.run(
        ["git", "log", "--format=%H", "--grep", "^Step: 100$", f"runs/{RUN}"],
        cwd=site.home / "ledger.git",
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.split()
