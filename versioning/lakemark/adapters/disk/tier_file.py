"""`lakemark-tier.json`: which tier a place is, and which ledger owns it.

{"format": "lakemark.tier/1", "id": "<32 hex>", "class": "warm", "ledger": "…", "created_at": "2026-11-26T12:00:00.000000Z"}
"""

from __future__ import annotations

import json
import secrets
from datetime import datetime
from typing import Final

from lakemark.errors import Corrupt, Refused, quoted
from lakemark.model.values.canonical import parse
from lakemark.model.values.fields import Fields
from lakemark.model.values.instants import to_text
from lakemark.ports.store import Identity

NAME: Final = "lakemark-tier.json"
FORMAT: Final = "lakemark.tier/1"


def new_identity(tier_class: str, ledger: str, *, now: datetime) -> Identity:
    """With a random id."""
    return Identity(id=secrets.token_hex(16), tier_class=tier_class, ledger=ledger, created_at=now)


def to_bytes(identity: Identity) -> bytes:
    """The file's contents."""
    value = {
        "format": FORMAT,
        "id": identity.id,
        "class": identity.tier_class,
        "ledger": identity.ledger,
        "created_at": to_text(identity.created_at),
    }
    # Indented: whoever finds a strange disk reads this file first.
    return json.dumps(value, indent=2).encode() + b"\n"


def from_bytes(data: bytes, *, where: str) -> Identity:
    """Raises Corrupt for anything that is not an identity file of this format."""
    try:
        read = Fields(parse(data), NAME)
        read.format(FORMAT)
        return Identity(
            id=read.text("id"),
            tier_class=read.text("class"),
            ledger=read.text("ledger"),
            created_at=read.instant("created_at"),
        )
    except ValueError as error:
        raise Corrupt(
            f"{NAME} at {quoted(where)} can't be read: {error}",
            advice="Put the tier's own identity file back; until then nothing is written there.",
        ) from error


def require_owner(identity: Identity, ledger: str, *, tier_class: str, where: str) -> None:
    """Refused where another ledger owns the place, or where it is of another class."""
    if identity.ledger != ledger:
        raise Refused(
            f"{quoted(where)} belongs to the ledger {quoted(identity.ledger)}, not to {quoted(ledger)}",
            advice="Give every site a place of its own; nothing was changed there.",
        )
    if identity.tier_class != tier_class:
        raise Refused(
            f"{quoted(where)} is a {identity.tier_class} tier, not a {tier_class} one",
            advice="Mend the tier's `class`, or give the new tier a place of its own.",
        )


def refuse_unclaimed(where: str) -> Refused:
    """To raise where there is no identity."""
    return Refused(
        f"{quoted(where)} has no {NAME}: it was never claimed, is not mounted, or is another disk",
        advice="Mount or connect it; for a new place run `lakemark tier init`.",
    )


def refuse_foreign(where: str, *, found: str) -> Refused:
    """To raise where `found` lies in a place that was to be empty."""
    return Refused(
        f"{quoted(where)} is not empty (it has {quoted(found)}) and has no {NAME}",
        advice="Choose an empty place; a warm or cold tier may say `shared: true` and is then never deleted from.",
    )


def require_same(identity: Identity | None, first: Identity | None, *, where: str) -> Identity:
    """Refused where there is no identity, or another than this process saw `first`."""
    if identity is None:
        raise refuse_unclaimed(where)
    if first is not None and identity.id != first.id:
        raise Refused(
            f"{quoted(where)} was the tier {first.id} and is now {identity.id}",
            advice="Another disk was mounted there: mount the tier's own, then start again.",
        )
    return identity
