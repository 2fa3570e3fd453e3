"""Removes objects that nothing uses from a DVC tier, so that no writer can lose one it counts on.

A writer claims (lakemark/records/<id>.json) before it looks at marks; a collector marks an object as going before it looks
at claims. So one of the two sees the other: a going object makes the writer wait, a claim makes the collector let go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from lakemark.adapters import dvc_layout as layout
from lakemark.adapters.blobs import Blobs
from lakemark.adapters.dvc_layout import Claim, Mark
from lakemark.adapters.pool import run_all
from lakemark.errors import Corrupt
from lakemark.ports.store import Checkpoint

WORKERS: Final = 4


def all_claims(
    blobs: Blobs, *, known: Mapping[str, Mapping[str, str]] | None = None
) -> dict[str, frozenset[str]] | None:
    """Key of each claim -> the objects it uses; None where a listing did not end complete.

    known: record id -> objects, of claims that need not be read again. Raises Corrupt where a claim can't be read.
    """
    found: dict[str, frozenset[str]] = {}
    unread = []
    for prefix in (layout.RECORDS, layout.PARTS):
        names = blobs.list(prefix)
        if not names.complete:
            return None
        for key in names.sizes:
            objects = (known or {}).get(key.removeprefix(layout.RECORDS).removesuffix(".json"))
            if objects is None:
                unread.append(key)
            else:
                found[key] = frozenset(objects.values())
    read = run_all((partial(_used, blobs, key) for key in unread), workers=WORKERS)
    return found | {key: used for key, used in read if used is not None}


def _used(blobs: Blobs, key: str) -> tuple[str, frozenset[str] | None]:
    data = blobs.get(key)
    return key, None if data is None else layout.used_names(data, key=key)


class Collector:
    """One pass over a tier. It deletes nothing unless every listing it relies on ended complete."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    def run(self, *, now: datetime, grace: timedelta, needed: Iterable[Checkpoint]) -> int:
        """Bytes freed."""
        needed = tuple(needed)
        claims = all_claims(self._blobs)
        objects = self._blobs.list(layout.OBJECTS)
        marks = self._blobs.list(layout.CONDEMNED)
        if claims is None or not objects.complete or not marks.complete:
            return 0
        sizes = {layout.object_name(key): size for key, size in objects.sizes.items()}
        there = {name: size for name, size in sizes.items() if name is not None}
        used = self._used(claims, needed, there)
        due = list(self._settle_marks(marks.sizes, used, there, now - grace))
        for name in there.keys() - used - {key.removeprefix(layout.CONDEMNED) for key in marks.sizes}:
            self._blobs.create(layout.mark_key(name), Mark(condemned_at=now).to_bytes())
        freed = self._remove(due, there) if due else 0
        self._forget_stale(needed, there, now - grace)
        return freed

    def _used(
        self, claims: Mapping[str, frozenset[str]], needed: Iterable[Checkpoint], there: Mapping[str, int]
    ) -> frozenset[str]:
        """By claims, by what is needed, and by directory objects that nobody accounts for: they are kept with their members."""
        used = {name for names in claims.values() for name in names}
        used |= {name for checkpoint in needed for name in checkpoint.objects.values()}
        for name in [name for name in there if name.endswith(layout.DIR) and name not in used]:
            used |= {name} | self._members(name)
        return frozenset(used)

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

    def _settle_marks(
        self,
        marks: Iterable[str],
        used: frozenset[str],
        there: Mapping[str, int],
        before: datetime,
    ) -> Iterator[str]:
        """Takes marks back from what is used or gone; answers those whose time has come."""
        for key in marks:
            name = key.removeprefix(layout.CONDEMNED)
            if name in used or name not in there:
                self._blobs.delete(key)
                continue
            data = self._blobs.get(key)
            if data is not None:
                mark = Mark.from_bytes(data, key=key)
                if mark.condemned_at <= before:
                    self._blobs.replace(key, mark.started().to_bytes())
                    yield name

    def _remove(self, due: Iterable[str], there: Mapping[str, int]) -> int:
        """After every mark says going, looks at the claims once more."""
        claims = all_claims(self._blobs)
        freed = 0
        used = {name for names in (claims or {}).values() for name in names}
        for name in due:
            if claims is None:
                continue
            if name not in used:
                self._blobs.delete(layout.object_key(name))
                freed += there[name]
            self._blobs.delete(layout.mark_key(name))
        return freed

    def _forget_stale(self, needed: Iterable[Checkpoint], there: Mapping[str, int], before: datetime) -> None:
        """Claims of puts that never ended: no directory object, nobody needs them, older than the grace."""
        wanted = {layout.claim_key(checkpoint.record.id) for checkpoint in needed}
        for key in self._blobs.list(layout.RECORDS).sizes.keys() - wanted:
            data = self._blobs.get(key)
            with suppress(Corrupt):
                claim = None if data is None else Claim.from_bytes(data, key=key)
                if claim is not None and claim.objects.get("dir") not in there and claim.claimed_at <= before:
                    self._blobs.delete(key)
