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
    NoRoom,
    NotFound,
    Refused,
    StoreUnavailable,
    quoted,
)


class NotOffered(Misconfigured):
    """The store says that it has no such operation."""

    @property
    def kind(self) -> str:
        return Misconfigured.__name__


_DENIED: Final = (
    "Check the tier's credentials and what they may do.",
    Denied,
    "AccessDenied InvalidAccessKeyId SignatureDoesNotMatch ExpiredToken Forbidden 403",
)
_FULL: Final = (
    "Make room in the bucket, or raise its quota: `lakemark release` frees what slower tiers have, after the grace.",
    NoRoom,
    (
        "QuotaExceeded XMinioAdminBucketQuotaExceeded XMinioStorageFull InsufficientCapacity InsufficientStorage "
        "InsufficientStorageSpace StorageCapExceeded StorageQuotaExceeded QosLimitExceeded TooManyBytes 507"
    ),
)
_LACKING: Final = (
    "The store lacks what a tier needs, or something before it takes it away: run `lakemark doctor`, and ask its maker.",
    NotOffered,
    "NotImplemented XNotImplemented MethodNotAllowed UnsupportedOperation 405 501",
)
_ELSEWHERE: Final = frozenset(
    {
        "PermanentRedirect",
        "TemporaryRedirect",
        "AuthorizationHeaderMalformed",
        "IllegalLocationConstraintException",
        "301",
    }
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
    _FULL,
    _LACKING,
    ("The store takes no object of that size: choose another.", Refused, "EntityTooLarge"),
    ("The object is shorter than it was: verify the tier.", Corrupt, "InvalidRange"),
    (
        "The bytes changed on their way: look at the network and memory of this node.",
        Corrupt,
        "BadDigest InvalidDigest XAmzContentSHA256Mismatch XAmzContentChecksumMismatch",
    ),
)
_QUOTA: Final = "quota"
_FORBIDDEN: Final = 403
_FULL_STATUS: Final = 507
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

    retain_until: objects under files/ ask the store's object lock to keep them so long. never_expires: the site's word that no
    rule of the bucket removes what lies there, which counts where its rules may not be read.
    minimum_rate: bytes a second; what goes or comes more slowly over `stall_seconds` is given up.
    """

    bucket: str
    prefix: str
    endpoint: str | None = None
    region: str = "us-east-1"
    path_style: bool | None = None
    ca_bundle: Path | None = None
    storage_class: str | None = None
    retain_until: datetime | None = None
    never_expires: bool = False
    minimum_rate: int = 64 * 2**10
    stall_seconds: float = 60.0

    @property
    def is_loopback(self) -> bool:
        """Whether the endpoint is this machine, without TLS."""
        parts = urlsplit(self.endpoint or "")
        try:
            return parts.scheme == "http" and ip_address(parts.hostname or "").is_loopback
        except ValueError:
            return parts.scheme == "http" and parts.hostname == "localhost"


def as_ours(code: str, status: int | None, *, where: str, text: str, region: str | None = None) -> LakemarkError:
    """An S3 error code and HTTP status as an error of our tree. region: where the store says that the bucket is."""
    said = f"{quoted(where, limit=300)}: {quoted(text, limit=300)}"
    if code in _ELSEWHERE:
        told = f"the store says its region is {quoted(region)}" if region else "the store does not say where it is"
        advice = (
            f"Set the tier's `region: {region}`."
            if region
            else "Set the tier's `region` and `endpoint` to the bucket's."
        )
        return Misconfigured(f"{said}; {told}", advice=advice)
    # Some say "denied" or "bad request" of what is only full; only their words tell.
    if status == _FULL_STATUS or (_QUOTA in text.lower() and status is not None and status < _SERVERS_FAULT):
        return NoRoom(said, advice=_FULL[0])
    for advice, kind, codes in _MEANINGS:
        # The first that names it counts.
        if code in codes.split():
            return kind(said, advice=advice)
    if status == _FORBIDDEN:
        return Denied(said, advice=_DENIED[0])
    # Codes that are not known: the status alone says whose fault it is.
    if status is not None and (status >= _SERVERS_FAULT or status in _TRY_LATER):
        return StoreUnavailable(said, advice="Try again; look at the store's own health if it stays.")
    return Misconfigured(said, advice="The store does not do what a tier needs: run `lakemark doctor`.")
