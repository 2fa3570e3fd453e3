"""Is this ledger sound to act on? One answer for everything that appends, drops or overwrites.

`require_sound` is cheap and is asked before each destructive step: it compares the ledger with what this node knows. `look`
also asks the tiers' copies of the ledger and the sealed trees, and what they know that the ledger lacks is known from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import BinaryIO, Final

from lakemark.errors import Corrupt, InDistress, LakemarkError, NotFound
from lakemark.model.checkpoints.manifest import Manifest
from lakemark.model.checkpoints.record import require_own
from lakemark.model.heartbeat import Heartbeat
from lakemark.model.ledger.entry import SITE, Attachments, Draft, Entry, Stamp
from lakemark.model.ledger.outline import Outline
from lakemark.model.ledger.run import RunState
from lakemark.model.ledger.site import SiteState
from lakemark.model.ledger.soundness import HERE, Lack, Seen, in_words, lacks
from lakemark.ports import Checkpoint, CheckpointStore, Site
from lakemark.ports.journal import SeenTips
from lakemark.ports.ledger import Appended, BrokenEntry, Ledger, LedgerReader

_RECORD: Final = "the record "
"""Begins what stands for a revision where only the record is known that some entry committed."""
SINCE: Final = "since"
"""The slot of what goes on from a tier's whole copy of the ledger."""
RECOVER: Final = (
    "lakemark ledger recover --dry-run says what is missing and where it is; saves are sealed, and wait for it."
)


def require_sound(site: Site) -> None:
    """Raises InDistress where this node knows entries that the ledger lacks: then nothing may be dropped or overwritten."""
    _require(known_lacks(site.ledger, site.journal))


def known_lacks(ledger: Ledger, journal: SeenTips, branch: str | None = None) -> tuple[Lack, ...]:
    """What this node knows and the ledger lacks, of one branch or of all. Asks nobody else."""
    seen = journal.seen(branch)  # before the tips: the ledger only grows
    return lacks(seen, ledger.tips() if branch is None else _tip(ledger, branch), holds=holds_of(ledger))


def look(site: Site) -> tuple[Lack, ...]:
    """The same after a look at every tier's copy of the ledger, where the tier answers, and at hot's unclaimed trees.

    What the ledger lacks is remembered, so that `require_sound` knows it from now on, with every tier away.
    """
    # Asked before the tips: the ledger only grows, and what is appended meanwhile must not look missing.
    told = [*site.journal.seen(), *_of_tiers(site), *_of_hot(site)]
    found = lacks(told, site.ledger.tips(), holds=holds_of(site.ledger))
    for lack in found:
        for source in lack.sources:
            site.journal.saw(source, {lack.branch: lack.revision})
    if not found:
        _note(site)
    return found


def distress(site: Site) -> str | None:
    """`known_lacks` in one line; None where there are none."""
    found = known_lacks(site.ledger, site.journal)
    return in_words(found) if found else None


class GuardedLedger:
    """`ports.Ledger` that appends nothing to a ledger in distress, and remembers in `journal` what it appended.

    Raises InDistress from `append` and `append_site`. `inner` is the ledger itself, for the recovery.

    find: the ledger, asked for at each use: one that can't be opened raises then, and may be had the next time.

    stores: that keep records of checkpoints. A manifest that the ledger has damaged comes from one of them, proven by the
    record's id, and is written back where that can be.
    """

    def __init__(
        self, find: Callable[[], Ledger], journal: SeenTips, *, stores: Callable[[], Iterable[CheckpointStore]]
    ) -> None:
        self._find = find
        self._journal = journal
        self._stores = stores
        self._looked = False

    @property
    def inner(self) -> Ledger:
        return self._find()

    @property
    def id(self) -> str:
        return self.inner.id

    def append(self, run: str, decide: Callable[[RunState], Draft | None], stamp: Stamp) -> Appended[RunState]:
        self._require(run)
        appended = self.inner.append(run, decide, stamp)
        if appended.entry is not None:
            self._appended(run)
        return appended

    def append_site(self, decide: Callable[[SiteState], Draft | None], stamp: Stamp) -> Appended[SiteState]:
        self._require(SITE)
        appended = self.inner.append_site(decide, stamp)
        if appended.entry is not None:
            self._appended(SITE)
        return appended

    def tips(self) -> Mapping[str, str]:
        return self.inner.tips()

    def tip(self, branch: str) -> str | None:
        return self.inner.tip(branch)

    def contains(self, branch: str, revision: str) -> bool:
        return self.inner.contains(branch, revision)

    def heads_of(self, copy: BinaryIO) -> Mapping[str, str]:
        return self.inner.heads_of(copy)

    def take(self, copy: BinaryIO) -> Mapping[str, str]:
        return self.inner.take(copy)

    def forward(self, branch: str, revision: str) -> bool:
        return self.inner.forward(branch, revision)

    def beyond(self, branch: str, revision: str) -> Iterator[tuple[Entry, Attachments]]:
        return self.inner.beyond(branch, revision)

    def is_whole(self) -> bool:
        return self.inner.is_whole()

    def broken(self, branch: str, *, after: int, limit: int) -> tuple[BrokenEntry, ...]:
        return self.inner.broken(branch, after=after, limit=limit)

    def broken_branches(self) -> Mapping[str, str]:
        return self.inner.broken_branches()

    def set_aside(self, branch: str, revision: str) -> bool:
        return self.inner.set_aside(branch, revision)

    def runs(self) -> tuple[str, ...]:
        return self.inner.runs()

    def run(self, run: str) -> RunState:
        return self.inner.run(run)

    def outline(self, run: str) -> Outline:
        return self.inner.outline(run)

    def site(self) -> SiteState:
        return self.inner.site()

    def entries(self, branch: str, *, after: int = 0) -> Iterator[tuple[Entry, Attachments]]:
        return self.inner.entries(branch, after=after)

    def manifest(self, run: str, record: str) -> Manifest:
        try:
            return self.inner.manifest(run, record)
        except (Corrupt, NotFound):
            # Only of a record that the ledger knows: a tier may keep another site's, or one that was given up.
            known = self.inner.run(run).records.get(record)
            held = next(self._held(record), None) if known is not None else None
            if known is None or held is None:
                raise
            found = held.manifest
            with suppress(LakemarkError):  # a disk that is full, or only read, keeps nobody from reading
                self.inner.put_manifest(run, record, found)
            return found

    def objects(self, run: str, record: str, tier: str) -> Mapping[str, str]:
        try:
            return self.inner.objects(run, record, tier)
        except Corrupt:
            held = next(self._held(record, tier=tier), None)
            if held is None:
                raise
            return held.objects

    def put_manifest(self, run: str, record: str, manifest: Manifest) -> bool:
        return self.inner.put_manifest(run, record, manifest)

    def beat(self, node: str, change: Callable[[Heartbeat | None], Heartbeat]) -> Heartbeat:
        return self.inner.beat(node, change)

    def heartbeats(self) -> Mapping[str, Heartbeat]:
        return self.inner.heartbeats()

    def revision(self, branch: str, sequence: int) -> str:
        return self.inner.revision(branch, sequence)

    def bundle(self, *, since: Collection[str] = ()) -> AbstractContextManager[BinaryIO]:
        return self.inner.bundle(since=since)

    def needs_of(self, copy: BinaryIO) -> tuple[str, ...]:
        return self.inner.needs_of(copy)

    def reads_whole(self, copy: BinaryIO) -> bool:
        return self.inner.reads_whole(copy)

    def _held(self, record: str, *, tier: str | None = None) -> Iterator[Checkpoint]:
        """What stores say of the record, where that is its own: the next is asked where one is away or says another's."""
        for store in self._stores():
            if tier not in (None, store.name):
                continue
            try:
                held = store.load(record)
                require_own(held.record, held.manifest)
            except LakemarkError:
                continue
            if held.record.id == record:
                yield held

    def _require(self, branch: str) -> None:
        """All branches once, then the one: another process may have found out meanwhile."""
        _require(known_lacks(self.inner, self._journal, branch if self._looked else None))
        self._looked = True

    def _appended(self, branch: str) -> None:
        """What this node appended it knows from now on, with every tier away."""
        tip = self.inner.tip(branch)
        if tip is not None:
            self._journal.saw(HERE, {branch: tip})


def unguarded(ledger: Ledger) -> Ledger:
    """The ledger itself: only the recovery appends to one in distress."""
    return ledger.inner if isinstance(ledger, GuardedLedger) else ledger


def _require(found: tuple[Lack, ...]) -> None:
    """Raises InDistress where there are any."""
    if found:
        raise InDistress(in_words(found), advice=RECOVER)


def _note(site: Site) -> None:
    """The tips of a sound ledger, where they are not what this node knew: others append, too."""
    known = {one.branch: one.revision for one in site.journal.seen() if one.source == HERE}
    new = {branch: tip for branch, tip in site.ledger.tips().items() if known.get(branch) != tip}
    if new:
        site.journal.saw(HERE, new)


def _tip(ledger: LedgerReader, branch: str) -> Mapping[str, str]:
    tip = ledger.tip(branch)
    return {} if tip is None else {branch: tip}


def holds_of(ledger: Ledger) -> Callable[[str, str], bool]:
    """Whether a branch holds a revision, or a record that is only known by its tree; False where it can't be told."""

    def holds(branch: str, revision: str) -> bool:
        try:
            if revision.startswith(_RECORD):
                return revision.removeprefix(_RECORD) in ledger.run(branch).records
            return ledger.contains(branch, revision)
        except LakemarkError:  # a tip that can't be read holds nothing for sure
            return False

    return holds


def _of_tiers(site: Site) -> Iterator[Seen]:
    stores = list(site.tiers.values())
    told = site.at_once([partial(_told_by, site, store) for store in stores])
    for store, (base, more) in zip(stores, told, strict=True):
        for branch, revision in (*(base or {}).items(), *more.items()):
            yield Seen(source=f"the copy in {store.name}", branch=branch, revision=revision)


def copy_is_behind(site: Site, store: CheckpointStore) -> bool | None:
    """Whether the copy of this ledger that a tier keeps lacks a tip of it.

    None where it keeps none, is away or is another ledger's. What goes on from the whole copy may go on from one before it:
    a whole copy is replaced by one that holds all of it, so that nothing is missing in between.
    """
    base, more = _told_by(site, store)
    if base is None:
        return None
    return any(tip not in (base.get(branch), more.get(branch)) for branch, tip in site.ledger.tips().items())


def _told_by(site: Site, store: CheckpointStore) -> tuple[Mapping[str, str] | None, Mapping[str, str]]:
    """Tips of a tier's whole copy, and of what goes on from it."""
    try:
        identity = store.identity()
        if identity is None or identity.ledger != site.ledger.id:
            return None, {}
        with store.open_ledger() as copy:
            base = site.ledger.heads_of(copy)
    except LakemarkError:  # says nothing, so it can't prove that anything is missing
        return None, {}
    try:
        with store.open_ledger(SINCE) as copy:
            return base, site.ledger.heads_of(copy)
    except LakemarkError:
        return base, {}


def _of_hot(site: Site) -> Iterator[Seen]:
    """Trees that some ledger had an entry of, and this one has none."""
    try:
        identity = site.hot.identity()
        if identity is None or identity.ledger != site.ledger.id:
            return
        listing, recorded = site.hot.records(), site.hot.recorded()
    except LakemarkError:
        return
    # Only those that an entry was told of: any other is a crash's, and no sign of a lost entry.
    unknown = set(listing.records) & recorded
    for run in site.ledger.runs() if unknown else ():
        with suppress(LakemarkError):  # a branch that can't be read holds nothing for sure
            unknown -= site.ledger.outline(run).records_of(unknown)
    for record in sorted(unknown):
        try:
            run = site.hot.load(record).record.run
        except LakemarkError:
            continue
        yield Seen(source=f"a tree in {site.hot.name}", branch=run, revision=_RECORD + record)
