"""What a prefect.yaml says there is to be, and what a Prefect server is asked to see whether it is so. Pure but for reading."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lakemark.errors import Misconfigured, quoted

__all__ = ["FIRST", "Declared", "declared", "in_order", "wrong"]

FIRST: Final = "urgent"
"""The queue of what somebody waits for: Prefect hands its runs out before those of `default`."""
_LAST: Final = "default"


@dataclass(frozen=True, kw_only=True)
class Declared:
    """One deployment of the file. scheduled: it names a schedule that is not switched off."""

    name: str
    entrypoint: str
    pool: str | None
    queue: str | None
    scheduled: bool


def declared(file: Path) -> tuple[Declared, ...]:
    """The deployments that `file` names, in its order. Raises Misconfigured where it is no such file."""
    import yaml

    try:
        rows = yaml.safe_load(file.read_text(encoding="utf-8"))["deployments"]
        return tuple(_declared(row) for row in rows)
    except (OSError, yaml.YAMLError, ValueError, KeyError, TypeError, AttributeError) as error:
        said = " ".join(str(error).split())
        raise Misconfigured(
            f"{quoted(str(file))} names no deployments: {quoted(said)}",
            advice="Mend it, or move it away and run `lakemark flows export`.",
        ) from None


def wrong(wanted: Declared, found: Iterable[Mapping[str, Any]], queues: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """What is not as `wanted` says; nothing where all is. found, queues: the server's deployments, and its pool's queues."""
    there = next((one for one in found if one.get("name") == wanted.name), None)
    if there is None:
        yield "it is not deployed"
        return
    if there.get("entrypoint") != wanted.entrypoint:
        yield f"it runs {there.get('entrypoint')}, not {wanted.entrypoint}"
    if there.get("paused"):
        yield "it is paused"
    active = [one for one in there.get("schedules") or () if one.get("active")]
    if wanted.scheduled and not active:
        yield "no schedule of it is active"
    name = there.get("work_queue_name")
    queue = next((one for one in queues if one.get("name") == name), None)
    # The first reason that explains the others: without a queue nobody can poll it.
    if queue is None:
        yield f"its queue {name} is not there"
    elif queue.get("is_paused") or queue.get("status") == "PAUSED":
        yield f"its queue {name} is paused"
    elif queue.get("status") != "READY":
        yield f"no worker polls its queue {name}"
    # Prefect calls a deployment ready once a worker asked for its runs.
    elif there.get("status") != "READY":
        yield "no worker has asked for its runs"


def in_order(queues: Iterable[Mapping[str, Any]]) -> bool:
    """Whether runs that somebody waits for go before scheduled ones; 1 is Prefect's highest priority."""
    ranks = {str(one.get("name")): int(one.get("priority") or 0) for one in queues}
    return FIRST not in ranks or _LAST not in ranks or ranks[FIRST] < ranks[_LAST]


def _declared(row: Mapping[str, Any]) -> Declared:
    pool = row.get("work_pool") or {}
    return Declared(
        name=str(row["name"]),
        entrypoint=str(row["entrypoint"]),
        pool=pool.get("name"),
        queue=pool.get("work_queue_name"),
        scheduled=any(one.get("active", True) for one in row.get("schedules") or ()),
    )
