"""Pages about formats have the tables that the code has."""

import os
from pathlib import Path

import pytest

from lakemark.formats.pointers.decide import RULES
from lakemark.formats.pointers.links_and_lines import ANYBODY_S
from lakemark.formats.rules import staged

DOCS = Path(__file__).parents[2] / "docs"


def of_staging():
    head = "| name of the folder | of | where it is made |\n|---|---|---|\n"
    return head, "".join(f"| `{form.shown}` | {form.framework} | {form.source} |\n" for form in staged.FORMS)


def of_pointers():
    head = "| framework | pointer | what it is set to | without it |\n|---|---|---|---|\n"
    rules = (*dict.fromkeys(RULES.values()), ANYBODY_S)
    return head, "".join(f"| {one.framework} | {one.names} | {one.set_to} | {one.without} |\n" for one in rules)


@pytest.mark.parametrize(("page", "table"), [("formats.md", of_staging), ("resuming.md", of_pointers)])
def test_the_page_has_each_table_as_the_code_has_it(page, table):
    head, rows = table()
    page = DOCS / page
    text = page.read_text(encoding="utf-8")
    before, _, after = text.partition(head)
    # A table ends at the first line that is no row of it.
    lines = after.splitlines(keepends=True)
    end = next((at for at, line in enumerate(lines) if not line.startswith("|")), len(lines))
    wanted = before + head + rows + "".join(lines[end:])
    if os.environ.get("UPDATE_GOLDEN") == "1":
        page.write_text(wanted, encoding="utf-8")
    assert page.read_text(encoding="utf-8") == wanted
