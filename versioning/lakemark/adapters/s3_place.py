"""Where in S3 a tier is, and with which keys; and what a store's refusals mean."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from lakemark.errors import (
    Corrupt,
    Denied,
    LakemarkError,
    Misconfigured,
    NotFound,
    Refused,
    StoreUnavailable,
    quoted,
)

_DENIED: Final = (
    "Check the tier's credentials and what they may do.",
    Denied,
    "AccessDenied InvalidAccessKeyId SignatureDoesNotMatch ExpiredToken Forbidden 403",
)
_MEANINGS: Final[tuple[tuple[str, type[LakemarkError], str], ...]] = (
    (
        "Check the tier's `url`.",
        NotFound,
        "NoSuchKey NotFound 404 NoSuchUpload NoSuchLifecycleConfiguration",
    ),
    ("Make the bucket, or mend the tier's `url`.", Misconfigured, "NoSuchBucket"),
    ("Set this node's clock: it and the store's are too far apart.", Refused, "RequestTimeTooSkewed"),
    _DENIED,
    (
        "Make room in the bucket, or raise its quota.",
        Refused,
        "QuotaExceeded InsufficientCapacity XMinioStorageFull EntityTooLarge",
    ),
    ("The object is shorter than it was: verify the tier.", Corrupt, "InvalidRange"),
    (
        "The bytes changed on their way: look at the network and memory of this node.",
        Corrupt,
        "BadDigest InvalidDigest XAmzContentSHA256Mismatch XAmzContentChecksumMismatch",
    ),
)
_FORBIDDEN: Final = 403
_TRY_LATER: Final = (408, 429)
_SERVERS_FAULT: Final = 500


@dataclass(frozen=True, slots=True)
class Credentials:
    """A key pair; the secret stays out of `repr`."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Place:
    """Where in S3. prefix: without slashes at its ends. endpoint: None for AWS. path_style: None leaves it to the SDK.

    retain_until: objects under files/ ask the store's object lock to keep them so long.
    """

    bucket: str
    prefix: str
    endpoint: str | None = None
    region: str = "us-east-1"
    path_style: bool | None = None
    ca_bundle: Path | None = None
    storage_class: str | None = None
    retain_until: datetime | None = None

    @property
    def is_loopback(self) -> bool:
        """Whether the endpoint is this machine, without TLS."""
        parts = urlsplit(self.endpoint or "")
        try:
            return parts.scheme == "http" and ip_address(parts.hostname or "").is_loopback
        except ValueError:
            return parts.scheme == "http" and parts.hostname == "localhost"


def as_ours(code: str, status: int | None, *, where: str, text: str) -> LakemarkError:
    """An S3 error code and HTTP status as an error of our tree."""
    text = f"{quoted(where, limit=300)}: {quoted(text, limit=300)}"
    for advice, kind, codes in _MEANINGS:
        if code in codes.split():
            return kind(text, advice=advice)
    if status == _FORBIDDEN:
        return Denied(text, advice=_DENIED[0])
    if status is not None and (status >= _SERVERS_FAULT or status in _TRY_LATER):
        return StoreUnavailable(text, advice="Try again; look at the store's own health if it stays.")
    return Misconfigured(text, advice="The store does not do what a tier needs: run `lakemark doctor`.")
