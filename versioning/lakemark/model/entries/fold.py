"""Entries into state: `apply` folds the next one of a run in, `fold` all of them; `apply_site` and `fold_site` of the site.

It reads what it knows and keeps count of what it does not: a kind that is not known, or known and not acted on, blocks what
its `unknown_means` says and nothing else, and so does an entry of a known kind whose body can't be read. Folding only the
entries that mention one record gives that record's state, but for the mark of its clock: that comes from all. Values
inside a state are replaced, never changed (`RunState.snapshot`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lakemark.model.entries.kind import OnBranch, change
from lakemark.model.entries.table import KINDS, means
from lakemark.model.ledger.clocks import ClockMark
from lakemark.model.ledger.entry import Attachments, Clock, Entry, Means
from lakemark.model.ledger.run import RunState
from lakemark.model.ledger.site import SiteState
from lakemark.model.values.codec import read


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
            change(state, one.record, clock=clock, not_before=one.not_before, not_after=one.not_after)


def take(state: RunState, entry: Entry, contents: Attachments) -> None:
    """`apply` but for the clocks."""
    state.sequence = entry.sequence
    state.last_recorded_at = entry.recorded_at
    # Also of a kind that nobody knows: asked again, it must still be the same entry.
    state.requests.add(entry.request, entry.sequence)
    try:
        told = _tell(state, entry, contents)
    # The entry is in the ledger for good: one that can't be read must stop what it may be about, and not all reading.
    except ValueError:
        told = False
    if not told:
        _unreadable(state, entry)


def fold(run: str, entries: Iterable[tuple[Entry, Attachments]]) -> RunState:
    """The state after `entries`, in order of sequence. Gaps are allowed: a selection folds to what it names."""
    state = RunState(run=run)
    for entry, contents in entries:
        apply(state, entry, contents)
    return state


def apply_site(state: SiteState, entry: Entry, _contents: Attachments) -> None:
    """Folds the site's next entry in. A kind this version does not know only raises `state.blocked`."""
    state.sequence = entry.sequence
    state.last_recorded_at = entry.recorded_at
    state.requests.add(entry.request, entry.sequence)
    kind = KINDS.get(entry.kind)
    try:
        if kind is not None and kind.on_site is not None:
            kind.on_site(state, entry, read(kind.body, entry.body))
        elif not acts_on(entry.kind):
            _unreadable(state, entry)
    except ValueError:
        _unreadable(state, entry)


def fold_site(entries: Iterable[Entry]) -> SiteState:
    """The state after `entries`, in order of sequence."""
    state = SiteState()
    for entry in entries:
        apply_site(state, entry, Attachments())
    return state


def acts_on(kind: str) -> bool:
    """Whether this version does something with entries of the kind on the site's branch, if only to read them aloud."""
    known = KINDS.get(kind)
    return known is not None and (known.on_site is not None or (known.history and known.branch is not OnBranch.RUN))


def mentions(entry: Entry, contents: Attachments) -> frozenset[str]:
    """Ids of the records whose state `entry` may change: of every other record it says nothing."""
    kind = KINDS.get(entry.kind)
    if kind is None or not kind.of_records:
        return frozenset()
    record = contents.record
    # A commit changes the record that it supersedes, too.
    named = {entry.record, *((record.id, record.supersedes) if record else ())}
    items = entry.body.get("items")
    # Also where the body as a whole can't be read.
    listed = items if isinstance(items, list | tuple) else ()
    named.update(one for item in listed if isinstance(item, Mapping) and isinstance(one := item.get("record"), str))
    return frozenset(identity for identity in named if identity)


def structural(entry: Entry) -> bool:
    """Whether `entry` says something of the run itself: folding only these gives its state without the records."""
    kind = KINDS.get(entry.kind)
    if kind is None:
        return True
    if kind.of_records:
        return kind.of_run_too is not None and kind.of_run_too(entry)
    return not kind.history


def foreseen(state: RunState, entry: Entry, contents: Attachments) -> RunState:
    """What the lineages will be after `entry`, without changing `state`; good for `timeline` only.

    Raises ValueError where the body of `entry` can't be read: `apply` would not know what it says.
    """
    after = state.snapshot()
    _tell(after, entry, contents)
    return after


def _tell(state: RunState, entry: Entry, contents: Attachments) -> bool:
    """Lets the entry's kind do what it does; False where this version does nothing with it on a run. Raises ValueError."""
    kind = KINDS.get(entry.kind)
    if kind is None:
        return False
    if kind.with_record is not None:
        kind.with_record(state, entry, read(kind.body, entry.body), contents.record)
    elif kind.on_run is not None:
        kind.on_run(state, entry, read(kind.body, entry.body))
    else:
        return kind.history and kind.branch is not OnBranch.SITE
    return True


def _unreadable(state: RunState | SiteState, entry: Entry) -> None:
    state.unknown.append(entry.kind)
    # Never lower: an entry that is not understood stays in the history.
    state.blocked = max(state.blocked, means(entry), key=list(Means).index)
