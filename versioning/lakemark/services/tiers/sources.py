"""Where a checkpoint's bytes can be read from, nearest first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import BinaryIO, TypeVar

from lakemark.errors import Corrupt, InDistress, LakemarkError, NoReplica, NotFound, Refused, StoreUnavailable
from lakemark.model.checkpoints.manifest import File
from lakemark.model.entries.reads import VERIFIED, VerifiedBody, VerifiedReplica
from lakemark.model.ledger.entry import Draft
from lakemark.model.ledger.run import Place, RecordState, Replica, RunState
from lakemark.ports import Checkpoint, CheckpointStore, Damage, Site
from lakemark.services.ledger import checkpoint, left_out, named_again, recorded, require_identity
from lakemark.services.tiers.witness import as_answer

E = TypeVar("E", bound=LakemarkError)

_DISTANCE = {"hot": 0, "warm": 1, "cold": 2}


def nearest(site: Site, found: RecordState, *, only: str | None = None) -> list[tuple[Replica, CheckpointStore]]:
    """Replicas this node can reach by configuration, sound ones first, then hot before warm before cold.

    `only`: of that tier. Raises Misconfigured for one that lakemark.yaml has not, NoReplica where nothing is left.
    """
    missing = {place.tier for place in left_out(site, found) if only in (None, place.tier)}
    # A misspelt name is told from a tier that holds the record and is not configured here.
    if only is not None and not missing:
        site.store(only)
    here = [
        (replica, site.tiers[place.tier])
        for place, replica in found.replicas.items()
        if place.tier in site.tiers and place.node in (None, site.node) and only in (None, place.tier)
    ]
    # Sound goes before near: what may be damaged is tried only where nothing better is in reach.
    here.sort(key=lambda pair: (not pair[0].sound, _DISTANCE[pair[1].tier_class], pair[1].name))
    if not here:
        others = ", ".join(sorted(f"{p.tier} of {p.node}" if p.node else p.tier for p in found.replicas)) or "nowhere"
        what = f"{found.record.run}@{found.record.step} ({found.record.id[:12]})"
        if missing:
            raise NoReplica(
                f"{what} lies in {', '.join(sorted(missing))}, which lakemark.yaml of {site.node} does not name",
                advice=named_again(missing),
            )
        where = f"in {only}" if only else f"that {site.node} can reach"
        raise NoReplica(
            f"{what} has no replica {where}; it is {others}", advice="Try on the node that has it, or another tier."
        )
    return here


def let_go(site: Site, found: RecordState) -> list[CheckpointStore]:
    """Shared tiers it was released from, in which its bytes lie until the grace is over: the last resort.

    Nobody claims what lies there, and it may go at any moment: what comes of it is compared with the manifest as all is,
    and counts as a replica where it was copied to, by an entry of that copy alone.
    """
    if found.pruned is not None:
        return []
    places = [place for place in found.released if place.node is None and place not in found.replicas]
    stores = [site.tiers[place.tier] for place in places if place.tier in site.tiers]
    return sorted(stores, key=lambda store: (_DISTANCE[store.tier_class], store.name))


def require_in_reach(site: Site, found: RecordState) -> None:
    """Raises what restoring would where nothing has the record, as far as tiers tell without their bytes being read.

    NoReplica, StoreUnavailable (one that may have it does not answer), Refused (another disk lies there).
    """
    last = let_go(site, found)
    failures: list[LakemarkError] = []
    for place, store in [*((one.place, store) for one, store in claimed(site, found, last)), *_places(last)]:
        released = place not in found.replicas
        try:
            require_identity(site, store)
            held = replace(checkpoint(site, found, tier=None if place.node else place.tier), released=released)
            if released:
                # No marker is left of it: that its first file can be opened has to do.
                with store.open(held, held.manifest.regular[0]):
                    return
            if store.holds(found.record.id):
                return
        except LakemarkError as error:
            failures.append(error)
    # One that may have it later comes first: then the same command is worth another try.
    failures.sort(key=lambda one: not isinstance(one, StoreUnavailable))
    if failures:
        raise where_else(site, found, failures[0]) from failures[0]
    shown = f"{found.record.run}@{found.record.step} ({found.record.id[:12]})"
    raise NoReplica(f"{shown} lies in no tier that is in reach", advice=f"lakemark verify {found.record.id[:12]}")


def where_else(site: Site, found: RecordState, error: E, *, only: str | None = None) -> E:
    """The error, with the tiers that have the record, too, and are not configured here: naming them may be all it needs."""
    missing = {place.tier for place in left_out(site, found) if only in (None, place.tier)}
    if not missing:
        return error
    also = f"it lies in {', '.join(sorted(missing))}, too, which lakemark.yaml of {site.node} does not name"
    return type(error)(f"{error}; {also}", advice=named_again(missing))


def _places(stores: Iterable[CheckpointStore]) -> Iterator[tuple[Place, CheckpointStore]]:
    return ((store.place, store) for store in stores)


def candidates(site: Site, found: RecordState, *, only: str | None = None) -> Candidates:
    """A `Fetch` over `nearest`: for each file every replica in turn; then, where no tier was asked for, what was `let_go`."""
    last = let_go(site, found) if only is None else []
    replicas = [(one.place, store) for one, store in claimed(site, found, last, only=only)]
    return Candidates(site, found, replicas, last=last)


def claimed(
    site: Site, found: RecordState, last: Sequence[CheckpointStore], *, only: str | None = None
) -> Sequence[tuple[Replica, CheckpointStore]]:
    """As `nearest`; none where only `last` is left to try."""
    try:
        return nearest(site, found, only=only)
    except NoReplica:
        if not last:
            raise
        return ()


class Candidates:
    """Opens a file from one replica after the other. A tier that is not the one the ledger knows is passed over.

    Whoever asks for the next candidate says that the last one was of no use. One whose bytes came wrong, or broke off, is
    offered once more first: a single answer proves nothing. damaged: (place, path) of what was missing or wrong twice.
    last: what is no replica any more, and is read only after all others.
    """

    def __init__(
        self,
        site: Site,
        found: RecordState,
        replicas: list[tuple[Place, CheckpointStore]],
        *,
        last: Sequence[CheckpointStore] = (),
    ) -> None:
        self._site = site
        self._found = found
        self._replicas = [*replicas, *((store.place, store) for store in last)]
        self._released = frozenset(store.place for store in last)
        self._usable: dict[Place, Checkpoint] = {}
        self._away: dict[Place, LakemarkError] = {}
        self.damaged: list[tuple[Place, str]] = []

    @property
    def refusals(self) -> list[LakemarkError]:
        """Why tiers that are not the ledger's were passed over."""
        return [error for error in self._away.values() if isinstance(error, Refused)]

    def __call__(self, file: File) -> Iterable[tuple[Place, AbstractContextManager[BinaryIO]]]:
        return self._each(file)

    def part(self, file: File, start: int, length: int) -> Iterable[tuple[Place, AbstractContextManager[BinaryIO]]]:
        """`length` bytes of the file from `start` on, from one replica after the other."""
        return self._each(file, start=start, length=length)

    def _each(
        self, file: File, *, start: int = 0, length: int | None = None
    ) -> Iterator[tuple[Place, AbstractContextManager[BinaryIO]]]:
        for place, store in self._replicas:
            for last in (False, True):
                asked = _Asked(last=last)
                yield place, self._opened(place, store, file, asked=asked, part=(start, length))
                if not asked.again:
                    break

    @contextmanager
    def _opened(
        self, place: Place, store: CheckpointStore, file: File, *, asked: _Asked, part: tuple[int, int | None]
    ) -> Iterator[BinaryIO]:
        """Raises on entering, so that whoever restores tries the next; a tier that is away is asked once."""
        if place in self._away:
            raise self._away[place]
        start, length = part
        reading = False
        try:
            with store.open(self._checkpoint(place, store), file, start=start, length=length) as stream:
                reading = True
                yield stream
        except OSError as error:
            ours = as_answer(error, store.name)
            self._failed(place, file, ours, asked, reading=reading)
            raise ours from error
        except LakemarkError as error:
            self._failed(place, file, error, asked, reading=reading)
            raise

    def _failed(self, place: Place, file: File, error: LakemarkError, asked: _Asked, *, reading: bool) -> None:
        """Only what was wrong twice counts as damage; what broke off twice, or never opened, is away."""
        wrong = isinstance(error, Corrupt | NotFound)
        asked.again = not asked.last and (wrong or reading)
        if wrong and asked.last:
            # Nobody claims that a released one is whole.
            if place not in self._released:
                self.damaged.append((place, file.path))
        elif not wrong and not asked.again:
            self._away[place] = error

    def _checkpoint(self, place: Place, store: CheckpointStore) -> Checkpoint:
        """Raises Refused, NotFound, StoreUnavailable where the place is not the ledger's tier, or can't tell."""
        if place not in self._usable:
            # Once per tier, before its first byte: another disk mounted there may hold a tree of the same name.
            require_identity(self._site, store)
            tier = None if place.node else place.tier
            held = checkpoint(self._site, self._found, tier=tier)
            self._usable[place] = replace(held, released=place in self._released)
        return self._usable[place]


@dataclass(slots=True)
class _Asked:
    """One attempt at one replica. again: whether the same one is worth another."""

    last: bool
    again: bool = False


def changed(site: Site, found: RecordState) -> tuple[Damage, ...]:
    """What looks otherwise than as it was sealed of the record's linked files in hot; every file of a tree that is gone."""
    try:
        return site.hot.changed(found.record.id)
    except NotFound:
        manifest = site.ledger.manifest(found.record.run, found.record.id)
        return tuple(Damage(path=file.path, why="is missing", missing=True) for file in manifest.files)


def note_suspect(site: Site, found: RecordState, place: Place, damages: Iterable[Damage]) -> None:
    """Appends that the replica at `place` may have changed, by a look that read no bytes: nobody counts on it until one did."""
    _note(site, found, place, list(damages), suspect=True)


def note_damage(site: Site, found: RecordState, place: Place, damages: Iterable[Damage]) -> None:
    """Appends what two readings of the replica at `place` agree on, where the ledger says otherwise.

    No damages: it is right, which ends a suspicion. Once per state. A machine that only reads keeps it to itself.
    """
    _note(site, found, place, list(damages), suspect=False)


def _note(site: Site, found: RecordState, place: Place, listed: list[Damage], *, suspect: bool) -> None:
    if site.reads_only:
        return
    damaged = bool(listed) and not suspect
    record = found.record

    def decide(state: RunState) -> Draft | None:
        now = recorded(state, record.id).replicas.get(place)
        if now is None or (now.suspect, now.damaged) == (suspect, damaged):
            return None
        item = VerifiedReplica(
            record=record.id,
            tier=place.tier,
            node=place.node,
            ok=not listed,
            suspect=suspect,
            # A checkpoint may have 100,000 files, and one broken disk damages all; an entry stays small.
            damaged=tuple(f"{damage.path}: {damage.why}" for damage in listed[:100]),
        )
        return VERIFIED.draft(VerifiedBody(items=(item,), verified_at=site.now()), timeline=record.timeline)

    where = f"{place.tier}@{place.node}:{site.node}"
    # With the sequence: it may be mended and damaged again, which the first request would swallow.
    sequence = site.ledger.run(record.run).sequence
    try:
        site.ledger.append(record.run, decide, site.stamp(f"damage:{record.id}:{where}:{suspect}:{damaged}:{sequence}"))
    except InDistress:  # reading goes on where nothing may be recorded
        return
