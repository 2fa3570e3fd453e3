"""Sweep: one pass that finds saves, finishes or undoes what was interrupted, and does what residence says.

Whoever runs it second finds it done. A part that can't reach what it needs says so in `pending`; the others go on.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from lakemark.errors import LakemarkError, StoreUnavailable
from lakemark.model.entry import Contents, Draft
from lakemark.model.ledger import RecordState, RunState
from lakemark.model.placing import standing
from lakemark.model.residence import Move, Release
from lakemark.ports import Checkpoint, Site
from lakemark.services import pins, rollback_apply, rollback_decide
from lakemark.services.appending import Settled, checkpoint
from lakemark.services.commit import Committed
from lakemark.services.demote import Pending, demote
from lakemark.services.find_saves import commit_found
from lakemark.services.observe import observe
from lakemark.services.register_tiers import register_all
from lakemark.services.release import drop_unclaimed
from lakemark.services.sources import note_damage


@dataclass(slots=True, kw_only=True)
class Swept:
    """said: what was finished, undone, observed or pinned, a sentence each."""

    committed: list[Committed] = field(default_factory=list)
    replicated: list[Move] = field(default_factory=list)
    released: list[Release] = field(default_factory=list)
    thinned: list[str] = field(default_factory=list)
    incomplete: list[tuple[Path, str]] = field(default_factory=list)
    pending: list[Pending] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


def sweep(site: Site, *, move: bool = True) -> Swept:
    """move=False: finds and finishes only; replicas stay as they are."""
    result = Swept()
    for name, outcome in register_all(site).items():
        if isinstance(outcome, LakemarkError):
            result.pending.append(
                Pending(what=f"tier {name}", why=str(outcome), transient=isinstance(outcome, StoreUnavailable))
            )
        elif isinstance(outcome, Exception):
            raise outcome
    _part(result, "unfinished work", lambda: result.said.extend(finish(site)))
    _part(result, "saves", lambda: _saves(site, result))
    _part(result, "linked files", lambda: result.said.extend(suspects(site)))
    if site.data is not None:
        _part(result, "data branches", lambda: result.said.extend(observe(site)))
        _part(result, "pins", lambda: result.said.extend(pins.settle(site)))
    _part(result, "rollbacks", lambda: _rollbacks(site, result))
    if move:
        for run in site.ledger.runs():
            _part(result, f"replicas of {run}", lambda run=run: _demote(site, run, result))  # type: ignore[misc]
        _part(result, "condemned bytes", lambda: collect(site, result))
    return result


def finish(site: Site) -> list[str]:
    """Ends what a crash left half done in hot: dead landings go, named trees without an entry get it or go, released ones go."""
    said = [f"removed {count} landing(s) whose process is gone" for count in [site.hot.clean()] if count]
    said.extend(f"dropped the released {identity[:12]} from {site.hot.name}" for identity in drop_unclaimed(site))
    listing = site.hot.records()
    claimed = {identity for run in site.ledger.runs() for identity in site.ledger.run(run).records}
    orphans = [identity for identity in listing.records if identity not in claimed] if listing.complete else []
    said.extend(_adopt(site, site.hot.load(identity)) for identity in orphans)
    site.progress.step("sweep.finished")
    return said


def suspects(site: Site) -> list[str]:
    """Looks at the identity of linked replicas; one that changed in place counts for nothing until it was read."""
    said: list[str] = []
    for run in site.ledger.runs():
        for found in list(site.ledger.run(run).records.values()):
            replica = found.replicas.get(site.hot.place)
            if replica is None or not replica.linked or not replica.sound:
                continue
            damages = site.hot.changed(checkpoint(site, found))
            if damages:
                note_damage(site, found, replica.place, damages)
                said.append(f"{run}@{found.record.step} in {site.hot.name} may have changed: {damages[0].why}")
    return said


def collect(site: Site, result: Swept) -> None:
    """Removes bytes of shared tiers that nothing claims any more, after the grace."""
    for name, store in site.tiers.items():
        if store.place.node is not None:
            continue
        needed = [
            checkpoint(site, found, tier=name)
            for run in site.ledger.runs()
            for found in site.ledger.run(run).records.values()
            if store.place in found.replicas
        ]
        freed = store.collect(now=site.now(), grace=site.policies.grace, needed=needed)
        if freed:
            result.said.append(f"freed {freed} bytes of {name}")


def _part(result: Swept, what: str, work: Callable[[], object]) -> None:
    try:
        work()
    except LakemarkError as error:
        result.pending.append(Pending(what=what, why=str(error), transient=isinstance(error, StoreUnavailable)))


def _saves(site: Site, result: Swept) -> None:
    saves = commit_found(site)
    result.committed.extend(saves.committed)
    result.incomplete.extend(saves.incomplete)
    result.pending.extend(
        Pending(what=str(path), why=str(error), transient=isinstance(error, StoreUnavailable))
        for path, error in saves.failed
    )


def _rollbacks(site: Site, result: Swept) -> None:
    result.said.extend(f"the rollback {identity} expired" for identity in rollback_decide.expire(site))
    if site.data is not None:
        result.said.extend(rollback_apply.leftovers(site))


def _demote(site: Site, run: str, result: Swept) -> None:
    done = demote(site, run)
    result.replicated.extend(done.replicated)
    result.released.extend(done.released)
    result.thinned.extend(done.thinned)
    result.pending.extend(done.pending)


def _adopt(site: Site, sealed: Checkpoint) -> str:
    """A crash fell between naming the tree and its entry: nobody was told it is safe, but it may be all there is."""
    record = sealed.record
    shown = f"{record.run}@{record.step} ({record.id[:12]})"
    body = {
        "attempt": record.attempt,
        "supersedes": record.supersedes,
        "conflicts_with": None,
        "tier": site.hot.name,
        "node": site.node,
        "linked": True,
        "source": None,
    }

    def decide(state: RunState) -> Draft:
        if record.id in state.records or _taken(state, sealed) is not None or not state.exists:
            raise Settled(None)
        contents = Contents(record=record, manifest=sealed.manifest)
        return Draft(kind="committed", timeline=record.timeline, body=body, contents=contents, saved_at=record.saved_at)

    damages = site.hot.verify(sealed, progress=site.progress)
    if not damages:
        with suppress(Settled):
            site.ledger.append(record.run, decide, site.stamp(f"commit:{record.id}"))
    if record.id in site.ledger.run(record.run).records:
        return f"finished the commit of {shown}"
    site.hot.drop(sealed, now=site.now())
    return f"undid the commit of {shown}"


def _taken(state: RunState, sealed: Checkpoint) -> RecordState | None:
    """Another record that stands at its step, which it was not meant to supersede."""
    found = standing(state, sealed.record.timeline, sealed.record.step)
    known = sealed.record.timeline in state.timelines
    if found is not None and found.record.id != sealed.record.supersedes:
        return found
    return None if known else found
