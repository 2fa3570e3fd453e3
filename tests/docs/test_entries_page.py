"""The page about entries has the table that the code has."""

import os
from pathlib import Path

from lakemark.model.ledger.entry import KINDS, branch_of

PAGE = Path(__file__).parents[2] / "docs" / "entries.md"
HEAD = "| kind | of | unknown means | body |\n|---|---|---|---|\n"
OF = {"run": "a run", "site": "the site", "both": "both"}


def table():
    rows = (
        f"| `{name}` | {OF[branch_of(name)]} | `{kind.unknown_means}` | {kind.body} |\n" for name, kind in KINDS.items()
    )
    return HEAD + "".join(rows)


def test_the_page_has_every_kind_as_the_code_has_it():
    text = PAGE.read_text(encoding="utf-8")
    before, _, _ = text.partition(HEAD)
    if os.environ.get("UPDATE_GOLDEN") == "1":
        PAGE.write_text(before + table(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == before + table()
