"""Options, commands that there are and are not, and what happens when something breaks."""

import json
import re

import pytest

from lakemark.cli import run
from lakemark.cli.options import taken
from lakemark.cli.registry import COMMANDS, application
from lakemark.errors import Usage


@pytest.mark.parametrize(
    "words",
    [
        ["--json", "--config", "x.yaml", "ls", "r1"],
        ["ls", "--json", "r1", "--config", "x.yaml"],
        ["ls", "r1", "--config=x.yaml", "--json"],
    ],
)
def test_global_options_stand_anywhere(words):
    options, rest = taken(words)
    assert (options.json, str(options.config), options.quiet) == (True, "x.yaml", False)
    assert rest == ["ls", "r1"]


def test_after_two_dashes_everything_is_an_argument():
    assert taken(["ls", "-q", "--", "--json"])[1] == ["ls", "--", "--json"]


@pytest.mark.parametrize("words", [["--config"], ["--config", "--json"], ["--config=", "ls"]])
def test_config_wants_a_file(words):
    with pytest.raises(Usage):
        taken(words)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("lz", "ls"),
        ("statsu", "status"),
        ("run opne", "run open"),
        ("rollback aprove", "rollback approve"),
        ("comit", "commit"),
    ],
)
def test_an_unknown_command_says_which_one_is_nearest(shared, typed, meant):
    error = shared.fails(*typed.split())
    assert (error["kind"], error["exit_code"]) == ("Usage", 2)
    assert f"lakemark {meant}" in error["advice"]


@pytest.mark.parametrize("later", ["hold", "quarantine", "prune", "drill", "serve", "report"])
def test_commands_of_later_versions_are_not_there(shared, later):
    assert shared(later).code == 2


def test_an_unknown_option_says_which_one_is_nearest(shared):
    error = shared.fails("ls", "--limt", "3")
    assert error["exit_code"] == 2
    assert "--limit" in error["message"]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_help_ends_with_the_exit_codes_it_can_give(shared, command):
    done = shared(*command.name.split(), "--help")
    assert done.code == 0
    said = " ".join(done.out.split())
    codes = said.rpartition("Exit codes: ")[2]
    for code in command.codes:
        assert f"{code} " in codes
    assert "0 ok" in codes
    assert "130 interrupted" in codes
    assert codes.endswith("interrupted")
    assert "--config FILE --json --quiet --verbose" in said
    # What is off or empty where nothing is given goes without saying.
    assert not re.search(r"\[default: (\(\)|False|None)\]", said)


def test_every_command_can_be_parsed_and_explains_each_parameter():
    for command in COMMANDS:
        app = application(command.name.split())
        for word in command.name.split():
            app = app[word]
        for argument in app.assemble_argument_collection(parse_docstring=True):
            assert argument.parameter.help or not argument.show, f"{command.name} {argument.names}"


def test_everything_that_changes_something_has_a_dry_run():
    reading = {"status", "ls", "show", "log", "as-of", "pins", "tiers", "inspect"}
    reading |= {"run ls", "run show", "rollback ls", "rollback show", "config show", "config schema"}
    for command in COMMANDS:
        app = application(command.name.split())
        for word in command.name.split():
            app = app[word]
        names = {name for argument in app.assemble_argument_collection() for name in argument.names}
        assert ("--dry-run" in names) == (command.name not in reading), command.name


def test_root_help_and_version(shared):
    done = shared("--help")
    assert done.code == 0
    assert "rollback" in done.out
    assert shared("--version").out.strip() == "0.1.0"


class Breaking(dict):
    """An environment that raises when it is looked at."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def get(self, *_):
        raise self.error


def test_ctrl_c_is_130(shared, capsys):
    assert run(["ls", "--json"], environ=Breaking(KeyboardInterrupt())) == 130
    assert json.loads(capsys.readouterr().err)["error"]["exit_code"] == 130


def test_what_nobody_foresaw_is_1_and_one_line(shared, capsys):
    assert run(["ls", "--json"], environ=Breaking(RuntimeError("no\x1b[31m way"))) == 1
    error = json.loads(capsys.readouterr().err)["error"]
    assert (error["kind"], error["exit_code"]) == ("Unexpected", 1)
    assert run(["ls"], environ=Breaking(RuntimeError("no\x1b[31m way"))) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "\x1b" not in err
    assert "Traceback" not in err
    assert run(["ls", "--verbose"], environ=Breaking(RuntimeError("x"))) == 1
    assert "Traceback" in capsys.readouterr().err
