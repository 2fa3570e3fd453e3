"""Check the ledger: a bounded share of its entries is read whole in each pass, and what can't be read is named until it can.

Nothing else reads an old entry's objects until somebody needs them, and then they may be the only ones. The note beside
the configuration says where the next pass goes on:

    {"format": "lakemark.ledger-check/1", "branch": "r1", "after": 200, "at": "…Z", "ended_at": "…Z" or null,
     "broken": [{"branch", "sequence", "file", "record", "step", "why", "since"}]}

It is this node's, as its copy of the ledger is, and disposable: without it the next pass begins anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, Self

from lakemark.errors import LakemarkError
from lakemark.model.ledger.entry import SITE
from lakemark.model.values.canonical import JSON
from lakemark.model.values.fields import Fields
from lakemark.model.values.instants import to_text
from lakemark.ports import Mark, MarkKind, Site
from lakemark.ports.ledger import BrokenEntry

FORMAT: Final = "lakemark.ledger-check/1"
EVERY: Final = timedelta(minutes=10)
SHARE: Final = 200
"""Entries of one pass, each a fraction of a millisecond: 300,000 of them are read within eleven days."""
MANIFEST: Final = "manifest.json"
_LOOKED: Final = Mark(MarkKind.LEDGER_CHECKED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """An entry of which something can't be read. since: when that was seen first. step: of its record, where that is known."""

    entry: BrokenEntry
    step: int | None
    since: datetime

    @property
    def shown(self) -> str:
        """The record's run and step, or the entry, and what of it."""
        one = self.entry
        what = one.file or "all of it"
        if one.record is None:
            return f"entry {one.sequence} of {one.branch}: {what}"
        return f"{one.branch}@{self.step} ({one.record[:12]}): {what} of entry {one.sequence}"

    def as_json(self) -> dict[str, JSON]:
        one = self.entry
        return {
            "branch": one.branch,
            "sequence": one.sequence,
            "file": one.file,
            "record": one.record,
            "step": self.step,
            "why": one.why,
            "since": to_text(self.since),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerNote:
    """See the module. ended_at: when the last look that began with the first entry came to the last one."""

    branch: str = ""
    after: int = 0
    at: datetime | None = None
    ended_at: datetime | None = None
    broken: tuple[Broken, ...] = ()

    @classmethod
    def read(cls, document: JSON) -> Self:
        """Raises ValueError."""
        read = Fields(document, "the note of the ledger's check")
        read.format(FORMAT)
        return cls(
            branch=read.text("branch"),
            after=read.integer("after"),
            at=read.optional_instant("at"),
            ended_at=read.optional_instant("ended_at"),
            broken=tuple(_row(item) for item in read.items("broken")),
        )

    def as_json(self) -> dict[str, JSON]:
        return {
            "format": FORMAT,
            "branch": self.branch,
            "after": self.after,
            "at": to_text(self.at) if self.at else None,
            "ended_at": to_text(self.ended_at) if self.ended_at else None,
            "broken": [one.as_json() for one in self.broken],
        }


def _row(item: JSON) -> Broken:
    row = Fields(item, "an entry that can't be read")
    entry = BrokenEntry(
        branch=row.text("branch"),
        sequence=row.integer("sequence"),
        file=row.text("file"),
        why=row.text("why"),
        record=row.optional_text("record"),
    )
    return Broken(entry=entry, step=row.optional_integer("step"), since=row.instant("since"))


def place_of(home: Path) -> Path:
    """Where the note lies."""
    return home / "ledger-check.json"


def check_ledger(site: Site, *, share: int = SHARE, now_due: bool = False) -> list[str]:
    """Reads the next `share` entries whole, and again those that were broken; a sentence for each that was mended or is new.

    A manifest that can't be read is taken from a tier, proven by the record's id, and written back. Nothing else is
    changed. now_due: also where the last pass was just now. Raises what reading a branch's tip does.
    """
    path, now = place_of(site.home), site.now()
    looked_at = site.journal.marks.get(_LOOKED)  # asked each round: the note is only read when it is time
    # An instant of the future is a clock that was set back: it puts nothing off.
    if not now_due and looked_at is not None and timedelta(0) <= now - looked_at < EVERY:
        return []
    before = _noted(site, path)
    said: list[str] = []
    known = {(one.entry.branch, one.entry.sequence, one.entry.file): one for one in before.broken}
    broken: dict[tuple[str, int, str], Broken] = {}
    # A bounded share: a pass must not read a ledger of years before it commits today's saves.
    reached, ended = _next(site, before, share)
    # What was broken is looked at in each pass: a tier that is mounted again may have brought it back.
    spans = [(branch, sequence - 1, 1) for branch, sequence, _ in known]
    for branch, after, count in dict.fromkeys([*spans, *reached]):
        for one in _broken(site, branch, after, count):
            key = (one.branch, one.sequence, one.file)
            seen = known.get(key)
            broken[key] = Broken(entry=one, step=_step(site, one), since=seen.since if seen else now)
            if seen is None:
                said.append(f"the ledger: {broken[key].shown} can't be read: {one.why}")
    said += [f"the ledger: {one.shown} can be read again" for key, one in known.items() if key not in broken]
    last = reached[-1] if reached else ("", 0, 0)
    note = LedgerNote(
        branch="" if ended else last[0],
        after=0 if ended else last[1] + last[2],
        at=now,
        ended_at=now if ended else before.ended_at,
        broken=tuple(broken.values()),
    )
    site.notes.save(path, note.as_json())
    site.journal.marks.set(_LOOKED, at=now)
    return said


def _noted(site: Site, path: Path) -> LedgerNote:
    """An empty note where there is none that can be read: then all is looked at from the beginning."""
    try:
        return LedgerNote.read(site.notes.load(path))
    except ValueError:
        return LedgerNote()


def _next(site: Site, note: LedgerNote, share: int) -> tuple[list[tuple[str, int, int]], bool]:
    """(branch, after which sequence, how many) of the next `share` entries, and whether the last one is among them."""
    spans: list[tuple[str, int, int]] = []
    for branch in sorted(site.ledger.tips()):
        if branch < note.branch:
            continue
        after = note.after if branch == note.branch else 0
        state = site.ledger.site() if branch == SITE else site.ledger.run(branch)
        count = min(share, state.sequence - after)
        if count > 0:
            spans.append((branch, after, count))
            share -= count
        # Where this share ends, the next pass begins.
        if count < state.sequence - after:
            return spans, False
    return spans, True


def _broken(site: Site, branch: str, after: int, count: int) -> Iterator[BrokenEntry]:
    """What stays broken once the manifests among it were asked for: reading one that a tier has writes it back."""
    for one in site.ledger.broken(branch, after=after, limit=count):
        if one.file == MANIFEST and one.record is not None:
            # A tier that has it may be away now; it stays named, and is asked for again.
            with suppress(LakemarkError):
                site.ledger.manifest(branch, one.record)
                if one not in site.ledger.broken(branch, after=one.sequence - 1, limit=1):
                    continue
        yield one


def _step(site: Site, one: BrokenEntry) -> int | None:
    found = site.ledger.run(one.branch).records.get(one.record or "") if one.branch != SITE else None
    return None if found is None else found.record.step
