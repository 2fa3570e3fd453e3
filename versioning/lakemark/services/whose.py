"""Whose the saves in a directory are: what is known of each of them here, put to `model.runs.whose`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Self

from lakemark.errors import LakemarkError
from lakemark.model.checkpoints.judging import STATE, is_of_tensors
from lakemark.model.ledger.run import Attempt, RecordState, RunState
from lakemark.model.runs.timeline import segments
from lakemark.model.runs.whose import Known, Lying, Owner, Same, Seat, Whose, whose
from lakemark.model.tiers.moves import SKEW
from lakemark.model.values.names import printable
from lakemark.ports import Found, Kept, KnownFile, Mark, MarkKind, Site, Spooled, Verdict
from lakemark.services.directories import own_directories, seat_of
from lakemark.services.ledger import announced, committed

_SECOND: Final = 10**9
# Times of files have nanoseconds, instants have none.
_ROUNDED: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A whole save that no pass takes, because of whose it is. written_at: as its files say, where that tells anything."""

    path: Path
    run: str
    step: int | None
    whose: Whose
    written_at: datetime | None = None

    @property
    def next(self) -> str:
        """What helps, in one sentence."""
        if self.whose.owner is Owner.OLDER:
            return f"To keep it as {self.run}'s: lakemark run open {self.run} --adopt; else leave it where it is."
        step = "N" if self.step is None else self.step
        return f"If it is {self.run}'s own: lakemark commit {printable(self.path)} --run {self.run} --step {step}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Owners:
    """Tells whose saves are in one directory of a run, as of one moment."""

    site: Site
    state: RunState
    directory: Path
    seat: Seat
    attempts: Sequence[Attempt]
    announced: Mapping[Path, Spooled] = field(default_factory=dict)

    @classmethod
    def of(cls, site: Site, state: RunState, directory: Path) -> Self:
        """Raises what reading the ledger does."""
        seat, attempts = seat_of(site, state, directory)
        said: dict[Path, Spooled] = {}
        with suppress(LakemarkError):  # of a spool that can't be listed a pass tells by itself
            said = {one.path: one for one in announced(site, state.run)}
        return cls(site=site, state=state, directory=directory, seat=seat, attempts=attempts, announced=said)

    def whose(self, found: Found, *, same: Same | None = None) -> Whose:
        """same: the record that it is known to be, or to have the bytes of. Raises NotFound, Denied."""
        written_at, came_at = self._times(found)
        mark = _listed(self.state.run, found.path)
        lying = Lying(
            step=found.step,
            written_at=written_at,
            came_at=came_at,
            listed=written_at is not None and self.site.journal.marks.get(mark) == written_at,
            announced=self._announced(found),
            same=same,
        )
        return whose(lying, self.attempts, [number for number, _ in segments(self.state)], self.seat)

    def _announced(self, found: Found) -> str | None:
        """The attempt whose process announced what lies there: not what was there before it was written over."""
        said = self.announced.get(found.path)
        if said is None or said.written_over(self.site.files.regular(found.path, found.members)) is not None:
            return None
        return said.attempt

    def left(self, found: Found, *, same: Same | None = None) -> Left | None:
        """It, where it is whole and no pass takes it; None of any other. Raises NotFound, Denied."""
        if found.verdict is not Verdict.COMPLETE:
            return None
        told = self.whose(found, same=same)
        if told.taken:
            return None
        written_at = self.written_at(found)
        return Left(path=found.path, run=self.state.run, step=found.step, whose=told, written_at=written_at)

    def written_at(self, found: Found) -> datetime | None:
        """When its newest heavy file was written; None where the clock is simulated, or that is of the future."""
        return self._times(found)[0]

    def _times(self, found: Found) -> tuple[datetime | None, datetime | None]:
        """When its newest heavy file was written, and when the last of these came to lie there."""
        if self.site.simulated_clock:
            return None, None
        files = self.site.files.regular(found.path, found.members)
        # An evaluation may write its results beside old weights.
        heavy = [
            one for one in files if is_of_tensors(one.path) or str(found.roles.get(one.path, "")) in STATE
        ] or files
        if not heavy:
            return None, None
        at, came = _at(max(one.file.mtime_ns for one in heavy)), _at(max(one.file.ctime_ns for one in heavy))
        return (None, None) if at > self.site.now() + SKEW else (at, came)

    def same_as(self, paths: Sequence[Path]) -> Same | None:
        """The record that the files at or under `paths` are known to be of; None where one is not known, or of none there is."""
        kept = _kept(self.site, paths)
        return None if not kept else self.same(kept[0])

    def same(self, kept: Kept) -> Same | None:
        found = self.state.records.get(kept.record) or _elsewhere(self.site, kept.record)
        return None if found is None else as_same(found, known=Known(kept.why) if kept.why in set(Known) else None)

    def is_recorded(self, found: Found) -> bool:
        """Whether its files, all known, are those of a record of its very step, byte for byte."""
        files = self.site.files.regular(found.path, found.members)
        kept = [self.site.journal.kept(one.file) for one in files]
        here = {one.path: known.digest if known else "" for one, known in zip(files, kept, strict=True)}
        same_step = (one for one in self.state.records.values() if one.record.step == found.step)
        return any(_digests(self.site, one) == here for one in same_step)


def asked_whose(site: Site, state: RunState, found: Found) -> Whose | None:
    """Whose a save is that somebody asks about, wherever it lies; None of what is no whole save. Reads it where it may be a copy.

    Raises NotFound, Denied, and what reading the ledger does. Changes nothing.
    """
    if found.verdict is not Verdict.COMPLETE:
        return None
    found = replace(found, members=tuple(site.files.resolved(one) for one in found.members))
    place = site.files.resolved(found.path)
    around = [one for one in own_directories(site, state) if site.files.resolved(one) in place.parents]
    owners = Owners.of(site, state, max(around, key=lambda one: len(one.parts)) if around else found.path.parent)
    same = owners.same_as(found.paths)
    twin = _twin(site, state.run, found) if same is None else None
    if twin is not None and was_copied(site, twin[1], twin[0]):
        same = as_same(twin[0])
    if not around and same is None:
        return Whose(owner=Owner.AMBIGUOUS, why=f"it lies in no directory of {state.run}", taken=False, run=state.run)
    told = owners.whose(found, same=same)
    return told if twin is None or same is not None else told.like(as_same(twin[0]))


def _twin(site: Site, run: str, found: Found) -> tuple[RecordState, list[KnownFile]] | None:
    """The record of another run that has its bytes, and its files as they were read. Read only where all sizes are the same."""
    files = site.files.regular(found.path, found.members)
    sizes = {one.path: one.file.size_bytes for one in files}
    read: dict[str, str] = {}
    for other in site.ledger.runs():
        for row in site.ledger.run(other).live() if other != run else ():
            if row.record.size_bytes != sum(sizes.values()):
                continue
            there = {file.path: file for file in site.ledger.manifest(other, row.record.id).regular}
            if {path: file.size_bytes for path, file in there.items()} != sizes:
                continue
            read = read or {one.path: site.files.digest(Path(one.file.place)) for one in files}
            if {path: file.digest for path, file in there.items()} == read:
                return row, [replace(one.file, digest=read[one.path]) for one in files]
    return None


def note_listed(site: Site, left: Left) -> None:
    """So that it stays older than the run, whatever somebody does to its names and rights, which is all that ctime tells."""
    if left.written_at is not None and not site.reads_only:
        site.journal.marks.set(_listed(left.run, left.path), at=left.written_at)


def was_copied(site: Site, taken: Sequence[KnownFile], other: RecordState) -> bool:
    """Whether its files have the very times of files that are of `other`, as copies that keep times do.

    Two processes may come to the same bytes by themselves; not in the same instant.
    """
    known = [file for one in taken for file in site.journal.twins(one.digest) if one.digest]
    times = {file.mtime_ns for file in known if _is_of(site, file, other)}
    if not times:
        return abs(_at(max(one.mtime_ns for one in taken)) - other.record.saved_at) <= _ROUNDED
    # Some tools keep whole seconds.
    times |= {time // _SECOND * _SECOND for time in times}
    return all(one.mtime_ns in times for one in taken)


def _is_of(site: Site, file: KnownFile, other: RecordState) -> bool:
    kept = site.journal.kept(file)
    return kept is not None and kept.record == other.record.id


def _listed(run: str, path: Path) -> Mark:
    return Mark(MarkKind.OLDER, f"{run}:{printable(path)}")


def _at(time_ns: int) -> datetime:
    """To the microsecond, as instants are kept."""
    return datetime.fromtimestamp(time_ns / _SECOND, UTC)


def as_same(found: RecordState, *, known: Known | None = None) -> Same:
    """The record, as what lies there is compared with it. known: how its very files are of it."""
    record = found.record
    return Same(
        record=record.id,
        run=record.run,
        timeline=record.timeline,
        step=record.step,
        attempt=record.attempt,
        known=known,
    )


def lies_there(site: Site, found: RecordState, path: Path) -> bool:
    """Whether the record was committed from that very path of this node."""
    return committed(site, found).source == printable(path)


def record_of(site: Site, state: RunState, record: str) -> RecordState | None:
    """A record of this run, or of any other."""
    return state.records.get(record) or _elsewhere(site, record)


def copied_from(site: Site, run: str, content: str) -> RecordState | None:
    """A record of another run that has these bytes and was not pruned: what it is a copy of."""
    for other in site.ledger.runs():
        if other == run or not site.ledger.outline(other).may_hold(content):
            continue
        same = (found for found in site.ledger.run(other).live() if found.record.content == content)
        first = min(same, key=lambda found: found.sequence, default=None)
        if first is not None:
            return first
    return None


def _elsewhere(site: Site, record: str) -> RecordState | None:
    for run in site.ledger.runs():
        try:
            if site.ledger.outline(run).records_of([record]):
                return site.ledger.run(run).records.get(record)
        except LakemarkError:  # one run that can't be read keeps no other's saves from being told
            continue
    return None


def _kept(site: Site, paths: Sequence[Path]) -> list[Kept]:
    files = [file for path in paths for file in site.files.identities(path)]
    kept = [site.journal.kept(file) for file in files]
    return [one for one in kept if one is not None] if all(kept) else []


def _digests(site: Site, found: RecordState) -> dict[str, str]:
    manifest = site.ledger.manifest(found.record.run, found.record.id)
    return {file.path: file.digest or "" for file in manifest.regular}
