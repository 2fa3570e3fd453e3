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
    from collections.abc import Iterator, Mapping, Sequence

    from lakemark.settings.document import Key
    from lakemark.settings.tiers import Tier

_Place = tuple[str, ...]
_PORTS = {"http": 80, "https": 443}


def overlaps(
    tiers: Mapping[str, Tier], *, places: Mapping[Key, Path], watched: Sequence[Path]
) -> Iterator[tuple[Key, Key]]:
    """The keys of every two places of which one is, or is in, the other; links are followed.

    Compared are tiers with each other, with `places` by their keys and with watched directories, also those a `*` would
    match; and watched ones with each other, but a pattern may match what another entry names: that is the other's. Buckets
    at one endpoint compare by prefix.
    """
    found = [(("watch", number, "path"), _real(path)) for number, path in enumerate(watched)]
    others = [*((key, _real(path)) for key, path in places.items()), *found]
    kept = list(_tiers(tiers))
    # Every two tiers, and every tier with everything else: one that swept the other's files would lose them.
    for (key, place), (other_key, other) in [*combinations(kept, 2), *product(kept, others)]:
        # The shorter decides; only watched places have patterns, and they are always `other`.
        if all(fnmatchcase(part, _pattern(wanted)) for part, wanted in zip(place, other, strict=False)):
            yield key, other_key
    for (key, place), (other_key, other) in combinations(found, 2):
        least = min(len(place), len(other))
        if place == other or (place[:least] == other[:least] and "*" not in "".join(place + other)):
            yield key, other_key


def _pattern(part: str) -> str:
    """Only `*` is one; everything else stands for itself."""
    return part.replace("[", "[[]").replace("?", "[?]")


def _tiers(tiers: Mapping[str, Tier]) -> Iterator[tuple[Key, _Place]]:
    for name, tier in tiers.items():
        if isinstance(tier, S3Tier):
            prefix = tier.url.prefix.split("/") if tier.url.prefix else []
            yield ("tiers", name, "url"), ("s3:", _server(tier.endpoint), tier.url.bucket, *prefix)
        else:
            yield ("tiers", name, "path"), _real(tier.path)


def _server(endpoint: str | None) -> str:
    if endpoint is None:
        return "aws"
    parts = urlsplit(endpoint)
    # One server written two ways must compare as one.
    return f"{parts.hostname}:{parts.port or _PORTS[parts.scheme]}{parts.path}"


def _real(path: Path) -> _Place:
    # Two links to one disk are one place.
    return Path(os.path.realpath(path)).parts
