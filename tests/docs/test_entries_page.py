"""The page about entries has the table that the code has."""

import os
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from lakemark.model.entries.table import KINDS

PAGE = Path(__file__).parents[2] / "docs" / "entries.md"
HEAD = "| kind | of | unknown means | body |\n|---|---|---|---|\n"
OF = {"run": "a run", "site": "the site", "both": "both"}


def keys(cls):
    hints = get_type_hints(cls, localns={"JSON": Any}, include_extras=True)
    return ", ".join(f"{field.name.removesuffix('_')}{shape(hints[field.name])}" for field in fields(cls))


def shape(hint):
    origin, of = get_origin(hint), get_args(hint)
    if origin is Annotated:
        note = next((said for said in of[1:] if isinstance(said, str)), None)
        inner = shape(of[0])
        if note is None:
            return inner
        return inner[:-2] + f"{{{note}}}" if inner.endswith("{}") else f"{inner} ({note})"
    if origin in (Union, types.UnionType):
        return shape(next(one for one in of if one is not type(None)))
    if origin is tuple:
        return f"[{shape(of[0])}]"
    if origin is Mapping:
        return "{}"
    # What keeps keys that it does not know is a format of its own, and told elsewhere.
    if is_dataclass(hint) and "extra" not in {field.name for field in fields(hint)}:
        return f"{{{keys(hint)}}}"
    return ""


def table():
    rows = []
    for name, kind in KINDS.items():
        body = "; ".join(said for said in (keys(kind.body), kind.note) if said)
        rows.append(f"| `{name}` | {OF[kind.branch]} | `{kind.unknown_means}` | {body} |\n")
    return HEAD + "".join(rows)


def test_the_page_has_every_kind_as_the_code_has_it():
    text = PAGE.read_text(encoding="utf-8")
    before, _, _ = text.partition(HEAD)
    if os.environ.get("UPDATE_GOLDEN") == "1":
        PAGE.write_text(before + table(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == before + table()
