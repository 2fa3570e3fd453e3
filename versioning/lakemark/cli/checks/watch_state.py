"""What `status` says of the node's service: from the file it leaves beside the ledger, and who holds its lock."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from lakemark.cli.output import ago
from lakemark.model.values.instants import from_text
from lakemark.services.health.status import Problem, WatchSeen, problems_of_watch

if TYPE_CHECKING:
    from lakemark.cli.session import Session

__all__ = ["seen", "view", "watch_problems"]


def seen(here: Session) -> WatchSeen | None:
    """None where no service ever ran on this node."""
    from lakemark.background import watch_holder, watch_places

    # By the lock, which the kernel lets go of with its process: a state file outlives a kill, and numbers are used again.
    pid = watch_holder(here.settings)
    try:
        found = json.loads(watch_places(here.settings).state.read_bytes())
        return WatchSeen(
            node=here.settings.node,
            pid=pid,
            stopped=bool(found["stopped"]),
            alive_at=from_text(found["alive_at"]),
            busy=tuple(
                (str(one["name"]), from_text(one["busy_since"])) for one in found["rounds"] if one["busy_since"]
            ),
            troubles=tuple((str(one["what"]), str(one["why"]), from_text(one["since"])) for one in found["problems"]),
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        return WatchSeen(node=here.settings.node, pid=pid, readable=False)


def watch_problems(here: Session, watch: WatchSeen | None, *, watched: Sequence[str]) -> Iterator[Problem]:
    """What is wrong with the service, or what it finds wrong. watched: open runs that count on it."""
    return iter(()) if watch is None else problems_of_watch(watch, now=here.now, watched=watched)


def view(here: Session, watch: WatchSeen | None) -> Iterator[dict[str, Any]]:
    """Its row among the services."""
    if watch is None:
        return
    last = f"last looked {ago(here.now - watch.alive_at)} ago" if watch.alive_at else "its state can't be read"
    detail = last if watch.pid is not None else f"ended; {last}"
    fine = watch.pid is not None and watch.readable and not watch.stale(here.now)
    yield {"name": f"watch ({watch.node})", "url": "", "ok": fine, "detail": detail, "pid": watch.pid or None}
