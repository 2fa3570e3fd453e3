"""Keep the ledger: a copy of it in every tier, from which a lost one is rebuilt.

A copy is replaced by one that holds all of it, and by nothing else: the copy may be all that is left of the newest entries.
Beside it each tier keeps one of each of the last seven days on which it was renewed.

A small ledger is sent whole each time. Of a large one a whole copy stands there, under its day too, and beside it, in the slot
`since`, what goes on from it; `model.ledger_copies` says when which is sent. Either takes Git alone to bring back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import SEEK_END
from pathlib import Path
from typing import BinaryIO, Final

from lakemark.errors import AnswerDamaged, Corrupt, LakemarkError, NotFound
from lakemark.model.ledger.copies import SMALL_BYTES, Sent, sending
from lakemark.model.ledger.soundness import Seen, lacks
from lakemark.ports import CheckpointStore, LedgerCopy, Mark, MarkKind, Named, Site
from lakemark.services.ledger import require_identity, tier_key
from lakemark.services.soundness import SINCE, copy_is_behind, require_sound
from lakemark.services.tiers.witness import as_answer

EVERY: Final = timedelta(hours=1)
AT_LEAST_EVERY: Final = timedelta(days=1)
DAILY_BYTES: Final = 2**30
_STEP_BYTES: Final = 2**20
_READINGS: Final = 2
_DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def pause_after(size_bytes: int) -> timedelta:
    """How long a copy of this size stands before it is renewed, where the ledger grew meanwhile."""
    return min(max(EVERY, timedelta(days=size_bytes / DAILY_BYTES)), AT_LEAST_EVERY)


def keep_copies(site: Site, *, small_bytes: int = SMALL_BYTES) -> dict[str, LakemarkError]:
    """Renews the copy in each tier whose time has come and that lacks entries. Tier -> why it could not be done.

    small_bytes: a ledger up to this size is sent whole each time.
    """
    require_sound(site)
    now = site.now()
    due = [store for store in site.tiers.values() if _due(site, store, now)]
    failed: dict[str, LakemarkError] = {}
    if not due:
        return failed
    with Bundles(site) as bundles:
        for store in due:
            try:
                require_identity(site, store)
                # Asked of the copy itself, each time: another node, or a ledger that was recovered, may have written it since.
                base = _require_part(site, store)
                size_bytes = _renew(site, store, bundles, base=base, now=now, small_bytes=small_bytes)
            except LakemarkError as error:
                failed[store.name] = error
            else:
                site.journal.marks.set(_kept(site, store), at=now)
                site.journal.marks.set(_next(site, store), at=now + pause_after(size_bytes))
    return failed


class Bundles(ExitStack):
    """Bundles of the ledger as it is now, each made once for all tiers."""

    def __init__(self, site: Site) -> None:
        super().__init__()
        self._site = site
        self._made: dict[frozenset[str], BinaryIO] = {}

    def since(self, revisions: Collection[str]) -> BinaryIO:
        """Of what these do not hold; of none: the whole ledger."""
        key = frozenset(revisions)
        if key not in self._made:
            try:
                made = self.enter_context(self._site.ledger.bundle(since=key))
            except Corrupt:
                # Once: a bundle takes every object of a branch, so that one damaged manifest would stop every copy.
                _mend_manifests(self._site)
                made = self.enter_context(self._site.ledger.bundle(since=key))
            self._made[key] = made
        return self._made[key]


def _renew(
    site: Site, store: CheckpointStore, bundles: Bundles, *, base: Mapping[str, str], now: datetime, small_bytes: int
) -> int:
    """Answers how many bytes the copy has that was sent. base: tips of the whole copy there; empty where there is none."""
    sent, day = _sent(site, store), _slot(site, store, now)
    # Once a day it is read whole: what goes on from it is worth as much as it is.
    stands = bool(base) and (day is None or sent is None or sent.size_bytes <= small_bytes or _reads_whole(site, store))
    whole = sending(sent, now=now, stands=stands, small_bytes=small_bytes).whole
    if not whole and set(site.ledger.tips().values()) <= set(base.values()):
        return 0  # all of it is there
    bundle = bundles.since(() if whole else base.values())
    size_bytes = bundle.seek(0, SEEK_END)
    _keep(store, bundle, slot=None if whole else SINCE)
    site.progress.step("ledger.kept")
    large = size_bytes > small_bytes
    # A whole one lies twice: were one bad, what goes on from it could be taken from the other.
    if whole and large and day is None:
        day = _DAYS[now.astimezone(UTC).weekday()]
    if day is not None:
        store.keep_ledger(bundle, slot=day)
    if whole:
        _note_sent(site, store, Sent(at=now, size_bytes=size_bytes))
    elif sent is not None:
        _note_sent(site, store, replace(sent, more_bytes=sent.more_bytes + size_bytes))
    return size_bytes


def _reads_whole(site: Site, store: LedgerCopy) -> bool:
    """Twice where it does not: an answer may come wrong."""
    for _ in range(_READINGS):
        try:
            with store.open_ledger() as copy:
                if site.ledger.reads_whole(copy):
                    return True
        except OSError as error:
            raise as_answer(error, store.name) from error
    return False


def _place(site: Site, store: Named) -> Path:
    """Where this node notes what it sent there. Disposable: without it a whole copy is sent."""
    return site.home / "ledger-copies" / f"{tier_key(site, store)}.json"


def _sent(site: Site, store: Named) -> Sent | None:
    try:
        return Sent.from_json(site.notes.load(_place(site, store)))
    except ValueError:
        return None


def _note_sent(site: Site, store: Named, sent: Sent) -> None:
    site.notes.save(_place(site, store), sent.as_json())


def _mend_manifests(site: Site) -> None:
    """Of each that is damaged a tier has the bytes, and reading it writes them back: one must not stop every copy."""
    for run in site.ledger.runs():
        for record in list(site.ledger.run(run).records):
            with suppress(LakemarkError):
                site.ledger.manifest(run, record)


def _due(site: Site, store: CheckpointStore, now: datetime) -> bool:
    kept = site.journal.marks.get(_kept(site, store))
    if kept is None:
        return bool(site.ledger.site().sequence)
    until = site.journal.marks.get(_next(site, store)) or kept + EVERY
    if now >= kept and timedelta(0) < until - now <= AT_LEAST_EVERY:  # else the clock was set back since
        return False
    behind = copy_is_behind(site, store)
    if behind is None:  # away, or no copy: only what grew is worth a try
        return any(at >= max(kept, until - EVERY) for at in _written(site))
    # By its tips, not by times: a clock that had jumped ahead must not make every pass send the whole ledger.
    if behind:
        return True
    site.journal.marks.set(_next(site, store), at=now + EVERY)
    return False


def _written(site: Site) -> Iterator[datetime]:
    """When each branch of the ledger got its newest entry."""
    newest = [
        site.ledger.site().last_recorded_at,
        *(site.ledger.outline(run).written_at for run in site.ledger.runs()),
    ]
    return (at for at in newest if at is not None)


def _require_part(site: Site, store: LedgerCopy) -> Mapping[str, str]:
    """Answers the tips of the whole copy there; none where there is none.

    Raises InDistress where a copy there has entries that this ledger lacks, and remembers that it has.

    Those of the days are asked, too: the newest may be lost, and they are replaced in their turn. Raises what reading one does:
    it may be all that is left of the newest entries. What was read, twice, and is no copy says nothing, and is replaced.
    """
    source = f"the copy in {store.name}"
    heads = {slot: _heads(site, store, slot) for slot in (None, *store.ledger_slots())}
    told = [
        Seen(source=source, branch=branch, revision=revision)
        for tips in heads.values()
        for branch, revision in tips.items()
    ]
    # A copy that is ahead is all that is left of what this ledger lost: it must not be replaced.
    found = lacks(told, site.ledger.tips(), holds=site.ledger.contains)
    for one in found:
        # Remembered first: the tier may be away at the next look, and the ledger must not count as sound then.
        site.journal.saw(source, {one.branch: one.revision})
    if found:
        require_sound(site)
    return heads[None]


def _heads(site: Site, store: LedgerCopy, slot: str | None) -> Mapping[str, str]:
    """None where the place has no such copy, or one that is none."""
    for _ in range(_READINGS):
        try:
            with store.open_ledger(slot) as copy:
                return site.ledger.heads_of(copy)
        except NotFound:
            break
        # What came wrong on the way says nothing of the copy; it is not replaced on its word.
        except AnswerDamaged:
            raise
        except Corrupt:
            continue
        except OSError as error:
            raise as_answer(error, store.name) from error
    return {}


def _slot(site: Site, store: LedgerCopy, now: datetime) -> str | None:
    """A further copy is kept with the first of a day: the name of that day, so that in a week it is replaced."""
    before = site.journal.marks.get(_kept(site, store))
    today = now.astimezone(UTC).date()
    return None if before is not None and before.astimezone(UTC).date() == today else _DAYS[today.weekday()]


def _keep(store: LedgerCopy, bundle: BinaryIO, *, slot: str | None) -> None:
    """Tried again once where other bytes come back: another process may write its own copy. Then raises Corrupt."""
    for _ in range(2):
        store.keep_ledger(bundle, slot=slot)
        if _reads_back(store, bundle, slot=slot):
            return
    raise Corrupt(
        f"the copy of the ledger in {store.name} has other bytes right after it was written",
        advice="The store does not keep what it is given: look at it before you go on.",
    )


def _reads_back(store: LedgerCopy, bundle: BinaryIO, *, slot: str | None) -> bool:
    bundle.seek(0)
    with store.open_ledger(slot) as copy:
        while (right := bundle.read(_STEP_BYTES)) == copy.read(len(right) or 1):
            if not right:
                return True
    return False


def _kept(site: Site, store: Named) -> Mark:
    return Mark(MarkKind.LEDGER_KEPT, tier_key(site, store))


def _next(site: Site, store: Named) -> Mark:
    return Mark(MarkKind.LEDGER_NEXT, tier_key(site, store))
