"""Removes objects that nothing uses from a DVC tier, so that no writer can lose one it counts on.

A writer claims (lakemark/records/<id>.json) before it looks for notes of removals; a collector notes which objects it removes
before it looks at claims. So one of the two sees the other: a note makes the writer wait, a claim makes the collector let go.
How long a note holds, and what becomes of one whose pass was stopped or died: see `dvc_going`.
Whoever drops a record notes it (lakemark/dropped/) before the claim goes, and removes nothing; a collector looks at claims
before it looks at notes. So it sees one of the two, and what was used until just now has its whole grace before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from lakemark.adapters.disk.objects import Blobs, TooLate
from lakemark.adapters.disk.pool import run_all
from lakemark.adapters.dvc import layout
from lakemark.adapters.dvc.claims import WORKERS, Claims, Used, count
from lakemark.adapters.dvc.layout import Claim, Mark
from lakemark.adapters.dvc.removals import LASTS_SECONDS, Going, RemovalTurn
from lakemark.errors import Corrupt, NoRoom, StoreUnavailable
from lakemark.ports.store import Checkpoint

# Of the time that a note is young for: the rest is for reading claims anew and for the removals.
_ANNOUNCING_SHARE: Final = 0.25
# A store that is too slow this often is left to the next pass.
_BEGUN_ANEW: Final = 3


def oldest(blobs: Blobs, *, now: datetime) -> datetime | None:
    """Since when something has been dropped or condemned; `now` where nothing is; None where not all could be listed.

    What is being removed, or was when its pass died, counts as condemned since ever.
    """
    drops, marks = blobs.list(layout.DROPPED), blobs.list(layout.CONDEMNED)
    if not (drops.complete and marks.complete):
        return None
    ever = datetime.min.replace(tzinfo=now.tzinfo)

    def condemned_at(key: str) -> datetime:
        mark = _mark(blobs, key)
        if mark is None:
            return now
        return ever if mark.going else mark.condemned_at

    said = layout.marks(marks.sizes)
    if any(going for _, going in said.values()):
        return ever
    read = run_all((partial(condemned_at, key) for key in said), workers=WORKERS)
    first = next((at for key in drops.sizes if (at := layout.dropped_at(key)) is not None), now)
    return min((*read, first), default=now)


def is_going(blobs: Blobs, key: str) -> bool:
    """Whether the mark of that key is one of versions before 0.2 that says it is being removed."""
    mark = _mark(blobs, key)
    return mark is not None and mark.going


def _mark(blobs: Blobs, key: str) -> Mark | None:
    """None where it is gone, or can't be read: then its object is condemned anew, and has its whole grace before it."""
    data = blobs.get(key)
    try:
        return None if data is None else Mark.from_bytes(data, key=key)
    except Corrupt:
        return None


@dataclass(frozen=True, slots=True)
class _Kept:
    """What may not go: `names`. leaving: note of a drop whose grace is over -> its object names, packed."""

    names: Used
    leaving: Mapping[str, bytes]


@dataclass(slots=True)
class _Seen:
    """Objects that are there. marked, leaving (of drops whose grace is over): name -> bytes. unused: names alone.

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

    def __init__(self, blobs: Blobs, claims: Claims, *, going: Going, most: int = 100_000) -> None:
        self._blobs = blobs
        self._claims = claims
        self._going = going
        self._most = most

    def run(self, *, now: datetime, grace: timedelta, needed: Iterable[Checkpoint]) -> int:
        """Bytes freed. `needed` is drawn from once. What dead passes left is waited for, at most a minute, and cleared up."""
        before = now - grace
        kept = self._kept(before)
        marks = self._blobs.list(layout.CONDEMNED)
        # On half a listing nothing is removed: what is missing from it may be a claim.
        if kept is None or not marks.complete:
            return 0
        wanted, lost = set[str](), Used()
        for checkpoint in needed:
            wanted.add(checkpoint.record.id)
            # By the ledger too, not by claims alone: a claim may have got lost.
            kept.names.add(checkpoint.objects.values())
            if not self._claims.has(checkpoint.record.id):
                lost.add(checkpoint.objects.values())
        said = layout.marks(marks.sizes)
        names = {name: key for key, (name, going) in said.items() if not going}
        seen = self._look_through(kept, names)
        for name in seen.strays:
            # A directory object that no claim accounts for may still be somebody's: what it lists stays with it.
            kept.names.add({name} | self._members(name))
        due = {name: size for name, size in seen.leaving.items() if name not in kept.names}
        old: list[str] = []
        due |= {name: seen.marked[name] for name in self._settle_marks(names, kept.names, seen, before=before, old=old)}
        freed = self._remove(due, before, lost)
        for name in seen.unused:  # after it: in a full tier there is room for marks now
            if name not in kept.names:
                self._blobs.create(layout.mark_key(name), Mark(condemned_at=now).to_bytes())
        self._forget_drops(kept.leaving, lost)
        self._forget_stale(wanted, before)
        self._going.wait_out([*old, *(key for key, (_, going) in said.items() if going)])
        return freed

    def _kept(self, before: datetime) -> _Kept | None:
        """None where a listing did not end complete. Claims first: see above."""
        names, drops = self._claims.used(), self._claims.drops()
        if names is None or drops is None:
            return None
        leaving: dict[str, bytes] = {}
        room = self._most
        for key, packed in sorted(drops.items()):
            dropped_at = layout.dropped_at(key)
            if room > 0 and dropped_at is not None and dropped_at <= before:
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
        """What a directory object lists. Raises StoreUnavailable where it is listed and can't be had, Corrupt."""
        key = layout.object_key(name)
        data = self._blobs.get(key)
        if data is None and self._blobs.absent(key):
            return frozenset()
        if data is None:
            raise StoreUnavailable(
                f"{key} is listed and can't be had: what it uses is not known",
                advice="Nothing is deleted from the tier meanwhile; look at what is between this node and the store.",
            )
        try:
            return layout.dir_members(data)
        except ValueError as error:
            raise Corrupt(
                f"{layout.object_key(name)} is of no known record and can't be read: {error}",
                advice="Nothing is deleted from the tier until you have removed it or put it right.",
            ) from error

    def _settle_marks(
        self, marks: Mapping[str, str], kept: Used, seen: _Seen, *, before: datetime, old: list[str]
    ) -> Iterator[str]:
        """Takes marks back from what is used or gone; answers those whose time has come.

        Adds to `old` those by which versions before 0.2 said that they are removing something.
        """
        for name, key in marks.items():
            mark = _mark(self._blobs, key)
            if mark is not None and mark.going:
                old.append(key)
            elif mark is None or name not in seen.marked or name in kept:
                self._blobs.delete(key)
            elif mark.condemned_at <= before:
                yield name

    def _remove(self, due: Mapping[str, int], before: datetime, left: Used) -> int:
        """Bytes freed; directory objects go first. Adds to `left` what is left to another pass."""
        # Directory objects first: while one is there, DVC takes all it lists for present.
        waiting = deque(sorted(due, key=lambda name: (not name.endswith(layout.DIR), name)))
        freed = anew = 0
        while waiting and anew < _BEGUN_ANEW:
            turn = self._going.begin()
            batch = self._announce(turn, waiting)
            # After every note of the turn: who claimed before saw none, who claims from now on waits.
            kept = self._kept(before) if batch else None
            if kept is None:
                turn.end(batch)
                left.add(batch)
                break
            spared = [name for name in batch if name in kept.names]
            # At once: whoever claimed them is waiting for just that.
            turn.end(spared)
            left.add(spared)
            gone = self._remove_announced(turn, [name for name in batch if name not in kept.names])
            again = [name for name, removed in gone.items() if not removed]
            freed += sum(due[name] for name, removed in gone.items() if removed)
            turn.end(again)
            waiting.extendleft(reversed(again))
            anew += bool(again)
        left.add(waiting)
        return freed

    def _announce(self, turn: RemovalTurn, waiting: deque[str]) -> list[str]:
        """Takes as many names as there is time for at once, and room for notes in a tier that is full; the rest stay."""
        full = False

        def note(name: str) -> tuple[str, bool]:
            try:
                turn.announce(name)
            except NoRoom:
                return name, False
            return name, True

        def tasks() -> Iterator[partial[tuple[str, bool]]]:
            while waiting and not full and turn.seconds() < _ANNOUNCING_SHARE * LASTS_SECONDS:
                yield partial(note, waiting.popleft())

        noted: list[str] = []
        refused: list[str] = []
        for name, done in run_all(tasks(), workers=WORKERS):
            (noted if done else refused).append(name)
            full = full or not done
        waiting.extendleft(reversed(refused))
        if refused and not noted:
            turn.announce(waiting[0])  # raises what the tier says
            noted.append(waiting.popleft())
        return sorted(noted)

    def _remove_announced(self, turn: RemovalTurn, names: Iterable[str]) -> dict[str, bool]:
        """Whether each is gone. Not, where the turn was over before its removal was sent: that begins anew."""
        done: dict[str, bool] = {}
        for dirs in (True, False):
            tasks = (partial(self._removed, turn, name) for name in names if name.endswith(layout.DIR) is dirs)
            done.update(run_all(tasks, workers=WORKERS))
        return done

    def _removed(self, turn: RemovalTurn, name: str) -> tuple[str, bool]:
        if not turn.stands(name):
            return name, False
        try:
            self._blobs.delete(layout.object_key(name), unless_late=turn.require_young)
        except TooLate:
            return name, False
        # After its object: a kill in between leaves a mark of something gone, which the next pass takes away.
        self._blobs.delete(layout.mark_key(name))
        turn.end([name])  # last: while it is there a writer waits
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
                    self._forget(key, data, name=name)

    def _forget(self, key: str, data: bytes | None, *, name: str) -> None:
        """Its writer may live, or be back. It claims, and writes the directory object, before it looks for notes."""
        turn = self._going.begin()
        turn.announce(name)
        if self._blobs.get(key) == data and self._blobs.absent(layout.object_key(name)) and turn.stands(name):
            with suppress(TooLate):
                self._blobs.delete(key, unless_late=turn.require_young)
        turn.end([name])

    def _is_there(self, name: str) -> bool:
        return self._blobs.size(layout.object_key(name)) is not None


def _each_done(tasks: Iterable[partial[None]]) -> None:
    for _ in run_all(tasks, workers=WORKERS):
        pass
