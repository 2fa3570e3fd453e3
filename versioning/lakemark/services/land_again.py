"""Land again: a record that has lost its last sound replica gets one back from the trainer's own files.

Whoever is told that a checkpoint is committed may delete it, so a record alone is no answer: there must be bytes.
"""

from __future__ import annotations

import secrets
from dataclasses import replace

from lakemark.errors import LakemarkError
from lakemark.model.canonical import JSON
from lakemark.model.entry import Draft
from lakemark.model.instants import to_text
from lakemark.model.ledger import RecordState, Replica, RunState
from lakemark.ports import Checkpoint, Landed, Site
from lakemark.services.appending import Settled, checkpoint, recorded, require_identity, require_writable
from lakemark.services.verify import look, record_looks
from lakemark.services.witness import read_back


def has_sound_replica(site: Site, found: RecordState) -> bool:
    """Whether somebody could restore it now, as far as this node can see.

    This node's own hot is read in full. A shared tier counts where the ledger calls its replica sound and the place is
    there, is the one the ledger knows, keeps what it has and holds the record. Another node's hot counts for nothing.
    """
    if found.pruned is not None:
        return False
    return any(_is_sound(site, found, replica) for replica in found.replicas.values())


def land_again(site: Site, found: RecordState, landed: Landed) -> None:
    """Makes what was just landed the record's replica in hot, and records it. Raises Conflict, Refused, NoRoom.

    A record that was pruned, or dropped because hot was full, is taken back first: that was decided without knowing that
    somebody would commit it once more.
    """
    manifest = site.ledger.manifest(found.record.run, found.record.id)
    site.hot.adopt(replace(landed, manifest=manifest), found.record, instead=True)
    site.progress.step("commit.adopted")
    if found.pruned is not None:
        _append(site, found, "unpruned", {}, reason="its very bytes were committed again")
        site.progress.step("commit.unpruned")
    body: dict[str, JSON] = {
        "tier": site.hot.place.tier,
        "node": site.hot.place.node,
        "linked": landed.linked,
        "proof": "sealed",
        "verified_at": to_text(site.now()),
        "written_bytes": manifest.size_bytes,
    }
    _append(site, found, "replicated", body)
    site.progress.step("commit.recorded")


def stands_wrong(site: Site, held: Checkpoint) -> bool:
    """Whether hot has a tree of that name whose bytes are not the checkpoint's: nothing may be kept for its sake."""
    return site.hot.holds(held) and bool(read_back(site.hot, held, progress=site.progress).damages)


def _is_sound(site: Site, found: RecordState, replica: Replica) -> bool:
    place = replica.place
    store = site.tiers.get(place.tier)
    if store is None or place.node not in (None, site.node):
        return False
    try:
        require_identity(site, store)
        if place == site.hot.place:
            return _is_whole(site, found, replica)
        kept = replica.sound and store.expires() is None
        return kept and store.holds(checkpoint(site, found, tier=place.tier))
    except LakemarkError:
        # Whatever can't be looked at now is nobody's proof; landing once more costs room, believing it may cost the bytes.
        return False


def _is_whole(site: Site, found: RecordState, replica: Replica) -> bool:
    """Of the tree in hot, read in full; where that is news, the ledger learns it."""
    seen = look(site, found, replica.place)
    if seen.error is None and seen.ok != replica.sound:
        record_looks(site, found.record.run, [seen])
    return seen.ok


def _append(site: Site, found: RecordState, kind: str, body: dict[str, JSON], *, reason: str | None = None) -> None:
    record = found.record

    def decide(state: RunState) -> Draft:
        require_writable(state)
        if kind == "unpruned" and recorded(state, record.id).pruned is None:
            raise Settled(None)
        return Draft(kind=kind, timeline=record.timeline, body=body, record=record.id, reason=reason)

    try:
        # Each landing is a fact of its own: the same request as an earlier one would be that one's entry.
        site.ledger.append(record.run, decide, site.stamp(f"{kind}:{record.id}:{site.node}:{secrets.token_hex(8)}"))
    except Settled:
        return
