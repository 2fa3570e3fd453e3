"""Verify: read a replica's bytes back, compare them with the manifest, and record what was seen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from lakemark.errors import InDistress, LakemarkError, NoReplica
from lakemark.model.entries.reads import VERIFIED, VerifiedBody, VerifiedReplica
from lakemark.model.ledger.entry import Draft
from lakemark.model.ledger.run import Place, RecordState, RunState
from lakemark.model.values.instants import to_text
from lakemark.ports import Damage, Site
from lakemark.services.ledger import checkpoint, left_out, named_again, require_identity
from lakemark.services.soundness import RECOVER, distress
from lakemark.services.tiers.witness import read_back


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLook:
    """One replica, read back. `damages` empty: every byte is right. error: it could not be read (nothing is recorded).

    unsteady: one reading found damage that the next one did not: the way the bytes came is not to be trusted.
    """

    record: str
    run: str
    step: int
    place: Place
    damages: tuple[Damage, ...] = ()
    error: LakemarkError | None = None
    unsteady: bool = False

    @property
    def ok(self) -> bool:
        return not self.damages and self.error is None


@dataclass(slots=True, kw_only=True)
class Verified:
    """Every replica looked at. unrecorded: why what was seen could not be appended to the ledger; it was seen all the same."""

    looks: list[ReplicaLook] = field(default_factory=list)
    unrecorded: list[LakemarkError] = field(default_factory=list)

    @property
    def damaged(self) -> list[ReplicaLook]:
        return [look for look in self.looks if look.damages]


def verify(site: Site, records: Sequence[RecordState], *, tier: str | None = None) -> Verified:
    """Reads every reachable replica of `records` (of `tier` only, if given) back, whole, and records the outcome.

    One entry per run for the pass. A replica that can't be reached is in the answer, not in the ledger.
    """
    result = Verified()
    for found in records:
        result.looks += [one for one in unnamed(site, found) if tier in (None, one.place.tier)]
    # For its error alone: a tier that nobody knows is not one without replicas.
    if tier is not None and not result.looks:
        site.store(tier)
    for found in records:
        for place in list(found.replicas):
            if place.tier in site.tiers and place.node in (None, site.node) and tier in (None, place.tier):
                result.looks.append(look(site, found, place))
    for run in sorted({look.run for look in result.looks}):
        try:
            record_looks(site, run, [one for one in result.looks if one.run == run and one.error is None])
        except LakemarkError as error:
            # A full or damaged ledger is no reason to keep quiet about what the tiers hold.
            result.unrecorded.append(error)
    with_news = any(one.error is None for one in result.looks)
    why = distress(site) if with_news else None
    if why is not None:
        result.unrecorded.append(InDistress(why, advice=RECOVER))
    return result


def unnamed(site: Site, found: RecordState) -> Iterator[ReplicaLook]:
    """Of replicas in tiers that the configuration leaves out: nobody can look at them, which is said."""
    for place in left_out(site, found):
        error = NoReplica(f"lakemark.yaml of {site.node} does not name {place.tier}", advice=named_again((place.tier,)))
        yield ReplicaLook(
            record=found.record.id, run=found.record.run, step=found.record.step, place=place, error=error
        )


def look(site: Site, found: RecordState, place: Place) -> ReplicaLook:
    """Reads one replica back, and again where something differs: damaged is what differs twice. Records nothing."""
    store = site.tiers[place.tier]
    record = found.record
    seen = ReplicaLook(record=record.id, run=record.run, step=record.step, place=place)
    try:
        # Whose place it is goes before the bytes: an empty mount point would read as if all were lost.
        require_identity(site, store)
        held = checkpoint(site, found, tier=None if place.node else place.tier)
        site.progress.expect(f"verifying {record.run}@{record.step} in {place.tier}", record.size_bytes)
        found_there = read_back(store, held, progress=site.progress)
    except LakemarkError as error:
        return replace(seen, error=error)
    return replace(seen, damages=found_there.damages, unsteady=found_there.unsteady)


def record_looks(site: Site, run: str, looks: Sequence[ReplicaLook]) -> None:
    """One `verified` entry for what was seen. Nothing where there is nothing to say."""
    if not looks:
        return
    items = [
        VerifiedReplica(
            record=one.record,
            tier=one.place.tier,
            node=one.place.node,
            ok=one.ok,
            damaged=tuple(f"{damage.path}: {damage.why}" for damage in one.damages[:100]),
        )
        for one in looks
    ]
    at = site.now()

    def decide(state: RunState) -> Draft | None:
        # Reading takes long: what was released meanwhile has no replica that an entry could speak of.
        still = tuple(item for item in items if _claimed(state, item))
        if not still:
            return None
        return VERIFIED.draft(VerifiedBody(items=still, verified_at=at), timeline=state.timeline)

    # With the sequence: two looks within one tick of the clock are two.
    sequence = site.ledger.run(run).sequence
    try:
        appended = site.ledger.append(run, decide, site.stamp(f"verified:{site.node}:{to_text(at)}:{sequence}"))
    except InDistress:  # reading goes on where nothing may be recorded
        return
    if appended.entry is not None:
        site.progress.step("verify.recorded")


def _claimed(state: RunState, item: VerifiedReplica) -> bool:
    found = state.records.get(item.record or "")
    return found is not None and item.place in found.replicas
