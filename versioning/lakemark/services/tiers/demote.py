"""Demote: do what residence says. Replicate further down, read back what has settled, release what is proven below.

What is due of a run is decided once, by `plan`, and shown by a dry run as it is. A pass carries it out in three parts:
`begin` looks at this node's hot, `sink` fills one slower tier, each tier in a lane of its own, and `settle` releases. So a
tier that is slow or away keeps nothing from the others. A part decides anew only where entries came in since.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Self

from lakemark.errors import LakemarkError, NoRoom, StoreUnavailable
from lakemark.model.ledger.run import Place, RunState
from lakemark.model.tiers.moves import plan_moves
from lakemark.model.tiers.residence import Move, Moves, Recheck, Release, Tier
from lakemark.ports import Site
from lakemark.services.ledger import recorded, require_identity, require_lasting
from lakemark.services.soundness import require_sound
from lakemark.services.tiers.kept import why_kept
from lakemark.services.tiers.release import release_all
from lakemark.services.tiers.replicate import SourceAway, replicate
from lakemark.services.tiers.thin import thin
from lakemark.services.tiers.unshare import unshare_due
from lakemark.services.tiers.verify import ReplicaLook, look, record_looks
from lakemark.services.tiers.witness import is_transient


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
    """What a pass did, and what is due and was not done.

    away: tiers that took nothing, and why: out of reach, too slow, or full.
    """

    replicated: list[Move] = field(default_factory=list)
    rechecked: list[ReplicaLook] = field(default_factory=list)
    released: list[Release] = field(default_factory=list)
    thinned: list[str] = field(default_factory=list)
    pending: list[Pending] = field(default_factory=list)
    away: dict[str, str] = field(default_factory=dict)

    def add(self, other: Demoted) -> None:
        """What another part of the same pass did."""
        self.replicated += other.replicated
        self.rechecked += other.rechecked
        self.released += other.released
        self.thinned += other.thinned
        self.pending += other.pending
        self.away |= other.away


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is due of a run's replicas. tip: revision of the run's newest entry then, or of an earlier one.

    tiers: those it counts on.
    """

    run: str
    tip: str | None
    tiers: tuple[Tier, ...]
    moves: Moves

    @property
    def is_work(self) -> bool:
        """Whether anything is to be done that is not waited for."""
        return bool(self.moves.replicate or self.moves.recheck or self.moves.release)


def plan(site: Site, run: str, tiers: Iterable[Tier]) -> Plan:
    """What is due now, decided from the ledger alone. tiers: those in use."""
    tip, used = site.ledger.tip(run), tuple(tiers)  # the tip first: what comes in meanwhile is planned with again
    state, policies = site.ledger.run(run), site.policies
    retained = any(policies.residence[one.name].admit.retained for one in used if one.name in policies.residence)
    moves = plan_moves(
        state,
        used,
        policies.residence,
        site.now(),
        node=site.node,
        copies=policies.copies,
        # What retention keeps costs as much to tell as all the rest, and only such a tier asks for it.
        kept=kept(site, state) if retained else frozenset(),
    )
    return Plan(run=run, tip=tip, tiers=used, moves=moves)


def renewed(site: Site, known: Plan, *, tiers: Iterable[Tier] | None = None) -> Plan:
    """The same, unless entries came in since, or it counted on others than `tiers`."""
    used = known.tiers if tiers is None else tuple(tiers)
    return known if (site.ledger.tip(known.run), used) == (known.tip, known.tiers) else plan(site, known.run, used)


def in_words(site: Site, due: Plan) -> list[str]:
    """What a pass would do, for a dry run."""
    records, run = site.ledger.run(due.run).records, due.run
    return [
        *(f"replicate {run}@{records[one.record].record.step} to {one.tier}: {one.why}" for one in due.moves.replicate),
        *(
            f"release {run}@{records[one.record].record.step} from {one.place.tier}: {one.why}"
            for one in due.moves.release
        ),
    ]


def demote(
    site: Site, run: str, *, tiers: Sequence[Tier] | None = None, need_bytes: int = 0, away: Collection[str] = ()
) -> Demoted:
    """One pass over a run's replicas. What can't be done now is in `pending`; only InDistress is raised.

    tiers: those found `present` just before; None: they are looked at now. need_bytes: the largest save that waits for room.
    away: tiers that took nothing for another run just now: they are not asked again.
    """
    result = Demoted()
    if tiers is None:
        tiers, result.pending = present(site)
    require_sound(site)
    due = plan(site, run, tiers)
    result.add(begin(site, due))
    due = renewed(site, due)
    # A tier that took nothing costs a timeout: once a pass, not once a run.
    lanes = [partial(sink, site, due, to=tier.name) for tier in slower(tiers) if tier.name not in away]
    for done in site.at_once(lanes):
        result.add(done)
    result.add(settle(site, due, need_bytes=need_bytes, away={*away, *result.away}))
    return result


def demote_all(
    site: Site,
    runs: Iterable[str],
    *,
    tiers: Sequence[Tier],
    need_bytes: int = 0,
    first: Callable[[str], None] = lambda _: None,
) -> Demoted:
    """The same over several runs, each tier's lane over all of them. What can't be done for a run now is in `pending`.

    first: called with each run before anything is done for it.
    """
    result = Demoted()
    waiting: list[Plan] = []
    for run in runs:
        first(run)
        with _pending(result, run):
            due = plan(site, run, tiers)
            result.add(begin(site, due))
            due = renewed(site, due)
            if due.is_work:
                waiting.append(due)
            else:  # it asks nothing of a slower tier: done with while it is in memory
                result.add(settle(site, due, need_bytes=need_bytes))
    for done in site.at_once([partial(_lane, site, waiting, tier.name) for tier in slower(tiers)]):
        result.add(done)
    for due in waiting:
        with _pending(result, due.run):
            result.add(settle(site, due, need_bytes=need_bytes, away=result.away))
    return result


def _lane(site: Site, waiting: Sequence[Plan], to: str) -> Demoted:
    """Of all runs, until the tier takes nothing: that costs a pass its time once."""
    result = Demoted()
    for due in waiting:
        if not result.away:
            with _pending(result, due.run):
                result.add(sink(site, due, to=to))
    return result


@contextmanager
def _pending(result: Demoted, run: str) -> Iterator[None]:
    try:
        yield
    except LakemarkError as error:
        result.pending.append(Pending.of(f"replicas of {run}", error))


def begin(site: Site, due: Plan) -> Demoted:
    """The first part of a pass over a run: what may have changed in this node's hot is read, as every lane reads from it."""
    require_sound(site)
    result = Demoted()
    _recheck(site, due.run, [one for one in due.moves.recheck if one.place == site.hot.place], result)
    return result


def sink(site: Site, due: Plan, *, to: str) -> Demoted:
    """One tier's lane: replicates what of a run is due in the tier `to`, and nothing else. Lanes may run beside each other.

    A tier that is out of reach, too slow or full is not asked again, and is `away` then.
    """
    require_sound(site)
    result = Demoted()
    rechecks = [one for one in due.moves.recheck if one.place == Place(tier=to)]
    if rechecks:
        _recheck(site, due.run, rechecks, result)
        due = renewed(site, due)
    # Sources that did not answer: records that lie nowhere else are not tried, one timeout after the other.
    stuck: set[frozenset[Place]] = set()
    for move in due.moves.replicate:
        if move.tier != to:
            continue
        error = _replicate(site, move, result, stuck=_sources(site, move) in stuck)
        if isinstance(error, SourceAway):
            stuck.add(_sources(site, move))  # anew: one that was found damaged is none any more
        elif isinstance(error, StoreUnavailable | NoRoom):
            result.away[to] = str(error)
            break
    return result


def settle(site: Site, due: Plan, *, need_bytes: int = 0, away: Collection[str] = ()) -> Demoted:
    """The last part of a pass over a run: releases what is proven below, and thins hot where it must. away: as sinking found."""
    require_sound(site)
    result, run = Demoted(), due.run
    # While all slower tiers are away a linked save is the only copy, and the trainer may write into it.
    near = [tier.name for tier in slower(due.tiers) if tier.name not in away]
    result.pending.extend(
        Pending.of(f"a copy of our own of {run}@{found.record.step}", error)
        for found, error in unshare_due(site, run, slower=near)
    )
    due = renewed(site, due)
    if due.moves.release:
        # Stores are asked for their rules only where something is to go: that is a request to each.
        due = renewed(site, due, tiers=_lasting(site, due.tiers, result))
    _release_all(site, run, due.moves.release, result)
    state = site.ledger.run(run)
    result.pending.extend(
        Pending(what=f"{run}@{recorded(state, one.record).record.step} {one.tier}", why=one.why, planned=True)
        for one in due.moves.waiting
    )
    try:
        result.thinned.extend(thin(site, run, need_bytes=need_bytes))
    except LakemarkError as error:
        result.pending.append(Pending.of(f"thinning {run}", error))
    return result


def slower(tiers: Iterable[Tier]) -> list[Tier]:
    """Those that have lanes."""
    return [tier for tier in tiers if tier.tier_class != "hot"]


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


def _sources(site: Site, move: Move) -> frozenset[Place]:
    replicas = recorded(site.ledger.run(move.run), move.record).replicas
    return frozenset(place for place, replica in replicas.items() if replica.sound and place.tier != move.tier)


def _replicate(site: Site, move: Move, result: Demoted, *, stuck: bool) -> LakemarkError | None:
    """stuck: another record has the same sources, and none of them answered."""
    try:
        if stuck:
            raise SourceAway("its sources did not answer just now", advice="It is tried again by the next pass.")
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
    # What could not be read says nothing of the bytes, so the ledger says nothing of it.
    record_looks(site, run, [one for one in looks if one.error is None])
    for one in looks:
        if one.error is not None:
            result.pending.append(Pending.of(f"reading {run}@{one.step} back from {one.place.tier}", one.error))
    result.rechecked.extend(looks)
