"""Replicate: copy a checkpoint to another tier, verify it there, then record it. Copy, verify, record: in this order."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Final, TypeAlias

from lakemark.errors import (
    AnswerDamaged,
    Corrupt,
    LakemarkError,
    NameTaken,
    NoReplica,
    NotFound,
    Refused,
    SourceDamaged,
    StoreUnavailable,
)
from lakemark.model.entries.replicas import REPLICA_REFUSED, REPLICATED, ReplicaRefusedBody, ReplicatedBody
from lakemark.model.ledger.entry import Attachments, Draft
from lakemark.model.ledger.measures import told
from lakemark.model.ledger.run import Place, RecordState, Replica, RunState
from lakemark.ports import Checkpoint, CheckpointStore, Named, Replicas, Site, Stored
from lakemark.services.ledger import (
    checkpoint,
    opened,
    recorded,
    require_identity,
    require_writable,
)
from lakemark.services.tiers.sources import changed, claimed, let_go, note_damage
from lakemark.services.tiers.witness import Witness, read_back

_TRIES: Final = 3
_Put: TypeAlias = tuple[Stored, float]
"""What was stored, and how many seconds that took: copied, and proven as the tier proves."""


class SourceAway(StoreUnavailable):
    """No source could be read just now, which says nothing of the target."""

    @property
    def kind(self) -> str:
        return StoreUnavailable.__name__


def replicate(site: Site, run: str, record: str, *, to: str) -> RecordState:
    """The record, now with a sound replica in the tier `to`. One that is there already is left alone.

    Raises NotFound, Refused (pruned, tier identity, no space), NameTaken (recorded: the tier can't hold it), NoReplica (none
    is in reach), SourceDamaged (none of those in reach is right: recorded), TargetDamaged, AnswerDamaged, StoreUnavailable.
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
    # Before a byte: copies on a wrong disk would be recorded as this tier's.
    require_identity(site, target)
    # A tree in hot that has a name and no entry yet must not be taken for one that a crash left.
    try:
        with site.hot.naming() if target.place.node is not None else nullcontext():
            stored = _copy(site, found, target)
            site.progress.step("replicate.stored")
            _record(site, found, target, stored)
    except NameTaken as error:
        _refused(site, found, target, str(error))
        raise
    site.progress.step("replicate.recorded")
    return recorded(site.ledger.run(run), record)


def _copy(site: Site, found: RecordState, target: CheckpointStore) -> _Put:
    """From the nearest replica whose bytes are right. What the target does wrong ends it: no other source would help."""
    failures: list[LakemarkError] = []
    last = [store for store in let_go(site, found) if store.place != target.place]
    for replica, store in claimed(site, found, last):
        if replica.place == target.place:
            continue
        try:
            require_identity(site, store)
            held = checkpoint(site, found, tier=None if replica.place.node else store.name)
            _require_read(site, found, replica, held)
            return _put(site, found, store, held, target=target)
        except _TargetError as error:
            raise error.error from None
        except LakemarkError as error:
            failures.append(error)
    for store in last:
        try:
            require_identity(site, store)
            held = replace(checkpoint(site, found, tier=store.name), released=True)
            return _put(site, found, store, held, target=target)
        except _TargetError as error:
            raise error.error from None
        except LakemarkError as error:
            failures.append(error)
    raise _none_left(found, target, failures)


def _none_left(found: RecordState, target: Named, failures: Sequence[LakemarkError]) -> LakemarkError:
    """What is raised when no source was of use: one that may be later comes before one that is damaged."""
    for error in failures:
        if isinstance(error, StoreUnavailable):
            return SourceAway(str(error), advice=error.advice)
        if not isinstance(error, SourceDamaged | NotFound):
            return error
    shown = "; ".join(map(str, failures)) or "there is no other"
    kind = SourceDamaged if any(isinstance(error, SourceDamaged) for error in failures) else NoReplica
    return kind(
        f"no replica of {found.record.run}@{found.record.step} could be copied to {target.name}: {shown}",
        advice=f"lakemark verify {found.record.id[:12]} says which replicas are damaged.",
    )


class _TargetError(Exception):
    """Around an error that is no source's."""

    def __init__(self, error: LakemarkError) -> None:
        super().__init__(str(error))
        self.error = error


def _put(site: Site, found: RecordState, store: Replicas, held: Checkpoint, *, target: Replicas) -> _Put:
    """Copies from this one store. Raises _TargetError, SourceDamaged once it was read again and differed, else as read."""
    wanted = Checkpoint(record=found.record, manifest=held.manifest)
    what = f"{found.record.run}@{found.record.step} {store.name} → {target.name}"
    answer: LakemarkError | None = None
    for _ in range(_TRIES):
        witness = Witness(store, held)
        site.progress.expect(what, held.manifest.size_bytes)
        begun = site.seconds()
        try:
            stored = target.put(wanted, witness, now=site.now(), progress=site.progress)
            return stored, site.seconds() - begun
        except LakemarkError as error:
            if not witness.blamed(error):
                raise _TargetError(error) from error
            if not isinstance(error, Corrupt | NotFound):
                raise
            # What was let go has no state to read and record: wrong bytes of it are read again, missing ones are gone.
            if held.released and isinstance(error, NotFound):
                raise
            answer = error
        if held.released:
            continue
        # The bytes that came were wrong. Only the replica itself, read on its own, tells whether it is.
        _require_sound(site, found, store, held)
    if held.released and answer is not None:
        raise answer
    raise AnswerDamaged(
        f"{what}: read {_TRIES} times with wrong bytes, though {store.name} reads back right: {answer}",
        advice="Look at the network, the memory and the disk of this node; it is tried again by the next pass.",
    )


def _require_read(site: Site, found: RecordState, replica: Replica, held: Checkpoint) -> None:
    """A replica that may not be what the ledger says is read whole before anybody goes on with it, or without it."""
    # The trainer may have written into a linked file since it was sealed: its identity tells, without reading.
    if (replica.place == site.hot.place and changed(site, found)) or not replica.sound:
        _require_sound(site, found, site.tiers[replica.place.tier], held)


def _require_sound(site: Site, found: RecordState, store: Replicas, held: Checkpoint) -> None:
    """Reads it back and records what differs from the ledger. Raises SourceDamaged."""
    seen = read_back(store, held, progress=site.progress)
    note_damage(site, found, store.place, seen.damages)
    if seen.damages:
        first = seen.damages[0]
        raise SourceDamaged(
            f"{found.record.run}@{found.record.step} in {store.name}: {first.path or 'its own record'} {first.why}",
            advice=f"lakemark verify {found.record.id[:12]} --repair makes it again from another replica.",
        )


def _record(site: Site, found: RecordState, target: Named, put: _Put) -> None:
    """Raises Refused where the record was pruned while its bytes were copied."""
    record = found.record
    place = target.place
    stored, spent = put
    sequence = site.ledger.run(record.run).sequence
    body = ReplicatedBody(
        tier=place.tier,
        node=place.node,
        linked=stored.linked,
        proof=stored.proof,
        verified_at=stored.verified_at,
        written_bytes=stored.written_bytes,
        replicated_seconds=told(spent),
        size_bytes=record.size_bytes,
    )

    def decide(state: RunState) -> Draft | None:
        require_writable(state)
        now = recorded(state, record.id)
        # Retention may have let it go while its bytes were on their way.
        if now.pruned is not None:
            raise Refused(
                f"{record.run}@{record.step} was pruned meanwhile", advice="Nothing to do; the copy is collected."
            )
        standing = now.replicas.get(place)
        if standing is not None and standing.sound:
            return None
        # With the names of its objects: without them nobody finds the bytes in a DVC tier again.
        contents = Attachments(objects=stored.objects or None)
        return REPLICATED.draft(body, timeline=record.timeline, record=record.id, contents=contents)

    site.ledger.append(record.run, decide, site.stamp(f"replicate:{record.id}:{_key(place)}:{sequence}"))


def _refused(site: Site, found: RecordState, target: Named, why: str) -> None:
    """Recorded, so that no pass tries it again and everybody sees that the record is kept there in vain."""
    record, place = found.record, target.place
    sequence = site.ledger.run(record.run).sequence

    def decide(state: RunState) -> Draft | None:
        require_writable(state)
        if recorded(state, record.id).refused.get(place) == why:
            return None
        body = ReplicaRefusedBody(tier=place.tier, node=place.node, why=why)
        return REPLICA_REFUSED.draft(body, timeline=record.timeline, record=record.id)

    if (
        site.ledger.append(record.run, decide, site.stamp(f"refused:{record.id}:{_key(place)}:{sequence}")).entry
        is None
    ):
        return
    site.progress.step("replicate.refused")


def _key(place: Place) -> str:
    return f"{place.tier}@{place.node}" if place.node else place.tier
