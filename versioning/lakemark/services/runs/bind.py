"""Bind data to a record, or to a run's records and to what it saves from now on, by hand: somebody says what it read."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lakemark.errors import Usage
from lakemark.model.checkpoints.manifest import HEX64
from lakemark.model.checkpoints.record import DataKind, DataRef, Evidence, Record
from lakemark.model.entries.bound import BOUND, BoundBody
from lakemark.model.ledger.entry import Attachments, Draft
from lakemark.model.ledger.run import RecordState, RunState
from lakemark.model.runs.timeline import lineage
from lakemark.ports import Site
from lakemark.services.data import pins
from lakemark.services.ledger import opened, recorded, require_writable


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """A stretch of steps, both ends in it; None: open."""

    first: int | None = None
    last: int | None = None

    def has(self, step: int) -> bool:
        return (self.first is None or step >= self.first) and (self.last is None or step <= self.last)

    @property
    def open(self) -> bool:
        return self.first is None and self.last is None


def bind(site: Site, run: str, record: str, *, data: str, reason: str) -> Record:
    """Says that `record` was trained with `data`, `REPOSITORY/COMMIT`; pins that commit first.

    Raises Usage (not 64 hex), NotFound (record, commit), DataGone, Refused (pin too weak). Answers the record as bound.
    """
    said = _pinned(site, run, data)
    return _bound(site, run, recorded(opened(site, run), record), said, reason=reason)


def bind_run(site: Site, run: str, *, data: str, reason: str, steps: Steps | None = None) -> tuple[Record, ...]:
    """Says it of many: of the records of the run's current lineage within `steps`, and of what it saves from now on.

    Without `steps`, of those whose data nobody knows; what is known is said otherwise only where steps are named. Of later
    saves nothing is said where `steps` end. Asked again after it broke off, it does the rest. Raises as `bind`.
    """
    steps = steps or Steps()
    said = _pinned(site, run, data)
    rows = [one for one in to_bind(opened(site, run), steps) if one.record.data != _replaced(one.record.data, said)]
    bound = tuple(_bound(site, run, one, said, reason=reason) for one in rows)
    if steps.last is None:
        _from_now_on(site, run, said, at_step=steps.first, reason=reason)
    return bound


def to_bind(state: RunState, steps: Steps) -> list[RecordState]:
    """The records that `bind_run` says it of, oldest first."""
    rows = [one for one in lineage(state) if (not one.record.bound if steps.open else steps.has(one.record.step))]
    return rows[::-1]


def _pinned(site: Site, run: str, data: str) -> DataRef:
    """The commit, pinned. Raises Usage, NotFound, DataGone, Refused (pin too weak)."""
    repository, _, commit = data.rpartition("/")
    if not repository or not HEX64.fullmatch(commit):
        raise Usage(
            f"--data {data!r} is not REPOSITORY/COMMIT with a full commit id",
            advice="See `lakemark as-of` for commits.",
        )
    opened(site, run)
    # Asked of the server, then pinned, then said: a record must never name data that can already be gone.
    pins.versions(site).resolve(repository, commit)
    pins.keep(site, repository, commit, run=run)
    return DataRef(repository=repository, commit=commit, evidence=Evidence.DECLARED)


def _bound(site: Site, run: str, found: RecordState, said: DataRef, *, reason: str) -> Record:
    refs = _replaced(found.record.data, said)
    bound = replace(found.record, data=refs)

    def decide(state: RunState) -> Draft:
        require_writable(state)
        return BOUND.draft(
            BoundBody(data=refs),
            timeline=found.record.timeline,
            record=found.record.id,
            contents=Attachments(record=bound),
            reason=reason,
        )

    sequence = site.ledger.run(run).sequence
    site.ledger.append(run, decide, site.stamp(f"bind:{found.record.id}:{said.uri}:{sequence}"))
    return bound


def _from_now_on(site: Site, run: str, said: DataRef, *, at_step: int | None, reason: str) -> None:
    def decide(state: RunState) -> Draft | None:
        require_writable(state)
        interval = state.interval
        if interval is not None and interval.declared and interval.data == (said,) and interval.at_step == at_step:
            return None
        return BOUND.draft(BoundBody(data=(said,), at_step=at_step), timeline=state.timeline, reason=reason)

    sequence = site.ledger.run(run).sequence
    site.ledger.append(run, decide, site.stamp(f"bind:{run}:{said.uri}:{sequence}"))


def _replaced(old: tuple[DataRef, ...], said: DataRef) -> tuple[DataRef, ...]:
    """What is said takes the place of everything of that repository, and of whatever was not known.

    Of data that lies elsewhere it says nothing: references of other kinds stay, also of kinds this version does not know.
    """
    return (*(ref for ref in old if _stays(ref, said)), said)


def _stays(ref: DataRef, said: DataRef) -> bool:
    if ref.kind == DataKind.LAKEFS:
        return ref.repository != said.repository and ref.evidence != Evidence.AMBIGUOUS
    # That there was none is what is being corrected.
    return ref.kind != DataKind.NONE
