"""Progress for people, on stderr: bars on a terminal, a line for each piece of work elsewhere."""

from __future__ import annotations

import sys
from typing import Protocol

from lakemark.cli.output import plain, size
from lakemark.ports.work import Progress, Quiet

# Less is done before a line about it could be read.
_LEAST_BYTES = 8 * 2**20


class ShownProgress(Progress, Protocol):
    """Progress that has an end."""

    def close(self) -> None:
        """Takes the bars away, or ends the last line."""


class Silent(Quiet):
    """Nobody is told."""

    def close(self) -> None:
        pass


class Lines(Quiet):
    """A line for each piece of work that is not small."""

    def expect(self, what: str, size_bytes: int) -> None:
        if size_bytes >= _LEAST_BYTES:
            sys.stderr.write(f"{plain(what)} ({size(size_bytes)})\n")
            sys.stderr.flush()

    def close(self) -> None:
        pass


class Bars(Quiet):
    """A bar on the terminal for the work at hand; it is gone when the command ends."""

    def __init__(self) -> None:
        # rich takes a while to load, and most commands move nothing.
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress as RichProgress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        # markup=False: names of runs and paths may have brackets, which rich would take for styles.
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
        )
        self._bars = RichProgress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bars.add_task("", total=None, visible=False)
        self._started = False

    def expect(self, what: str, size_bytes: int) -> None:
        if size_bytes < _LEAST_BYTES:
            return
        # Not before there is work: a started bar redraws the terminal, and a command may end without any.
        if not self._started:
            self._bars.start()
            self._started = True
        self._bars.reset(self._task, total=size_bytes, description=plain(what), visible=True)

    def advance(self, size_bytes: int) -> None:
        if self._started:
            self._bars.advance(self._task, size_bytes)

    def close(self) -> None:
        if self._started:
            self._bars.stop()
            self._started = False


def shown(*, silent: bool) -> ShownProgress:
    """What suits stderr."""
    if silent:
        return Silent()
    # By stderr, where they are drawn: stdout may go to a file meanwhile.
    return Bars() if sys.stderr.isatty() else Lines()
