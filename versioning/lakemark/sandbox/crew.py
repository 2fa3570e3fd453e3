"""Starts services side by side, waits until each really serves, and takes back what did not come up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lakemark.errors import Misconfigured, StoreUnavailable
from lakemark.sandbox import loopback, processes, state

__all__ = ["Crew", "SandboxService", "everything_of", "mark"]

_POLL_SECONDS = 0.05
_NEWS_SECONDS = 10.0
_RELEASE_SECONDS = 2.0
_TAIL_LINES = 12
_TAIL_BYTES = 4_096


@dataclass(frozen=True)
class SandboxService:
    """One server to run.

    `waits_for` says in words what is missing before it serves, None when nothing is. The process gets
    `ends_within` seconds between SIGTERM and SIGKILL.
    """

    name: str
    url: str
    ports: Sequence[int]
    start: processes.ProcessStart
    waits_for: Callable[[], str | None]
    ends_within: float


def mark(directory: Path, name: str) -> str:
    """What tells the processes of this service from those of another sandbox."""
    return f"{directory.resolve()}#{name}"


def everything_of(directory: Path, name: str, known: state.Started | None) -> list[processes.ProcessIdentity]:
    """The service's living processes: the one noted, and whatever it started, even where the note was lost."""
    found = processes.marked(mark(directory, name))
    # A process may clear its environment, and the mark with it.
    if known is not None and known.identity not in found and processes.alive(known.identity):
        found.append(known.identity)
    return found


@dataclass
class Crew:
    """The services of one `up`.

    `report` gets lines for a person. A service that ran before and is silent for `silent_within` seconds
    is restarted; a busy one should not be. One that was started may take as long as it lives and moves (uses the
    processor or writes to its log): it is given up after `ready_within` seconds of neither, and after `at_most` in all.
    """

    directory: Path
    report: Callable[[str], None]
    ready_within: float
    silent_within: float
    started: dict[str, state.Started]
    at_most: float = 1_800.0
    fresh: dict[str, SandboxService] = field(default_factory=dict)
    ready_seconds: dict[str, float] = field(default_factory=dict)
    _since: dict[str, float] = field(default_factory=dict)
    _still: dict[str, processes.Still] = field(default_factory=dict)

    def ensure(self, service: SandboxService) -> bool:
        """Start it unless its process lives; says whether it was started."""
        self._since[service.name] = time.monotonic()
        if self.lives(service.name):
            return False
        self._start(service)
        return True

    def lives(self, name: str) -> bool:
        known = self.started.get(name)
        return known is not None and processes.alive(known.identity)

    def wait(self, services: Iterable[SandboxService]) -> None:
        """Until each serves.

        Raises `StoreUnavailable` when one ends, or stands still; the end of its log goes to `report`.
        """
        waiting = {service.name: service for service in services}
        news = time.monotonic() + _NEWS_SECONDS
        while waiting:
            missing = {name: self._look(service) for name, service in waiting.items()}
            waiting = {name: service for name, service in waiting.items() if missing[name] is not None}
            if waiting and time.monotonic() > news:
                news += _NEWS_SECONDS
                self.report("; ".join(f"{name} waits for {missing[name]}" for name in waiting))
            if waiting:
                time.sleep(_POLL_SECONDS)

    def abandon(self) -> None:
        """End what this `up` started, and nothing that ran before."""
        for service in reversed(self.fresh.values()):
            self._end(service)
        state.save(self.directory, self.started)

    def _look(self, service: SandboxService) -> str | None:
        known = self.started[service.name]
        if (ended := processes.exit_status(known.identity)) is not None:
            # Started by this very `up`: it can't have been about to end, so something is wrong with it.
            if service.name in self.fresh:
                raise self._failed(service, ended)
            self._start(service)  # it was about to end when `ensure` looked
        missing = service.waits_for()
        seconds = time.monotonic() - self._since[service.name]
        if missing is None:
            self._ready(service, seconds)
        # It ran before and does not answer: restarting is what a person would do. Once; then it is fresh.
        elif service.name not in self.fresh and seconds > self.silent_within:
            self.report(f"{service.name} is silent since {seconds:.0f} s, waiting for {missing}: restarting it")
            self._end(service)
            self._start(service)
        elif self._stands_still(service):
            raise self._failed(service, f"still waits for {missing} after {seconds:.0f} s")
        return missing

    def _stands_still(self, service: SandboxService) -> bool:
        still = self._still.setdefault(service.name, processes.Still())
        log = service.start.log
        # On a busy machine a server may need minutes; one that hangs uses no time and says nothing.
        family = everything_of(self.directory, service.name, self.started[service.name])
        seen = (processes.spent_ticks(family), log.stat().st_size if log.exists() else 0)
        return still.look(seen) > self.ready_within or time.monotonic() - still.began > self.at_most

    def _ready(self, service: SandboxService, seconds: float) -> None:
        if service.name in self.fresh:
            self.ready_seconds[service.name] = round(seconds, 2)
            self.report(f"{service.name} is ready after {seconds:.1f} s: {service.url}")
        else:
            self.report(f"{service.name} runs already: {service.url}")

    def _start(self, service: SandboxService) -> None:
        # Children of a server that was killed may hold its ports and its data.
        left = everything_of(self.directory, service.name, self.started.get(service.name))
        processes.end(left, within_seconds=service.ends_within)
        if taken := _taken(service.ports):
            ports = ", ".join(map(str, taken))
            raise Misconfigured(
                f"{service.name} needs port {ports} on {loopback.HOST}, and another program has it",
                advice=f"End that program (`ss -ltnp | grep {taken[0]}` names it) or configure another port.",
            )
        self.fresh[service.name] = service
        self._still.pop(service.name, None)
        self._since[service.name] = time.monotonic()
        identity = processes.start(service.start, mark=mark(self.directory, service.name))
        self.started[service.name] = state.Started(service.name, service.url, identity)
        # Right after the start: if this process dies now, `down` must find that one.
        state.save(self.directory, self.started)

    def _end(self, service: SandboxService) -> None:
        left = everything_of(self.directory, service.name, self.started.pop(service.name, None))
        processes.end(left, within_seconds=service.ends_within)

    def _failed(self, service: SandboxService, how: str) -> StoreUnavailable:
        log = service.start.log
        lines = _tail(log)
        for line in lines:
            self.report(f"  {service.name}: {line}")
        return StoreUnavailable(
            f"{service.name} {how}", advice=f"Read {log}, mend what it names, then run `lakemark up` again."
        )


def _taken(ports: Sequence[int]) -> list[int]:
    """Those that stay taken; a process that was just killed gives its own up a moment later."""
    deadline = time.monotonic() + _RELEASE_SECONDS
    while (taken := [port for port in ports if not loopback.is_free(port)]) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    return taken


def _tail(log: Path) -> list[str]:
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return []
    return [line for line in text.splitlines() if line.strip()][-_TAIL_LINES:]
