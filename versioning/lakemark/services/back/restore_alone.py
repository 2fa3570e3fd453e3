"""Restore from one tier's disk alone: neither a site nor a ledger, nothing but what lies there, and an id somebody wrote down."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from lakemark.errors import LakemarkError, NotFound, StoreUnavailable, Usage
from lakemark.model.checkpoints.manifest import File
from lakemark.model.checkpoints.record import require_own
from lakemark.model.ledger.run import Place
from lakemark.ports import Checkpoint, Progress, Replicas, Restored, Restorer

_ID: Final = re.compile(r"(?:id:[0-9a-f]{1,64}|[0-9a-f]{8,64})", re.ASCII)
_WHOLE: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Alone:
    """What was restored, by the tier's own record of it."""

    checkpoint: Checkpoint
    restored: Restored


def restore_alone(
    store: Replicas, restorer: Restorer, text: str, *, to: Path, where: Path, progress: Progress
) -> Alone:
    """Brings the checkpoint whose id begins as `text` says back to `to`; every byte is compared with its manifest.

    The id is derived anew from the manifest that lies there: whoever has the id from elsewhere has the bytes proven by it.
    where: as the tier is called in the answer. Raises Usage (no id, or ambiguous), NotFound, Corrupt (the tier's own record
    is wrong), SourceDamaged, StoreUnavailable, Refused (target not empty, no space).
    """
    held = found_alone(store, text)
    manifest = require_own(held.record, held.manifest)
    place = Place(tier=str(where))

    def fetch(file: File) -> Iterator[tuple[Place, AbstractContextManager[BinaryIO]]]:
        # Twice: one wrong answer proves nothing of what lies there, and there is no other replica to turn to.
        for _ in range(2):
            yield place, store.open(held, file)

    progress.expect(f"restoring {held.record.run}@{held.record.step}", manifest.size_bytes)
    restored = restorer.restore(to, manifest, fetch, tag=held.record.id, progress=progress)
    return Alone(checkpoint=held, restored=restored)


def found_alone(store: Replicas, text: str) -> Checkpoint:
    """The checkpoint of the tier whose id begins so. Raises as `restore_alone`."""
    wanted = text.lower()
    if _WHOLE.fullmatch(wanted.removeprefix("id:")):
        # Needs no listing, and so serves a tier whose identity file is lost too.
        return store.load(wanted.removeprefix("id:"))
    listing = store.claimed()
    # Half a listing may lack the one that is meant, or another that begins alike.
    if not listing.complete:
        raise StoreUnavailable("the tier's records could not be listed to the end", advice="Try again.")
    if not _ID.fullmatch(wanted):
        raise Usage(
            f"{text!r:.80} is no id, and without a ledger nobody knows what else it may be; "
            f"there is {_listed(store, listing.records)}",
            advice="Write id: and the first digits of the record's id.",
        )
    digits = wanted.removeprefix("id:")
    matching = [one for one in listing.records if one.startswith(digits)]
    if len(matching) > 1:
        raise Usage(f"id:{digits} may be {_listed(store, matching)}", advice="Write more digits.")
    if not matching:
        raise NotFound(
            f"the tier has no record id:{digits}; there is {_listed(store, listing.records)}",
            advice="Look at another tier's disk, or write another id.",
        )
    return store.load(matching[0])


def _listed(store: Replicas, records: tuple[str, ...] | list[str]) -> str:
    """A few of them by what they are, so that a person finds his without a ledger."""
    shown: list[str] = []
    for one in records[:_SHOWN]:
        try:
            record = store.load(one).record
            shown.append(f"{record.run}@{record.step} (id:{one[:12]})")
        except LakemarkError:
            shown.append(f"id:{one[:12]}")
    more = f" and {len(records) - _SHOWN} more" if len(records) > _SHOWN else ""
    return ", ".join(shown) + more if shown else "none"
