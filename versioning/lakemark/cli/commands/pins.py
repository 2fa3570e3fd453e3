"""`pins`: which data commits are kept alive, how well, and for whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakemark.cli.output import short, table, told
from lakemark.cli.session import Answer, Session, session
from lakemark.model.views import pin_views

if TYPE_CHECKING:
    from lakemark.ports import PinSeen


def pins() -> Answer:
    """List pinned data commits, what each pin is worth now, and who needs it.

    The strength is asked of the server, and of each repository one guard is tried; where the server is out of reach it is
    not known, and the rest is listed all the same.
    """
    from lakemark.services.data.pins import needed

    here = session()
    wanted = needed(here.site)
    seen = _seen(here)
    rows: list[dict[str, Any]] = []
    for row in pin_views(here.site.ledger.site()):
        repository, commit = row["repository"], row["commit"]
        found = seen.get(str(row["pin"]))
        rows.append(
            {
                "repository": repository,
                "commit": commit,
                "strength": str(found.strength) if found is not None else None,
                "needed_by": wanted.get((str(repository), str(commit)), []),
                "since": row["since"],
                "pin": row["pin"],
                "state": row["state"],
                "why": found.why if found is not None else None,
            }
        )
    shown = [
        (
            f"{row['repository']}@{short(row['commit'])}",
            row["strength"] or "not known",
            row["state"],
            told(str(row["since"])),
            _needed(row["needed_by"]),
        )
        for row in rows
    ]
    return Answer(
        document={"pins": rows}, lines=table(("data", "strength", "", "since", "needed by"), shown) or ["no pin"]
    )


def _seen(here: Session) -> dict[str, PinSeen]:
    """By branch, of every repository that can be looked at."""
    from lakemark.services.data.note import noted
    from lakemark.services.data.pins import looked_at

    if here.site.data is None:
        return {}
    # An unpinned one has no branch to look at.
    live = [pin for pin in here.site.ledger.site().pins.values() if pin.state != "unpinned"]
    looked = looked_at(here.site.data, live, proven=noted(here.site).proven)
    for what, error in looked.failed:
        here.note(f"{what}: what they are worth is not known: {error}")
    return looked.seen


def _needed(who: list[str]) -> str:
    first = ", ".join(who[:2]) or "nobody"
    more = len(who) - 2
    return f"{first} and {more} more" if more > 0 else first
