"""Finds places that lie in one another: two tiers, or a tier and what is not one."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from itertools import combinations, product
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from lakemark.settings.tiers import S3Tier

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakemark.settings.document import Key
    from lakemark.settings.schema import Settings

_Place = tuple[str, ...]
_PORTS = {"http": 80, "https": 443}


def overlaps(settings: Settings) -> Iterator[tuple[Key, Key]]:
    """The keys of every two places of which one is, or is in, the other; links are followed.

    Compared are tiers with each other and with the ledger, `restore_root`, the
    sandbox and watched directories, also those a `*` would match; and watched ones
    with each other, but a pattern may match what another entry names: that is the
    other's. Buckets at one endpoint compare by prefix.
    """
    tiers = list(_tiers(settings))
    for (key, place), (other_key, other) in [*combinations(tiers, 2), *product(tiers, _others(settings))]:
        # The shorter decides; only watched places have patterns, and they are always `other`.
        if all(fnmatchcase(part, _pattern(wanted)) for part, wanted in zip(place, other, strict=False)):
            yield key, other_key
    for (key, place), (other_key, other) in combinations(_watched(settings), 2):
        least = min(len(place), len(other))
        if place == other or (place[:least] == other[:least] and "*" not in "".join(place + other)):
            yield key, other_key


def _pattern(part: str) -> str:
    """Only `*` is one; everything else stands for itself."""
    return part.replace("[", "[[]").replace("?", "[?]")


def _tiers(settings: Settings) -> Iterator[tuple[Key, _Place]]:
    for name, tier in settings.tiers.items():
        if isinstance(tier, S3Tier):
            prefix = tier.url.prefix.split("/") if tier.url.prefix else []
            yield ("tiers", name, "url"), ("s3:", _server(tier.endpoint), tier.url.bucket, *prefix)
        else:
            yield ("tiers", name, "path"), _real(tier.path)


def _others(settings: Settings) -> Iterator[tuple[Key, _Place]]:
    yield ("ledger", "path"), _real(settings.ledger.path)
    yield ("restore_root",), _real(settings.restore_root)
    sandbox = settings.sandbox
    if sandbox.s3 or sandbox.lakefs or sandbox.prefect:
        yield ("sandbox", "dir"), _real(sandbox.dir)
    yield from _watched(settings)


def _watched(settings: Settings) -> Iterator[tuple[Key, _Place]]:
    for number, watched in enumerate(settings.watch):
        yield ("watch", number, "path"), _real(watched.path)


def _server(endpoint: str | None) -> str:
    if endpoint is None:
        return "aws"
    parts = urlsplit(endpoint)
    return f"{parts.hostname}:{parts.port or _PORTS[parts.scheme]}{parts.path}"


def _real(path: Path) -> _Place:
    return Path(os.path.realpath(path)).parts
