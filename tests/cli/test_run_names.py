"""Runs under the names that people gave them: shown as typed, told apart by case, each directory one open run's."""

import json
import re

import pytest

from lakemark.model.ledger.entry import Draft
from lakemark.site import site_of
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


@pytest.fixture
def two(cli):
    """`Llama`, and `llama` that an older version let be opened beside it; each has a record of step 100."""
    cli.ok("run", "open", "Llama", "--watch", "out")
    parts = cli.parts()
    site = site_of(parts)
    body = {"data": [], "parent": None, "parts": 1, "at_step": None, "watch": {}, "needs_no": []}
    site.ledger.append("llama", lambda _: Draft(kind="opened", timeline=1, body=body), site.stamp("as before"))
    return {
        name: cli.ok("commit", cli.save(100, name.encode(), under=under), "--run", name, "--step", 100)["record"]
        for name, under in (("Llama", "out"), ("llama", "other"))
    }


def test_of_two_that_differ_only_in_case_each_is_itself(cli, two):
    for name, record in two.items():
        assert cli.ok("run", "show", name)["written_as"] == name
        assert cli.ok("show", f"{name}@100")["record"] == record
        assert [one["record"] for one in cli.ok("ls", name)["records"]] == [record]
        assert cli.ok("as-of", name, "0s")["latest"]["record"] == record
        assert cli.ok("resume", name, "--to", name.replace("L", "upper-"))["record"] == record
        assert cli.ok("metric", f"{name}@100", "mmlu=0.5", "--reason", "evaluated")["record"] == record
        plan = ("rollback", "plan", name, "--model-only", "--while-running", "--reason", "back")
        assert cli.ok(*plan, "--to", f"{name}@100")["target"]["record"] == record
    error = cli.fails("rollback", "plan", "Llama", "--to", "llama@100", "--model-only", "--reason", "back")
    assert error["exit_code"] == 2, "another run's, whatever its name is like"
    for words in (("run", "show", "LLAMA"), ("show", "LLAMA@100"), ("commit", "out", "--run", "LLAMA", "--step", 1)):
        error = cli.fails(*words)
        assert error["exit_code"] == 2
        assert "Llama" in error["message"]
    cli.ok("run", "close", "Llama", "--reason", "over")
    assert cli.ok("run", "show", "llama")["closed"] is False
