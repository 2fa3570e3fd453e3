"""Duties of the site: what some node does for all of them. Whoever does it second finds it done.

Whatever here drops something goes by what the ledger says of every node, and by the stores' own clocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from lakemark.ports import Checkpoint, CheckpointStore, Mark, MarkKind, Named, Patience, Site, TierPlace
from lakemark.services.back import rollback_apply, rollback_decide
from lakemark.services.data.tend import tend_data
from lakemark.services.ledger import checkpoint, require_clock, require_identity
from lakemark.services.node.swept import Swept, in_lanes, part
from lakemark.services.recovery.check import check_ledger
from lakemark.services.recovery.keep_copies import keep_copies
from lakemark.services.runs.attempts import end_idle
from lakemark.services.soundness import require_sound
from lakemark.services.tiers.demote import Pending
from lakemark.services.tiers.release import drop_released, unfinished

AUDIT_EVERY: Final = timedelta(days=1)
"""How often a tier is looked through for what nothing uses and nobody condemned, which reads all of its listings."""
LEEWAY: Final = 12
"""What was dropped goes within one part in so many of the grace after it, so that one look serves many drops."""


def tend_site(site: Site, result: Swept, *, data: bool = True) -> None:
    """Checks what the ledger says, tends data versions, ends what expired or fell idle. data=False: data is not looked at."""
    part(result, "the ledger's entries", lambda: result.said.extend(check_ledger(site)))
    # One for both: each alone would wait as long for the same slow server.
    patience = Patience()
    if site.data is not None and data:
        part(result, "data versions", lambda: _data(site, result, patience))
    part(result, "rollbacks", lambda: _rollbacks(site, result, patience))
    part(result, "idle runs", lambda: result.said.extend(end_idle(site)))


def collect(site: Site, result: Swept) -> None:
    """Drops what was released from shared tiers; after the grace, bytes nothing claims. Renews the copies of the ledger."""
    shared = [store for store in site.tiers.values() if store.place.node is None]
    in_lanes(site, result, {f"condemned bytes of {one.name}": partial(_collect, site, one) for one in shared})
    part(result, "copies of the ledger", partial(_copies, site, result))


def _collect(site: Site, store: CheckpointStore) -> list[str]:
    """Raises InDistress, Refused (another tier lies there, a clock is off): nothing is deleted then."""
    require_sound(site)
    require_identity(site, store)
    # Grace is told by this clock against the store's own times; one that is off would end it early.
    require_clock(site, store)
    now, grace = site.now(), site.policies.grace
    said: list[str] = []
    audit = _audit_due(site, store, now)
    # Listing a bucket is dear: only once a day, or where a release of this node did not come to its end.
    if audit or unfinished(site, store):
        said += [f"dropped the released {one[:12]} from {store.name}" for one in drop_released(site, store)]
    if audit or store.due(now=now, grace=grace + grace / LEEWAY):
        freed = store.collect(now=now, grace=grace, needed=_held_by(site, store))
        site.journal.marks.set(_audited(store), at=now)
        said += [f"freed {freed} bytes of {store.name}"] if freed else []
    return said


def _audit_due(site: Site, store: TierPlace, now: datetime) -> bool:
    last = site.journal.marks.get(_audited(store))
    # A note of the future is a clock that was set back: it keeps nothing from being done.
    return last is None or not timedelta(0) <= now - last < AUDIT_EVERY


def _audited(store: TierPlace) -> Mark:
    identity = store.identity()
    # By its identity: another disk under the same name was never looked through.
    return Mark(MarkKind.AUDITED, identity.id if identity else store.name)


def _held_by(site: Site, store: Named) -> Iterator[Checkpoint]:
    """What the ledger says the store holds, read as it is asked for."""
    for run in site.ledger.runs():
        for found in list(site.ledger.run(run).records.values()):
            if store.place in found.replicas:
                yield checkpoint(site, found, tier=store.name)


def _copies(site: Site, result: Swept) -> None:
    result.pending.extend(
        Pending.of(f"copy of the ledger in {name}", error) for name, error in keep_copies(site).items()
    )


def _data(site: Site, result: Swept, patience: Patience) -> None:
    tended = tend_data(site, patience)
    result.data_as_it_was = not tended.said and not tended.failed
    result.said.extend(tended.said)
    result.pending.extend(Pending.of(what, error) for what, error in tended.failed)


def _rollbacks(site: Site, result: Swept, patience: Patience) -> None:
    result.said.extend(f"the rollback {identity} expired" for identity in rollback_decide.expire(site))
    if site.data is not None:
        result.said.extend(rollback_apply.leftovers(site, patience))
