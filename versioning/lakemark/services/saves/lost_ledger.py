"""Stands for a ledger that can't be read, while a save is sealed that its recovery makes an entry of."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import BinaryIO, NoReturn

from lakemark.errors import Corrupt, InDistress, LakemarkError, Misconfigured, NotFound, StoreUnavailable, Usage
from lakemark.model.checkpoints.manifest import Manifest
from lakemark.model.heartbeat import Heartbeat
from lakemark.model.ledger.entry import Attachments, Draft, Entry, Stamp
from lakemark.model.ledger.outline import Outline
from lakemark.model.ledger.run import RunState
from lakemark.model.ledger.site import SiteState
from lakemark.ports import Site
from lakemark.ports.ledger import Appended, BrokenEntry
from lakemark.services.soundness import RECOVER, distress


class LostLedger:
    """`ports.Ledger` that holds nothing and takes nothing. why: what reading the real one raised.

    id: by what hot says whose it is: nobody else is left to ask.
    """

    def __init__(self, site: Site, why: str) -> None:
        self.why = why
        self._site = site

    @property
    def id(self) -> str:
        found = self._site.hot.identity()
        return found.ledger if found is not None else self._refuse()

    def tips(self) -> Mapping[str, str]:
        return {}

    def tip(self, branch: str) -> str | None:  # noqa: ARG002
        return None

    def contains(self, branch: str, revision: str) -> bool:  # noqa: ARG002
        return False

    def runs(self) -> tuple[str, ...]:
        return ()

    def run(self, run: str) -> RunState:
        return RunState(run=run)

    def outline(self, run: str) -> Outline:
        return Outline(run=run)

    def site(self) -> SiteState:
        return SiteState()

    def entries(self, branch: str, *, after: int = 0) -> Iterator[tuple[Entry, Attachments]]:  # noqa: ARG002
        return iter(())

    def objects(self, run: str, record: str, tier: str) -> Mapping[str, str]:  # noqa: ARG002
        return {}

    def is_whole(self) -> bool:
        return False

    def append(self, run: str, decide: Callable[[RunState], Draft | None], stamp: Stamp) -> Appended[RunState]:  # noqa: ARG002
        self._refuse()

    def append_site(self, decide: Callable[[SiteState], Draft | None], stamp: Stamp) -> Appended[SiteState]:  # noqa: ARG002
        self._refuse()

    def manifest(self, run: str, record: str) -> Manifest:  # noqa: ARG002
        self._refuse()

    def put_manifest(self, run: str, record: str, manifest: Manifest) -> bool:  # noqa: ARG002
        self._refuse()

    def beat(self, node: str, change: Callable[[Heartbeat | None], Heartbeat]) -> Heartbeat:  # noqa: ARG002
        self._refuse()

    def heartbeats(self) -> Mapping[str, Heartbeat]:
        return {}

    def revision(self, branch: str, sequence: int) -> str:  # noqa: ARG002
        self._refuse()

    def heads_of(self, copy: BinaryIO) -> Mapping[str, str]:  # noqa: ARG002
        self._refuse()

    def take(self, copy: BinaryIO) -> Mapping[str, str]:  # noqa: ARG002
        self._refuse()

    def forward(self, branch: str, revision: str) -> bool:  # noqa: ARG002
        self._refuse()

    def beyond(self, branch: str, revision: str) -> Iterator[tuple[Entry, Attachments]]:  # noqa: ARG002
        self._refuse()

    def broken(self, branch: str, *, after: int, limit: int) -> tuple[BrokenEntry, ...]:  # noqa: ARG002
        self._refuse()

    def broken_branches(self) -> Mapping[str, str]:
        self._refuse()

    def set_aside(self, branch: str, revision: str) -> bool:  # noqa: ARG002
        self._refuse()

    def needs_of(self, copy: BinaryIO) -> tuple[str, ...]:  # noqa: ARG002
        self._refuse()

    def reads_whole(self, copy: BinaryIO) -> bool:  # noqa: ARG002
        self._refuse()

    def bundle(self, *, since: Collection[str] = ()) -> AbstractContextManager[BinaryIO]:  # noqa: ARG002
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise InDistress(self.why, advice="lakemark ledger recover --dry-run says what is damaged.")


def for_saving(site: Site) -> tuple[Site, str | None]:
    """The site to seal saves with, and why no entry may be made of one now; None where one may.

    A ledger that can't be read at all is stood for by an empty one. Raises Denied, Usage, and what reading raised where hot
    is nobody's: then there is no place to seal anything in, and maybe nobody ever made a ledger.
    """
    try:
        # Both: a ledger that lacks entries can be read, and one that can't be read may lack none.
        why = distress(site)
        site.ledger.site()
    except (Corrupt, NotFound, StoreUnavailable, Misconfigured) as error:
        if isinstance(error, Usage) or site.hot.identity() is None:
            raise
        return _lost(site, error)
    return site, why


def for_saving_of(site: Site, run: str) -> tuple[Site, str | None, RunState]:
    """The same for saves of one run, which must be readable, too, with what the ledger knows of it."""
    found, why = for_saving(site)
    try:
        return found, why, found.ledger.run(run)
    except (Corrupt, StoreUnavailable) as error:
        lost, unread = _lost(site, error)
        return lost, unread, lost.ledger.run(run)


@contextmanager
def ledger_may_fail() -> Iterator[None]:
    """That the ledger can't be read or written inside comes out as InDistress: nothing can be recorded now, and saves wait.

    Only around the ledger's own work: what else fails is not its fault, and no save waits for it.
    """
    try:
        yield
    except (Corrupt, StoreUnavailable) as error:
        raise InDistress(f"the ledger fails: {error}", advice=RECOVER) from error


def _lost(site: Site, error: LakemarkError) -> tuple[Site, str]:
    why = f"the ledger can't be read: {error}"
    return replace(site, ledger=LostLedger(site, why)), why
