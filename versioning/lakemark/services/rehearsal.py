"""Rehearse what only appends: the very decisions that would be made, with nothing written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from lakemark.errors import Refused
from lakemark.model.entries.fold import apply, apply_site
from lakemark.model.entries.table import settled
from lakemark.model.heartbeat import Heartbeat
from lakemark.model.ledger.entry import SITE, Attachments, Draft, Entry, Stamp
from lakemark.model.ledger.outline import Outline
from lakemark.model.ledger.run import RunState
from lakemark.model.ledger.site import SiteState
from lakemark.ports import Ledger, Site
from lakemark.ports.journal import SeenTips
from lakemark.ports.ledger import Appended
from lakemark.services.soundness import GuardedLedger, require_sound

S = TypeVar("S", RunState, SiteState)


class RehearsedLedger(GuardedLedger):
    """`ports.Ledger` that decides each append on its present state, and keeps what came of it to itself.

    Later decisions are made on the states after it, as they would be. entries: what would be appended, in order.
    """

    def __init__(self, ledger: Ledger, journal: SeenTips) -> None:
        super().__init__(lambda: ledger, journal, stores=tuple)
        self.entries_made: list[Entry] = []
        self._runs: dict[str, RunState] = {}
        self._site: SiteState | None = None

    def append(self, run: str, decide: Callable[[RunState], Draft | None], stamp: Stamp) -> Appended[RunState]:
        appended = self._made(self.run(run), decide, stamp, branch=run, fold=apply)
        self._runs[run] = appended.state
        return appended

    def append_site(self, decide: Callable[[SiteState], Draft | None], stamp: Stamp) -> Appended[SiteState]:
        appended = self._made(self.site(), decide, stamp, branch=SITE, fold=apply_site)
        self._site = appended.state
        return appended

    def _made(
        self,
        state: S,
        decide: Callable[[S], Draft | None],
        stamp: Stamp,
        *,
        branch: str,
        fold: Callable[[S, Entry, Attachments], None],
    ) -> Appended[S]:
        # Asked before: the ledger answers the same request with its first entry, and decides nothing.
        draft = None if state.requests.of(stamp.request) else decide(state)
        if draft is None:
            return Appended(entry=None, state=state)
        after = state.snapshot()
        entry = settled(draft, branch=branch, sequence=state.sequence + 1, stamp=stamp)
        fold(after, entry, draft.contents or Attachments())
        self.entries_made.append(entry)
        return Appended(entry=entry, state=after)

    def run(self, run: str) -> RunState:
        return self._runs.get(run) or super().run(run)

    def outline(self, run: str) -> Outline:
        made = self._runs.get(run)
        return super().outline(run) if made is None else Outline.of(made)

    def site(self) -> SiteState:
        return self._site or super().site()

    def beat(self, node: str, change: Callable[[Heartbeat | None], Heartbeat]) -> Heartbeat:  # noqa: ARG002
        raise Refused("this is a rehearsal: nothing is written", advice="Only what appends can be rehearsed.")


def rehearse(site: Site, do: Callable[[Site], object]) -> list[Entry]:
    """What `do` would append to the ledger, in order; raises what it would raise. Nothing is written.

    do: gives its site to services that only append; what they ask of tiers, and of servers, is asked.
    Raises InDistress where the ledger lacks entries, as each append would.
    """
    require_sound(site)
    ledger = RehearsedLedger(site.ledger, site.journal)
    do(replace(site, ledger=ledger))
    return ledger.entries_made
