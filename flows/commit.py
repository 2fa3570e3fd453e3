"""Commit saves on request: an API call or an event names the run; the directory is the one registered for it."""

from __future__ import annotations

from typing import Annotated, Any, Final

from prefect import flow
from pydantic import Field

from flows import _edge
from lakemark.services.saves.commit import Commit, Committed, commit as commit_checkpoint

# One name, neither . nor ..
_NAME: Final = r"^([^/\x00.]|\.[^/\x00.]|\.\.[^/\x00])[^/\x00]*$"


@_edge.step
def seal_and_record(run: str, step: int, name: str, node: str | None) -> Committed:
    """Seals the save in hot and appends its entry."""
    here = _edge.site()
    _edge.require_node(here, node)
    directory = _edge.registered(here, run)
    asked = Commit(path=directory / name, run=run, step=step, directory=directory)
    return commit_checkpoint(here, asked)


@flow(
    name="commit", flow_run_name="commit-{run}-{step}", log_prints=False, persist_result=False, result_serializer="json"
)
def commit(
    *,
    run: Annotated[str, Field(min_length=1, max_length=63, description="The run"), _edge.Typed()],
    step: Annotated[int, Field(ge=0, description="The step it was saved at")],
    name: Annotated[
        str,
        Field(max_length=255, pattern=_NAME, description="The checkpoint's name in the run's directory, never a path"),
        _edge.Typed(),
    ],
    node: Annotated[str | None, Field(max_length=63, description="The node it was saved on"), _edge.Typed()] = None,
) -> dict[str, Any]:
    """Commits one checkpoint. Committing it again is a no-op.

    Args:
        run: The run
        step: The step it was saved at
        name: The checkpoint's name in the run's directory, never a path
        node: The node it was saved on
    """
    done: Committed = seal_and_record(run, step, name, node)
    return {"record": done.record.id, "run": done.record.run, "step": done.record.step, "new": done.new}
