"""Removes objects that nothing uses from a DVC tier, so that no writer can lose one it counts on.

A writer claims (lakemark/records/<id>.json) before it looks at marks; a collector marks an object as going before it looks
at claims. So one of the two sees the other: a going object makes the writer wait, a claim makes the collector let go.
Whoever drops a record notes it (lakemark/dropped/) before the claim goes, and removes nothing; a collector looks at claims
before it looks at notes. So it sees one of the two, and what was used until just now has its whole grace before it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import islice

from lakemark.adapters import dvc_layout as layout
from lakemark.adapters.blobs import Blobs
from lakemark.adapters.dvc_claims import WORKERS, Claims, Used, count
from lakemark.adapters.dvc_layout import Claim, Mark
from lakemark.adapters.pool import run_all
from lakemark.errors import Corrupt
from lakemark.ports.store import Checkpoint


def oldest(blobs: Blobs, *, now: datetime) -> datetime | None:
    """Since when something has been dropped or condemned; `now` where nothing is; None where not all could be listed.

    Something whose removal is under way, but for a crash, counts as condemned for ever.
    """
    drops, marks = blobs.list(layout.DROPPED), blobs.list(layout.CONDEMNED)
    if not (drops.complete and marks.complete):
        return None

    def condemned_at(key: str) -> datetime:
        mark = _mark(blobs, key)
        if mark is None:
            return now
        return datetime.min.replace(tzinfo=mark.condemned_at.tzinfo) if mark.going else mark.condemned_at

    read = run_all((partial(condemned_at, key) for key in marks.sizes), workers=WORKERS)
    first = [layout.dropped_at(key) for key in islice(drops.sizes, 1)]
    return min((*read, *first), default=now)


def is_going(blobs: Blobs, name: str) -> bool:
    """Whether its removal is under way, or was and nobody cleared it up yet."""
    mark = _mark(blobs, layout.mark_key(name))
    return mark is not None and mark.going


def _mark(blobs: Blobs, key: str) -> Mark | None:
    data = blobs.get(key)
    return None if data is None else Mark.from_bytes(data, key=key)


@dataclass(frozen=True, slots=True)
class _Kept:
    """What may not go: `names`. leaving: note of a drop whose grace is over -> its object names, packed."""

    names: Used
    leaving: Mapping[str, bytes]


@dataclass(slots=True)
class _Seen:
    """Of the objects that are there, by name with their bytes: marked, and of drops whose grace is over. Of others the names.

    strays: directory objects that nobody accounts for.
    """

    marked: dict[str, int] = field(default_factory=dict)
    leaving: dict[str, int] = field(default_factory=dict)
    unused: list[str] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)


class Collector:
    """One pass over everything the tier has; it keeps little of what it lists: a tier may have millions of objects.

    most: once the drops that it looks after have so many objects, later ones wait for the next pass.
    """

    def __init__(self, blobs: Blobs, claims: Claims, *, most: int = 100_000) -> None:
        self._blobs = blobs
        self._claims = claims
        self._most = most
        self._own = secrets.token_hex(8)

    def run(self, *, now: datetime, grace: timedelta, needed: Iterable[Checkpoint]) -> int:
        """Bytes freed. `needed` is drawn from once."""
        before = now - grace
        kept = self._kept(before)
        marks = self._blobs.list(layout.CONDEMNED)
        if kept is None or not marks.complete:
            return 0
        wanted, lost = set[str](), Used()
        for checkpoint in needed:
            wanted.add(checkpoint.record.id)
            kept.names.add(checkpoint.objects.values())
            if not self._claims.has(checkpoint.record.id):
                lost.add(checkpoint.objects.values())
        names = {key.removeprefix(layout.CONDEMNED): key for key in marks.sizes}
        seen = self._look_through(kept, names)
        for name in seen.strays:
            kept.names.add({name} | self._members(name))
        due = {name: size for name, size in seen.leaving.items() if name not in kept.names}
        due |= {name: seen.marked[name] for name in self._settle_marks(names, kept.names, seen, before)}
        for name in seen.unused:
            if name not in kept.names:
                self._blobs.create(layout.mark_key(name), Mark(condemned_at=now).to_bytes())
        freed = self._remove(due, before, lost)
        self._forget_drops(kept.leaving, lost)
        self._forget_stale(wanted, before)
        return freed

    def _kept(self, before: datetime) -> _Kept | None:
        """None where a listing did not end complete. Claims first: see above."""
        names, drops = self._claims.used(), self._claims.drops()
        if names is None or drops is None:
            return None
        leaving: dict[str, bytes] = {}
        room = self._most
        for key, packed in sorted(drops.items()):
            if room > 0 and layout.dropped_at(key) <= before:
                leaving[key] = packed
                room -= count(packed)
            else:
                names.add_packed(packed)
        return _Kept(names, leaving)

    def _look_through(self, kept: _Kept, marks: Mapping[str, str]) -> _Seen:
        leaving, seen = Used(), _Seen()
        for packed in kept.leaving.values():
            leaving.add_packed(packed)
        for key, size_bytes in self._blobs.each(layout.OBJECTS):
            name = layout.object_name(key)
            if name is None:
                continue
            if name in marks:
                seen.marked[name] = size_bytes
            if name in kept.names:
                continue
            if name in leaving:
                seen.leaving[name] = size_bytes
            elif name.endswith(layout.DIR):
                seen.strays.append(name)
            elif name not in marks:
                seen.unused.append(name)
        return seen

    def _members(self, name: str) -> frozenset[str]:
        data = self._blobs.get(layout.object_key(name))
        if data is None:
            return frozenset()
        try:
            return layout.dir_members(data)
        except ValueError as error:
            raise Corrupt(
                f"{layout.object_key(name)} is of no known record and can't be read: {error}",
                advice="Nothing is deleted from the tier until you have removed it or put it right.",
            ) from error

    def _settle_marks(self, marks: Mapping[str, str], kept: Used, seen: _Seen, before: datetime) -> Iterator[str]:
        """Takes marks back from what is used or gone; answers those whose time has come."""
        for name, key in marks.items():
            if name not in seen.marked or name in kept:
                self._blobs.delete(key)
                continue
            mark = _mark(self._blobs, key)
            if mark is not None and (mark.going or mark.condemned_at <= before):
                yield name

    def _remove(self, due: Mapping[str, int], before: datetime, left: Used) -> int:
        """Bytes freed; directory objects go first. Adds to `left` what is left to another pass.

        After every mark says going, looks at claims and drops once more; then at each mark, which others may have taken away.
        """
        going = Mark(condemned_at=before, going=True, by=self._own).to_bytes()
        _each_done(partial(self._blobs.replace, layout.mark_key(name), going) for name in due)
        kept = self._kept(before) if due else None
        if kept is None:
            left.add(due)
            return 0
        spared = [name for name in due if name in kept.names]
        left.add(spared)
        _each_done(partial(self._blobs.delete, layout.mark_key(name)) for name in spared)
        freed = 0
        for dirs in (True, False):
            names = [name for name in due.keys() - spared if name.endswith(layout.DIR) is dirs]
            for name, gone in run_all((partial(self._removed, name) for name in names), workers=WORKERS):
                freed += due[name] if gone else 0
                left.add([] if gone else [name])
        return freed

    def _removed(self, name: str) -> tuple[str, bool]:
        """False where another pass took it over, or saw a claim: a writer may count on the object by now."""
        if not self._is_own(name):
            return name, False
        self._blobs.delete(layout.object_key(name))
        self._blobs.delete(layout.mark_key(name))
        return name, True

    def _forget_drops(self, over: Mapping[str, bytes], left: Used) -> None:
        """Those of which everything is gone, or in use by what has its own note or claim."""
        _each_done(partial(self._blobs.delete, key) for key, packed in over.items() if not left.has_any(packed))

    def _forget_stale(self, wanted: set[str], before: datetime) -> None:
        """Claims of puts that never ended: no directory object, nobody needs them, older than the grace."""
        for record in self._claims.records():
            key = layout.claim_key(record)
            data = None if record in wanted else self._blobs.get(key)
            with suppress(Corrupt):
                claim = None if data is None else Claim.from_bytes(data, key=key)
                name = None if claim is None or claim.claimed_at > before else claim.objects.get("dir")
                if name is not None and not self._is_there(name):
                    self._forget(key, data, name=name, before=before)

    def _forget(self, key: str, data: bytes | None, *, name: str, before: datetime) -> None:
        """Its writer may live, or be back. It claims, and writes the directory object, before it looks for marks."""
        mark = layout.mark_key(name)
        self._blobs.replace(mark, Mark(condemned_at=before, going=True, by=self._own).to_bytes())
        if self._blobs.get(key) == data and not self._is_there(name) and self._is_own(name):
            self._blobs.delete(key)
        self._blobs.delete(mark)

    def _is_own(self, name: str) -> bool:
        """Whether its mark is as this pass left it: then every writer that claimed since the look at claims waits."""
        mark = _mark(self._blobs, layout.mark_key(name))
        return mark is not None and mark.by == self._own

    def _is_there(self, name: str) -> bool:
        return self._blobs.size(layout.object_key(name)) is not None


def _each_done(tasks: Iterable[partial[None]]) -> None:
    for _ in run_all(tasks, workers=WORKERS):
        pass
