"""Tiers and residence: which replica goes where, which may be released, and why.

`plan_moves` decides for one run as one node sees it. It adds a replica in every slower tier that admits the record, faster
tiers first and none after another, and plans a release from a faster tier only where slower ones have settled in enough
failure domains. That is no proof: who releases reads them back first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from lakemark.model.back.rollback import target_of
from lakemark.model.ledger.entry import Clock, Means
from lakemark.model.ledger.run import Place, RecordState, Replica, RunState
from lakemark.model.runs.timeline import lineage, usable
from lakemark.model.tiers.residence import (
    ADMIT_ALL,
    ADMIT_RETAINED,
    CLASSES,
    Admit,
    Move,
    Moves,
    Recheck,
    Release,
    Residence,
    Tier,
    Waiting,
)
from lakemark.model.tiers.retention import best_of, holds
from lakemark.model.values.instants import duration_text, later
from lakemark.model.values.wording import instant

__all__ = [
    "ADMIT_ALL",
    "ADMIT_RETAINED",
    "CLASSES",
    "Admit",
    "Move",
    "Moves",
    "Recheck",
    "Release",
    "Residence",
    "Tier",
    "Waiting",
    "plan_moves",
    "proven_domains",
]

# As far as clocks of nodes may differ before anybody is told (`clocks.TOLERANCE`).
SKEW: Final = timedelta(minutes=5)


@dataclass(slots=True, kw_only=True)
class _Plan:
    state: RunState
    tiers: Sequence[Tier]
    residence: Mapping[str, Residence]
    now: datetime
    copies: int
    kept: frozenset[str]
    guarded: Mapping[str, str]
    blocked: str | None
    newest_first: Sequence[RecordState]
    places: Mapping[str, Place]
    replicate: list[Move] = field(default_factory=list)
    recheck: list[Recheck] = field(default_factory=list)
    release: list[Release] = field(default_factory=list)
    waiting: list[Waiting] = field(default_factory=list)

    def place(self, tier: Tier) -> Place:
        return self.places[tier.name]

    def replica(self, found: RecordState, tier: Tier) -> Replica | None:
        return found.replicas.get(self.place(tier))


def plan_moves(
    state: RunState,
    tiers: Sequence[Tier],
    residence: Mapping[str, Residence],
    now: datetime,
    *,
    node: str,
    copies: int = 1,
    kept: frozenset[str] = frozenset(),
) -> Moves:
    """What to replicate, read back and release of `state`, as `node` sees it.

    tiers: the node's own hot and the shared ones that are in use. kept: ids of records retention would keep.
    Another node's hot is neither source nor survivor. Superseded, conflicting and quarantined records move like others but
    are nobody's newest or best. Pruned ones are pruning's.
    """
    plan = _Plan(
        state=state,
        # By rank alone, and stable: tiers of one class stay in the order of the configuration.
        tiers=sorted(tiers, key=lambda tier: tier.rank),
        residence=residence,
        now=now,
        copies=copies,
        kept=kept,
        guarded=_guarded(state, now),
        blocked=_blocked(state, now),
        # Quarantined and superseded ones take up no place among the newest.
        newest_first=[found for found in lineage(state, live=True) if usable(found)],
        places={tier.name: Place(tier=tier.name, node=node if tier.tier_class == "hot" else None) for tier in tiers},
    )
    admitted = {tier.name: _admitted(plan, tier) for tier in plan.tiers if tier.tier_class != "hot"}
    # Not the pruned ones: their bytes go, and nothing is copied or released that pruning removes.
    for found in sorted(state.live(), key=lambda found: found.sequence):
        _replicate(plan, found, [tier for tier in plan.tiers if found.record.id in admitted.get(tier.name, ())])
        _release(plan, found)
        _suspects(plan, found)
    return Moves(
        # Faster tiers first: a record is safe earlier, and slower ones read from there.
        replicate=tuple(sorted(plan.replicate, key=lambda move: _rank(plan, move.tier))),
        # Each place once, however many moves wait for it.
        recheck=tuple(dict.fromkeys(plan.recheck)),
        release=tuple(plan.release),
        waiting=tuple(plan.waiting),
    )


def _guarded(state: RunState, now: datetime) -> dict[str, str]:
    """Ids of records whose replicas stay where they are -> why."""
    guarded: dict[str, str] = {}
    for found in state.live():
        if holds(found, now):
            guarded[found.record.id] = f"held: {found.held}"
    for request in state.rollbacks.values():
        # From the request on: between plan and restore its replicas must not move away.
        if request.open:
            guarded[target_of(request)] = f"the target of the open rollback {request.id}"
    return guarded


def _blocked(state: RunState, now: datetime) -> str | None:
    if state.blocked is not Means.IGNORE:
        kinds = ", ".join(sorted(set(state.unknown)))
        return f"the ledger has entries of a newer version ({kinds}) that forbid releases: {state.blocked.value}"
    return behind(state, now)


def behind(state: RunState, now: datetime) -> str | None:
    """That this node's clock is behind what the ledger was written at, in words; nothing is deleted then."""
    if state.written_at is not None and state.written_at - now > SKEW:
        return f"this clock is behind the ledger, which was written at {instant(state.written_at)}"
    return None


def _admitted(plan: _Plan, tier: Tier) -> set[str]:
    admit = _residence(plan, tier).admit
    if admit.everything:
        return set(plan.state.unpruned)
    ids = set(plan.kept) if admit.retained else set()
    if admit.newest:
        ids.update(found.record.id for found in plan.newest_first[:1])
    for best in admit.best:
        ids.update(found.record.id for found in best_of(plan.newest_first, best))
    if admit.every is not None:
        ids.update(_first_of_each(plan.state, admit.every))
    return ids


def _first_of_each(state: RunState, every: timedelta) -> Iterator[str]:
    """The first of a stretch, not the newest: no later one unseats it, so nothing is copied in vain."""
    seen: set[tuple[int, int]] = set()
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    for timeline, rows in state.by_step.items():
        for _, _, identity in rows:
            if identity not in state.unpruned:
                continue
            found = state.records[identity]
            # Counted from a fixed point, so that the stretches do not move with the run's first record.
            stretch = (timeline, (found.instant - epoch) // every)
            if found.stands and usable(found) and stretch not in seen:
                seen.add(stretch)
                yield identity


def _replicate(plan: _Plan, found: RecordState, admitting: Sequence[Tier]) -> None:
    missing = []
    for tier in admitting:
        refused = found.refused.get(plan.place(tier))
        if refused is not None:
            _wait(plan, found, tier, f"{tier.name} can't hold it: {refused}")
        elif not _sound(plan, found, tier) and not _left(plan, found, tier, admitting):
            missing.append(tier)
    if not missing:
        return
    # NO_DELETE stops releases alone: one more copy harms nobody.
    if plan.state.blocked is Means.READ_ONLY:
        _wait(plan, found, missing[0], plan.blocked or "read only")
    elif not any(_sound(plan, found, tier) for tier in plan.tiers):
        # Its own node copies it: this one can't read another's disk.
        others = sorted(place.node for place, replica in found.replicas.items() if place.node and replica.sound)
        why = (
            f"its only sound replica is on node {others[0]}, which copies it" if others else "no sound replica is left"
        )
        _wait(plan, found, missing[0], why)
    else:
        for tier in missing:
            damaged = plan.replica(found, tier) is not None
            why = f"the replica in {tier.name} is not sound" if damaged else f"{tier.name} admits it and lacks it"
            plan.replicate.append(Move(record=found.record.id, run=plan.state.run, tier=tier.name, why=why))


def _left(plan: _Plan, found: RecordState, tier: Tier, admitting: Sequence[Tier]) -> bool:
    """Whether the record is past this tier's time and belongs further down: it is not brought back."""
    keep_for = _residence(plan, tier).keep_for
    if keep_for is None or plan.now - found.instant < keep_for:
        return False
    slower = [other for other in plan.tiers if other.rank > tier.rank]
    # Only if a slower one has it or will: past its time everywhere it would be nowhere.
    return any(other in admitting or _sound(plan, found, other) for other in slower)


def _release(plan: _Plan, found: RecordState) -> None:
    """From the slowest tier up, so that what this very plan releases justifies nothing."""
    gone: set[str] = set()
    # What goes from a slower tier in this plan is in `gone` before a faster one asks who survives.
    for tier in reversed(plan.tiers):
        if plan.replica(found, tier) is None or _stays(plan, found, tier):
            continue
        why = _forbidden(plan, found, tier)
        if why is not None:
            _wait(plan, found, tier, why)
            continue
        survivor = _survivor(plan, found, tier, gone)
        if survivor is not None:
            gone.add(tier.name)
            plan.release.append(
                Release(
                    record=found.record.id,
                    place=plan.place(tier),
                    survivor=survivor.place,
                    why=_past(plan, tier),
                )
            )


def _stays(plan: _Plan, found: RecordState, tier: Tier) -> bool:
    rules = _residence(plan, tier)
    if rules.keep_last is None and rules.keep_for is None:
        return True
    if rules.keep_for is not None and plan.now - found.instant < rules.keep_for:
        return True
    # At least the newest: a resume must find something near.
    first = plan.newest_first[: max(1, rules.keep_last or 0)]
    return any(found is newest for newest in first)


def _forbidden(plan: _Plan, found: RecordState, tier: Tier) -> str | None:
    if plan.blocked is not None:
        return plan.blocked
    if found.record.id in plan.guarded:
        return plan.guarded[found.record.id]
    # `keep_last` asks for no age, so it may still release.
    if found.clock == Clock.SUSPECT and _residence(plan, tier).keep_for is not None:
        return "recorded while its node's clock was suspect: its age is not known"
    return None


def _survivor(plan: _Plan, found: RecordState, tier: Tier, gone: set[str]) -> Replica | None:
    """The nearest slower replica that settled, if enough domains have one; else what is missing is noted."""
    slower = [
        (other, replica)
        for other in plan.tiers
        # The same domain is lost with it, and a tier of the same class is nothing it may sink to.
        if other.rank > tier.rank and other.domain != tier.domain and other.name not in gone
        if (replica := plan.replica(found, other)) is not None and replica.sound
    ]
    settle = _residence(plan, tier).settle
    settled = [(other, replica) for other, replica in slower if _settled(replica, settle, plan.now)]
    needed = max(1, plan.copies)
    # One to name is enough: who releases reads survivors back first.
    if len({other.domain for other, _ in settled}) >= needed:
        return settled[0][1]
    if len({other.domain for other, _ in slower}) < needed:
        have = ", ".join(sorted({other.domain for other, _ in slower})) or "none"
        why = f"needs a sound slower replica in {needed} other failure domain(s); has {have}"
        _wait(plan, found, tier, why)
        return None
    for _, replica in slower:
        if not _settled(replica, settle, plan.now):
            # It changes by itself: what waits so is no trouble to tell people of.
            due = later(replica.replicated_at, settle)
            _wait(plan, found, tier, f"{replica.place.tier} settles until {instant(due)}", until=due)
    return None


def _settled(replica: Replica, settle: timedelta, now: datetime) -> bool:
    """Written long enough ago for a read-back to count. Who releases reads it then, whatever was read before."""
    # Strictly later: a store's answer that it has the bytes proves nothing until it had time to lose them.
    return now - replica.replicated_at > settle


def _suspects(plan: _Plan, found: RecordState) -> None:
    for tier in plan.tiers:
        replica = plan.replica(found, tier)
        if replica is not None and replica.suspect:
            why = "it may have changed: only a full read tells"
            plan.recheck.append(Recheck(record=found.record.id, place=replica.place, why=why))


def _past(plan: _Plan, tier: Tier) -> str:
    rules = _residence(plan, tier)
    parts: list[str] = []
    if rules.keep_last is not None:
        parts.append(f"not among the {max(1, rules.keep_last)} newest")
    if rules.keep_for is not None:
        parts.append(f"older than {duration_text(rules.keep_for)}")
    return " and ".join(parts)


def _sound(plan: _Plan, found: RecordState, tier: Tier) -> bool:
    replica = plan.replica(found, tier)
    return replica is not None and replica.sound


def _residence(plan: _Plan, tier: Tier) -> Residence:
    # A tier without a rule keeps what it has.
    return plan.residence.get(tier.name, _FOR_GOOD)


def _rank(plan: _Plan, name: str) -> int:
    return next(tier.rank for tier in plan.tiers if tier.name == name)


def _wait(plan: _Plan, found: RecordState, tier: Tier, why: str, *, until: datetime | None = None) -> None:
    plan.waiting.append(Waiting(record=found.record.id, tier=tier.name, why=why, until=until))


def proven_domains(found: RecordState, tiers: Iterable[Tier]) -> frozenset[str]:
    """Failure domains of shared tiers with a sound replica: what `copies` counts."""
    domains = {tier.name: tier.domain for tier in tiers if tier.tier_class != "hot"}
    return frozenset(
        domains[place.tier] for place, replica in found.replicas.items() if place.tier in domains and replica.sound
    )


_FOR_GOOD: Final = Residence()
