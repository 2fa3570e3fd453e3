"""What `status` asks of servers and disks: the question a commit, a sink or a rollback would ask, each within a second.

Nothing is written but a file without a name, which is gone with its descriptor. All are asked at once; who has not
answered in time is named, and keeps nobody waiting.
"""

from __future__ import annotations

import base64
import errno
import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit
from urllib.request import getproxies, proxy_bypass

from lakemark.cli.prefect_api import PrefectApi, in_words
from lakemark.errors import LakemarkError, StoreUnavailable
from lakemark.services.health.status import ServerSeen
from lakemark.services.ledger import place_again

if TYPE_CHECKING:
    from lakemark.cli.session import Session
    from lakemark.settings import S3Tier

# For each step of a connection; the patience bounds the whole, as a server may drip bytes.
_WITHIN_SECONDS: Final = 1.0
_PATIENCE_SECONDS: Final = 2.0
# What is asked for is small; whatever else answers must not fill the memory.
_MOST_BYTES: Final = 1 << 16
_OK: Final = 200
_UNAUTHORISED: Final = (401, 403)
_NOT_FOUND: Final = 404
_PROBE_BYTES: Final = 1 << 18
"""What a commit needs at least: its entry, a larger manifest, a page or two of the journal."""

START: Final = "Start it: commits go on, and catch up by the next sweep."


@dataclass(frozen=True, slots=True)
class Wrong(Exception):
    """What is wrong with it, as a phrase that its name goes before, and what to do."""

    what: str
    advice: str = "`lakemark doctor` says more."


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """ask: returns where all is well; else it raises Wrong, OSError, HTTPException or an error of ours."""

    name: str
    url: str
    ask: Callable[[], None]


def servers(here: Session) -> Iterator[ServerSeen]:
    """The servers that the configuration names, each asked what a pass would ask of it."""
    asked = list(_questions(here))
    for question, wrong in zip(asked, _answered([one.ask for one in asked]), strict=True):
        detail, advice = (wrong.what, wrong.advice) if wrong else ("", "")
        yield ServerSeen(name=question.name, url=question.url, ok=wrong is None, detail=detail, advice=advice)


def disks(here: Session) -> Iterator[tuple[str, str]]:
    """(what can't be written, why) of the places that a commit writes to on this node."""
    if here.parts.reads_only:
        return
    home, ledger = here.parts.loaded.home, here.settings.ledger.path
    places = {
        "the ledger": ledger,
        "the ledger's folder, with journal and index,": ledger.parent,
        "the spool's folder": home,
    }
    for name, tier in here.settings.tiers.items():
        if tier.kind == "tree":
            places[f"the tier {name}"] = tier.path
    for name, path in places.items():
        try:
            why = unwritable(path) if path.is_dir() else None
        except OSError as error:  # a stale mount, a disk that fails: what can't be looked at can't be written
            why = error.strerror or str(error)
        if why is not None:
            yield name, why
    why = _no_database(ledger.with_suffix(".journal.sqlite"))
    if why is not None:
        yield "the journal", why


def unwritable(folder: Path) -> str | None:
    """Why a file can't be written there now; None where it can. Leaves nothing behind, whenever it ends."""
    try:
        descriptor = os.open(folder, os.O_TMPFILE | os.O_WRONLY, 0o600)
    except IsADirectoryError:
        # This file system makes no files without a name: what its rights and free blocks say must do.
        # There are file systems that count no inodes: then f_files is 0, and f_favail says nothing.
        found = os.statvfs(folder)
        full = found.f_bavail == 0 or (found.f_files > 0 and found.f_favail == 0)
        return "No space left on device" if full else None if os.access(folder, os.W_OK | os.X_OK) else "no right to"
    except OSError as error:
        return error.strerror or str(error)
    try:
        # A disk that is nearly full takes a part of it, and says so by the length.
        if os.write(descriptor, bytes(_PROBE_BYTES)) < _PROBE_BYTES:
            return os.strerror(errno.ENOSPC)
    except OSError as error:
        return error.strerror or str(error)
    finally:
        os.close(descriptor)
    return None


def _no_database(path: Path) -> str | None:
    try:
        if not path.exists():
            return None
        # mode=ro: looking must neither make the file nor change it.
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=_WITHIN_SECONDS)) as database:
            database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        # Locked by somebody who is at work is no fault of the file.
        return None if "locked" in str(error) else str(error)
    except (sqlite3.DatabaseError, OSError) as error:
        return str(error)
    return None


def _answered(asks: list[Callable[[], None]]) -> list[Wrong | None]:
    """What each found wrong, in order; all at once, and no longer than the patience of one."""
    # Each says that it did not answer until it has: a thread may still be at work when this is read.
    found: list[Wrong | None] = [Wrong("does not answer in time", START)] * len(asks)

    def run(number: int) -> None:
        try:
            asks[number]()
        except Wrong as wrong:
            found[number] = wrong
        except (OSError, HTTPException) as error:
            found[number] = Wrong(f"does not answer: {in_words(error)}", START)
        except LakemarkError as error:
            found[number] = Wrong(f"can't be asked: {error}", error.advice)
        else:
            found[number] = None

    # Daemons: one that drips bytes for ever must not keep the command from ending.
    threads = [Thread(target=run, args=(number,), daemon=True) for number in range(len(asks))]
    for thread in threads:
        thread.start()
    until = monotonic() + _PATIENCE_SECONDS
    for thread in threads:
        thread.join(max(0.0, until - monotonic()))
    return list(found)


def _questions(here: Session) -> Iterator[Question]:
    from lakemark.settings import S3Tier

    data, seen = here.settings.data, here.history.site().tiers
    if data is not None:
        yield Question(name="lakefs", url=data.endpoint, ask=partial(_lakefs, here, data))
    for name, tier in here.settings.tiers.items():
        if isinstance(tier, S3Tier):
            # A name that the ledger retired is free: what lies there is another tier's matter.
            known = seen.get(name)
            wanted = None if known is None or known.retired else known.id
            url = tier.endpoint or f"https://s3.{tier.region}.amazonaws.com"
            yield Question(name=f"s3 ({name})", url=url, ask=partial(_s3, here, tier, url, wanted=wanted))
    api = PrefectApi.of(here.parts.keys)
    if api is not None:
        api.timeout_seconds = _WITHIN_SECONDS
        yield Question(name="prefect", url=api.url, ask=partial(_prefect, api))


def _lakefs(here: Session, data: Any) -> None:  # noqa: ANN401 - settings' data section
    """Whether the branch that runs are opened on can be resolved with the site's keys."""
    from lakemark.settings import lakefs_credentials

    pair = lakefs_credentials(here.parts.keys)
    if _behind_proxy(data.endpoint):
        return
    path = f"/api/v1/repositories/{quote(data.repository, safe='')}/branches/{quote(data.branch, safe='')}"
    word = base64.b64encode(f"{pair.access_key_id}:{pair.secret_access_key.reveal()}".encode()).decode()
    # The branch itself, not whether the server is well: keys may be good for it and nothing else.
    status, body = _get(f"{data.endpoint.rstrip('/')}{path}", {"Authorization": f"Basic {word}"})
    if status in _UNAUTHORISED:
        raise Wrong(
            f"refuses the site's keys ({status})",
            "Check LAKEFS_ACCESS_KEY_ID, LAKEFS_SECRET_ACCESS_KEY and its rights.",
        )
    if status == _NOT_FOUND:
        raise Wrong(
            f"has no {data.repository}/{data.branch}", "Was it removed? Name another under `data:`, or bring it back."
        )
    if status != _OK:
        raise Wrong(f"answers {status}", "Look at its log: no run can be opened and nothing rolled back meanwhile.")
    try:
        found = json.loads(body)["commit_id"]
    except (ValueError, KeyError, TypeError):
        found = None
    if not isinstance(found, str):
        raise Wrong("is no lakeFS: what it answers is not its API's", "Check `data.endpoint`.")


def _s3(here: Session, tier: S3Tier, url: str, *, wanted: str | None) -> None:
    """Whether the tier's identity can be read there with its keys, and is the one that the ledger knows."""
    from lakemark.site import ask_s3

    if _behind_proxy(url):
        return
    status, body = ask_s3(tier, here.parts.keys, url=url, at=datetime.now(UTC), within_seconds=_WITHIN_SECONDS)
    if status in _UNAUTHORISED:
        # Without keys of its own the SDK's chain has some that are not looked for here.
        if tier.credentials is not None:
            raise Wrong(f"refuses the keys `{tier.credentials}` ({status})", "Check them: `lakemark doctor` says more.")
        return
    # Not found is an answer: no identity lies there, which the ledger's knowledge judges below.
    if status not in (_OK, _NOT_FOUND):
        raise Wrong(f"answers {status}", "Look at the store: nothing sinks there meanwhile.")
    if wanted is None:
        return
    found = _identity(body) if status == _OK else None
    if found is None:
        what = f"has no identity of tier {wanted[:8]} under {tier.url}"
        raise Wrong(what, place_again("s3"))
    if found != wanted:
        raise Wrong(f"is another tier ({found[:8]}, not {wanted[:8]})", "Check the tier's `url` and `endpoint`.")


def _identity(body: bytes) -> str | None:
    try:
        found = json.loads(body)["id"]
    except (ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, str) else None


def _prefect(api: PrefectApi) -> None:
    try:
        # `send`, not `ask`: that would say by an exception of its own what is wrong.
        reply = api.send("GET", "/admin/version", headers=api.headers("GET"))
    except StoreUnavailable as error:
        raise Wrong(str(error).removeprefix(f"Prefect at {api.url} "), START) from None
    if reply.status in _UNAUTHORISED:
        raise Wrong(f"refuses the password ({reply.status})", "Set PREFECT_API_AUTH_STRING as the server has it.")
    # Prefect's page, and any proxy's, answers HTML with 200 for paths that it does not know.
    if not reply.ok or reply.body.lstrip()[:1] == b"<":
        raise Wrong(f"answers {reply.status}, not as Prefect's API does", "Is PREFECT_API_URL its API?")


def _get(url: str, headers: dict[str, str]) -> tuple[int, bytes]:
    parts = urlsplit(url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=_WITHIN_SECONDS)
    try:
        connection.request("GET", parts.path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read(_MOST_BYTES)
    finally:
        connection.close()


def _behind_proxy(url: str) -> bool:
    """Then only the client library knows how to reach it, and nothing is asked here."""
    parts = urlsplit(url)
    return parts.scheme in getproxies() and not proxy_bypass(parts.hostname or "")
