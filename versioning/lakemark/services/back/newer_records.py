"""Newer records than the one a run goes on from: each is named with why, and none is left behind on a suspicion alone."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from lakemark.errors import Refused
from lakemark.model.ledger.run import Place, RecordState, Replica, RunState
from lakemark.model.runs.timeline import forked_from, segments, usable
from lakemark.model.values.wording import instant
from lakemark.ports import Site
from lakemark.services.tiers.verify import look, record_looks


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOver:
    """A newer record of the lineage that is not gone on from, and why, in words."""

    found: RecordState
    why: str

    @property
    def lost(self) -> bool:
        """Whether no bytes of it are known to be right anywhere."""
        return self.found.pruned is None and not _has_sound(self.found)


def newer(state: RunState, chosen: RecordState | None) -> Iterator[RecordState]:
    """Records of the lineage later than `chosen` (None: all), newest first, also those that can be nobody's latest.

    Left out is what another record took the place of: that one is named.
    """
    forks = forked_from(state)
    for number, bound in segments(state):
        for step, _, identity in reversed(state.by_step.get(number, ())):
            found = state.records[identity]
            above = bound is not None and (step > bound or (step == bound and identity not in forks))
            if above or found.superseded_by is not None:
                continue
            if chosen is not None and step <= chosen.record.step:
                return
            yield found


def passed_over(state: RunState, chosen: RecordState) -> tuple[PassedOver, ...]:
    """Every newer record, with what keeps training from going on from it."""
    return tuple(PassedOver(found=found, why=why_not(found)) for found in newer(state, chosen))


def why_not(found: RecordState) -> str:
    """What keeps anybody from going on from a record, in words; its gaps where it is nothing else."""
    reasons: list[str] = []
    if found.pruned is not None:
        reasons.append(f"it was pruned: {', '.join(found.pruned)}")
    elif not _has_sound(found):
        reasons.append(f"no sound replica of it is left: {_shown(found)}")
    if found.quarantined is not None:
        reasons.append(f"it is quarantined: {found.quarantined}")
    if found.conflicts_with is not None:
        reasons.append(f"it is in conflict with {found.conflicts_with[:12]}")
    if found.ambiguous:
        reasons.append("nobody can tell which life it is of")
    return "; ".join(reasons) or ", ".join(found.record.gaps) or "gaps that nobody named"


def reread(site: Site, state: RunState, *, record: str | None, good: RecordState | None) -> RunState:
    """Reads, in full, each suspect replica in reach of what is newer than `good`, or of `record`; the state after that.

    Only of records that have no sound replica: nobody would miss another. What is found is recorded.
    """
    wanted = [state.records[record]] if record is not None and record in state.records else list(newer(state, good))
    looks = [
        look(site, found, place)
        for found in wanted
        # Reading takes minutes while every node of a job waits: nothing is read that another sound copy makes up for.
        if usable(found) and not _has_sound(found)
        for place in _suspects(found)
        if place.tier in site.tiers and place.node in (None, site.node)
    ]
    read = [one for one in looks if one.error is None]
    if not read:
        return state
    record_looks(site, state.run, read)
    return site.ledger.run(state.run)


def require_no_suspect(state: RunState, chosen: RecordState | None, *, skip: Collection[int] = ()) -> None:
    """Raises Refused where a newer record may be right and could not be read; `skip`: steps it may go on without."""
    for found in newer(state, chosen):
        places = [] if _has_sound(found) or not usable(found) else _suspects(found)
        # A suspicion is no statement: only somebody who names the step may leave it behind.
        if not places or found.record.step in skip:
            continue
        record = found.record
        where = ", ".join(map(_place, places))
        below = f"going on from step {chosen.record.step}" if chosen is not None else "going on without it"
        raise Refused(
            f"{state.run}@{record.step} ({record.id[:12]}) is only suspect, {where}, and could not be read; "
            f"{below} would leave it behind",
            advice=f"Where it can be read: lakemark verify {record.id[:12]}, then resume again; "
            f"without it: --without-step {record.step}",
        )


def _has_sound(found: RecordState) -> bool:
    return any(replica.sound for replica in found.replicas.values())


def _suspects(found: RecordState) -> list[Place]:
    """Places where it may have changed and nobody has read it since."""
    return [place for place, replica in found.replicas.items() if replica.suspect]


def _shown(found: RecordState) -> str:
    return ", ".join(map(_state_of, found.replicas.values())) or "it has none anywhere"


def _state_of(replica: Replica) -> str:
    said = "damaged" if replica.damaged else "suspect"
    return f"{said} {_place(replica.place)}, last right at {instant(replica.verified_at)}"


def _place(place: Place) -> str:
    return f"in {place.tier}" if place.node is None else f"in {place.tier} of {place.node}"
