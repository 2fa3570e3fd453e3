"""What the documentation names is there: files behind links, commands behind `lakemark …`, also in errors' advice."""

import re
import tomllib
from pathlib import Path

import pytest

from lakemark.cli.registry import COMMANDS, GROUPS

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
TEXTS = sorted(
    [*PAGES, *(ROOT / "configs").glob("*"), *(ROOT / "versioning").rglob("*.py"), *(ROOT / "flows").rglob("*.py")]
)
NAMES = {command.name for command in COMMANDS}
_LINK = re.compile(r"\]\(([^)#:\s]+)[^):]*\)")
_QUOTED = re.compile(r"""(?:`|^|advice=f?"|next=f?")lakemark ([a-z][a-z-]*)(?: ([a-z][a-z-]*))?""", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page):
    missing = [link for link in _LINK.findall(page.read_text(encoding="utf-8")) if not (page.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: str(text.relative_to(ROOT)))
def test_commands_exist(text):
    said = {f"{first} {second}" for first, second in _QUOTED.findall(text.read_text(encoding="utf-8"))}
    wrong = {words.strip() for words in said if not known(*words.split(" "))}
    assert wrong == set()


def known(first, second=""):
    return first in NAMES or f"{first} {second}" in NAMES or (first in GROUPS and not second)


def test_a_command_that_is_none_is_seen():
    assert not known("serve")
    assert _QUOTED.findall('advice="lakemark tier move x"') == [("tier", "move")]
    assert not known("tier", "move")
    assert known("tier", "init")


def test_contributing_says_how_many_parameters_the_linter_allows():
    rules = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["ruff"]["lint"]["pylint"]
    said = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    names = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight")
    assert f"at most {names[rules['max-positional-args']]} positional parameters" in said
    assert f"the linter stops at {names[rules['max-args']]}" in said


def test_how_data_gets_into_lakefs_is_found_from_the_readme():
    (row,) = (line for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines() if "into lakeFS" in line)
    (link,) = _LINK.findall(row)
    page = (ROOT / link).read_text(encoding="utf-8")
    told = page.partition("## How data gets into lakeFS\n")[2].partition("\n## ")[0]
    (code,) = re.findall(r"```python\n(.*?)```", told, re.DOTALL)
    compile(code, link, "exec")
    assert [way for way in (".upload(", ".commit(", "lakectl fs upload", "lakectl commit") if way not in told] == []
