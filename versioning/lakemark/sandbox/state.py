"""What `up` has started in a sandbox's folder, on disk, and the lock that orders `up` and `down`."""

from __future__ import annotations

import contextlib
import fcntl
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from lakemark.errors import Corrupt, quoted
from lakemark.sandbox.processes import ProcessIdentity

__all__ = ["Started", "load", "locked", "save"]

_FILE = "services.json"
_LOCK = "services.lock"


@dataclass(frozen=True)
class Started:
    """One service's process."""

    name: str
    url: str
    identity: ProcessIdentity


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Wait for another `up` or `down` on `directory` to end; freed with the process, however it ends."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / _LOCK).open("w") as file:
        # Freed by the kernel when the process ends, however it ends: no stale lock to remove by hand.
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def load(directory: Path) -> dict[str, Started]:
    """By name; empty where nothing was started. Its processes may have ended since."""
    file = directory / _FILE
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        return {
            one["name"]: Started(one["name"], one["url"], ProcessIdentity(**one["identity"]))
            for one in found["services"]
        }
    except FileNotFoundError:
        return {}
    except (KeyError, TypeError, ValueError):
        raise Corrupt(
            f"{quoted(str(file))} does not list services",
            advice="Remove the file; `lakemark down` still finds what `up` started.",
        ) from None


def save(directory: Path, services: dict[str, Started]) -> None:
    """Replace the list; without services the file goes."""
    file = directory / _FILE
    if not services:
        file.unlink(missing_ok=True)
        return
    # By rename: a list that is cut would hide running processes.
    half = file.with_name(file.name + ".new")
    half.write_text(json.dumps({"services": [asdict(one) for one in services.values()]}, indent=1), encoding="utf-8")
    half.replace(file)
