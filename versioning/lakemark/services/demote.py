"""Demote: do what residence says. Replicate further down, read back what has settled, release what is proven below."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from lakemark.errors import LakemarkError, NoReplica, StoreUnavailable
from lakemark.model.canonical import JSON
from lakemark.model.entry import Draft
from lakemark.model.ledger import RecordState, RunState
from lakemark.model.residence import Move, Moves, Recheck, Release, Tier
from lakemark.model.retention import RetentionPolicy, apply_policy
from lakemark.model.rollback import target_of
from lakemark.model.tiers import plan_moves
from lakemark.model.timeline import lineage
from lakemark.ports import Site
from lakemark.services.appending import Settled, checkpoint, require_identity
from lakemark.services.release import release_all
from lakemark.services.replicate import replicate
from lakemark.services.verify import Look, look, record_looks

_ROUNDS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """Something due that was not done: what, why, and whether trying again later will help by itself."""

    what: str
    why: str
    transient: bool = False


@dataclass(slots=True, kw_only=True)
class Demoted:
    """What a pass did, and what is due and was not done."""

    replicated: list[Move] = field(default_factory=list)
    rechecked: list[Look] = field(default_factory=list)
    released: list[Release] = field(default_factory=list)
    thinned: list[str] = field(default_factory=list)
    pending: list[Pending] = field(default_factory=list)


def demote(site: Site, run: str) -> Demoted:
    """One pass over a run's replicas. What can't be done now is in `pending`; nothing is raised for one tier being away."""
    result = Demoted()
    tiers = _present(site, result)
    _recheck(site, run, _suspects(site, run, plan(site, run, tiers).recheck), result)
    failed: set[tuple[str, str]] = set()
    for _ in range(_ROUNDS):
        moves = [move for move in plan(site, run, tiers).replicate if (move.record, move.tier) not in failed]
        if not moves:
            break
        for move in moves:
            if not _replicate(site, move, result):
                failed.add((move.record, move.tier))
    _recheck(site, run, plan(site, run, tiers).recheck, result)
    final = plan(site, run, tiers)
    try:
        result.released.extend(release_all(site, run, final.release))
    except LakemarkError as error:
        result.pending.append(_pending(f"releases of {run}", error))
    result.pending.extend(
        Pending(what=f"{run}@{site.ledger.run(run).records[one.record].record.step} {one.tier}", why=one.why)
        for one in final.waiting
    )
    result.thinned.extend(_thin(site, run))
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
    """Ids of the records retention would keep: the current lineage by the run's policy, the rest by `abandoned`."""
    current = list(lineage(state))
    ids = {found.record.id for found in current}
    left: dict[int, list[RecordState]] = {}
    for found in state.records.values():
        if found.record.id not in ids:
            left.setdefault(found.record.timeline, []).append(found)
    result: set[str] = set()
    for records, policy in [
        (current, policy_of(site, state.run)),
        *((rows, policy_of(site, None)) for rows in left.values()),
    ]:
        if policy is None:
            result.update(found.record.id for found in records)
            continue
        verdict = apply_policy(
            records, policy, now=site.now(), zone=site.policies.retention_zone, min_keep=site.policies.min_keep
        )
        result.update(one.record for one in verdict.keep)
    return frozenset(result)


def policy_of(site: Site, run: str | None) -> RetentionPolicy | None:
    """The first pattern that matches the run, else `default`; for None that of timelines left behind. None: keep all."""
    policies = site.policies.retention
    if run is None:
        return policies.get("abandoned")
    named = [name for name in policies if name not in ("default", "abandoned") and fnmatchcase(run, name)]
    return policies.get(named[0] if named else "default")


def _present(site: Site, result: Demoted) -> list[Tier]:
    """Tiers whose place is the one the ledger knows. The others take no part, and justify nothing, in this pass."""
    tiers: list[Tier] = []
    for name, store in site.tiers.items():
        try:
            require_identity(site, store)
        except LakemarkError as error:
            result.pending.append(_pending(f"tier {name}", error))
            continue
        tiers.append(tier_of(site, name))
    return tiers


def _replicate(site: Site, move: Move, result: Demoted) -> bool:
    try:
        replicate(site, move.run, move.record, to=move.tier)
    except LakemarkError as error:
        step = site.ledger.run(move.run).records[move.record].record.step
        result.pending.append(_pending(f"{move.run}@{step} to {move.tier}", error))
        return False
    result.replicated.append(move)
    return True


def _suspects(site: Site, run: str, rechecks: Iterable[Recheck]) -> list[Recheck]:
    """Those that may turn out to be a source after all."""
    records = site.ledger.run(run).records
    return [one for one in rechecks if records[one.record].replicas[one.place].suspect]


def _recheck(site: Site, run: str, rechecks: Iterable[Recheck], result: Demoted) -> None:
    state = site.ledger.run(run)
    looks = [look(site, state.records[one.record], one.place) for one in rechecks]
    record_looks(site, run, [one for one in looks if one.error is None])
    for one in looks:
        if one.error is not None:
            result.pending.append(_pending(f"reading {run}@{one.step} back from {one.place.tier}", one.error))
    result.rechecked.extend(looks)


def _thin(site: Site, run: str) -> list[str]:
    """Below `min_free`, with `when_full: thin`: drops last copies of what retention would not keep, oldest first, loudly.

    Never the newest, a held record, or the target of an open rollback.
    """
    state = site.ledger.run(run)
    if site.policies.when_full != "thin" or not _full(site) or state.blocked.value != "ignore":
        return []
    keep = kept(site, state) | {target_of(request) for request in state.rollbacks.values() if request.open}
    thinned: list[str] = []
    for found in sorted(state.records.values(), key=lambda found: found.instant):
        alone = set(found.replicas) == {site.hot.place}
        if not alone or found.held or found.pruned is not None or found.record.id in keep:
            continue
        if not _full(site):
            break
        held = checkpoint(site, found)
        if _record_thinned(site, found):
            site.hot.drop(held, now=site.now())
            thinned.append(found.record.id)
    return thinned


def _full(site: Site) -> bool:
    return site.hot.full()


def _record_thinned(site: Site, found: RecordState) -> bool:
    record = found.record
    item: dict[str, JSON] = {"record": record.id, "reasons": ["thinned: hot is below min_free"], "thinned": True}

    def decide(state: RunState) -> Draft:
        now = state.records[record.id]
        if now.pruned is not None or now.held or set(now.replicas) != {site.hot.place}:
            raise Settled(None)
        return Draft(kind="pruned", timeline=record.timeline, body={"items": [item]}, reason="thinned")

    try:
        site.ledger.append(record.run, decide, site.stamp(f"thinned:{record.id}"))
    except Settled:
        return False
    return True


def _pending(what: str, error: LakemarkError) -> Pending:
    return Pending(what=what, why=str(error), transient=isinstance(error, StoreUnavailable | NoReplica))
