"""`pins`: which data commits are kept alive, how well, and for whom."""

from __future__ import annotations

from typing import Any

from lakemark.cli.output import short, table
from lakemark.cli.session import Answer, session
from lakemark.errors import LakemarkError
from lakemark.model.views import pin_views


def pins() -> Answer:
    """List pinned data commits, what each pin is worth now, and who needs it.

    The strength is asked of the server; where that is out of reach it is not known, and the rest is listed all the same.
    """
    from lakemark.services.pins import needed

    here = session()
    wanted = needed(here.site)
    rows: list[dict[str, Any]] = []
    silent: str | None = None
    for row in pin_views(here.site.ledger.site()):
        repository, commit = row["repository"], row["commit"]
        strength: str | None = None
        if here.site.data is not None and silent is None:
            try:
                strength = str(here.site.data.pin_strength(str(repository), str(commit), branch=str(row["pin"])))
            except LakemarkError as error:
                silent = str(error)
                here.note(f"strengths are not known: {error}")
        rows.append(
            {
                "repository": repository,
                "commit": commit,
                "strength": strength,
                "needed_by": wanted.get((str(repository), str(commit)), []),
                "since": row["since"],
                "pin": row["pin"],
                "state": row["state"],
            }
        )
    shown = [
        (
            f"{row['repository']}@{short(row['commit'])}",
            row["strength"] or "not known",
            row["state"],
            row["since"],
            _needed(row["needed_by"]),
        )
        for row in rows
    ]
    return Answer(document={"pins": rows}, lines=table(("data", "strength", "", "since", "needed by"), shown))


def _needed(who: list[str]) -> str:
    first = ", ".join(who[:2]) or "nobody"
    more = len(who) - 2
    return f"{first} and {more} more" if more > 0 else first
