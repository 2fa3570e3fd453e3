"""Unclaim: replicas that the ledger claims and their place does not hold, recorded as not there.

For the recovery alone: the entry that let them go was lost with a newer ledger, and no copy has it. Everywhere else a replica
that is not where it should be is damage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lakemark.errors import LakemarkError
from lakemark.model.entries.pruning import PRUNED, PrunedBody, PrunedRecord
from lakemark.model.entries.replicas import (
    DATA_LOST,
    RELEASED,
    gone_from,
)
from lakemark.model.ledger.entry import Draft
from lakemark.model.ledger.run import Place, RecordState, Replica, RunState
from lakemark.ports import Site
from lakemark.services.ledger import checkpoint, require_identity
from lakemark.services.tiers.thin import thinned_at
from lakemark.services.tiers.verify import look, record_looks

_REASON: Final = "ledger recovered"
_WHY: Final = "when the ledger was recovered its place was listed to the end, and does not hold it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unclaimed:
    """A claim that came to nothing. kind: released (others have it), pruned (for room), data_lost, verified (damaged)."""

    record: str
    run: str
    step: int
    place: Place
    kind: str

    @property
    def shown(self) -> str:
        what = {
            "released": "others have it",
            "pruned": "it was dropped for room",
            "data_lost": "nobody has it: it is lost",
        }
        where = f"{self.run}@{self.step} ({self.record[:12]}) is not in {self.place.tier}, as the ledger says"
        return f"{where}: {what.get(self.kind, 'some of it lies there, and is not whole')}"


def holding(site: Site) -> dict[Place, frozenset[str]]:
    """Records that each place of the ledger's keeps a record of, by places that were listed to the end; no others."""
    found: dict[Place, frozenset[str]] = {}
    for store in site.tiers.values():
        try:
            require_identity(site, store)
            listing = store.claimed()
        except LakemarkError:  # it says nothing, so nothing is missing from it
            continue
        # One that broke off lacks what it did not come to: absence there is no statement.
        if listing.complete:
            found[store.place] = frozenset(listing.records)
    return found


def has_copy(found: RecordState, there: Mapping[Place, frozenset[str]], *, but: Place | None = None) -> bool:
    """Whether a sound replica is claimed, other than at `but`, whose place holds it or could not be asked."""
    return any(
        copy.sound and place != but and found.record.id in there.get(place, (found.record.id,))
        for place, copy in found.replicas.items()
    )


def absent(site: Site) -> list[tuple[RecordState, Place]]:
    """Claims of unpruned records whose place, listed to the end, does not hold them."""
    # The claims first: a place only gets what an entry claims after it lies there.
    states = [site.ledger.run(run) for run in site.ledger.runs()]
    there = holding(site)
    return [
        (found, place)
        for state in states
        for found in state.live()
        for place in found.replicas
        if place in there and found.record.id not in there[place]
    ]


def unclaim(site: Site) -> list[Unclaimed]:
    """Records each such claim as what it came to. The same again finds nothing. Raises what `append` does."""
    done: list[Unclaimed] = []
    gone = absent(site)
    there = holding(site)
    for run in sorted({found.record.run for found, _ in gone}):
        of_run = [one for one in gone if one[0].record.run == run]
        for found, place in of_run:
            done.extend(_recorded(site, found, place, there))
        site.progress.step("unclaim.run")
    return done


def _recorded(
    site: Site, found: RecordState, place: Place, there: Mapping[Place, frozenset[str]]
) -> Iterator[Unclaimed]:
    claim, record = found.replicas[place], found.record
    kind = _kind(site, found, place, there)
    if kind == "verified" or (kind is not None and _append(site, record.run, kind, _Claim(record.id, place, claim))):
        yield Unclaimed(record=record.id, run=record.run, step=record.step, place=place, kind=kind)


def _kind(site: Site, found: RecordState, place: Place, there: Mapping[Place, frozenset[str]]) -> str | None:
    """What the claim came to; None where it can't be told, or is right after all."""
    if has_copy(found, there, but=place):
        return RELEASED.name
    at = thinned_at(site, found.record.id)
    # What was dropped before it came back says nothing of the copy that came after.
    if at is not None and at >= found.replicas[place].replicated_at:
        return PRUNED.name
    # The last copy is not given up by a listing: its bytes may lie there without the place's own note of them.
    seen = look(site, found, place)
    if seen.ok or seen.error is not None:
        return None
    missing = {damage.path for damage in seen.damages if damage.missing}
    # Every file, each read twice: what lies there in part can still be mended from there.
    if {file.path for file in checkpoint(site, found).manifest.regular} <= missing:
        return DATA_LOST.name
    record_looks(site, found.record.run, [seen])
    return "verified"


@dataclass(frozen=True, slots=True)
class _Claim:
    record: str
    place: Place
    replica: Replica


def _append(site: Site, run: str, kind: str, claim: _Claim) -> bool:
    """False where the claim is another by now: it came back, or somebody else let it go."""

    def decide(state: RunState) -> Draft | None:
        found = state.records.get(claim.record)
        # The very claim that was looked at: one that came back meanwhile lies there now.
        if found is None or found.pruned is not None or found.replicas.get(claim.place) != claim.replica:
            return None
        return _draft(kind, claim, timeline=found.record.timeline)

    sequence = site.ledger.run(run).sequence
    request = f"unclaimed:{claim.record}:{claim.place.tier}:{claim.place.node}:{sequence}"
    return site.ledger.append(run, decide, site.stamp(request)).entry is not None


def _draft(kind: str, claim: _Claim, *, timeline: int) -> Draft:
    if kind == PRUNED.name:
        why = "thinned: this node remembers that it made room"
        thinned = PrunedRecord(record=claim.record, reasons=(why,), thinned=True)
        return PRUNED.draft(PrunedBody(items=(thinned,)), timeline=timeline, reason=_REASON)
    last = kind == DATA_LOST.name
    return gone_from([claim.record], claim.place, why=_WHY, last=last, timeline=timeline, reason=_REASON)


def in_words(gone: Sequence[tuple[RecordState, Place]]) -> list[str]:
    """What `unclaim` would record, for a plan."""
    return [f"record that {one.record.run}@{one.record.step} is not in {place.tier}" for one, place in gone]
