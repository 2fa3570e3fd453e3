"""Keep the ledger: a copy of it in every tier, from which a lost one is rebuilt.

A copy is replaced by one that holds all of it, and by nothing else: the copy may be all that is left of the newest entries.
Beside it each tier keeps one of each of the last seven days on which it was renewed.

Each is the whole ledger, so that one file and Git alone bring it back. What that sends is bounded by renewing a large one
less often: about `DAILY_BYTES` a day to each tier, but at least once a day while the ledger grows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from io import SEEK_END
from typing import BinaryIO, Final

from lakemark.errors import AnswerDamaged, Corrupt, LakemarkError, NotFound
from lakemark.model.soundness import Seen, lacks
from lakemark.ports import CheckpointStore, Site
from lakemark.services.appending import require_identity, tier_key
from lakemark.services.soundness import copy_heads, require_sound
from lakemark.services.witness import as_answer

EVERY: Final = timedelta(hours=1)
AT_LEAST_EVERY: Final = timedelta(days=1)
DAILY_BYTES: Final = 2**30
_STEP_BYTES: Final = 2**20
_READINGS: Final = 2
_DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def pause_after(size_bytes: int) -> timedelta:
    """How long a copy of this size stands before it is renewed, where the ledger grew meanwhile."""
    return min(max(EVERY, timedelta(days=size_bytes / DAILY_BYTES)), AT_LEAST_EVERY)


def keep_copies(site: Site) -> dict[str, LakemarkError]:
    """Renews the copy in each tier whose time has come and that lacks entries. Tier -> why it could not be done."""
    require_sound(site)
    now = site.now()
    due = [store for store in site.tiers.values() if _due(site, store, now)]
    failed: dict[str, LakemarkError] = {}
    if not due:
        return failed
    with ExitStack() as stack:
        try:
            bundle = stack.enter_context(site.ledger.bundle())
        except Corrupt:
            _mend_manifests(site)
            bundle = stack.enter_context(site.ledger.bundle())
        for store in due:
            try:
                require_identity(site, store)
                _require_part(site, store)
                _keep(store, bundle, slot=_slot(site, store, now))
            except LakemarkError as error:
                failed[store.name] = error
            else:
                site.journal.looked(_key(site, store), at=now)
                site.journal.looked(_next_key(site, store), at=now + pause_after(bundle.seek(0, SEEK_END)))
    return failed


def _mend_manifests(site: Site) -> None:
    """Of each that is damaged a tier has the bytes, and reading it writes them back: one must not stop every copy."""
    for run in site.ledger.runs():
        for record in list(site.ledger.run(run).records):
            with suppress(LakemarkError):
                site.ledger.manifest(run, record)


def _due(site: Site, store: CheckpointStore, now: datetime) -> bool:
    kept = site.journal.last_looked(_key(site, store))
    if kept is None:
        return bool(site.ledger.site().sequence)
    until = site.journal.last_looked(_next_key(site, store)) or kept + EVERY
    if now >= kept and timedelta(0) < until - now <= AT_LEAST_EVERY:  # else the clock was set back since
        return False
    heads = copy_heads(site, store)
    if heads is None:  # away, or no copy: only what grew is worth a try
        return any(at >= max(kept, until - EVERY) for at in _written(site))
    # By its tips, not by times: a clock that had jumped ahead must not make every pass send the whole ledger.
    if heads != dict(site.ledger.tips()):
        return True
    site.journal.looked(_next_key(site, store), at=now + EVERY)
    return False


def _written(site: Site) -> Iterator[datetime]:
    """When each branch of the ledger got its newest entry."""
    newest = [
        site.ledger.site().last_recorded_at,
        *(site.ledger.outline(run).written_at for run in site.ledger.runs()),
    ]
    return (at for at in newest if at is not None)


def _require_part(site: Site, store: CheckpointStore) -> None:
    """Raises InDistress where a copy there has entries that this ledger lacks, and remembers that it has.

    Those of the days are asked, too: the newest may be lost, and they are replaced in their turn. Raises what reading one does:
    it may be all that is left of the newest entries. What was read, twice, and is no copy says nothing, and is replaced.
    """
    source = f"the copy in {store.name}"
    told = [
        Seen(source=source, branch=branch, revision=revision)
        for slot in (None, *store.ledger_slots())
        for branch, revision in _heads(site, store, slot).items()
    ]
    found = lacks(told, site.ledger.tips(), holds=site.ledger.contains)
    for one in found:
        site.journal.saw(source, {one.branch: one.revision})
    if found:
        require_sound(site)


def _heads(site: Site, store: CheckpointStore, slot: str | None) -> Mapping[str, str]:
    """None where the place has no such copy, or one that is none."""
    for _ in range(_READINGS):
        try:
            with store.open_ledger(slot) as copy:
                return site.ledger.heads_of(copy)
        except NotFound:
            break
        except AnswerDamaged:
            raise
        except Corrupt:
            continue
        except OSError as error:
            raise as_answer(error, store.name) from error
    return {}


def _slot(site: Site, store: CheckpointStore, now: datetime) -> str | None:
    """A further copy is kept with the first of a day: the name of that day, so that in a week it is replaced."""
    before = site.journal.last_looked(_key(site, store))
    today = now.astimezone(UTC).date()
    return None if before is not None and before.astimezone(UTC).date() == today else _DAYS[today.weekday()]


def _keep(store: CheckpointStore, bundle: BinaryIO, *, slot: str | None) -> None:
    """Tried again once where other bytes come back: another process may have written its own copy in between."""
    for _ in range(2):
        store.keep_ledger(bundle)
        if _reads_back(store, bundle):
            if slot is not None:
                store.keep_ledger(bundle, slot=slot)
            return
    raise Corrupt(
        f"the copy of the ledger in {store.name} has other bytes right after it was written",
        advice="The store does not keep what it is given: look at it before you go on.",
    )


def _reads_back(store: CheckpointStore, bundle: BinaryIO) -> bool:
    bundle.seek(0)
    with store.open_ledger() as copy:
        while (right := bundle.read(_STEP_BYTES)) == copy.read(len(right) or 1):
            if not right:
                return True
    return False


def _key(site: Site, store: CheckpointStore) -> str:
    return f"ledger:{tier_key(site, store)}"


def _next_key(site: Site, store: CheckpointStore) -> str:
    return f"ledger-next:{tier_key(site, store)}"
