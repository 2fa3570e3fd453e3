"""Land again: a record that has lost its last sound replica gets one back from the trainer's own files.

Whoever is told that a checkpoint is committed may delete it, so a record alone is no answer: there must be bytes.
"""

from __future__ import annotations

import secrets
from dataclasses import replace

from lakemark.errors import Conflict, Corrupt, InDistress, LakemarkError, Refused, StoreUnavailable
from lakemark.model.checkpoints.record import Record
from lakemark.model.entries.kind import B, Kind, Nothing
from lakemark.model.entries.pruning import UNPRUNED
from lakemark.model.entries.replicas import REPLICATED, ReplicatedBody
from lakemark.model.ledger.entry import Draft
from lakemark.model.ledger.run import Place, RecordState, Replica, RunState
from lakemark.model.tiers.residence import CLASSES
from lakemark.ports import Landed, Site
from lakemark.services.ledger import left_out, recorded, require_identity, require_writable
from lakemark.services.saves.complete import add_metrics, complete
from lakemark.services.saves.lost_ledger import ledger_may_fail
from lakemark.services.saves.own_trees import OwnTrees
from lakemark.services.saves.to_commit import Commit, Committed, ToCommit
from lakemark.services.tiers.verify import look, record_looks


def known_already(
    site: Site, save: ToCommit, known: RecordState, *, why: str, own: OwnTrees, sound: Place | None
) -> Committed:
    """These bytes are a record. What landed goes, unless it is all that there is of it by now.

    What retention or a full disk removed comes back where somebody asks for it, not because its files still lie there.
    why: it is one. sound: where it was read back just now. Raises Conflict, and what `land_again` does.
    """
    asked = save.asked
    record, notes, told = _told_more(site, known.record, asked)
    if sound is not None or (known.pruned is not None and asked.found):
        own.let_go()
        read = "" if sound is None else f"; its replica in {sound.tier} was read just now, and is right"
        return Committed(record=record, new=False, why=f"{why}{read}", notes=notes, told=told)
    if own.adopted is not None:
        # The landing has a name already, and can't be adopted a second time.
        raise Conflict(
            f"{asked.run}@{asked.step} became a record while it was committed, and has no sound replica",
            advice="Commit it again; it is still where the trainer saved it.",
        )
    land_again(site, known, own.taken.landed)
    why = f"it was a record already, {_without_bytes(site, known)}: its bytes were taken into hot again"
    return Committed(record=record, new=False, landed_again=True, why=why, notes=(why, *notes), told=told)


def sound_replica(site: Site, found: RecordState) -> Place | None:
    """The nearest place from which somebody could restore it now, as far as this node can see: read in full, here and now.

    A marker proves nothing of the bytes, and whoever is told that they are kept may delete his own. A shared tier counts
    where the ledger calls its replica sound, and the place is the one the ledger knows and keeps what it has; where what is
    read is news, the ledger learns it. Another node's hot counts for nothing.
    """
    if found.pruned is not None:
        return None
    here = [
        one for one in found.replicas.values() if one.place.tier in site.tiers and one.place.node in (None, site.node)
    ]
    here.sort(key=lambda one: CLASSES.index(site.tiers[one.place.tier].tier_class))
    return next((one.place for one in here if _is_sound(site, found, one)), None)


def land_again(site: Site, found: RecordState, landed: Landed) -> None:
    """Makes what was just landed the record's replica in hot, and records it. Raises Conflict, Refused, NoRoom, InDistress.

    A record that was pruned, or dropped because hot was full, is taken back first: that was decided without knowing that
    somebody would commit it once more.
    """
    with ledger_may_fail():
        manifest = site.ledger.manifest(found.record.run, found.record.id)
    site.hot.adopt(replace(landed, manifest=manifest), found.record, instead=True)
    site.progress.step("commit.adopted")
    if found.pruned is not None:
        _append(site, found, UNPRUNED, Nothing(), reason="its very bytes were committed again")
        site.progress.step("commit.unpruned")
    body = ReplicatedBody(
        tier=site.hot.place.tier,
        node=site.hot.place.node,
        linked=landed.linked,
        proof="sealed",
        verified_at=site.now(),
        written_bytes=manifest.size_bytes,
    )
    _append(site, found, REPLICATED, body)
    site.progress.step("commit.recorded")


def _without_bytes(site: Site, found: RecordState) -> str:
    """Why nobody can restore it now, as far as this node can see."""
    missing = sorted({place.tier for place in left_out(site, found)})
    if missing:
        return f"and lies in {', '.join(missing)}, which lakemark.yaml does not name"
    return "of which no sound replica was left"


def _told_more(site: Site, record: Record, asked: Commit) -> tuple[Record, tuple[str, ...], bool]:
    """What is said beside a record that is there is added to it; the record, what to say of that, and whether it all is.

    A value that somebody gives by hand takes the place of one that stands; an announcement's does not.
    """
    notes: tuple[str, ...] = ()
    given = {name: value for name, value in asked.metrics.items() if record.metrics.get(name) != value}
    try:
        if asked.spooled is not None:
            record, notes = complete(site, record, asked.spooled)
        if given:
            record = add_metrics(site, record.run, record.id, given, reason="given when it was committed again")
    except (InDistress, Refused, Corrupt, StoreUnavailable) as error:
        # The bytes are safe, and nobody commits them again for a number.
        told = {**(asked.spooled.metrics if asked.spooled is not None else {}), **asked.metrics}
        left = {name: value for name, value in told.items() if record.metrics.get(name) != value}
        notes += tuple(f"the metric {name}={value:g} is not kept: {error}" for name, value in left.items())
        return record, notes, False
    return record, notes, True


def _is_sound(site: Site, found: RecordState, replica: Replica) -> bool:
    place = replica.place
    store = site.tiers[place.tier]
    try:
        require_identity(site, store)
        if place != site.hot.place and not (replica.sound and store.expires() is None):
            return False
        return _is_whole(site, found, replica)
    except LakemarkError:
        # Whatever can't be looked at now is nobody's proof; landing once more costs room, believing it may cost the bytes.
        return False


def _is_whole(site: Site, found: RecordState, replica: Replica) -> bool:
    """Read in full, again where something differs; where that is news, the ledger learns it."""
    seen = look(site, found, replica.place)
    if seen.error is None and seen.ok != replica.sound:
        record_looks(site, found.record.run, [seen])
    return seen.ok


def _append(site: Site, found: RecordState, kind: Kind[B], body: B, *, reason: str | None = None) -> None:
    record = found.record

    def decide(state: RunState) -> Draft | None:
        require_writable(state)
        if kind.name == UNPRUNED.name and recorded(state, record.id).pruned is None:
            return None
        return kind.draft(body, timeline=record.timeline, record=record.id, reason=reason)

    # Each landing is a fact of its own: the same request as an earlier one would be that one's entry.
    stamp = site.stamp(f"{kind.name}:{record.id}:{site.node}:{secrets.token_hex(8)}")
    with ledger_may_fail():
        site.ledger.append(record.run, decide, stamp)
