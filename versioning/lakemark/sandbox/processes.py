"""Processes that outlive the command that started them, and can be told from any other process.

A number alone names no process: the kernel gives it again. So a process is known by
its number, its start and the boot, and each carries a mark in its environment that
its own children inherit. Signals go through a descriptor of the process, which the
kernel never gives to another one.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "ProcessIdentity",
    "ProcessStart",
    "Still",
    "alive",
    "end",
    "exit_status",
    "identify",
    "marked",
    "spent_ticks",
    "start",
]

MARK = "STARTED_BY_LAKEMARK"

_PROC = Path("/proc")
_BOOT_ID = _PROC / "sys/kernel/random/boot_id"
# Run before the program: a working directory of its own, whose .env and *.toml files programs read.
_LAUNCH = "import os, sys; os.chdir(sys.argv[1]); os.execv(sys.argv[2], sys.argv[2:])"
_TERMINAL_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE)


@dataclass(frozen=True)
class ProcessIdentity:
    """One process, for as long as it lives; `started_ticks` are the kernel's clock ticks since boot."""

    pid: int
    started_ticks: int
    boot: str


@dataclass(frozen=True)
class ProcessStart:
    """What to run: `command[0]` is an absolute path, `environment` the whole environment."""

    command: Sequence[str]
    environment: Mapping[str, str]
    folder: Path
    log: Path


def identify(pid: int) -> ProcessIdentity | None:
    """Who has the number `pid` now; None when nobody has, or only a dead process its parent has not read."""
    try:
        after_name = (
            (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        )
    except (FileNotFoundError, ProcessLookupError):
        return None
    # After the name's closing bracket, since a name may hold spaces and brackets itself.
    state, started_ticks = after_name[0], int(after_name[19])
    # A dead process keeps its number until its parent reads it: it is not alive.
    if state in "ZX":
        return None
    return ProcessIdentity(pid, started_ticks, _BOOT_ID.read_text(encoding="ascii").strip())


def spent_ticks(identities: Iterable[ProcessIdentity]) -> int:
    """The processor time that these processes and their ended children have had, in the kernel's clock ticks."""
    ticks = 0
    for identity in identities:
        with contextlib.suppress(OSError, IndexError):
            text = (_PROC / str(identity.pid) / "stat").read_text(encoding="utf-8", errors="replace")
            # utime, stime, cutime, cstime: the 14th to 17th column, the name being the second.
            ticks += sum(map(int, text.rpartition(")")[2].split()[11:15]))
    return ticks


class Still:
    """How long something has not moved. `look` gets whatever changes while it does: time used, a log's size."""

    def __init__(self) -> None:
        self.began = self._moved = time.monotonic()
        self._seen: object = None

    def look(self, seen: object) -> float:
        """Seconds since `seen` was last another one."""
        if seen != self._seen:
            self._seen, self._moved = seen, time.monotonic()
        return time.monotonic() - self._moved


def alive(identity: ProcessIdentity) -> bool:
    """Whether that very process runs, and not another under its number."""
    return identify(identity.pid) == identity


def start(what: ProcessStart, *, mark: str) -> ProcessIdentity:
    """Start it in a session of its own, with default signals, output to `what.log`, and `mark` in its environment.

    An older log is kept as `<log>.1`. A program that cannot be executed ends at once
    and says so in the log.
    """
    what.folder.mkdir(parents=True, exist_ok=True)
    what.log.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        # One older log is kept: the reason of a restart is in it.
        what.log.replace(what.log.with_name(what.log.name + ".1"))
    # -I and -S: nothing of the environment or of site packages runs before the program itself.
    launcher = [sys.executable, "-I", "-S", "-c", _LAUNCH, str(what.folder), *what.command]
    pid = os.posix_spawn(
        sys.executable,
        launcher,
        {**what.environment, MARK: mark},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(what.log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigmask=(),
        # A shell's background job ignores SIGINT, which Prefect's worker needs to end well.
        setsigdef=_TERMINAL_SIGNALS,
    )
    found = identify(pid)
    if found is None:
        raise ChildProcessError(f"process {pid} ended at once; see {what.log}")
    return found


def exit_status(identity: ProcessIdentity) -> str | None:
    """How it ended, as words for a person; None while it lives. Collects it where it is a child of ours."""
    if alive(identity):
        return None
    try:
        pid, status = os.waitpid(identity.pid, os.WNOHANG)
    except ChildProcessError:
        # Somebody else's child: how it ended only its parent was told.
        return "ended"
    if pid == 0:
        return "ended"
    code = os.waitstatus_to_exitcode(status)
    return f"ended with exit code {code}" if code >= 0 else f"ended by signal {-code}"


def marked(mark: str) -> list[ProcessIdentity]:
    """Every living process with `mark` in the environment it was started with: what `start` started, and its children.

    Sees the processes of this user only, or everybody's as root.
    """
    wanted = f"{MARK}={mark}".encode()
    found = []
    for folder in _PROC.iterdir():
        if not folder.name.isdecimal() or int(folder.name) == os.getpid():
            continue
        try:
            environment = (folder / "environ").read_bytes()
        except OSError:  # another user's, or gone meanwhile
            continue
        # Whole entries: one sandbox's folder may be the beginning of another's.
        if wanted in environment.split(b"\0") and (process := identify(int(folder.name))) is not None:
            found.append(process)
    return found


def end(processes: Iterable[ProcessIdentity], *, within_seconds: float) -> list[ProcessIdentity]:
    """SIGTERM, then SIGKILL to those still there after `within_seconds`; returns those that had to be killed.

    A process that is not the one named any more is left alone.
    """
    with contextlib.ExitStack() as stack:
        held = {identity: stack.enter_context(_descriptor(identity)) for identity in processes}
        waiting = {identity: descriptor for identity, descriptor in held.items() if descriptor is not None}
        # All first, then waiting once: they end side by side.
        _signal(waiting.values(), signal.SIGTERM)
        _signal(waiting.values(), signal.SIGCONT)  # one that is stopped would never take the first
        deadline = time.monotonic() + within_seconds
        killed = _remaining(waiting, deadline)
        _signal(killed.values(), signal.SIGKILL)
        _remaining(killed, time.monotonic() + within_seconds)
        for identity in waiting:
            # Children of ours that ended would stay as zombies until this process does.
            exit_status(identity)
        return list(killed)


@contextlib.contextmanager
def _descriptor(identity: ProcessIdentity) -> Iterator[int | None]:
    try:
        descriptor = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        yield None
        return
    try:
        # Asked after opening: from here on the number cannot come to mean another process.
        yield descriptor if alive(identity) else None
    finally:
        os.close(descriptor)


def _signal(descriptors: Iterable[int], number: signal.Signals) -> None:
    for descriptor in descriptors:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, number)


def _remaining(waiting: Mapping[ProcessIdentity, int], deadline: float) -> dict[ProcessIdentity, int]:
    left = dict(waiting)
    poll = select.poll()
    for descriptor in left.values():
        poll.register(descriptor, select.POLLIN)
    while left and (seconds := deadline - time.monotonic()) > 0:
        ended = {descriptor for descriptor, _ in poll.poll(seconds * 1000)}
        for identity in [identity for identity, descriptor in left.items() if descriptor in ended]:
            poll.unregister(left.pop(identity))
    return left
