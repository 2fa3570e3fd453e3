"""Make a node's run directory ready to train on."""

from __future__ import annotations

from typing import Annotated, Any

from prefect import flow
from pydantic import Field

from flows import _edge
from lakemark.model.checkpoints.manifest import Role
from lakemark.services.back.resume import Resumed, resume as resume_run


@_edge.step
def prepare(run: str, job: str, *, node: str | None, without: list[Role], without_step: list[int]) -> Resumed:
    """Resumes into the directory registered for the run on this node."""
    here = _edge.site()
    _edge.require_node(here, node)
    directory = _edge.registered(here, run)
    return resume_run(here, run, to=directory, job=job, without=without, without_steps=without_step)


@flow(
    name="resume", flow_run_name="resume-{run}-{job}", log_prints=False, persist_result=False, result_serializer="json"
)
def resume(
    *,
    run: Annotated[str, Field(min_length=1, max_length=63, description="The run"), _edge.Typed()],
    job: Annotated[
        str,
        Field(min_length=1, max_length=200, description="The scheduler's job id: the same job decides the same"),
        _edge.Typed(),
    ],
    node: Annotated[str | None, Field(max_length=63, description="The node"), _edge.Typed()] = None,
    without: Annotated[
        list[Role] | None,
        Field(max_length=len(Role), description="Roles that may be missing, such as rng for torchtitan"),
    ] = None,
    without_step: Annotated[
        list[Annotated[int, Field(ge=0)]] | None,
        Field(max_length=100, description="Steps of whole saves that could not be committed, to go on without them"),
    ] = None,
) -> dict[str, Any]:
    """The newest resumable record of the current timeline; later steps are moved aside, never deleted.

    Args:
        run: The run
        job: The scheduler's job id: the same job decides the same
        node: The node
        without: Roles that may be missing, such as rng for torchtitan
        without_step: Steps of whole saves that could not be committed, to go on without them
    """
    done: Resumed = prepare(run, job, node=node, without=without or [], without_step=without_step or [])
    return {
        "record": done.found.record.id,
        "step": done.found.record.step,
        "timeline": done.timeline,
        "path": str(done.path),
        "moved_aside": [str(path) for path in done.moved_aside],
        "accepted_gaps": list(done.accepted),
        "passed_over": [
            {"record": one.found.record.id, "step": one.found.record.step, "why": one.why} for one in done.passed_over
        ],
    }
