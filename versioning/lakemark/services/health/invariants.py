"""What must hold whatever happened, worked out anew from the ledger and the stores. Changes nothing.

Reading every byte back is `verify`'s business; here is what the ledger says against what tiers list and pins are worth.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from lakemark.errors import DataGone, LakemarkError, NotFound, StoreUnavailable
from lakemark.model.checkpoints.record import DataKind, DataRef
from lakemark.model.ledger.entry import SITE, Attachments, Entry
from lakemark.model.ledger.run import RecordState, RunState
from lakemark.model.runs.timeline import latest, lineage
from lakemark.model.values.canonical import digest
from lakemark.ports import DataVersions, Patience, Site, Strength
from lakemark.services.data.pins import needed
from lakemark.services.ledger import require_identity

_ANCESTORS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """rule: which one, in a word that stays. what: the record, run, pin or tier. why: what was seen."""

    rule: str
    what: str
    why: str


@dataclass(slots=True, kw_only=True)
class SampledData:
    """sampled: of each data commit, which objects' bytes were read, in words. lost: those of which some can't be, with paths.

    unread: how many commits gave no answer, or were not asked for after one that gave none; why: what that one said.
    """

    sampled: list[dict[str, object]] = field(default_factory=list)
    lost: list[dict[str, object]] = field(default_factory=list)
    unread: int = 0
    why: LakemarkError | None = None


def violations(site: Site, patience: Patience | None = None) -> Iterator[Violation]:
    """Every rule on every run. What can't be looked at is a violation of `reachable`, not an error."""
    for run in site.ledger.runs():
        state = site.ledger.run(run)
        yield from _entries(site, run)
        yield from _timelines(state)
        for found in state.records.values():
            yield from _record(state, found)
    yield from _entries(site, SITE)
    yield from _tiers(site)
    yield from _pins(site, patience or Patience())


def _entries(site: Site, branch: str) -> Iterator[Violation]:
    """Sequences without a gap, each request once, each record the one its entry names."""
    # Two entries of one request would be one deed counted twice: that is what requests are for.
    requests: dict[str, int] = {}
    for expected, (entry, contents) in enumerate(site.ledger.entries(branch), start=1):
        what = f"{branch} entry {entry.sequence}"
        if entry.sequence != expected:
            yield Violation(rule="sequence", what=what, why=f"entry {expected} was due")
        if entry.request in requests:
            yield Violation(rule="once", what=what, why=f"its request is entry {requests[entry.request]} too")
        requests[entry.request] = entry.sequence
        yield from _carried(entry, contents, what)


def _carried(entry: Entry, contents: Attachments, what: str) -> Iterator[Violation]:
    record = contents.record
    if record is None:
        return
    if entry.record != record.id:
        yield Violation(rule="record", what=what, why=f"names {entry.record} and carries {record.id}")
    if entry.record_digest is not None and entry.record_digest != digest(record.as_json()):
        yield Violation(rule="record", what=what, why="its record.json is not the one it was appended with")


def _timelines(state: RunState) -> Iterator[Violation]:
    """Numbers from 1; each but the first leaves an older one after a record that is there. Latest is of the lineage."""
    if state.exists and sorted(state.timelines) != list(range(1, len(state.timelines) + 1)):
        yield Violation(rule="timelines", what=state.run, why=f"has the timelines {sorted(state.timelines)}")
    for timeline in state.timelines.values():
        fork = timeline.fork
        if fork is None:
            continue
        what = f"{state.run} timeline {timeline.number}"
        # A timeline that left a later one could make the lineage run in a circle.
        if fork.timeline >= timeline.number:
            yield Violation(rule="timelines", what=what, why=f"leaves the later timeline {fork.timeline}")
        if fork.record and fork.record not in state.records:
            yield Violation(rule="timelines", what=what, why=f"leaves the unknown record {fork.record[:12]}")
    steps = [found.record.step for found in lineage(state)]
    if any(later < earlier for later, earlier in pairwise(steps)):
        yield Violation(rule="lineage", what=state.run, why="its lineage is not in order of steps")
    newest = latest(state)
    # A rollback may go back to what was superseded since: then that is where its timeline begins.
    if newest is not None and not newest.stands and newest.record.id not in _forks(state):
        yield Violation(rule="latest", what=state.run, why=f"its latest, {newest.record.id[:12]}, was superseded")


def _record(state: RunState, found: RecordState) -> Iterator[Violation]:
    """An unpruned record has a replica, its parent is known, and each repository one commit at a time."""
    record = found.record
    what = f"{state.run}@{record.step} ({record.id[:12]})"
    if found.pruned is None and not found.replicas:
        yield Violation(rule="copies", what=what, why="is not pruned and has no replica")
    if found.pruned is None and found.replicas and not any(one.sound for one in found.replicas.values()):
        yield Violation(rule="copies", what=what, why="has no sound replica")
    if record.bound:
        # Only where it is known at all: ambiguous data names all that it may have been.
        seen: list[DataRef] = []
        for ref in record.data:
            if any(_overlap(ref, other) for other in seen):
                yield Violation(rule="data", what=what, why=f"has two commits of {ref.repository} for the same steps")
            seen.append(ref)


def _overlap(ref: DataRef, other: DataRef) -> bool:
    if ref.repository != other.repository or ref.branch != other.branch or ref.commit == other.commit:
        return False
    begins = max(ref.from_step or 0, other.from_step or 0)
    ends = min(one for one in (ref.to_step, other.to_step, 10**18) if one is not None)
    return begins <= ends


NEXT: Mapping[str, str] = {
    "reachable": "Bring the place back that is named, then give the same command again.",
    "copies": "lakemark verify RUN@STEP --repair; where its trainer still has the files, commit them again.",
    "claimed": "lakemark verify RUN@STEP --repair makes the replica again from another one.",
    "unknown": "lakemark sweep",
    "pinned": "lakemark sweep makes lost pins anew; `lakemark pins` shows them.",
    "edited": "Ask who may edit that repository's history; `lakemark pins` shows what is kept of it.",
    "data": "lakemark bind RECORD --data REPOSITORY/COMMIT --reason … says which of them it was.",
}
_NEXT_OTHERWISE: Final = (
    "The ledger itself says two things: lakemark log RUN shows the entries; restore one of its daily copies beside it and "
    "compare, and go on saving meanwhile."
)


def next_of(rules: Iterable[str]) -> list[str]:
    """What somebody can do about violations of these rules, each said once."""
    return list(dict.fromkeys(NEXT.get(rule, _NEXT_OTHERWISE) for rule in rules))


def _tiers(site: Site) -> Iterator[Violation]:
    """Each tier is the one the ledger knows, lists every record claimed in it, and none that the ledger never saw."""
    for seen in site.ledger.site().left_out(site.tiers, node=site.node):
        name = seen.name.partition("@")[0]
        claims = sum(
            any(place.tier == name and place.node in (None, site.node) for place in found.replicas)
            for run in site.ledger.runs()
            for found in site.ledger.run(run).records.values()
        )
        if claims:
            why = f"{claims} record(s) have a replica there, and lakemark.yaml does not name it"
            yield Violation(rule="reachable", what=f"tier {name}", why=why)
    for name, store in site.tiers.items():
        # Before the listing: what a pass beside this one records during it can't be in it, and is no violation.
        claimed = {identity for _, identity, found in _records(site) if store.place in found.replicas}
        try:
            require_identity(site, store)
            listing = store.records()
        except LakemarkError as error:
            yield Violation(rule="reachable", what=f"tier {name}", why=str(error))
            continue
        # Half a listing would accuse every record that it did not come to.
        if not listing.complete:
            yield Violation(rule="reachable", what=f"tier {name}", why="its listing did not end complete")
            continue
        listed = set(listing.records)
        known: set[str] = set()
        for run, identity, found in _records(site):
            known.add(identity)
            # And after it: what was released meanwhile is claimed no more.
            if identity in claimed and store.place in found.replicas and identity not in listed:
                why = f"the ledger claims a replica in {name}, which does not list it"
                yield Violation(rule="claimed", what=f"{run}@{found.record.step} ({identity[:12]})", why=why)
        for identity in sorted(listed - known):
            why = f"lies in {name}, and the ledger does not know it: `lakemark sweep` finishes or undoes it"
            yield Violation(rule="unknown", what=identity[:12], why=why)


def _records(site: Site) -> Iterator[tuple[str, str, RecordState]]:
    """Each record of every run as the ledger has it now: the run, its id, its state."""
    for run in site.ledger.runs():
        for identity, found in site.ledger.run(run).records.items():
            yield run, identity, found


def _pins(site: Site, patience: Patience) -> Iterator[Violation]:
    """Every data commit that something needs has a pin, the server shows it, and nobody edited the history it ends."""
    if site.data is None:
        return
    state = site.ledger.site()
    for (repository, commit), who in needed(site).items():
        what = f"{repository}@{commit[:12]}"
        pin = state.pin_of(repository, commit)
        if pin is None and all(one.startswith("attempt ") for one in who):
            continue  # let go when its run had gone on, by a version that asked runs and records alone
        if pin is None:
            yield Violation(rule="pinned", what=what, why=f"has no pin; {who[0]} needs it")
            continue
        try:
            with site.data.patient(patience):
                strength = site.data.pin_strength(repository, commit, branch=pin.branch)
                edited = site.data.altered(repository, commit, limit=_ANCESTORS)
        except StoreUnavailable as error:
            # One server answers for every pin: it is named once.
            yield Violation(rule="reachable", what="lakeFS", why=str(error))
            return
        except LakemarkError as error:
            yield Violation(rule="pinned", what=what, why=f"{error}; {who[0]} needs it")
            continue
        for one in edited:
            yield Violation(
                rule="edited", what=what, why=f"its history was edited: {one} is not the id of that commit's fields"
            )
        if strength is Strength.NONE:
            yield Violation(rule="pinned", what=what, why=f"the pin {pin.branch} is gone; {who[0]} needs it")


def _forks(state: RunState) -> set[str]:
    return {timeline.fork.record for timeline in state.timelines.values() if timeline.fork is not None}


def sampled_data(
    site: Site, records: list[RecordState], *, sample: int | None, patience: Patience | None = None
) -> SampledData:
    """Reads bytes of the data commits of `records`: of `sample` objects each, other ones each time; None: of all."""
    found, patience = SampledData(), patience or Patience()
    if site.data is None:
        return found
    users: dict[tuple[str, str], list[str]] = {}
    for state in records:
        for ref in state.record.data:
            if ref.kind == DataKind.LAKEFS:
                users.setdefault((ref.repository, ref.commit), []).append(state.record.id)
    for (repository, commit), who in users.items():
        try:
            with site.data.patient(patience):
                lost, said = _read(site.data, repository, commit, sample=sample)
        except LakemarkError as error:
            found.unread += 1
            found.why = found.why or error  # what comes after it may only say that nobody asks any more
            continue
        found.sampled.append({"repository": repository, "commit": commit, "sampled": said})
        if lost is not None:
            row: dict[str, object] = {"repository": repository, "commit": commit, "paths": list(lost)}
            found.lost.append({**row, "records": who, "sampled": said})
    return found


def _read(
    data: DataVersions, repository: str, commit: str, *, sample: int | None
) -> tuple[tuple[str, ...] | None, str | None]:
    """Paths that can't be read (None: all could; empty: there is no such commit), and which were tried, in words."""
    try:
        found = data.readable(repository, commit, sample=sample, seed=secrets.randbits(32))
    except DataGone as error:
        return error.lost, None
    except NotFound:
        return (), None
    return found.lost or None, found.said
