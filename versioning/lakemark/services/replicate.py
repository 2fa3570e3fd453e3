"""Replicate: copy a checkpoint to another tier, verify it there, then record it. Copy, verify, record: in this order."""

from __future__ import annotations

from lakemark.errors import Corrupt, LakemarkError, NoReplica, NotFound, Refused
from lakemark.model.entry import Contents, Draft
from lakemark.model.instants import to_text
from lakemark.model.ledger import Place, RecordState, Replica, RunState
from lakemark.ports import Checkpoint, CheckpointStore, Damage, Site, Source, Stored
from lakemark.services.appending import (
    Settled,
    checkpoint,
    opened,
    recorded,
    require_identity,
    require_writable,
)
from lakemark.services.sources import nearest, note_damage


def replicate(site: Site, run: str, record: str, *, to: str) -> RecordState:
    """The record, now with a sound replica in the tier `to`. One that is there already is left alone.

    Raises NotFound, Refused (pruned, tier identity, no space), NoReplica (no source has right bytes), StoreUnavailable.
    """
    found = recorded(opened(site, run), record)
    target = site.store(to)
    if found.pruned is not None:
        raise Refused(
            f"{run}@{found.record.step} is pruned ({', '.join(found.pruned)})",
            advice=f"See `lakemark ls {run} --pruned`, and choose another record.",
        )
    standing = found.replicas.get(target.place)
    if standing is not None and standing.sound:
        return found
    require_identity(site, target)
    stored = _copy(site, found, target)
    site.progress.step("replicate.stored")
    _record(site, found, target, stored)
    site.progress.step("replicate.recorded")
    return site.ledger.run(run).records[record]


def _copy(site: Site, found: RecordState, target: CheckpointStore) -> Stored:
    """From the nearest replica whose bytes are right; the others are recorded as damaged."""
    failures: list[str] = []
    unavailable: LakemarkError | None = None
    for replica, store in nearest(site, found):
        if replica.place == target.place:
            continue
        try:
            require_identity(site, store)
            held = checkpoint(site, found, tier=None if replica.place.node else store.name)
            if _suspect(site, found, replica, held):
                failures.append(f"{store.name}: changed since it was sealed")
                continue
            wanted = Checkpoint(record=found.record, manifest=held.manifest)
            site.progress.expect(
                f"{found.record.run}@{found.record.step} {store.name} → {target.name}", held.manifest.size_bytes
            )
            return target.put(wanted, _source(store, held), now=site.now(), progress=site.progress)
        except Corrupt as error:
            note_damage(site, found, replica.place, [Damage(path="", why=str(error))])
            failures.append(f"{store.name}: {error}")
        except NotFound as error:
            failures.append(f"{store.name}: {error}")
        except LakemarkError as error:
            unavailable = error
            failures.append(f"{store.name}: {error}")
    if unavailable is not None:
        raise unavailable
    what = f"{found.record.run}@{found.record.step}"
    raise NoReplica(
        f"no replica of {what} could be copied to {target.name}: {'; '.join(failures) or 'there is no other'}",
        advice=f"lakemark verify {found.record.id[:12]} says which replicas are damaged.",
    )


def _source(store: CheckpointStore, held: Checkpoint) -> Source:
    return lambda file: store.open(held, file)


def _suspect(site: Site, found: RecordState, replica: Replica, held: Checkpoint) -> bool:
    if replica.place != site.hot.place:
        return False
    damages = site.hot.changed(held)
    if damages:
        note_damage(site, found, replica.place, damages)
    return bool(damages)


def _record(site: Site, found: RecordState, target: CheckpointStore, stored: Stored) -> None:
    record = found.record
    place = target.place
    sequence = site.ledger.run(record.run).sequence
    body = {
        "tier": place.tier,
        "node": place.node,
        "linked": stored.linked,
        "proof": stored.proof,
        "verified_at": to_text(stored.verified_at),
        "written_bytes": stored.written_bytes,
    }

    def decide(state: RunState) -> Draft:
        require_writable(state)
        now = state.records[record.id]
        if now.pruned is not None:
            raise Refused(
                f"{record.run}@{record.step} was pruned meanwhile", advice="Nothing to do; the copy is collected."
            )
        standing = now.replicas.get(place)
        if standing is not None and standing.sound:
            raise Settled(None)
        contents = Contents(objects=stored.objects or None)
        return Draft(kind="replicated", timeline=record.timeline, body=body, record=record.id, contents=contents)

    try:
        site.ledger.append(record.run, decide, site.stamp(f"replicate:{record.id}:{_key(place)}:{sequence}"))
    except Settled:
        return


def _key(place: Place) -> str:
    return f"{place.tier}@{place.node}" if place.node else place.tier
