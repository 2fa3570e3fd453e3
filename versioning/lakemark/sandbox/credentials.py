"""The keys of the sandbox's services, in one file that a shell can read too."""

from __future__ import annotations

import os
import re
import secrets
import stat
import string
import tempfile
from collections.abc import Mapping
from pathlib import Path

from lakemark.errors import Denied, Misconfigured, NotFound, quoted
from lakemark.sandbox import loopback

__all__ = ["NAMES", "generate", "read"]

NAMES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "LAKEMARK_S3_ACCESS_KEY_ID",
    "LAKEMARK_S3_SECRET_ACCESS_KEY",
    "LAKEFS_ACCESS_KEY_ID",
    "LAKEFS_SECRET_ACCESS_KEY",
    "PREFECT_API_URL",
    "PREFECT_API_AUTH_STRING",
)
"""Every name that `generate` writes, in its order."""

_KEY_LETTERS = string.ascii_uppercase + string.digits
_SECRET_LETTERS = string.ascii_letters + string.digits
# No quotes and no spaces: a shell, systemd's EnvironmentFile and this read the same then.
_LINE = re.compile(r"(?:export )?([A-Z][A-Z0-9_]*)=([A-Za-z0-9_:/.@%+=-]*)")


def generate(path: Path, *, prefect_port: int) -> dict[str, str]:
    """Make sure that `path` (mode 600) has every name of `NAMES`, and return all it holds.

    Values that are there already stay, also the Prefect port: repeating it changes nothing.
    The file is replaced whole, so nobody reads half of it.
    """
    # Keys that servers were started with must stay: a new one would lock everybody out of the data.
    found = read(path) if path.exists() else {}
    s3_key, s3_secret = _key(), _letters(_SECRET_LETTERS, 40)
    s3_key = found.get("AWS_ACCESS_KEY_ID", s3_key)
    s3_secret = found.get("AWS_SECRET_ACCESS_KEY", s3_secret)
    fresh = (
        s3_key,
        s3_secret,
        s3_key,
        s3_secret,
        _key(),
        _letters(_SECRET_LETTERS, 40),
        f"{loopback.url(prefect_port)}/api",
        f"lakemark:{_letters(_SECRET_LETTERS, 32)}",
    )
    complete = dict(zip(NAMES, fresh, strict=True)) | found
    if complete != found:
        _replace(path, complete)
    return complete


def read(path: Path) -> dict[str, str]:
    """The file's names and values.

    Raises `NotFound` without a file, `Denied` where others may read it, and `Misconfigured` with the
    number of a line that is not a plain `NAME=value`. No message holds a value.
    """
    try:
        mode = path.stat().st_mode
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise NotFound(
            f"no credentials at {quoted(str(path))}", advice="Run `lakemark init --profile laptop` to make them."
        ) from None
    except PermissionError:
        raise Denied(f"{quoted(str(path))} cannot be read", advice="Run as the user who made the sandbox.") from None
    if stat.S_IMODE(mode) & 0o077:
        raise Denied(
            f"{quoted(str(path))} has mode {stat.S_IMODE(mode):o}; only its owner may read it (600)",
            advice=f"Run `chmod 600 {path}`, and make new keys if others use this machine.",
        )
    values: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None:
            raise Misconfigured(
                f"line {number} of {quoted(str(path))} is no plain NAME=value",
                advice="Write each name on its own line, without quotes or spaces.",
            )
        values[match[1]] = match[2]
    return values


def _replace(path: Path, values: Mapping[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 600 from the start
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write("".join(f"{key}={value}\n" for key, value in values.items()))
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _key() -> str:
    # The form of Amazon's keys: some clients refuse any other.
    return "AKIA" + _letters(_KEY_LETTERS, 16)


def _letters(letters: str, count: int) -> str:
    return "".join(secrets.choice(letters) for _ in range(count))
