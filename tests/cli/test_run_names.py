"""Runs under the names that people gave them: shown as typed, told apart by case, each directory one open run's."""

import json
import os
import re
from pathlib import Path

import pytest

from lakemark.trainer import Run
from lakemark.trainer.run import RunNotOpened


def test_a_directory_of_another_open_run_is_refused_naming_it(cli):
    (cli.home / "out").mkdir()
    (cli.home / "link").symlink_to("out")
    cli.ok("run", "open", "llama-7b", "--watch", "out")
    for place in ("out", "link", "./out/"):
        error = cli.fails("run", "open", "zz", "--watch", place)
        assert (error["kind"], error["exit_code"]) == ("Refused", 7)
        assert "llama-7b" in error["message"]
        assert "lakemark run close llama-7b" in error["advice"]
    assert [one["run"] for one in cli.ok("run", "ls")["runs"]] == ["llama-7b"]
    cli.ok("run", "open", "llama-7b", "--watch", "link")
    cli.ok("run", "close", "llama-7b", "--reason", "over")
    cli.ok("run", "open", "zz", "--watch", "out")


def test_run_open_says_what_to_export_and_the_trainer_finds_the_site_upwards(cli, monkeypatch):
    done = cli("run", "open", "Llama-7B")
    run_file = cli.home / "runs" / f"x-{b'Llama-7B'.hex()}.json"
    assert f"export LAKEMARK_RUN_FILE={run_file}" in done.out
    assert cli.ok("run", "open", "Llama-7B")["export"] == f"export LAKEMARK_RUN_FILE={run_file}"
    deep = cli.home / "work" / "deep"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    assert Run.open("Llama-7B", environ={}).name == f"x-{b'Llama-7B'.hex()}"
    assert Run.open("Llama-7B", environ={"LAKEMARK_CONFIG": str(cli.home / "lakemark.yaml")}).timeline == 1
    monkeypatch.chdir("/")
    with pytest.raises(RunNotOpened, match="export LAKEMARK_RUN_FILE"):
        Run.open("Llama-7B", environ={})


def test_what_the_environment_says_comes_before_what_lies_above(cli, monkeypatch, tmp_path):
    cli.ok("run", "open", "r1")
    other = tmp_path / "other.json"
    other.write_text(json.dumps(json.loads((cli.home / "runs/r1.json").read_text()) | {"attempt": "mine"}))
    monkeypatch.chdir(cli.home)
    assert Run.open("r1", environ={"LAKEMARK_RUN_FILE": str(other)}).attempt == "mine"
    with pytest.raises(RunNotOpened, match="no run file"):
        Run.open("r1", environ={"LAKEMARK_HOME": str(tmp_path / "nothing")})


def test_names_are_shown_as_typed_and_can_be_pasted(cli):
    (cli.home / "out").mkdir()
    cli.ok("run", "open", "Llama 7B", "--watch", "out")
    cli.save(100)
    cli.ok("sweep")
    shown = "x-" + b"Llama 7B".hex()
    told = (
        ("run", "ls"), ("status",), ("ls",), ("run", "show", "Llama 7B"), ("sweep", "--dry-run"), ("tiers",),
        ("restore", "Llama 7B@100", "--to", "back"), ("show", "Llama 7B@100"), ("as-of", "Llama 7B", "0s"),
        ("verify", "Llama 7B"), ("run", "close", "Llama 7B", "--reason", "it is over"),
    )  # fmt: skip
    for words in told:
        out = cli(*words)
        for text in (out.out, out.err):
            bare = text.replace(f"runs/{shown}", "").replace(f"hot/{shown}/", "")
            assert shown not in bare, (words, bare)
    assert "Llama 7B" in cli("run", "ls").out
    assert "'Llama 7B@100'" in cli("ls").out or "Llama 7B" in cli("ls").out
    assert cli.ok("run", "ls")["runs"][0]["run"] == shown
    # `git clone -b` wants the branch's own name.
    assert re.search(rf"^branch in Git +runs/{shown}$", cli("run", "show", "Llama 7B").out, re.MULTILINE)


def test_an_exact_name_comes_before_one_that_differs_in_case(cli):
    (cli.home / "out").mkdir()
    cli.ok("run", "open", "Llama", "--watch", "out")
    error = cli.fails("run", "open", "llama")
    assert (error["kind"], error["exit_code"]) == ("Refused", 7)
    assert "Llama" in error["message"]
    assert cli.ok("run", "show", "llama")["written_as"] == "Llama"
    assert cli.ok("run", "show", "LLAMA")["written_as"] == "Llama"
    cli.ok("run", "open", "other")
    assert cli.fails("run", "open", "Other")["exit_code"] == 7


def test_of_two_that_differ_only_in_case_each_is_itself(cli):
    """As an older version let them be opened."""
    from lakemark.services.runs.open_run import Opening, open_run
    from lakemark.site import site_of

    cli.ok("run", "open", "Llama")
    parts = cli.parts()
    open_run(site_of(parts), Opening(run="llama"))
    for name in ("Llama", "llama"):
        assert cli.ok("run", "show", name)["written_as"] == name
    error = cli.fails("run", "show", "LLAMA")
    assert error["exit_code"] == 2
    assert "Llama" in error["message"]
    cli.ok("run", "close", "Llama", "--reason", "over")
    assert cli.ok("run", "show", "llama")["closed"] is False
    assert Path(os.curdir).exists()
