"""The page about formats has the tables that the code has."""

import os
from pathlib import Path

import pytest

from lakemark.formats.rules import staged

PAGE = Path(__file__).parents[2] / "docs" / "formats.md"


def of_staging():
    head = "| name of the folder | of | where it is made |\n|---|---|---|\n"
    return head, "".join(f"| `{form.shown}` | {form.framework} | {form.source} |\n" for form in staged.FORMS)


@pytest.mark.parametrize("table", [of_staging], ids=lambda table: table.__name__)
def test_the_page_has_each_table_as_the_code_has_it(table):
    head, rows = table()
    text = PAGE.read_text(encoding="utf-8")
    before, _, after = text.partition(head)
    # A table ends at the first line that is no row of it.
    lines = after.splitlines(keepends=True)
    end = next((at for at, line in enumerate(lines) if not line.startswith("|")), len(lines))
    wanted = before + head + rows + "".join(lines[end:])
    if os.environ.get("UPDATE_GOLDEN") == "1":
        PAGE.write_text(wanted, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == wanted
