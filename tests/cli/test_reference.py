"""docs/cli.md says what the program does."""

from pathlib import Path

from lakemark.cli.reference import render
from lakemark.cli.registry import COMMANDS, MEANINGS

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


def test_the_page_is_the_one_that_the_commands_make():
    text = PAGE.read_text()
    assert text == render(), "run `python -m lakemark.cli.reference > docs/cli.md`"


def test_it_has_every_command_and_code():
    text = PAGE.read_text()
    for command in COMMANDS:
        assert f"## `lakemark {command.name}" in text
    for code, meaning in MEANINGS.items():
        assert f"| {code} | {meaning} |" in text
