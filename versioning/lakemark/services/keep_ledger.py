"""Keep the ledger: a copy of it in every tier, from which a lost one is rebuilt."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import BinaryIO, Final

from lakemark.errors import Corrupt, LakemarkError
from lakemark.ports import CheckpointStore, Site
from lakemark.services.appending import require_identity, tier_key

EVERY: Final = timedelta(hours=1)
_STEP_BYTES: Final = 2**20


def keep_copies(site: Site) -> dict[str, LakemarkError]:
    """Renews the copy in each tier that got none within the hour while the ledger grew. Tier -> why it could not be done."""
    now = site.now()
    due = [store for store in site.tiers.values() if _due(site, store, now)]
    failed: dict[str, LakemarkError] = {}
    if not due:
        return failed
    with site.ledger.bundle() as bundle:
        for store in due:
            try:
                require_identity(site, store)
                _keep(store, bundle)
            except LakemarkError as error:
                failed[store.name] = error
            else:
                site.journal.looked(_key(site, store), at=now)
    return failed


def _due(site: Site, store: CheckpointStore, now: datetime) -> bool:
    kept = site.journal.last_looked(_key(site, store))
    if kept is None:
        return bool(site.ledger.site().sequence)
    return not timedelta(0) <= now - kept < EVERY and any(at >= kept for at in _written(site))


def _written(site: Site) -> Iterator[datetime]:
    """When each branch of the ledger got its newest entry."""
    newest = [
        site.ledger.site().last_recorded_at,
        *(site.ledger.run(run).last_recorded_at for run in site.ledger.runs()),
    ]
    return (at for at in newest if at is not None)


def _keep(store: CheckpointStore, bundle: BinaryIO) -> None:
    """Tried again once where other bytes come back: another process may have written its own copy in between."""
    for _ in range(2):
        store.keep_ledger(bundle)
        if _reads_back(store, bundle):
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
