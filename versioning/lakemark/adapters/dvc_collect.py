"""Removes objects that nothing uses from a DVC tier, so that no writer can lose one it counts on.

A writer claims (lakemark/records/<id>.json) before it looks at marks; a collector marks an object as going before it looks
at claims. So one of the two sees the other: a going object makes the writer wait, a claim makes the collector let go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from lakemark.adapters import dvc_layout as layout
from lakemark.adapters.blobs import Blobs
from lakemark.adapters.dvc_claims import WORKERS, Claims, Used
from lakemark.adapters.dvc_layout import Claim, Mark
from lakemark.adapters.pool import run_all
from lakemark.errors import Corrupt
from lakemark.ports.store import Checkpoint


def oldest_mark(blobs: Blobs, *, now: datetime) -> datetime | None:
    """Since when the first condemned object has been so; `now` where none is; None where they could not all be listed.

    Something whose removal is under way, but for a crash, counts as condemned for ever; not a directory object, which goes
    by a drop.
    """
    marks = blobs.list(layout.CONDEMNED)
    if not marks.complete:
        return None

    def condemned_at(key: str) -> datetime | None:
        mark = _mark(blobs, key)
        if mark is None:
            return None
        for_ever = mark.going and not key.endswith(layout.DIR)
        return datetime.min.replace(tzinfo=mark.condemned_at.tzinfo) if for_ever else mark.condemned_at

    read = run_all((partial(condemned_at, key) for key in marks.sizes), workers=WORKERS)
    return min((at for at in read if at is not None), default=now)


def is_going(blobs: Blobs, name: str) -> bool:
    """Whether its removal is under way now. A directory object that is gone already does not go again."""
    mark = _mark(blobs, layout.mark_key(name))
    if mark is None or not mark.going:
        return False
    return not name.endswith(layout.DIR) or blobs.size(layout.object_key(name)) is not None


def _mark(blobs: Blobs, key: str) -> Mark | None:
    data = blobs.get(key)
    return None if data is None else Mark.from_bytes(data, key=key)


@dataclass(slots=True)
class _Seen:
    """What a pass over the objects found, beside what is in use. marked: of those with a mark, by name, their sizes."""

    marked: dict[str, int] = field(default_factory=dict)
    unused: list[str] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)


class Collector:
    """One pass over a tier. It deletes nothing unless every listing it relies on ended complete.

    It holds little of what it lists: a tier may have millions of objects.
    """

    def __init__(self, blobs: Blobs, claims: Claims) -> None:
        self._blobs = blobs
        self._claims = claims

    def run(self, *, now: datetime, grace: timedelta, needed: Iterable[Checkpoint]) -> int:
        """Bytes freed. `needed` is drawn from once."""
        used = self._claims.used()
        marks = self._blobs.list(layout.CONDEMNED)
        if used is None or not marks.complete:
            return 0
        wanted: set[str] = set()
        for checkpoint in needed:
            used.add(checkpoint.objects.values())
            wanted.add(layout.claim_key(checkpoint.record.id))
        names = {key.removeprefix(layout.CONDEMNED): key for key in marks.sizes}
        seen = self._look(used, names)
        for name in seen.strays:
            used.add({name} | self._members(name))
        due = list(self._settle_marks(names, used, seen, now - grace))
        for name in seen.unused:
            if name not in used:
                self._blobs.create(layout.mark_key(name), Mark(condemned_at=now).to_bytes())
        freed = self._remove(due, seen) if due else 0
        self._forget_stale(wanted, now - grace)
        return freed

    def _look(self, used: Used, marked: Iterable[str]) -> _Seen:
        """strays: directory objects that nobody accounts for: they are kept with their members."""
        marks, seen = frozenset(marked), _Seen()
        for key, size_bytes in self._blobs.each(layout.OBJECTS):
            name = layout.object_name(key)
            if name is None:
                continue
            if name in marks:
                seen.marked[name] = size_bytes
            if name in used:
                continue
            if name.endswith(layout.DIR):
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

    def _settle_marks(self, marks: dict[str, str], used: Used, seen: _Seen, before: datetime) -> Iterator[str]:
        """Takes marks back from what is used or gone; answers those whose time has come. A drop's own may be under way."""
        for name, key in marks.items():
            spared = name not in seen.marked or name in used
            mark = None if spared and not name.endswith(layout.DIR) else _mark(self._blobs, key)
            if mark is not None and mark.condemned_at > before:
                continue
            if spared:
                self._blobs.delete(key)
            elif mark is not None:
                self._blobs.replace(key, mark.started().to_bytes())
                yield name

    def _remove(self, due: Iterable[str], seen: _Seen) -> int:
        """After every mark says going, looks at the claims once more; then at each mark, which others may have taken away."""
        used = self._claims.used()
        if used is None:
            return 0
        freed = 0
        for name in due:
            if name not in used:
                if not is_going(self._blobs, name):
                    continue  # another pass was faster, or saw a claim: a writer may count on the object by now
                self._blobs.delete(layout.object_key(name))
                freed += seen.marked[name]
            self._blobs.delete(layout.mark_key(name))
        return freed

    def _forget_stale(self, wanted: set[str], before: datetime) -> None:
        """Claims of puts that never ended: no directory object, nobody needs them, older than the grace."""
        for key in self._blobs.list(layout.RECORDS).sizes.keys() - wanted:
            data = self._blobs.get(key)
            with suppress(Corrupt):
                claim = None if data is None else Claim.from_bytes(data, key=key)
                if claim is not None and claim.claimed_at <= before and not self._has_dir(claim):
                    self._blobs.delete(key)

    def _has_dir(self, claim: Claim) -> bool:
        name = claim.objects.get("dir")
        return name is not None and self._blobs.size(layout.object_key(name)) is not None
