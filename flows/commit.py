"""Commit saves on request: an API call or an event names the run; the directory is the one registered for it."""

from __future__ import annotations

from typing import Any, Final

from prefect import flow
from pydantic import BaseModel, ConfigDict, Field

from flows import _edge
from lakemark.services.commit import Commit, Committed
from lakemark.services.commit import commit as commit_checkpoint

# One name, neither . nor ..
_NAME: Final = r"^([^/\x00.]|\.[^/\x00.]|\.\.[^/\x00])[^/\x00]*$"


class Save(BaseModel):
    """Which save: `name` is the checkpoint's name inside the run's registered directory, never a path."""

    model_config = ConfigDict(extra="forbid")
    run: str = Field(max_length=63, description="The run")
    step: int = Field(ge=0, description="The step it was saved at")
    name: str = Field(max_length=255, pattern=_NAME, description="The checkpoint's name in the run's directory")
    node: str | None = Field(default=None, max_length=63, description="The node it was saved on")


@_edge.step
def seal_and_record(save: Save) -> Committed:
    """Seals the save in hot and appends its entry."""
    here = _edge.site()
    _edge.require_node(here, save.node)
    directory = _edge.registered(here, save.run)
    asked = Commit(path=directory / save.name, run=save.run, step=save.step, directory=directory)
    return commit_checkpoint(here, asked)


@flow(name="commit", log_prints=False, persist_result=False, result_serializer="json")
def commit(save: Save) -> dict[str, Any]:
    """Commits one checkpoint. Committing it again is a no-op."""
    done: Committed = seal_and_record(save)
    return {"record": done.record.id, "run": done.record.run, "step": done.record.step, "new": done.new}
