"""What the last pass saw of stores, so that `status` can tell without asking them.

That they remove things by themselves, or may; that they took nothing.

`<home>/stores.json`:

    {"format": "lakemark.stores/1",
     "expiring": {"warm": {"rule": "a-week", "known": true, "since": "…Z", "at": "…Z"}},
     "refusing": {"warm": {"why": "…", "since": "…Z", "at": "…Z"}}}

It is this node's, and disposable: the next pass writes it anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Final, Self

from lakemark.errors import LakemarkError
from lakemark.model.values.canonical import JSON
from lakemark.model.values.fields import Fields
from lakemark.model.values.instants import to_text
from lakemark.ports import Expiry, Site

FORMAT: Final = "lakemark.stores/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiring:
    """A store that removes what lies there by itself, or whose rules can't be read. since: first seen so. at: last."""

    expiry: Expiry
    since: datetime
    at: datetime

    def as_json(self) -> dict[str, JSON]:
        expiry = self.expiry
        return {"rule": expiry.rule, "known": expiry.known, "since": to_text(self.since), "at": to_text(self.at)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusing:
    """A tier that took nothing, in words. since: first seen so. at: last."""

    why: str
    since: datetime
    at: datetime

    def as_json(self) -> dict[str, JSON]:
        return {"why": self.why, "since": to_text(self.since), "at": to_text(self.at)}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreNote:
    """See the module. Both by tier."""

    expiring: Mapping[str, Expiring] = field(default_factory=dict)
    refusing: Mapping[str, Refusing] = field(default_factory=dict)

    @classmethod
    def read(cls, document: JSON) -> Self:
        """Raises ValueError."""
        read = Fields(document, "the note of stores")
        read.format(FORMAT)
        return cls(
            expiring={name: _row(item) for name, item in read.mapping("expiring").items()},
            refusing={name: _refusing(item) for name, item in read.mapping("refusing").items()},
        )

    def as_json(self) -> dict[str, JSON]:
        return {
            "format": FORMAT,
            "expiring": {name: one.as_json() for name, one in self.expiring.items()},
            "refusing": {name: one.as_json() for name, one in self.refusing.items()},
        }


def _row(item: JSON) -> Expiring:
    row = Fields(item, "a store that removes things by itself")
    expiry = Expiry(rule=row.text("rule"), known=row.flag("known"))
    return Expiring(expiry=expiry, since=row.instant("since"), at=row.instant("at"))


def _refusing(item: JSON) -> Refusing:
    row = Fields(item, "a tier that took nothing")
    return Refusing(why=row.text("why"), since=row.instant("since"), at=row.instant("at"))


def place_of(home: Path) -> Path:
    """Where the note lies."""
    return home / "stores.json"


def note_stores(site: Site, tiers: Iterable[str], *, refusing: Mapping[str, str] = MappingProxyType({})) -> None:
    """Asks the stores of `tiers` whether they remove things by themselves, and notes it.

    refusing: tiers that took nothing in this pass, and why; it is over for the others.
    Raises nothing for one that does not answer, nor for a note that can't be written: what was seen of it before stays.
    """
    path, at = place_of(site.home), site.now()
    try:
        before = StoreNote.read(site.notes.load(path))
    except ValueError:
        before = StoreNote()
    now = dict(before.expiring)
    for name in tiers:
        try:
            expiry = site.store(name).expires()
        except LakemarkError:
            continue  # whoever needs its answer says so
        # It answered, so what was seen before is over unless it says so again; one that did not answer keeps its note.
        known = now.pop(name, None)
        if expiry is not None:
            since = known.since if known is not None and known.expiry.known == expiry.known else at
            now[name] = Expiring(expiry=expiry, since=since, at=at)
    shut = {}
    for name, why in sorted(refusing.items()):
        same = before.refusing.get(name)
        shut[name] = Refusing(why=why, since=at if same is None else same.since, at=at)
    note = StoreNote(expiring=now, refusing=shut)
    # A site with nothing to say has no file; one that had says with an empty note that it is over.
    if note != StoreNote() or before != StoreNote():
        site.notes.save(path, note.as_json())
