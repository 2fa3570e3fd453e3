"""Keep the ledger: a copy of it in every tier, from which a lost one is rebuilt.

A copy is replaced by one that holds all of it, and by nothing else: the copy may be all that is left of the newest entries.
Beside it each tier keeps one of each of the last seven days on which it was renewed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from typing import BinaryIO, Final

from lakemark.errors import AnswerDamaged, Corrupt, LakemarkError, NotFound
from lakemark.model.soundness import Seen, lacks
from lakemark.ports import CheckpointStore, Site
from lakemark.services.appending import require_identity, tier_key
from lakemark.services.soundness import require_sound
from lakemark.services.witness import as_answer

EVERY: Final = timedelta(hours=1)
_STEP_BYTES: Final = 2**20
_READINGS: Final = 2
_DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def keep_copies(site: Site) -> dict[str, LakemarkError]:
    """Renews the copy in each tier that got none within the hour while the ledger grew. Tier -> why it could not be done."""
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
    return not timedelta(0) <= now - kept < EVERY and any(at >= kept for at in _written(site))


def _written(site: Site) -> Iterator[datetime]:
    """When each branch of the ledger got its newest entry."""
    newest = [
        site.ledger.site().last_recorded_at,
        *(site.ledger.run(run).last_recorded_at for run in site.ledger.runs()),
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
