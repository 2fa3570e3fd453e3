"""Make a node's run directory ready to train on."""

from __future__ import annotations

from typing import Annotated, Any

from prefect import flow
from pydantic import BaseModel, ConfigDict, Field

from flows import _edge
from lakemark.model.checkpoint import Role
from lakemark.services.resume import Resumed
from lakemark.services.resume import resume as resume_run


class Job(BaseModel):
    """Which run, on which node. The directory is the one registered for the run there."""

    model_config = ConfigDict(extra="forbid")
    run: str = Field(max_length=63, description="The run")
    job: str = Field(min_length=1, max_length=200, description="The scheduler's job id: the same job decides the same")
    node: str | None = Field(default=None, max_length=63, description="The node")
    without: list[Role] = Field(
        default=[], max_length=len(Role), description="Roles that may be missing, such as rng for torchtitan"
    )
    without_step: list[Annotated[int, Field(ge=0)]] = Field(
        default=[],
        max_length=100,
        description="Steps of whole saves that could not be committed, to go on without them",
    )


@_edge.step
def prepare(asked: Job) -> Resumed:
    """Resumes into the directory registered for the run on this node."""
    here = _edge.site()
    _edge.require_node(here, asked.node)
    directory = _edge.registered(here, asked.run)
    return resume_run(
        here, asked.run, to=directory, job=asked.job, without=asked.without, without_steps=asked.without_step
    )


@flow(name="resume", log_prints=False, persist_result=False, result_serializer="json")
def resume(asked: Job) -> dict[str, Any]:
    """The newest resumable record of the current timeline; later steps are moved aside, never deleted."""
    done: Resumed = prepare(asked)
    return {
        "record": done.found.record.id,
        "step": done.found.record.step,
        "timeline": done.timeline,
        "path": str(done.path),
        "moved_aside": [str(path) for path in done.moved_aside],
        "accepted_gaps": list(done.accepted),
        "passed_over": [one.record.id for one in done.passed_over],
    }
