"""What work that nobody waits for needs beside a `Site`: its limits, its lookout, its lock. Names adapters, as `site` does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lakemark.ports.watching import Lookout
from lakemark.settings import Settings

if TYPE_CHECKING:
    from lakemark.adapters.node.service_lock import Held
    from lakemark.adapters.node.service_manager import ServiceManager
    from lakemark.model.heartbeat import Heartbeat


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchPlaces:
    """Beside the ledger: the file that one service of the node holds, and the one in which it says how it goes."""

    held: Path
    state: Path


def hold_to_limits(settings: Settings) -> tuple[str, ...]:
    """Holds this thread, and what it starts, to `limits`; bandwidth is `site.Parts`'. Answers what could not be done."""
    from lakemark.adapters.node.limits import take_limits

    wanted = settings.limits
    return take_limits(cpus=wanted.cpus, nice=wanted.nice, io_class=wanted.io_class)


def watch_places(settings: Settings) -> WatchPlaces:
    """Where the node's service leaves its traces."""
    path = settings.ledger.path
    return WatchPlaces(held=path.with_suffix(".watch.pid"), state=path.with_suffix(".watch.json"))


def heartbeats(settings: Settings) -> Mapping[str, Heartbeat]:
    """What each node said of itself last, as far as this node's ledger has it. Loads no Git, where none of it is packed."""
    from lakemark.adapters.git.nodes import heartbeats as said

    return said(settings.ledger.path)


def hold_watch(settings: Settings) -> Held:
    """Makes this process the node's service until it ends. Raises Refused where another one is, naming it."""
    from lakemark.adapters.node.service_lock import Held

    what = f"the service of {settings.node}"
    return Held(watch_places(settings).held, what=what, advice="One for a node is enough: end that one first.")


def watch_holder(settings: Settings) -> int | None:
    """The process id of the service that runs on this node; 0 where it is not told; None where none runs."""
    from lakemark.adapters.node.service_lock import holder

    return holder(watch_places(settings).held)


def lookout(*, hints: bool = True) -> Lookout:
    """Looks about on this node's disks. hints: False: none ever."""
    from lakemark.adapters.node.hints import FolderLookout

    return FolderLookout(hints=hints)


def service_manager(environ: Mapping[str, str]) -> ServiceManager:
    """What started this process, and wants to be told how it does."""
    from lakemark.adapters.node.service_manager import ServiceManager

    return ServiceManager(environ)
