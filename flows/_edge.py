"""What every flow needs at its edge: the site of this worker, the one class of error to retry, guards, artifacts."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar
from uuid import UUID

from prefect import Task, task
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State, TaskRun
from prefect.runtime import flow_run
from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from lakemark.errors import NotFound, Refused, StoreUnavailable
from lakemark.ports import Site
from lakemark.services.directories import directories
from lakemark.site import open_site

P = ParamSpec("P")
R = TypeVar("R")

RETRIES: Final = (5, 30, 120)
ROLLBACK_TAG: Final = "rollback:"
"""A flow run's tag: this and a rollback's id. `lakemark rollback approve` and the sweep find it by that."""
THE_LEDGER: Final = "the ledger"
"""The approver of an answer that only says: look what the ledger says now."""
_SCHEDULED: Final = "auto-scheduled"
_MARKUP: Final = re.compile(r"([\\`*_\[\]<>#|~])")


class Typed:
    """Text that somebody may have typed as digits alone; in an annotation, the last one.

    `prefect deployment run … -p to=100` reads every value as JSON first, so that 100 arrives as a number: the server's
    schema and the flow take whole numbers too, and the flow gets the digits. Nothing else becomes text.
    """

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(_digits, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        text = handler(schema)
        return {"anyOf": [*text.get("anyOf", [text]), {"type": "integer"}]}


def _digits(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def transient(_task: Task[..., Any], _run: TaskRun, state: State[Any]) -> bool:
    """Whether a failed task is worth another try: only where a store was out of reach."""
    return isinstance(state.data, StoreUnavailable)


def step(function: Callable[P, R]) -> Task[P, R]:
    """A task that does something: never cached, its result never written, retried only on StoreUnavailable."""
    decorate: Callable[[Callable[P, R]], Task[P, R]] = task(
        cache_policy=NO_CACHE,
        persist_result=False,
        result_serializer="json",
        retries=len(RETRIES),
        retry_delay_seconds=[float(seconds) for seconds in RETRIES],
        retry_jitter_factor=0.2,
        retry_condition_fn=transient,
    )
    return decorate(function)


def site(*, actor: str | None = None, background: bool = False) -> Site:
    """This worker's site, acting as the flow run unless a person is named.

    background: nobody waits for it: this process is held to the site's `limits` from now on.
    """
    return open_site(environ=os.environ, actor=actor or f"flow-run:{flow_run.id or 'none'}", background=background)


def require_node(here: Site, node: str | None) -> None:
    """Raises Refused where a run meant for one node's disks landed on another's worker."""
    if node is not None and node != here.node:
        raise Refused(
            f"this run is for node {node}, and this worker is {here.node}",
            advice=f"Start workers with `--work-queue node-{here.node}`; one without it takes every node's runs.",
        )


def registered(here: Site, run: str) -> Path:
    """The directory that the run's trainer saves into on this node. Raises NotFound where none is registered."""
    directory = next(directories(here, here.ledger.run(run)), None)
    if directory is None:
        raise NotFound(
            f"the run {run} has no registered directory on {here.node}",
            advice=f"lakemark run open {run} --watch DIR",
        )
    return directory


def late(stale_after_minutes: int | None) -> bool:
    """Whether Prefect's scheduler made this run, and it waited so long that newer ones do its work."""
    if stale_after_minutes is None or _SCHEDULED not in flow_run.tags:
        return False
    waited: timedelta = datetime.now(UTC) - flow_run.scheduled_start_time
    return waited > timedelta(minutes=stale_after_minutes)


def table(key: str, rows: Iterable[Mapping[str, object]], *, description: str) -> None:
    """A table among the run's artifacts; none where there is no row."""
    listed = [dict(row) for row in rows]
    if listed:
        create_table_artifact(key=key, table=listed, description=description)


def markdown(key: str, lines: Sequence[str], *, description: str) -> None:
    """A text among the run's artifacts."""
    create_markdown_artifact(key=key, markdown="\n".join(lines), description=description)


def tagged(prefix: str) -> str | None:
    """What this flow run's tag with `prefix` says, as the server has it now; None where it has none."""
    with get_client(sync_client=True) as client:
        tags = client.read_flow_run(UUID(flow_run.id)).tags
    return next((tag.removeprefix(prefix) for tag in tags if tag.startswith(prefix)), None)


def tag(prefix: str, value: str) -> str:
    """Gives this flow run the tag, in the place of one with the same prefix; answers `value`.

    The tags are read from the server: those that this process knows are the ones it was started with.
    """
    identity = UUID(flow_run.id)
    with get_client(sync_client=True) as client:
        others = [one for one in client.read_flow_run(identity).tags if not one.startswith(prefix)]
        client.update_flow_run(identity, tags=[*others, prefix + value])
    return value


def code(text: object) -> str:
    """A command as Markdown shows it, to be copied."""
    return f"`{' '.join(str(text).replace('`', '').split())}`"


def plain(text: object) -> str:
    """What people wrote, as one line of Markdown that shows nothing but those words."""
    printable = "".join(letter if letter.isprintable() else " " for letter in str(text))
    return _MARKUP.sub(r"\\\1", " ".join(printable.split()))
