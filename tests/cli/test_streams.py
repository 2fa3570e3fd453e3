"""Standard streams that are closed, full or not read: the work is done all the same, and the exit code is its outcome."""

import json
import subprocess
import sys

import pytest

from tests.cli.conftest import environment, save

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/dev/full")


def shell(cli, words, redirected):
    """The program, as a script calls it."""
    line = f"{sys.executable} -m lakemark.cli {words} {redirected}"
    environ = environment(cli.home) | {"LAKEMARK_CONFIG": str(cli.home / "lakemark.yaml")}
    return subprocess.run(
        line,
        shell=True,
        cwd=cli.home,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def opened(cli):
    cli.ok("run", "open", "r1")
    save(cli.home / "out", 100)
    return cli


CLOSED = ["2>&-", "<&- >&- 2>&-", ">&- 2>/dev/full", "| true"]


@pytest.mark.parametrize("redirected", CLOSED)
def test_a_commit_is_made_and_says_so_by_its_code(opened, redirected):
    done = shell(opened, "commit out/step-100 --run r1 --step 100", redirected)
    assert done.returncode == 0, done.stderr
    (found,) = opened.ok("ls", "r1")["records"]
    assert found["step"] == 100
    assert opened.ok("verify", "--invariants")["violations"] == []


def test_an_answer_that_was_cut_short_is_no_answer(opened):
    done = shell(opened, "commit out/step-100 --run r1 --step 100 --json", ">/dev/full")
    assert done.returncode == 1
    assert "its answer could not be written: No space left on device" in done.stderr
    assert len(opened.ok("ls", "r1")["records"]) == 1


@pytest.mark.parametrize("redirected", [">&- 2>&-", "2>/dev/full"])
def test_what_fails_keeps_its_code(opened, redirected):
    assert shell(opened, "show r1@999", redirected).returncode == 3


def test_a_warning_that_nobody_hears_does_not_keep_the_answer_back(opened):
    done = shell(opened, "ls r1 --since 3d --json", "2>&-")
    assert done.returncode == 0
    assert json.loads(done.stdout)["records"] == []
