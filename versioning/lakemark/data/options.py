"""Where data is read from and kept: of the run, of what the caller says, of the environment."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lakemark.data.cache import Cache
from lakemark.data.errors import DataError
from lakemark.data.reads import ReadLog
from lakemark.data.server import Server
from lakemark.trainer.code import without_secrets

if TYPE_CHECKING:
    from lakemark.trainer import Run

DEFAULT_CACHE_BYTES: Final = 64 * 2**30


def of_run(run: Run | None) -> dict[str, Any]:
    """What `LakeFS` takes, as far as a run says it. No secret is in it: it travels to worker processes."""
    if run is None:
        return {}
    endpoint = next((str(data["endpoint"]) for data in run.data if data.get("endpoint")), None)
    return {"log": run.read_log} | ({"endpoint": endpoint} if endpoint else {})


def server(endpoint: str | None, *, environ: Mapping[str, str] = os.environ) -> Server:
    """LAKEFS_ENDPOINT wins, as a container may see it elsewhere; without any, LAKEMARK_RUN_FILE says. Raises DataError."""
    said = environ.get("LAKEFS_ENDPOINT") or endpoint or _told_of_run(environ).get("endpoint")
    if not said:
        raise DataError("no lakeFS server: set LAKEFS_ENDPOINT, or read through a run that was opened with data")
    names = ("LAKEFS_ACCESS_KEY_ID", "LAKEFS_SECRET_ACCESS_KEY")
    key, secret = (_secret(name, environ) for name in names)
    # Requests use its host alone; what else is in it must not get into messages.
    return Server(without_secrets(said).rstrip("/").removesuffix("/api/v1"), key, secret)


def cache(folder: str | None, size_bytes: int | None, *, environ: Mapping[str, str] = os.environ) -> Cache | None:
    """folder: None for LAKEMARK_DATA_CACHE, else the user's cache folder; empty for no cache at all."""
    place = folder if folder is not None else environ.get("LAKEMARK_DATA_CACHE")
    if place == "":
        return None
    if place is None:
        base = environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        place = os.path.join(base, "lakemark", "data")
    limit = size_bytes if size_bytes is not None else int(environ.get("LAKEMARK_DATA_CACHE_BYTES", DEFAULT_CACHE_BYTES))
    return Cache(Path(place), limit)


def log(folder: str | None, *, environ: Mapping[str, str] = os.environ) -> ReadLog | None:
    """folder: None for that of the run that LAKEMARK_RUN_FILE names, if one does; empty for none."""
    if folder is None:
        folder = _told_of_run(environ).get("log")
    return ReadLog(folder) if folder else None


def _told_of_run(environ: Mapping[str, str]) -> dict[str, Any]:
    """`of_run` for the run that LAKEMARK_RUN_FILE names: readers that know only the address have no other."""
    from lakemark.trainer import Run, RunNotOpened

    run_file = environ.get("LAKEMARK_RUN_FILE")
    if not run_file:
        return {}
    try:
        with open(run_file, encoding="utf-8") as file:
            found: Any = json.load(file)
        return of_run(Run.open(str(found["run"]), environ={"LAKEMARK_RUN_FILE": run_file}))
    except (OSError, ValueError, TypeError, LookupError, RecursionError, RunNotOpened):
        return {}


def _secret(name: str, environ: Mapping[str, str]) -> str:
    """NAME, or the file that NAME_FILE names."""
    if environ.get(name):
        return environ[name]
    if environ.get(f"{name}_FILE"):
        with open(environ[f"{name}_FILE"], encoding="utf-8") as file:
            return file.read().strip()
    raise DataError(f"{name} is not set")
