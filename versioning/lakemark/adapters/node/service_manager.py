"""Telling systemd how a service does: one datagram each, as sd_notify(3) says, and nothing where nobody listens."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

_MICROSECONDS: Final = 1_000_000
_WITHIN_SECONDS: Final = 1.0


class ServiceManager:
    """What started this process, where it wants to be told. A manager that is gone is no error."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        named = environ.get("NOTIFY_SOCKET", "")
        # An abstract socket: its name begins with a zero byte, which an environment can't hold.
        self._address = "\0" + named[1:] if named.startswith("@") else named
        wanted = environ.get("WATCHDOG_USEC", "")
        of = environ.get("WATCHDOG_PID", "")
        mine = not of or of == str(os.getpid())
        self.watchdog_seconds = int(wanted) / _MICROSECONDS if wanted.isdecimal() and mine else None

    def tell(self, **said: str) -> None:
        """`READY="1"`, `STATUS="…"`, `WATCHDOG="1"`, `STOPPING="1"`."""
        if not self._address:
            return
        text = "\n".join(f"{name}={' '.join(value.split())}" for name, value in said.items())
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
            channel.settimeout(_WITHIN_SECONDS)
            channel.sendto(text.encode(), self._address)
