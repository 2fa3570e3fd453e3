"""Whose a save is, as `run open`, `sweep`, `inspect --run`, `status` and `restore` say it."""

import shutil

import pytest

from tests.services.on_disk import age, hf


def named(rows):
    return [(row["path"].rpartition("/")[2], row["whose"]) for row in rows]


@pytest.fixture
def used(cli):
    """A directory that is used again: a save of three days ago lies there."""
    age(hf(cli.home / "out", 1000), days=3)
    return cli


def test_what_is_older_than_a_run_is_told_and_taken_when_it_is_asked_for(used):
    out = used.home / "out"
    foreseen = used.ok("run", "open", "fresh", "--watch", out, "--dry-run")["would"]
    assert any("leave" in said and "older than the run" in said for said in foreseen)
    opened = used.ok("run", "open", "fresh", "--watch", out)
    (older,) = opened["older"]
    assert (older["path"], older["step"], opened["adopted"]) == (str(out / "checkpoint-1000"), 1000, [])
    swept = used.ok("sweep")
    assert (swept["committed"], named(swept["left"])) == ([], [("checkpoint-1000", "older than the run")])
    assert "run open fresh --adopt" in swept["left"][0]["next"]
    (seen,) = used.ok("inspect", out, "--run", "fresh")["found"]
    assert (seen["whose"], "fresh was first opened there" in seen["whose_why"]) == ("older than the run", True)
    assert any("older than the run" in one["what"] for one in used.ok("status")["problems"])
    assert "older than the run" in used("sweep", "--dry-run").out
    adopted = used.ok("run", "open", "fresh", "--adopt")
    assert (adopted["older"], len(adopted["adopted"])) == ([], 1)
    record = used.ok("show", "fresh@1000")
    assert (record["data"], record["saved_at"]) == ([], older["written_at"])
    hf(out, 1020)
    swept = used.ok("sweep")
    assert ([one["step"] for one in swept["committed"]], swept["left"]) == ([1020], [])
    assert not any("older than the run" in one["what"] for one in used.ok("status")["problems"])


def test_a_copy_of_another_run_s_save_is_called_so(cli):
    a, b = cli.home / "a", cli.home / "b"
    for run, out in (("a", a), ("b", b)):
        out.mkdir()
        cli.ok("run", "open", run, "--watch", out)
    hf(a, 2)
    cli.ok("sweep")
    shutil.copytree(a / "checkpoint-2", b / "checkpoint-2")
    (seen,) = cli.ok("inspect", b, "--run", "b")["found"]
    assert seen["whose"] == "a copy of a@2"
    for _ in range(2):
        swept = cli.ok("sweep")
        assert (swept["committed"], named(swept["left"])) == ([], [("checkpoint-2", "a copy of a@2")])
    assert "a copy of a@2" in cli("sweep").out
    assert any("a copy of a@2" in one["what"] for one in cli.ok("status")["problems"])
    (seen,) = cli.ok("inspect", a, "--run", "a")["found"]
    assert seen["whose"] == "this attempt"
    done = cli.ok("commit", b / "checkpoint-2", "--run", "b", "--step", 2)
    assert (done["run"], done["step"]) == ("b", 2)


def test_a_restore_into_a_watched_directory_is_refused(cli):
    cli.ok("run", "open", "a", "--watch", cli.home / "out")
    hf(cli.home / "out", 2)
    cli.ok("sweep")
    error = cli.fails("restore", "a@2", "--to", cli.home / "out" / "step-2")
    assert (error["exit_code"], "resume a" in error["advice"]) == (7, True)
    (cli.home / "link").symlink_to(cli.home / "out")
    assert cli.fails("restore", "a@2", "--to", cli.home / "link" / "new")["exit_code"] == 7
    assert cli.ok("restore", "a@2", "--to", cli.home / "elsewhere")["verified"]
