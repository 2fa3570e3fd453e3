"""Un-share: a linked replica that is the only copy becomes a real one before somebody writes into its files."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from lakemark.errors import Corrupt, LakemarkError
from lakemark.model.entries.reads import VERIFIED, VerifiedBody, VerifiedReplica
from lakemark.model.ledger.entry import Draft
from lakemark.model.ledger.run import RecordState, RunState
from lakemark.model.tiers.sharing import alone_by_link
from lakemark.ports import Site
from lakemark.services.ledger import checkpoint, recorded
from lakemark.services.tiers.sources import note_damage
from lakemark.services.tiers.witness import read_back


def unshare(site: Site, state: RunState) -> None:
    """Copies the linked files of every record of the run that has no other sound replica; what changed is noted instead.

    Raises NoRoom where the disk has none for it: then no process should start yet.
    """
    for found in list(state.records.values()):
        here = found.replicas.get(site.hot.place)
        if here is None or not here.linked or here.suspect:
            continue
        # Where another sound copy lies elsewhere, losing this one costs a copy back, not a checkpoint.
        if sum(replica.sound for replica in found.replicas.values()) == 1:
            _copied(site, found)


def unshare_due(site: Site, run: str, *, slower: Collection[str]) -> list[tuple[RecordState, LakemarkError]]:
    """The same for those that were the only copy for too long (`alone_by_link`); answers what could not be copied, and why."""
    failed: list[tuple[RecordState, LakemarkError]] = []
    due = alone_by_link(
        site.ledger.run(run), site.hot.place, site.now(), rpo=site.policies.objectives.rpo, slower=frozenset(slower)
    )
    # One that can't be copied must not keep the others at risk.
    for found in list(due):
        try:
            _copied(site, found)
        except LakemarkError as error:
            failed.append((found, error))
    return failed


def _copied(site: Site, found: RecordState) -> None:
    held = checkpoint(site, found)
    with suppress(Corrupt):
        site.hot.unshare(held.record.id, progress=site.progress)
    # One reading is no proof, neither that of the copying nor the next one alone.
    damages = read_back(site.hot, held, progress=site.progress).damages
    if damages:
        note_damage(site, found, site.hot.place, damages)
    else:
        _record(site, found)
    site.progress.step("attempt.unshared")


def _record(site: Site, found: RecordState) -> None:
    """That all of it was read, and that it shares nothing any more."""
    record, place = found.record, site.hot.place
    at = site.now()

    def decide(state: RunState) -> Draft | None:
        now = recorded(state, record.id).replicas.get(place)
        if now is None or not now.linked:
            return None
        item = VerifiedReplica(record=record.id, tier=place.tier, node=place.node, ok=True, linked=False)
        return VERIFIED.draft(VerifiedBody(items=(item,), verified_at=at), timeline=record.timeline)

    sequence = site.ledger.run(record.run).sequence
    site.ledger.append(record.run, decide, site.stamp(f"unshared:{record.id}:{site.node}:{sequence}"))
