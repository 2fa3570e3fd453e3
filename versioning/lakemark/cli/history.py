"""The ledger as commands read it: through the index, which a command first brings up to date.

Where the index already is where the ledger is, Git is not loaded at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Final

from lakemark.errors import NotFound, Usage
from lakemark.model.ledger.run import RecordState, RunState
from lakemark.model.ledger.site import SiteState
from lakemark.model.selectors import AtTime, Latest, Prefix, parse_record, resolve, run_of
from lakemark.model.tiers.retention import Kept
from lakemark.model.values.canonical import JSON
from lakemark.model.values.instants import to_text
from lakemark.model.views import Context, record_view

if TYPE_CHECKING:
    from lakemark.index import Index, Page, Selection
    from lakemark.ports.site import Policies
    from lakemark.site import Parts

# For that all records of a run are loaded, and the time of a listing is to depend on its page alone.
_MOST_FOR_RETENTION: Final = 1_000
"""Records of a run up to which a listing works out why each is kept."""


class History:
    """Reads a site's history. Raises Misconfigured where `init` never ran, NotFound for what is not there."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._contexts: dict[str, Context] = {}

    @cached_property
    def index(self) -> Index:
        """The index, up to date."""
        from lakemark.site import ledger_tips

        # From the files of the refs: no Git process, no library of it.
        tips = ledger_tips(self._parts.settings)
        index = self._parts.index
        if not index.is_current(tips):
            index.catch_up(self._parts.ledger)
        return index

    def renew(self) -> None:
        """Forgets what was read: this command has appended since, and what it says next rests on that."""
        # cached_property keeps its value there.
        self.__dict__.pop("index", None)
        self._contexts.clear()

    def runs(self) -> tuple[str, ...]:
        return self.index.runs()

    def site(self) -> SiteState:
        return self.index.site()

    def name(self, written: str) -> str:
        """The run that `written` means. Raises NotFound."""
        return run_of(written, _Structures(self.index)).run

    def structure(self, run: str) -> RunState:
        """The run without its records."""
        return self.index.structure(self.name(run))

    def run(self, run: str) -> RunState:
        """The run with all its records."""
        return self._whole(self.name(run))

    def page(self, wanted: Selection) -> Page:
        return self.index.records(wanted)

    def found(self, text: str, *, now: datetime) -> RecordState:
        """The record that RECORD names. Raises Usage, NotFound, NoRecordAsOf."""
        selector = parse_record(text, now=now)
        if isinstance(selector, Prefix):
            return self.index.find(selector.hex)
        run = self.name(selector.run)
        timeline = selector.timeline
        if timeline is not None and timeline not in self.index.structure(run).timelines:
            raise NotFound(f"{run} has no timeline {timeline}", advice=f"See `lakemark run show {run}`.")
        if isinstance(selector, AtTime):
            return self.index.as_of(run, selector.instant, timeline=timeline)
        # The two most frequent questions are the index's; all others need the whole run.
        newest = self.index.latest(run, timeline=timeline) if isinstance(selector, Latest) else None
        # Also where there is no newest one: `resolve` says that, with what there is instead.
        return newest or resolve(selector, {run: self._whole(run)}, modes=self.modes())

    def run_or_record(self, text: str, *, now: datetime) -> tuple[str, RecordState | None]:
        """The run `text` names, or the record and its run."""
        # A run's name has no `@`; a name that is none may still be the digits of a record's id.
        if "@" not in text:
            try:
                return self.name(text), None
            except NotFound:
                pass
        try:
            found = self.found(text, now=now)
        except Usage:
            # It looks like a name: then that there is no such run says more than how a RECORD is written.
            if text.replace("-", "").replace(".", "").replace("_", "").isalnum() and not text.isdecimal():
                raise NotFound(f"there is no run or record {text!r}", advice="See `lakemark run ls`.") from None
            raise
        return found.record.run, found

    def modes(self) -> dict[str, str]:
        """Metric -> min or max, as retention says."""
        retention = self._parts.settings.retention
        # The default last: where two policies count one metric in opposite ways, its word holds.
        policies = (*retention.runs.values(), retention.default)
        return {policy.best.metric: policy.best.mode for policy in policies if policy.best}

    def policies(self) -> Policies:
        from lakemark.settings.rules import policies

        return policies(self._parts.settings)

    def context(self, run: str) -> Context:
        """What views of the run's records rest on."""
        if run not in self._contexts:
            settings = self._parts.settings
            domains = {name: tier.domain or name for name, tier in settings.tiers.items() if tier.tier_class != "hot"}
            now = self._parts.now()
            self._contexts[run] = Context(
                now=now, domains=domains, copies=settings.copies, kept=self._kept(run, now=now)
            )
        return self._contexts[run]

    def run_view(self, state: RunState, newest: RecordState | None) -> dict[str, JSON]:
        """A run and its newest record, as lists of runs show them."""
        return {
            "run": state.run,
            "timeline": state.timeline,
            "closed": state.closed,
            "records": self.index.count(state.run),
            "record": newest.record.id if newest else None,
            "step": newest.record.step if newest else None,
            "saved_at": to_text(newest.record.saved_at) if newest else None,
            "instant": to_text(newest.instant) if newest else None,
        }

    def view(self, found: RecordState) -> dict[str, JSON]:
        """The record as JSON."""
        return record_view(found, self.context(found.record.run))

    def _kept(self, run: str, *, now: datetime) -> Mapping[str, Kept]:
        from lakemark.services.tiers.kept import why_kept

        if self.index.count(run) > _MOST_FOR_RETENTION:
            return {}
        return why_kept(self.policies(), self._whole(run), now=now)

    def _whole(self, run: str) -> RunState:
        """The run from the index, which is up to date: Git need not be asked, and records are read as they are looked at."""
        known = self.index.known(run)
        return RunState(run=run) if known is None else known.state


class _Structures(Mapping[str, RunState]):
    """Runs by name, each without its records, loaded when asked for."""

    def __init__(self, index: Index) -> None:
        self._index = index

    def __getitem__(self, name: str) -> RunState:
        # The index would answer an empty run for every name.
        if name not in self._index.runs():
            raise KeyError(name)
        return self._index.structure(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._index.runs())

    def __len__(self) -> int:
        return len(self._index.runs())
