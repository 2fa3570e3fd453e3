"""Entries into state: `apply` folds the next one in, `fold` all of them.

It reads what it knows and keeps count of what it does not: a kind that is not known, or known and not acted on, blocks what
its `unknown_means` says and nothing else, and so does an entry of a known kind whose body can't be read. Folding only the
entries that mention one record gives that record's state, but for the mark of its clock: that comes from all. Values
inside a state are replaced, never changed (`RunState.snapshot`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from lakemark.model.checkpoints.record import DataRef, metrics
from lakemark.model.ledger.clocks import ClockMark
from lakemark.model.ledger.entry import Attachments, Clock, Entry, Means
from lakemark.model.ledger.run import (
    Attempt,
    Cause,
    Fork,
    Interval,
    Place,
    RecordState,
    Replica,
    RollbackState,
    RunState,
    Timeline,
)
from lakemark.model.values.canonical import JSON
from lakemark.model.values.fields import shared
from lakemark.model.values.instants import from_text, to_text
from lakemark.model.values.outside import bounded


def apply(state: RunState, entry: Entry, contents: Attachments) -> None:
    """Folds the next entry in. A kind this version does not know only raises `state.blocked`."""
    take(state, entry, contents)
    mark(state, state.clocks.add(entry))


def mark(state: RunState, marks: Iterable[ClockMark]) -> None:
    """Puts what `state.clocks` answered for an entry on the records it is about, as far as `state` has them."""
    for one in marks:
        found = state.records.get(one.record)
        if found is not None and found.sequence == one.sequence:  # a later `committed` of the same record says nothing
            clock = Clock.SUSPECT if one.suspect else Clock.OK
            _change(state, one.record, clock=clock, not_before=one.not_before, not_after=one.not_after)


def take(state: RunState, entry: Entry, contents: Attachments) -> None:
    """`apply` but for the clocks."""
    state.sequence = entry.sequence
    state.last_recorded_at = entry.recorded_at
    # Also of a kind that nobody knows: asked again, it must still be the same entry.
    state.requests.add(entry.request, entry.sequence)
    handler = _HANDLERS.get(entry.kind)
    if handler is not None:
        try:
            handler(state, entry, contents)
        # The entry is in the ledger for good: one that can't be read must stop what it may be about, and not all reading.
        except ValueError:
            _unreadable(state, entry.kind, entry.means)
    else:
        _unreadable(state, entry.kind, entry.means)


def fold(run: str, entries: Iterable[tuple[Entry, Attachments]]) -> RunState:
    """The state after `entries`, in order of sequence. Gaps are allowed: a selection folds to what it names."""
    state = RunState(run=run)
    for entry, contents in entries:
        apply(state, entry, contents)
    return state


def mentions(entry: Entry, contents: Attachments) -> frozenset[str]:
    """Ids of the records whose state `entry` may change: of every other record it says nothing."""
    if entry.kind not in _OF_RECORDS:
        return frozenset()
    record = contents.record
    # A commit changes the record that it supersedes, too.
    named = {entry.record, *((record.id, record.supersedes) if record else ())}
    named.update(_text(item, "record") for item in _items(entry.body))
    return frozenset(identity for identity in named if identity)


def structural(entry: Entry) -> bool:
    """Whether `entry` says something of the run itself: folding only these gives its state without the records."""
    if entry.kind == "node_renamed":  # where it watches follows, too
        return True
    return entry.kind not in _OF_RECORDS | _HISTORY or (entry.kind == "bound" and entry.record is None)


def foreseen(state: RunState, entry: Entry, contents: Attachments) -> RunState:
    """What the lineages will be after `entry`, without changing `state`; good for `timeline` only.

    Raises ValueError where the body of `entry` can't be read: `apply` would not know what it says.
    """
    after = state.snapshot()
    handler = _HANDLERS.get(entry.kind)
    if handler is not None:
        handler(after, entry, contents)
    return after


def _unreadable(state: RunState, kind: str, means: Means) -> None:
    state.unknown.append(kind)
    # Never lower: an entry that is not understood stays in the history.
    state.blocked = max(state.blocked, means, key=list(Means).index)


def _opened(state: RunState, entry: Entry, _contents: Attachments) -> None:
    body = entry.body
    first = not state.timelines
    if first:
        state.timelines[1] = Timeline(
            number=1, fork=None, opened_by="opened", opened_at=entry.recorded_at, sequence=entry.sequence
        )
        state.parent, state.parts = _text(body, "parent"), _integer(body, "parts") or 1
    # An `opened` of a later day adds: each node says where it watches.
    state.watch |= {node: str(path) for node, path in _mapping(body, "watch").items()}
    state.needs_no |= {str(role) for role in _sequence(body, "needs_no")}
    state.intervals.append(_interval(state, entry, _integer(body, "at_step")))


def _attempt(state: RunState, entry: Entry, _contents: Attachments) -> None:
    body = entry.body
    identity = _text(body, "attempt")
    # All nodes of a job open the same attempt: the first entry holds.
    if identity and identity not in state.attempts:
        state.attempts[identity] = Attempt(
            id=identity,
            timeline=entry.timeline,
            sequence=entry.sequence,
            node=entry.node,
            started_at=entry.recorded_at,
            job=_text(body, "job"),
            directory=_text(body, "directory"),
            data=_data(body),
            record=entry.record or _text(body, "record"),
        )


def _committed(state: RunState, entry: Entry, contents: Attachments) -> None:
    record = contents.record
    if record is None:
        return
    tier, part = _text(entry.body, "tier") or "hot", _integer(entry.body, "part")
    # A save is sealed in a node's own tier, so its first place has the node.
    place = shared(Place(tier=tier, node=entry.node, part=part))
    sealed = Replica(
        place=place,
        verified_at=entry.recorded_at,
        replicated_at=entry.recorded_at,
        linked=bool(entry.body.get("linked")),
        proof="sealed",
    )
    # Committed once more by another request: what was said of its replicas since must not be forgotten.
    if record.id not in state.records:
        new = RecordState(
            record=record,
            sequence=entry.sequence,
            recorded_at=entry.recorded_at,
            clock=shared(entry.clock),
            conflicts_with=_text(entry.body, "conflicts_with"),
            # Brought back from a tier's record: an entry of its own says where its bytes are.
            replicas={} if entry.body.get("recovered") else {place: sealed},
        )
        state.add(new)
    _change(state, record.supersedes, superseded_by=record.id)


def _bound(state: RunState, entry: Entry, contents: Attachments) -> None:
    found, data = state.records.get(entry.record or ""), _data(entry.body)
    if found is not None:
        _change(state, entry.record, record=contents.record or found.record.with_data(data))
    elif entry.record is None:
        # A `bound` without a record is what somebody declares that the run reads.
        interval = _interval(state, entry, _integer(entry.body, "at_step"))
        state.intervals.append(replace(interval, declared=True))


def _replicated(state: RunState, entry: Entry, _contents: Attachments) -> None:
    place = _place(entry.body)
    copy = Replica(
        place=place,
        verified_at=_instant(entry.body, "verified_at") or entry.recorded_at,
        replicated_at=entry.recorded_at,
        linked=bool(entry.body.get("linked")),
        proof=shared(_text(entry.body, "proof") or "read_back"),
    )
    found = state.records.get(entry.record or "")
    if found is not None:
        held = {**found.replicas, place: copy}
        # It came there after all, so nothing is refused or lost any more.
        refused = {where: why for where, why in found.refused.items() if where != place}
        _change(state, entry.record, replicas=held, released=found.released - {place}, refused=refused, lost=None)


def _replica_refused(state: RunState, entry: Entry, _contents: Attachments) -> None:
    found = state.records.get(entry.record or "")
    if found is not None:
        why = _text(entry.body, "why") or "it can't be kept there"
        _change(state, entry.record, refused={**found.refused, _place(entry.body): why})


def _released(state: RunState, entry: Entry, _contents: Attachments) -> None:
    for item in _items(entry.body):
        identity, place = _text(item, "record"), _place(item)
        found = state.records.get(identity or "")
        if found is not None:
            left = {where: copy for where, copy in found.replicas.items() if where != place}
            _change(state, identity, replicas=left, released=found.released | {place})


def _verified(state: RunState, entry: Entry, _contents: Attachments) -> None:
    at = _instant(entry.body, "verified_at") or entry.recorded_at
    for item in _items(entry.body):
        identity = _text(item, "record")
        found = state.records.get(identity or "")
        replica = found.replicas.get(_place(item)) if found else None
        if found is None or replica is None:
            continue
        ok = bool(item.get("ok"))
        seen = replace(
            replica,
            # Never back to linked: a copy of our own does not become the trainer's file again.
            linked=replica.linked and item.get("linked") is not False,
            # A look that found damage proves nothing of when it was whole last.
            verified_at=at if ok else replica.verified_at,
            damaged=not ok and not item.get("suspect"),
            suspect=not ok and bool(item.get("suspect")),
        )
        _change(state, identity, replicas={**found.replicas, replica.place: seen})


def _resumed(state: RunState, entry: Entry, contents: Attachments) -> None:
    _fork(state, entry, rollback=None)
    _attempt(state, entry, contents)
    found = state.attempts.get(_text(entry.body, "attempt") or "")
    if found is not None:
        # An inferred resume was seen afterwards in what the process saved; nobody decided a record for it.
        decided = None if entry.body.get("inferred") else entry.record
        new = replace(found, timeline=entry.timeline, record=found.record or decided)
        # The first decision holds for all nodes of the start.
        if decided is not None and found.decided_at is None:
            new = replace(new, decided=entry.sequence, decided_at=entry.recorded_at)
        gaps = entry.body.get("accepted_gaps")
        state.attempts[found.id] = replace(new, accepted_gaps=tuple(map(str, gaps))) if isinstance(gaps, list) else new


def _rolled_back(state: RunState, entry: Entry, _contents: Attachments) -> None:
    identity = _text(entry.body, "rollback")
    _fork(state, entry, rollback=identity)
    state.intervals.append(_interval(state, entry, None))
    request = state.rollbacks.get(identity or "")
    if request is not None:
        where = _text(entry.body, "checkpoint_dir")
        applied = replace(request, state="applied", timeline=entry.timeline, checkpoint_dir=where)
        state.rollbacks[request.id] = replace(applied, ended_by=entry.actor, ended_at=entry.recorded_at)


def _branch_moved(state: RunState, entry: Entry, _contents: Attachments) -> None:
    request = state.rollbacks.get(_text(entry.body, "rollback") or "")
    if request is not None:
        moves = tuple(item for item in _sequence(entry.body, "moves") if isinstance(item, Mapping))
        state.rollbacks[request.id] = replace(request, moves=(*request.moves, *moves))


def _fork(state: RunState, entry: Entry, *, rollback: str | None) -> None:
    fork = entry.body.get("fork")
    # A retried entry opens nothing a second time.
    if fork is not None and entry.timeline not in state.timelines:
        state.timelines[entry.timeline] = Timeline(
            number=entry.timeline,
            fork=Fork.from_json(fork),
            opened_by=entry.kind,
            opened_at=entry.recorded_at,
            sequence=entry.sequence,
            rollback=rollback,
        )
        _overtake(state, entry, but=rollback)


def _overtake(state: RunState, entry: Entry, *, but: str | None) -> None:
    """Ends the requests that were planned for the timeline that this entry leaves: none of them holds any more."""
    why = f"the run went on in timeline {entry.timeline}"
    for request in list(state.rollbacks.values()):
        if request.open and request.id != but:
            state.rollbacks[request.id] = replace(
                request, state="overtaken", ended_by=entry.actor, ended_at=entry.recorded_at, ended_why=why
            )


def _rollback_requested(state: RunState, entry: Entry, _contents: Attachments) -> None:
    body = entry.body
    identity = _text(body, "rollback")
    if identity and identity not in state.rollbacks:
        state.rollbacks[identity] = RollbackState(
            id=identity,
            digest=_text(body, "digest") or "",
            plan=_mapping(body, "plan"),
            requester=_text(body, "requester") or entry.actor,
            reason=entry.reason,
            requested_at=entry.recorded_at,
            expires_at=_instant(body, "expires_at") or entry.recorded_at,
            sequence=entry.sequence,
            flow_run=_text(body, "flow_run"),
        )


def _rollback_approved(state: RunState, entry: Entry, _contents: Attachments) -> None:
    request = state.rollbacks.get(_text(entry.body, "rollback") or "")
    if request is not None and request.open:
        approval = dict(entry.body) | {"at": to_text(entry.recorded_at), "actor": entry.actor}
        state.rollbacks[request.id] = replace(request, state="approved", approvals=[*request.approvals, approval])


def _rollback_refused(state: RunState, entry: Entry, _contents: Attachments) -> None:
    request = state.rollbacks.get(_text(entry.body, "rollback") or "")
    if request is not None and request.open:
        ended = "expired" if entry.body.get("expired") else "refused"
        state.rollbacks[request.id] = replace(
            request,
            state=ended,
            ended_by=_text(entry.body, "by") or entry.actor,
            ended_at=entry.recorded_at,
            ended_why=entry.reason,
        )


def _held(state: RunState, entry: Entry, _contents: Attachments) -> None:
    _change(state, entry.record, held=entry.reason or "held", held_until=_instant(entry.body, "until"))


def _released_hold(state: RunState, entry: Entry, _contents: Attachments) -> None:
    _change(state, entry.record, held=None, held_until=None)


def _quarantined(state: RunState, entry: Entry, _contents: Attachments) -> None:
    cause, why = _data_commit(entry.body), entry.reason or "quarantined"
    for identity in _named(entry):
        found = state.records.get(identity)
        if found is not None and found.quarantined is not None and found.quarantined_by is None and cause is not None:
            continue  # somebody meant this very record: lifting the data's quarantine must not lift that
        _change(state, identity, quarantined=why, quarantined_at=entry.recorded_at, quarantined_by=cause)


def _quarantine_lifted(state: RunState, entry: Entry, _contents: Attachments) -> None:
    cause = _data_commit(entry.body)
    for identity in _named(entry):
        found = state.records.get(identity)
        # Lifting a data quarantine lifts only what it led to; lifting one record's lifts it whatever led to it.
        if found is not None and cause in (None, found.quarantined_by):
            _change(state, identity, quarantined=None, quarantined_at=None, quarantined_by=None)


def _data_commit(body: Mapping[str, JSON]) -> str | None:
    """`repository@commit` of the data that an entry about records follows from."""
    data = _mapping(body, "data")
    return f"{_text(data, 'repository')}@{_text(data, 'commit')}" if data else None


def _named(entry: Entry) -> list[str]:
    """The record that an entry is about, or each of its items."""
    return [one for one in (entry.record, *(_text(item, "record") for item in _items(entry.body))) if one]


def _metric_added(state: RunState, entry: Entry, contents: Attachments) -> None:
    found = state.records.get(entry.record or "")
    if found is not None:
        added = metrics(_mapping(entry.body, "metrics"))
        record = contents.record or replace(found.record, metrics={**found.record.metrics, **added})
        _change(state, entry.record, record=record)


def _attempt_ended(state: RunState, entry: Entry, _contents: Attachments) -> None:
    found = state.attempts.get(_text(entry.body, "attempt") or "")
    # A cause that is known later replaces `unknown`; the time it ended does not move.
    if found is not None and (found.ended_at is None or found.cause == Cause.UNKNOWN):
        ended = found.ended_at or entry.recorded_at
        cause = _text(entry.body, "cause") or Cause.UNKNOWN
        state.attempts[found.id] = replace(found, ended_at=ended, cause=cause)


def _drilled(state: RunState, entry: Entry, _contents: Attachments) -> None:
    for item in _items(entry.body):
        tier = _text(item, "tier")
        if tier and item.get("ok") is True:
            state.drills[tier] = entry.recorded_at


def _rollback_reviewed(state: RunState, entry: Entry, _contents: Attachments) -> None:
    request = state.rollbacks.get(_text(entry.body, "rollback") or "")
    if request is not None:
        by = _text(entry.body, "by") or entry.actor
        state.rollbacks[request.id] = replace(request, reviewed_by=by, reviewed_at=entry.recorded_at)


def _told(_state: RunState, _entry: Entry, _contents: Attachments) -> None:
    """History, and nothing that a decision about the run asks for: who wants it reads the entries."""


def _pruned(state: RunState, entry: Entry, _contents: Attachments) -> None:
    for item in _items(entry.body):
        reasons = tuple(str(reason) for reason in _sequence(item, "reasons")) or ("pruned",)
        identity, thinned = _text(item, "record"), bool(item.get("thinned"))
        _change(state, identity, pruned=reasons, pruned_at=entry.recorded_at, thinned=thinned)
        found = state.records.get(identity or "")
        if thinned and found is not None:  # without grace: its last bytes go at once
            _change(state, identity, replicas={}, released=found.released | found.replicas.keys())


def _data_lost(state: RunState, entry: Entry, _contents: Attachments) -> None:
    for item in _items(entry.body):
        identity, place = _text(item, "record"), _place(item)
        found = state.records.get(identity or "")
        if found is not None:
            # Not among `released`: nobody decided that its bytes may go.
            left = {where: copy for where, copy in found.replicas.items() if where != place}
            _change(state, identity, replicas=left, lost=_text(item, "why") or entry.reason or "lost")


def _renamed(state: RunState, entry: Entry, _contents: Attachments) -> None:
    """A replica is where it was; only what its place is called changed."""
    node, new = _text(entry.body, "node"), _text(entry.body, "to") or ""
    if entry.kind == "node_renamed" and node in state.watch:
        state.watch[new] = state.watch.pop(node)

    def called(place: Place) -> Place:
        if entry.kind == "node_renamed":
            return shared(replace(place, node=new)) if place.node == node else place
        old = (_text(entry.body, "tier") or "", node)
        return shared(replace(place, tier=new)) if (place.tier, place.node) == old else place

    for item in _items(entry.body):
        identity = _text(item, "record")
        found = state.records.get(identity or "")
        if found is not None:
            copies = [replace(copy, place=called(place)) for place, copy in found.replicas.items()]
            released = shared(frozenset(map(called, found.released)))
            refused = {called(place): why for place, why in found.refused.items()}
            held = {copy.place: copy for copy in copies}
            _change(state, identity, replicas=held, released=released, refused=refused)


def _unpruned(state: RunState, entry: Entry, _contents: Attachments) -> None:
    _change(state, entry.record, pruned=None, pruned_at=None, thinned=False)


def _closed(state: RunState, entry: Entry, _contents: Attachments) -> None:
    state.closed, state.closed_at = True, entry.recorded_at


def _reopened(state: RunState, _entry: Entry, _contents: Attachments) -> None:
    state.closed, state.closed_at = False, None


_HANDLERS = {
    "opened": _opened,
    "attempt": _attempt,
    "attempt_ended": _attempt_ended,
    "committed": _committed,
    "bound": _bound,
    "metric_added": _metric_added,
    "drilled": _drilled,
    "restored": _told,
    "ledger_recovered": _told,
    "replicated": _replicated,
    "replica_refused": _replica_refused,
    "released": _released,
    "verified": _verified,
    "resumed": _resumed,
    "rolled_back": _rolled_back,
    "branch_moved": _branch_moved,
    "rollback_requested": _rollback_requested,
    "rollback_approved": _rollback_approved,
    "rollback_refused": _rollback_refused,
    "held": _held,
    "released_hold": _released_hold,
    "rollback_reviewed": _rollback_reviewed,
    "quarantined": _quarantined,
    "quarantine_lifted": _quarantine_lifted,
    "pruned": _pruned,
    "unpruned": _unpruned,
    "closed": _closed,
    "reopened": _reopened,
    "data_lost": _data_lost,
    "tier_renamed": _renamed,
    "node_renamed": _renamed,
}


_HISTORY = frozenset(kind for kind, handler in _HANDLERS.items() if handler is _told)
_OF_RECORDS = frozenset(
    {
        "committed",
        "bound",
        "metric_added",
        "replicated",
        "replica_refused",
        "released",
        "verified",
        "held",
        "released_hold",
        "quarantined",
        "quarantine_lifted",
        "pruned",
        "unpruned",
        "data_lost",
        "tier_renamed",
        "node_renamed",
    }
)


def _change(state: RunState, identity: str | None, **changes: Any) -> None:  # noqa: ANN401 - fields of RecordState
    if identity is not None and identity in state.records:
        state.records[identity] = found = replace(state.records[identity], **changes)
        if "pruned" not in changes:
            return
        if found.pruned is None:
            state.unpruned[identity] = found.sequence
        else:
            state.unpruned.pop(identity, None)


def _interval(state: RunState, entry: Entry, at_step: int | None) -> Interval:
    return Interval(
        sequence=entry.sequence,
        timeline=entry.timeline or state.timeline,
        opened_at=entry.recorded_at,
        data=_data(entry.body),
        at_step=at_step,
    )


def _data(body: Mapping[str, JSON]) -> tuple[DataRef, ...]:
    return tuple(_reference(item) for item in _sequence(body, "data"))


def _reference(item: JSON) -> DataRef:
    value = dict(item) if isinstance(item, Mapping) else {}
    return DataRef.from_json({"kind": "lakefs", "evidence": "declared"} | value)


def _place(body: Mapping[str, JSON]) -> Place:
    return shared(Place(tier=_text(body, "tier") or "", node=_text(body, "node"), part=_integer(body, "part")))


def _items(body: Mapping[str, JSON]) -> list[Mapping[str, JSON]]:
    return [item for item in _sequence(body, "items") if isinstance(item, Mapping)]


def _sequence(body: Mapping[str, JSON], name: str) -> list[JSON]:
    value = body.get(name)
    return list(value) if isinstance(value, list | tuple) else []


def _mapping(body: Mapping[str, JSON], name: str) -> dict[str, JSON]:
    value = body.get(name)
    return dict(value) if isinstance(value, Mapping) else {}


def _text(body: Mapping[str, JSON], name: str) -> str | None:
    value = body.get(name)
    return value if isinstance(value, str) else None


def _integer(body: Mapping[str, JSON], name: str) -> int | None:
    value = body.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return bounded(value, least=0, most=2**53 - 1, what=name)


def _instant(body: Mapping[str, JSON], name: str) -> datetime | None:
    text = _text(body, name)
    return None if text is None else from_text(text)
