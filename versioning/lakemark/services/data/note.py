"""What the last look at data versions found, noted so that `status` can tell while their server is away.

`<home>/data-versions.json`:

    {"format": "lakemark.data-versions/1", "at": "…Z",
     "wrong": [{"what": "the pin of data@0a1b…", "why": "…", "next": "…", "since": "…Z", "unknown": false}],
     "proven": {"pin-0a1b…-nonce": "the head at which its whole guard was read"}}

It is this node's, and disposable: the next look writes it anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Final, Self

from lakemark.model.values.canonical import JSON
from lakemark.model.values.fields import Fields
from lakemark.model.values.instants import to_text
from lakemark.ports import Site

FORMAT: Final = "lakemark.data-versions/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataWrong:
    """Something of data versions that is not as it should be. since: when a look first found it so. next: what to do.

    unknown: nobody answered, or nobody was asked any more: it may be right.
    """

    what: str
    why: str
    next: str
    since: datetime
    unknown: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DataNote:
    """See the module. at: when it was looked last; None: never."""

    at: datetime | None = None
    wrong: tuple[DataWrong, ...] = ()
    proven: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, document: JSON) -> Self:
        """Raises ValueError."""
        read = Fields(document, "the note of data versions")
        read.format(FORMAT)
        rows = [Fields(item, "something wrong with data") for item in read.items("wrong")]
        proven = read.mapping("proven")
        return cls(
            at=read.optional_instant("at"),
            wrong=tuple(
                DataWrong(
                    what=row.text("what"),
                    why=row.text("why"),
                    next=row.text("next"),
                    since=row.instant("since"),
                    unknown=row.flag("unknown", default=False),
                )
                for row in rows
            ),
            proven={name: head for name, head in proven.items() if isinstance(head, str)},
        )

    def as_json(self) -> dict[str, JSON]:
        wrong: list[JSON] = [
            {
                "what": one.what,
                "why": one.why,
                "next": one.next,
                "since": to_text(one.since),
                "unknown": one.unknown,
            }
            for one in self.wrong
        ]
        at = None if self.at is None else to_text(self.at)
        return {"format": FORMAT, "at": at, "wrong": wrong, "proven": dict(self.proven)}


def place_of(home: Path) -> Path:
    """Where the note lies."""
    return home / "data-versions.json"


def noted(site: Site) -> DataNote:
    """The note; an empty one where there is none that can be read."""
    try:
        return DataNote.read(site.notes.load(place_of(site.home)))
    except ValueError:
        return DataNote()


def keep_note(site: Site, wrong: Iterable[DataWrong], *, proven: Mapping[str, str], before: DataNote) -> None:
    """Writes what was found. What was wrong before already keeps its `since`."""
    # How long it is wrong is what tells trouble from a server that restarts.
    since = {one.what: one.since for one in before.wrong}
    rows = tuple(replace(one, since=since.get(one.what, one.since)) for one in wrong)
    note = DataNote(at=site.now(), wrong=rows, proven=proven)
    site.notes.save(place_of(site.home), note.as_json())
