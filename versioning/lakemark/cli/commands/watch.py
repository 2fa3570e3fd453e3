"""`watch`: the node's service, and its unit."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final, NoReturn

from lakemark.cli.output import plain
from lakemark.cli.session import Answer, Session, session, would
from lakemark.errors import EXIT_INTERRUPTED, EXIT_OK, Denied, Refused, Usage

if TYPE_CHECKING:
    from lakemark.services.node.watch_service import Service

_LEAST: Final = timedelta(seconds=1)
_MOST: Final = timedelta(hours=1)
# A store that is away is asked again this often at the least, however long it was away.
_LONGEST_BACKOFF: Final = timedelta(minutes=5)
# A pass may wait for that part of the objective at most: what it then does needs the rest.
_OF_RPO: Final = 6


def watch(*, every: str = "30s", no_hints: bool = False, install: bool = False, dry_run: bool = False) -> Answer:
    """The service of a node, until it is told to end: finds and commits saves, opens runs, moves replicas, keeps run files.

    One per node. Trainers, S3, lakeFS and Prefect may come and go; each trouble is said once, and again when it is over.
    It ends on SIGTERM and on Ctrl-C: what is under way has a quarter of a minute; the next start finishes what it left.

    Parameters
    ----------
    every: str
        How often everything is looked at, whether there were hints or not: 1s to 1h.
    no_hints: bool
        Do not ask the kernel for hints; for directories that other machines write.
    install: bool
        Write a systemd unit for this user and this configuration, and say how to enable it.
    dry_run: bool
        Say what would be done, and change nothing.
    """
    here = session()
    often = _often(every)
    if install:
        return _install(here, dry_run=dry_run)
    if dry_run:
        return _would_watch(here)
    from lakemark.background import hold_watch

    # Only here: a dry run and a unit are for a node whose service runs.
    held = hold_watch(here.settings)
    try:
        return _serve(here, often, hints=not no_hints)
    finally:
        held.close()


def _often(text: str) -> timedelta:
    from lakemark.model.values.instants import duration

    try:
        often = duration(text)
    except OverflowError:
        often = timedelta.max
    except ValueError as error:
        raise Usage(f"--every: {error}", advice="For example --every 30s.") from None
    if not _LEAST <= often <= _MOST:
        raise Usage(f"--every {text} is not from 1s to 1h", advice="For example --every 30s.")
    return often


def _serve(here: Session, often: timedelta, *, hints: bool) -> Answer:
    from lakemark.background import hold_to_limits, lookout, service_manager, watch_places
    from lakemark.ports import Quiet
    from lakemark.services.node.watch import Watch
    from lakemark.services.node.watch_service import Pacemaker, Service
    from lakemark.services.saves.lost_ledger import for_saving
    from lakemark.services.tiers.register import require_named
    from lakemark.site import site_of

    settings = here.settings
    # Held to `limits.bandwidth`: nobody waits for it, and trainers want the rest of the line.
    parts = replace(here.parts, background=True)
    site = site_of(parts, progress=Quiet(), saving=True)
    # A renamed node or tier ends it at once: in each pass it would be refused again, and never heal by itself.
    require_named(for_saving(site)[0])
    # Before the first thread begins: each takes them from the one that starts it.
    for why in hold_to_limits(settings):
        here.warn(why)
    manager = service_manager(here.environ)
    pace = Pacemaker(
        every=often,
        most=min(_LONGEST_BACKOFF, max(often, settings.objectives.rpo / _OF_RPO)),
        quiet=timedelta(seconds=site.policies.quiet_seconds),
        # Nodes that start at the same time must not ask shared stores in step.
        jitter=random.SystemRandom().random,
    )
    service = Service(
        Watch(site, lookout(hints=hints), say=here.note),
        pace,
        state=watch_places(settings).state,
        # READY with each: systemd takes the first and ignores the others, and there is no state to keep.
        beat=lambda line: manager.tell(READY="1", WATCHDOG="1", STATUS=line),
    )
    here.note(f"watching on {site.node}, every {every_text(often)}, as process {os.getpid()}")
    with _signals(service) as told:
        whole = service.run()
    # From here on silence is no fault: the watchdog is not waited for.
    manager.tell(STOPPING="1")
    answer = _ended(service)
    if not whole:
        here.note("what was under way was abandoned; the next start, or a sweep, finishes or undoes it")
        _leave(here, answer, interrupted=told.interrupted)
    for one in (parts.ledger, parts.index):
        one.close()
    # After all is closed: it ends as Ctrl-C does everywhere, with 130.
    if told.interrupted:
        raise KeyboardInterrupt
    return answer


def every_text(often: timedelta) -> str:
    """As `--every` takes it."""
    from lakemark.model.values.instants import duration_text

    return duration_text(often)


@dataclass(slots=True)
class _Told:
    """Which signal ended the service."""

    interrupted: bool = False
    count: int = 0


@contextmanager
def _signals(service: Service) -> Iterator[_Told]:
    """The first one ends the service well, the second at once: whatever it does survives that."""
    told = _Told()

    def handle(number: int, _: FrameType | None) -> None:
        told.count += 1
        told.interrupted = told.interrupted or number == signal.SIGINT
        if told.count > 1:
            # From within a handler, with threads at work: any other way would wait for what is stuck.
            os._exit(EXIT_INTERRUPTED if told.interrupted else EXIT_OK)
        service.stop()

    # Given back at the end: tests, and whoever runs a command in their process, have their own.
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ended(service: Service) -> Answer:
    watch = service.watch
    totals = watch.totals
    document = {
        "opened": totals.opened,
        "committed": totals.committed,
        "replicated": totals.replicated,
        "released": totals.released,
        "problems": [{"what": one.what, "why": one.why} for one in watch.problems.listed()],
    }
    line = f"ended: {totals.committed} committed, {totals.replicated} replicated, {totals.released} released"
    return Answer(document=document, lines=[line])


def _leave(here: Session, answer: Answer, *, interrupted: bool) -> NoReturn:
    """Ends the process although threads are at work: an interpreter that ends well would wait for each of them."""
    with suppress(OSError):  # nobody may be there any more to be told; what was done is done
        # An interrupted command has no answer, also where it ends well.
        if here.options.json and not interrupted:
            sys.stdout.write(json.dumps(answer.document, ensure_ascii=False) + "\n")
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    os._exit(EXIT_INTERRUPTED if interrupted else EXIT_OK)


def _would_watch(here: Session) -> Answer:
    from lakemark.background import lookout
    from lakemark.services.directories import directories
    from lakemark.services.runs.open_watched import runs_to_open

    site = here.site
    # Hints cost a watch of the kernel on each directory, for one look.
    looking = lookout(hints=False)
    try:
        said = [f"open {run} on {data} for {path}" for run, path, data in runs_to_open(site, looking)]
    finally:
        looking.close()
    for run in site.ledger.runs():
        state = site.ledger.run(run)
        if state.closed:
            continue
        said.append(f"commit what trainers of {run} announce in {site.spool_of(run)}")
        said += [f"look for saves of {run} in {path}" for path in directories(site, state)]
    said.append("move replicas as residence says")
    return would(*said)


def _install(here: Session, *, dry_run: bool) -> Answer:
    from lakemark.cli.units import MARK, NAME, Service, user_unit

    settings, loaded = here.settings, here.parts.loaded
    limits = settings.limits
    text = user_unit(
        Service(
            # Not resolved: in an environment it is a link, and by its own path Python finds that environment.
            python=Path(sys.executable).absolute(),
            config=Path(loaded.file).absolute(),
            home=loaded.home.absolute(),
            node=settings.node,
            cpus=limits.cpus,
            nice=limits.nice,
            io_class=limits.io_class,
        )
    )
    path = _unit_folder(here) / NAME
    commands = [
        "systemctl --user daemon-reload",
        f"systemctl --user enable --now {NAME}",
        # Else the user's services end with the last session.
        "loginctl enable-linger",
    ]
    document = {"unit": str(path), "commands": commands}
    if dry_run:
        return Answer(
            document={"dry_run": True, "would": [f"write {path}"], **document, "text": text},
            lines=[f"would write {plain(path)}:", "", *text.splitlines()],
        )
    old = path.read_text(encoding="utf-8") if path.is_file() else None
    # Ours by its first line and of this home: then it is written anew; an edited or foreign one is somebody's work.
    if old is not None and old != text and not (old.startswith(MARK) and f'"LAKEMARK_HOME={loaded.home}"' in old):
        raise Refused(
            f"{path} is there, and not the unit of this configuration",
            advice="Remove it, or rename it if both sites are to be watched, and give this command again.",
        )
    _write(path, text)
    why = "the last one lets it run while you are not logged in"
    return Answer(
        document=document, lines=[f"wrote {plain(path)}; now, once ({why}):", *(f"  {one}" for one in commands)]
    )


def _write(path: Path, text: str) -> None:
    # systemd must never read half a unit.
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        raise Denied(f"{path} can't be written: {error.strerror}", advice="Give this user the right to it.") from None


def _unit_folder(here: Session) -> Path:
    base = here.environ.get("XDG_CONFIG_HOME") or ""
    home = Path(here.environ.get("HOME") or Path.home())
    # The XDG specification has relative paths ignored.
    return (Path(base) if Path(base).is_absolute() else home / ".config") / "systemd" / "user"
