"""What a kind of entry is, and what folds have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Generic, TypeAlias, TypeVar

from lakemark.model.checkpoints.record import DataRef, Record
from lakemark.model.ledger.entry import Attachments, Draft, Entry, Means
from lakemark.model.ledger.run import Fork, Interval, Place, RunState, Timeline
from lakemark.model.ledger.site import SiteState
from lakemark.model.values.canonical import JSON
from lakemark.model.values.codec import PASSED_OVER, As, Coded, Size
from lakemark.model.values.fields import shared


class OnBranch(StrEnum):
    """Where entries of a kind are."""

    RUN = "run"
    SITE = "site"
    BOTH = "both"


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryBody(Coded, what="a body", sparse=True):
    """What an entry says, each key with a default: what is not known, or is none, is not written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nothing(EntryBody):
    """The kind says it all."""


B = TypeVar("B", bound=EntryBody)
RunFold: TypeAlias = Callable[[RunState, Entry, B], None]
RecordFold: TypeAlias = Callable[[RunState, Entry, B, Record | None], None]
SiteFold: TypeAlias = Callable[[SiteState, Entry, B], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(Generic[B]):
    """One kind of entry: what it says, and what that does to the state. Folds raise ValueError for what makes no sense.

    unknown_means: what a version that does not know the kind, or knows it and does not act on it, must stop doing: nothing
    where the entry only tells what happened, deleting where it may say that something is needed or is no copy any more.

    on_run, on_site: None where nothing is done with it on that branch (yet). with_record: as `on_run`, of a kind whose commit
    carries a record. history: nothing that is decided depends on it, so its body is not even read. of_records: it says
    something of the records that it names, and of the run itself only where `of_run_too`, of its entry, is true.
    note: what else there is to know, for the documentation.
    """

    name: str
    body: type[B]
    branch: OnBranch = OnBranch.RUN
    unknown_means: Means = Means.NO_DELETE
    on_run: RunFold[B] | None = None
    with_record: RecordFold[B] | None = None
    on_site: SiteFold[B] | None = None
    history: bool = False
    of_records: bool = False
    of_run_too: Callable[[Entry], bool] | None = None
    note: str = ""

    def draft(
        self,
        body: B,
        *,
        timeline: int = 0,
        record: str | None = None,
        contents: Attachments | None = None,
        saved_at: datetime | None = None,
        reason: str | None = None,
        joins: tuple[str, ...] = (),
    ) -> Draft:
        """An entry of this kind, as it is asked of the ledger. timeline: 0 on the site's branch."""
        return Draft(
            kind=self.name,
            timeline=timeline,
            body=body.as_json(),
            record=record,
            contents=contents,
            saved_at=saved_at,
            reason=reason,
            joins=joins,
        )


def _reference(value: JSON) -> DataRef:
    # Bodies of the first version did not say the kind: it was always data of lakeFS.
    return DataRef.from_json({"kind": "lakefs", **value} if isinstance(value, Mapping) else value)


# What the keys of many kinds hold.
Data: TypeAlias = tuple[Annotated[DataRef, As(_reference, DataRef.as_json)], ...]
Told: TypeAlias = Annotated[float | None, PASSED_OVER]
"""A measured number: it explains and forecasts, so one that can't be is passed over."""
Bytes: TypeAlias = Annotated[int | None, PASSED_OVER]
Nodes: TypeAlias = Annotated[str | None, "null: shared"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordItem(Coded, what="an item", sparse=True):
    """A record, in a body that is about many."""

    record: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaItem(RecordItem, what="an item"):
    """A replica, in a body that is about many."""

    tier: str = ""
    node: str | None = None
    part: Size | None = None

    @property
    def place(self) -> Place:
        return shared(Place(tier=self.tier, node=self.node, part=self.part))


def change(state: RunState, identity: str | None, **changes: Any) -> None:  # noqa: ANN401 - fields of RecordState
    """The record's state with `changes`, in the old one's place; nothing where the run does not know the record."""
    if identity is not None and identity in state.records:
        state.records[identity] = found = replace(state.records[identity], **changes)
        if "pruned" not in changes:
            return
        if found.pruned is None:
            state.unpruned[identity] = found.sequence
        else:
            state.unpruned.pop(identity, None)


def named(entry: Entry, items: Iterable[RecordItem]) -> list[str]:
    """The record that an entry is about, or each of its items."""
    return [one for one in (entry.record, *(item.record for item in items)) if one]


def interval(state: RunState, entry: Entry, data: tuple[DataRef, ...], *, at_step: int | None) -> Interval:
    """What attempts open from this entry on."""
    return Interval(
        sequence=entry.sequence,
        timeline=entry.timeline or state.timeline,
        opened_at=entry.recorded_at,
        data=data,
        at_step=at_step,
    )


def leave(
    state: RunState, entry: Entry, fork: Fork | None, *, rollback: str | None = None, inferred: bool = False
) -> None:
    """Opens the entry's timeline, where it is a new one, as `resumed` and `rolled_back` do. rollback: the one that did it.

    inferred: it becomes current only once it has gone on, or somebody says so. Its process may turn out to have gone back
    further: then it leaves its parent there.
    """
    before = state.timelines.get(entry.timeline)
    # A retried entry opens nothing a second time.
    if fork is None or before is not None:
        if fork is not None and before is not None and inferred and before.inferred and _is_further(fork, before.fork):
            state.timelines[entry.timeline] = replace(before, fork=fork)
        return
    state.timelines[entry.timeline] = Timeline(
        number=entry.timeline,
        fork=fork,
        opened_by=entry.kind,
        opened_at=entry.recorded_at,
        sequence=entry.sequence,
        rollback=rollback,
        inferred=inferred,
    )
    if not inferred:
        take_over(state, entry, entry.timeline)


def _is_further(fork: Fork, than: Fork | None) -> bool:
    return than is not None and (fork.step, fork.timeline) < (than.step, than.timeline)


def take_over(state: RunState, entry: Entry, number: int) -> None:
    """Makes a timeline the run's current one, from this entry on."""
    opened = state.timelines[number]
    new = replace(opened, current_since=entry.sequence, current_at=entry.recorded_at, ahead=None)
    state.timelines[number] = new
    _overtake(state, entry, number, but=opened.rollback)


def confirm(state: RunState, number: int) -> None:
    """Somebody said that the run goes on in this timeline: it is no longer only inferred."""
    opened = state.timelines.get(number)
    if opened is not None and opened.inferred:
        state.timelines[number] = replace(opened, inferred=False)


def _overtake(state: RunState, entry: Entry, number: int, *, but: str | None) -> None:
    """Ends the requests that were planned for the timeline that this entry leaves: none of them holds any more."""
    why = f"the run went on in timeline {number}"
    for request in list(state.rollbacks.values()):
        if request.open and request.id != but:
            state.rollbacks[request.id] = replace(
                request, state="overtaken", ended_by=entry.actor, ended_at=entry.recorded_at, ended_why=why
            )
