"""What time it is elsewhere: as a server told last, counted on by a stopwatch that setting this machine's clock does not move."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple

from lakemark.model.values.instants import from_text, to_text

KEPT: Final = timedelta(days=1)
"""How long it is counted on: a machine's stopwatch is off by less than a few seconds a day."""
_NOTED_EVERY_SECONDS: Final = 60.0
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


class _Heard(NamedTuple):
    theirs: datetime
    seconds: float
    boot: str


class HeardClock:
    """Shared by the processes of a node through the file at `path`; disposable. Asks nobody, and never raises.

    seconds: a stopwatch that all of them share, and that goes on while the machine sleeps. boot: what changes when it starts
    anew; by default the kernel's own. Of several servers the one that answered last counts.
    """

    def __init__(self, path: Path, *, seconds: Callable[[], float], boot: str | None = None) -> None:
        self._path = path
        self._seconds = seconds
        self._boot = _boot() if boot is None else boot
        self._lock = Lock()
        self._heard: _Heard | None = None
        self._noted: float | None = None

    def hear(self, date: str | None) -> None:
        """A server answered just now, with this `Date`, as HTTP has it. Anything else says nothing."""
        try:
            theirs = parsedate_to_datetime(date or "")
        except ValueError:
            return
        # `-0000` says that the zone is not known: such a time may be hours off.
        if theirs.tzinfo is None:
            return
        with self._lock:
            self._heard = heard = _Heard(theirs, self._seconds(), self._boot)
            if self._noted is not None and heard.seconds - self._noted < _NOTED_EVERY_SECONDS:
                return
            self._noted = heard.seconds
        self._note(heard)

    def now(self) -> datetime | None:
        """Their time now; None where nobody told any since this machine started, or for a day."""
        heard = max(
            (one for one in (self._heard, self._read()) if one is not None), key=lambda one: one.seconds, default=None
        )
        if heard is None:
            return None
        since = self._seconds() - heard.seconds
        return heard.theirs + timedelta(seconds=since) if 0 <= since <= KEPT.total_seconds() else None

    def _note(self, heard: _Heard) -> None:
        document = {"theirs": to_text(heard.theirs), "seconds": heard.seconds, "boot": heard.boot}
        draft = self._path.parent / f".{self._path.name}.{secrets.token_hex(4)}"
        # Not flushed: what power loss takes was of the boot before.
        with suppress(OSError):
            try:
                draft.write_text(json.dumps(document))
                # Renamed, so that no other process reads half of it.
                os.rename(draft, self._path)
            except OSError:
                draft.unlink(missing_ok=True)
                raise

    def _read(self) -> _Heard | None:
        try:
            document = json.loads(self._path.read_bytes())
            heard = _Heard(from_text(document["theirs"]), float(document["seconds"]), str(document["boot"]))
        except (OSError, ValueError, TypeError, KeyError):
            return None
        # The stopwatch began anew with the machine: what was counted on an earlier one says nothing.
        return heard if heard.boot == self._boot else None


def _boot() -> str:
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""
