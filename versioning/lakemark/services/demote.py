"""Demote: do what residence says. Replicate further down, read back what has settled, release what is proven below."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Self

from lakemark.errors import LakemarkError, NoRoom, StoreUnavailable
from lakemark.model.ledger import RunState
from lakemark.model.residence import Move, Moves, Recheck, Release, Tier
from lakemark.model.tiers import plan_moves
from lakemark.ports import Site
from lakemark.services.appending import recorded, require_identity, require_lasting
from lakemark.services.keeping import why_kept
from lakemark.services.release import release_all
from lakemark.services.replicate import replicate
from lakemark.services.soundness import require_sound
from lakemark.services.thin import thin
from lakemark.services.unshare import unshare_due
from lakemark.services.verify import Look, look, record_looks
from lakemark.services.witness import is_transient

_ROUNDS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """Something due that was not done: what, why, and whether trying again later will help by itself.

    planned: nothing is wrong, it is only not time for it yet. next: what somebody can do, where something is wrong.
    """

    what: str
    why: str
    transient: bool = False
    planned: bool = False
    next: str = ""

    @classmethod
    def of(cls, what: str, error: LakemarkError) -> Self:
        """What an error kept from being done."""
        return cls(what=what, why=str(error), transient=is_transient(error), next=error.advice)


@dataclass(slots=True, kw_only=True)
class Demoted:
    """What a pass did, and what is due and was not done. away: tiers that took nothing: out of reach, too slow, or full."""

    replicated: list[Move] = field(default_factory=list)
    rechecked: list[Look] = field(default_factory=list)
    released: list[Release] = field(default_factory=list)
    thinned: list[str] = field(default_factory=list)
    pending: list[Pending] = field(default_factory=list)
    away: set[str] = field(default_factory=set)


def demote(
    site: Site, run: str, *, tiers: Sequence[Tier] | None = None, need_bytes: int = 0, away: Collection[str] = ()
) -> Demoted:
    """One pass over a run's replicas. What can't be done now is in `pending`; only InDistress is raised.

    tiers: those found `present` just before; None: they are looked at now. need_bytes: the largest save that waits for room.
    away: tiers that took nothing for another run just now: they are not asked again.
    """
    require_sound(site)
    result = Demoted(away=set(away))
    if tiers is None:
        tiers, result.pending = present(site)
    _recheck(site, run, plan(site, run, tiers).recheck, result)
    _replicate_all(site, run, tiers, result)
    slower = [tier.name for tier in tiers if tier.tier_class != "hot" and tier.name not in result.away]
    result.pending.extend(
        Pending.of(f"a copy of our own of {run}@{found.record.step}", error)
        for found, error in unshare_due(site, run, slower=slower)
    )
    final = plan(site, run, tiers)
    if final.release:
        final = plan(site, run, _lasting(site, tiers, result))
    _release_all(site, run, final.release, result)
    result.pending.extend(
        Pending(
            what=f"{run}@{recorded(site.ledger.run(run), one.record).record.step} {one.tier}", why=one.why, planned=True
        )
        for one in final.waiting
    )
    try:
        result.thinned.extend(thin(site, run, need_bytes=need_bytes))
    except LakemarkError as error:
        result.pending.append(Pending.of(f"thinning {run}", error))
    return result


def plan(site: Site, run: str, tiers: Iterable[Tier] | None = None) -> Moves:
    """What is due now, decided from the ledger alone. tiers: those in use; None: all of the configuration."""
    state = site.ledger.run(run)
    return plan_moves(
        state,
        tuple(tiers) if tiers is not None else tuple(tier_of(site, name) for name in site.tiers),
        site.policies.residence,
        site.now(),
        node=site.node,
        copies=site.policies.copies,
        kept=kept(site, state),
    )


def tier_of(site: Site, name: str) -> Tier:
    """The tier as the planner sees it."""
    store = site.tiers[name]
    return Tier(name=store.name, tier_class=store.tier_class, kind=store.kind, domain=store.domain)


def kept(site: Site, state: RunState) -> frozenset[str]:
    """Ids of the records retention would keep."""
    verdicts = why_kept(site.policies, state, now=site.now())
    return frozenset(identity for identity, one in verdicts.items() if one.reasons)


def present(site: Site) -> tuple[list[Tier], list[Pending]]:
    """Tiers whose place is the one the ledger knows, and why the others take no part in a pass and justify nothing."""
    tiers: list[Tier] = []
    away: list[Pending] = []
    for name, store in site.tiers.items():
        try:
            require_identity(site, store)
        except LakemarkError as error:
            away.append(Pending.of(f"tier {name}", error))
            continue
        tiers.append(tier_of(site, name))
    return tiers, away


def _replicate_all(site: Site, run: str, tiers: Sequence[Tier], result: Demoted) -> None:
    """Round by round, as each makes the next possible; a tier that is out of reach once is not asked again, and answered."""
    failed: set[tuple[str, str]] = set()
    away = result.away
    for _ in range(_ROUNDS):
        # One that takes nothing is passed by like one that is away: what comes after it gets the records meanwhile.
        due = plan(site, run, [tier for tier in tiers if tier.name not in away]).replicate
        moves = [move for move in due if (move.record, move.tier) not in failed and move.tier not in away]
        if not moves:
            break
        for move in moves:
            if move.tier in away:
                continue
            error = _replicate(site, move, result)
            if error is not None:
                failed.add((move.record, move.tier))
            if isinstance(error, (StoreUnavailable, NoRoom)):
                away.add(move.tier)


def _lasting(site: Site, tiers: Iterable[Tier], result: Demoted) -> list[Tier]:
    """Without those whose store removes objects by itself, or can't be asked: they are no survivors."""
    lasting: list[Tier] = []
    for tier in tiers:
        try:
            require_lasting(site.store(tier.name))
        except LakemarkError as error:
            result.pending.append(Pending.of(f"tier {tier.name}", error))
        else:
            lasting.append(tier)
    return lasting


def _replicate(site: Site, move: Move, result: Demoted) -> LakemarkError | None:
    try:
        replicate(site, move.run, move.record, to=move.tier)
    except LakemarkError as error:
        step = recorded(site.ledger.run(move.run), move.record).record.step
        result.pending.append(Pending.of(f"{move.run}@{step} to {move.tier}", error))
        return error
    result.replicated.append(move)
    return None


def _release_all(site: Site, run: str, releases: Sequence[Release], result: Demoted) -> None:
    try:
        released = release_all(site, run, releases)
    except LakemarkError as error:
        result.pending.append(Pending.of(f"releases of {run}", error))
        return
    result.released.extend(released.done)
    state = site.ledger.run(run)
    for one, why in released.failed:
        step = recorded(state, one.record).record.step
        result.pending.append(Pending.of(f"releasing {run}@{step} from {one.place.tier}", why))


def _recheck(site: Site, run: str, rechecks: Iterable[Recheck], result: Demoted) -> None:
    state = site.ledger.run(run)
    looks = [look(site, recorded(state, one.record), one.place) for one in rechecks]
    record_looks(site, run, [one for one in looks if one.error is None])
    for one in looks:
        if one.error is not None:
            result.pending.append(Pending.of(f"reading {run}@{one.step} back from {one.place.tier}", one.error))
    result.rechecked.extend(looks)
