"""Orphans: named trees of hot that no entry claims. A crash fell in between, or the save waits for the ledger's recovery.

Each may be all there is of a checkpoint: it becomes the entry that its marker describes. It is undone only where its step is
taken by another entry, or its bytes are no longer those of its marker, and then only where nobody was told that it is kept.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

from lakemark.model.entries.committed import COMMITTED, CommittedBody
from lakemark.model.ledger.entry import Attachments, Draft
from lakemark.model.ledger.run import RunState
from lakemark.model.runs.placing import standing
from lakemark.model.values.canonical import JSON
from lakemark.ports import Checkpoint, Site
from lakemark.services.saves.own_trees import WAITS
from lakemark.services.soundness import require_sound
from lakemark.services.tiers.witness import read_back


class Orphan(Enum):
    """What became of one: an entry; dropped; left as it is, because its timeline is not known, or its bytes are not right."""

    RECORDED = "recorded"
    UNDONE = "undone"
    UNKNOWN = "unknown"
    DAMAGED = "damaged"
    BUSY = "busy"


def settle_orphan(site: Site, sealed: Checkpoint, *, keep: bool = False) -> Orphan:
    """Finishes or undoes one; with `keep` none is undone. Raises InDistress, and what `append` does."""
    told = keep or bool(sealed.entry.get(WAITS)) or sealed.record.id in site.hot.recorded()
    # Two readings: undoing it may undo all there is.
    if read_back(site.hot, sealed, progress=site.progress).damages:
        return Orphan.DAMAGED if told else _undone(site, sealed)
    body = _body(site, sealed)
    # Its bytes are right and nobody can say of what: it is left to people.
    if body is None:
        return Orphan.DAMAGED
    outcome = _append(site, sealed, body, told=told)
    return _undone(site, sealed) if outcome is Orphan.UNDONE else outcome


def _undone(site: Site, sealed: Checkpoint) -> Orphan:
    """Unless somebody commits it at this moment, or did since it was looked at: then the tree may be another one by now."""
    record = sealed.record
    require_sound(site)
    with site.hot.settled() as settled:
        # Asked while nobody can name a tree: between a look and a drop somebody may have committed these very bytes.
        if not settled or record.id in site.ledger.run(record.run).records or record.id in site.hot.recorded():
            return Orphan.BUSY
        site.hot.drop(sealed, now=site.now())
    return Orphan.UNDONE


def _body(site: Site, sealed: Checkpoint) -> CommittedBody | None:
    """What its marker says that the entry was to say; None where that can't be read."""
    record = sealed.record
    # Where it does not say so, the trainer's files may be the very same.
    said: dict[str, JSON] = {"attempt": record.attempt, "supersedes": record.supersedes, "linked": True}
    try:
        return CommittedBody.from_json({**said, **sealed.entry, "tier": site.hot.name, "node": site.node})
    except ValueError:
        return None


def _append(site: Site, sealed: Checkpoint, body: CommittedBody, *, told: bool) -> Orphan:
    record = sealed.record

    def decide(state: RunState) -> Draft | None:
        if record.id in state.records:
            return None
        if record.timeline not in state.timelines:
            return None
        # Decided where it is appended: while it was read back another save may have taken its step.
        conflict = body.conflicts_with
        other = standing(state, record.timeline, record.step)
        if other is not None and other.record.id not in (record.supersedes, body.conflicts_with):
            if not told:
                return None
            # Both are kept, and this one is nobody's newest: it was acknowledged without knowing of the other.
            conflict = other.record.id
        return COMMITTED.draft(
            replace(body, conflicts_with=conflict),
            timeline=record.timeline,
            contents=Attachments(record=record, manifest=sealed.manifest),
            saved_at=record.saved_at,
        )

    state = site.ledger.append(record.run, decide, site.stamp(f"commit:{record.id}")).state
    if record.id not in state.records:
        return Orphan.UNDONE if record.timeline in state.timelines else Orphan.UNKNOWN
    # After the entry, as a commit does: another copy of the ledger, which lacks it, must not undo the tree.
    site.hot.note_recorded([record.id])
    return Orphan.RECORDED
