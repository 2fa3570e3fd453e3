"""The lakeFS stand-in as a service of the sandbox, and the repository that `up` makes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from lakemark.errors import StoreUnavailable, quoted
from lakemark.sandbox import loopback

__all__ = ["command", "waits_for"]

_API = "/api/v1"
_NOT_FOUND = 404
_KEYS = ("LAKEFS_ACCESS_KEY_ID", "LAKEFS_SECRET_ACCESS_KEY")


def command(folder: Path, port: int) -> list[str]:
    """In the foreground; its keys are the two LAKEFS_… variables."""
    return [sys.executable, "-m", "lakemark.sandbox.lakefs", "--dir", str(folder), "--port", str(port)]


def waits_for(port: int, credentials: Mapping[str, str], *, repository: str, branch: str) -> str | None:
    """What is still missing before `repository` can be used; None when nothing is.

    Makes the repository with `branch` where it is missing. Raises `StoreUnavailable` where that fails.
    """
    access_key, secret_key = (credentials[name] for name in _KEYS)
    server = loopback.Origin(port, access_key, secret_key)
    if not server.ask("GET", f"{_API}/healthcheck").ok:
        return "lakeFS to answer"
    found = server.ask("GET", f"{_API}/repositories/{quote(repository, safe='')}")
    # Made once: a repository with data in it must never be made anew.
    if found.status == _NOT_FOUND:
        wanted = {"name": repository, "storage_namespace": f"local://{repository}", "default_branch": branch}
        found = server.ask("POST", f"{_API}/repositories", body=wanted)
    if not found.ok:
        raise StoreUnavailable(
            f"the lakeFS stand-in answers {found.status} for the repository {quoted(repository)}: "
            f"{quoted(found.body.decode(errors='replace').strip())}",
            advice="Check `data.repository` and the LAKEFS_… keys in credentials.env, then run `lakemark up` again.",
        )
    return None
