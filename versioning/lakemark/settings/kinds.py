"""The kinds of value a configuration holds: how each is read, shown and described."""

import ipaddress
import os
import re
import socket
from collections.abc import Callable
from datetime import datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from lakemark.errors import quoted
from lakemark.model.values.instants import duration_text, from_text, to_text
from lakemark.model.values.names import is_run
from lakemark.settings import units
from lakemark.settings.document import Value
from lakemark.settings.section import ValueKind, invalid

_GIT_URL: Final = re.compile(r"[A-Za-z0-9._~-]+(@[A-Za-z0-9.-]+)?:(?!//).+|[A-Za-z][A-Za-z0-9+.-]*://.*", re.ASCII)
# Amazon's rule for names of buckets, but for those that look like IP addresses.
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", re.ASCII)
# lakeFS's own rule for names of repositories.
_REPOSITORY: Final = r"[a-z0-9][a-z0-9-]{2,62}"
# lakeFS's rule: `^\w[-\w]*$`.
_BRANCH: Final = r"[A-Za-z0-9_][A-Za-z0-9_-]{0,255}"


class S3Address(NamedTuple):
    """`s3://bucket/prefix`: the prefix without slashes at its ends, empty for the whole bucket."""

    bucket: str
    prefix: str

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}" if self.prefix else f"s3://{self.bucket}"


def _text(value: Value, what: str) -> str:
    if value is None:
        raise invalid(f"is empty; it must be {what}")
    # `site: 1` is a number to YAML and was meant as text: who quotes it says so.
    if isinstance(value, bool | int | float):
        raise invalid(f"must be {what}, not the bare value {quoted(value)}")
    if not isinstance(value, str):
        raise invalid(f"must be {what}, not {quoted(value)}")
    return value


def _spelled(read: Callable[[str], Any], what: str, show: Callable[[Any], Value] = str) -> ValueKind:
    """Text that `read` understands; its ValueErrors say what is wrong."""

    def checked(value: Value, _: Path) -> object:
        text = _text(value, what)
        try:
            return read(text)
        except ValueError as error:
            raise invalid(str(error)) from None

    return ValueKind(read=checked, schema=lambda: {"type": "string", "description": what}, show=show)


def matching(pattern: str, what: str) -> ValueKind:
    """Text that the ASCII `pattern` matches whole; `what` begins with an article."""
    compiled = re.compile(pattern, re.ASCII)

    def read(text: str) -> str:
        if not compiled.fullmatch(text):
            raise ValueError(f"{quoted(text)} is not {what}")
        return text

    kind = _spelled(read, what)
    return ValueKind(read=kind.read, schema=lambda: {**kind.schema(), "pattern": f"^(?:{pattern})$"})


def whole(least: int, most: int) -> ValueKind:
    """A whole number from `least` to `most`, both included."""

    def read(value: Value, _: Path) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise invalid(f"must be a whole number, not {quoted(value)}")
        if not least <= value <= most:
            raise invalid(f"must be from {least} to {most}, not {value}")
        return value

    return ValueKind(read=read, schema=lambda: {"type": "integer", "minimum": least, "maximum": most})


def _path(value: Value, base: Path) -> Path:
    text = _text(value, "a path")
    if not text or not text.isprintable():
        raise invalid(f"{quoted(text)} is not a path: it is empty or has unprintable characters")
    # Else a directory called `~` would be made, and filled.
    if text.startswith("~"):
        raise invalid(f"{quoted(text)} starts with `~`, which only shells understand; write the path out")
    if text.startswith("$"):
        raise invalid(f"{quoted(text)} starts with a variable, which only shells know; write the path out")
    # By text: `..` behind a link is not resolved, and the place need not be there yet.
    return Path(os.path.normpath(base / text))


def _absolute(text: str) -> Path:
    path = Path(text)
    if not path.is_absolute() or ".." in path.parts or not text.isprintable():
        raise ValueError(f"{quoted(text)} is not an absolute path")
    return path


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise ValueError("is not a URL that can be read") from None
    # Not shown: the message would put the password into logs.
    if "@" in parts.netloc:
        raise ValueError("has a user name or password in the URL; secrets come from the environment or files")
    if parts.scheme not in {"http", "https"} or not host or not text.isprintable() or " " in text:
        raise ValueError(f"{quoted(text)} is not an http:// or https:// URL")
    # 169.254.169.254 hands credentials of the machine to whoever asks from it.
    if _link_local(host):
        raise ValueError(f"{quoted(text)} is a link-local address, where clouds answer with credentials")
    return text


def _link_local(host: str) -> bool:
    try:
        address: ipaddress.IPv4Address | ipaddress.IPv6Address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        try:
            # Also the shorthands that C libraries accept: 2852039166, 0xA9FEA9FE.
            address = ipaddress.IPv4Address(socket.inet_aton(host))
        except OSError:
            return False
    # ::ffff:169.254.169.254 is the same address.
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_link_local)


def _secret_url(text: str) -> str:
    try:
        return _url(text)
    except ValueError:
        raise ValueError("is not an http:// or https:// URL; it is not shown, as it may hold a secret") from None


def _endpoint(text: str) -> str:
    parts = urlsplit(_url(text))
    if parts.query or parts.fragment:
        raise ValueError(f"{quoted(text)} has a query or fragment; an endpoint has none")
    # Clients put paths behind it, and `//` is another key to some servers.
    return text.rstrip("/")


def _s3(text: str) -> S3Address:
    bucket, _, prefix = text.removeprefix("s3://").partition("/")
    parts = prefix.removesuffix("/").split("/") if prefix else []
    plain = all(part not in {"", ".", ".."} and part.isprintable() for part in parts)
    # Parts that some servers would normalise away could make two prefixes one.
    if not text.startswith("s3://") or not _BUCKET.fullmatch(bucket) or ".." in bucket or not plain:
        raise ValueError(f"{quoted(text)} is not s3://bucket/prefix")
    return S3Address(bucket, "/".join(parts))


def _remote(value: Value, base: Path) -> str:
    text = _text(value, "a Git URL or path")
    if "://" in text and _has_password(text):
        raise invalid("has a password in the URL; use Git's credential helpers or SSH keys")
    # `ext::command` would run one, and what starts with a dash would be an option.
    if not text or text.startswith("-") or "::" in text or not text.isprintable():
        raise invalid(f"{quoted(text)} is not a Git URL or path")
    # `host:path` is SSH's short form; anything else is a path and counts from the file.
    return text if _GIT_URL.fullmatch(text) else str(_path(text, base))


def _has_password(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        raise invalid("is not a URL that can be read") from None
    # `ssh://git@host` has a user name that is no secret; tokens are given as user names over HTTP.
    web = parts.scheme in {"http", "https"}
    return parts.password is not None or (web and parts.username is not None)


def _run(text: str) -> str:
    if not is_run(text.replace("{name}", "a", 1)):
        raise ValueError(f"{quoted(text)} is not a run's name, or one with {{name}} in it")
    return text


def _zone(text: str) -> str:
    if text == "UTC":  # also where the machine has no zone database
        return text
    try:
        return ZoneInfo(text).key
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"{quoted(text)} is not a time zone known here, such as UTC or Europe/Berlin") from None


def _command(text: str) -> str:
    if not text.strip() or not text.isprintable():
        raise ValueError(f"{quoted(text)} is not a command line")
    return text


Duration = Annotated[timedelta, _spelled(units.duration, "text such as 90m, 2h or 3d", duration_text)]
Delay = Annotated[timedelta, _spelled(units.delay, "text such as 90m, 2h or 0s", duration_text)]
Size = Annotated[int, _spelled(units.size, "text such as 200GiB", units.size_text)]
Rate = Annotated[int, _spelled(units.rate, "text such as 200MiB, for each second", units.size_text)]
Share = Annotated[Fraction, _spelled(units.share, "text such as 20%", units.share_text)]
Amount = Annotated[int | Fraction, _spelled(units.amount, "text such as 10% or 50GiB", units.amount_text)]
Instant = Annotated[datetime, _spelled(from_text, "text such as 2030-01-01T00:00:00Z", to_text)]
Zone = Annotated[str, _spelled(_zone, "a time zone such as UTC or Europe/Berlin")]
LocalPath = Annotated[Path, ValueKind(read=_path, schema=lambda: {"type": "string", "format": "path"}, show=str)]
AbsolutePath = Annotated[Path, _spelled(_absolute, "an absolute path")]
Url = Annotated[str, _spelled(_url, "an http:// or https:// URL")]
SecretUrl = Annotated[str, _spelled(_secret_url, "an http:// or https:// URL")]
Endpoint = Annotated[str, _spelled(_endpoint, "a server's http:// or https:// URL")]
S3Url = Annotated[S3Address, _spelled(_s3, "s3://bucket/prefix")]
Remote = Annotated[str, ValueKind(read=_remote, schema=lambda: {"type": "string", "description": "a Git URL or path"})]
Run = Annotated[str, _spelled(_run, "a run's name, or {name}")]
Command = Annotated[str, _spelled(_command, "a command line")]
DataBranch = Annotated[str, matching(f"{_REPOSITORY}/{_BRANCH}", "REPOSITORY/BRANCH such as data/main")]
Repository = Annotated[str, matching(_REPOSITORY, "a lakeFS repository: 3 to 63 lower-case letters, digits or -")]
Branch = Annotated[str, matching(_BRANCH, "a lakeFS branch: letters, digits, _ and -")]
Name = Annotated[
    str,
    matching(
        r"(?=.{1,63}$)[a-z0-9]+([._-][a-z0-9]+)*",
        "a name of lower-case letters, digits and single . _ - (at most 63)",
    ),
]
NodeName = Annotated[
    str,
    matching(
        r"(?=.{1,63}$)[A-Za-z0-9]+([._-][A-Za-z0-9]+)*",
        "a node's name of letters, digits and single . _ - (at most 63)",
    ),
]
Credentials = Annotated[
    str,
    matching(
        r"(?=.{1,63}$)[A-Za-z0-9]+(_[A-Za-z0-9]+)*", "a name for variables: letters, digits and single _ (at most 63)"
    ),
]
Header = Annotated[str, matching(r"[A-Za-z0-9-]{1,64}", "an HTTP header's name")]
RunPattern = Annotated[str, matching(r"[a-z0-9._*?\[\]!-]{1,63}", "a run's name or a pattern with * ? [ ]")]
Metric = Annotated[str, matching(r"[A-Za-z0-9][A-Za-z0-9 ._/@:-]{0,127}", "a metric's name")]
Region = Annotated[str, matching(r"[A-Za-z0-9-]{1,63}", "a region's name such as us-east-1")]
StorageClass = Annotated[str, matching(r"[A-Z0-9_]{1,63}", "a storage class such as STANDARD_IA")]
Cpus = Annotated[int, whole(1, 1024)]
Nice = Annotated[int, whole(0, 19)]
Copies = Annotated[int, whole(1, 16)]
Count = Annotated[int, whole(0, 1_000_000)]
Positive = Annotated[int, whole(1, 10**12)]
