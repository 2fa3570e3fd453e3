"""Restore a checkpoint below `restore_root`, by id."""

from __future__ import annotations

from typing import Annotated, Any

from prefect import flow
from pydantic import Field

from flows import _edge
from lakemark.services.back.restore import RestoredRecord, restore as restore_record


@_edge.step
def fetch(run: str, record: str, name: str, *, tier: str | None, node: str | None) -> RestoredRecord:
    """Restores into restore_root, which is created if need be."""
    here = _edge.site()
    _edge.require_node(here, node)
    return restore_record(here, run, record, to=here.restore_root / name, tier=tier)


@flow(
    name="restore",
    flow_run_name="restore-{run}-{name}",
    log_prints=False,
    persist_result=False,
    result_serializer="json",
)
def restore(
    *,
    run: Annotated[str, Field(min_length=1, max_length=63, description="The run"), _edge.Typed()],
    record: Annotated[str, Field(pattern="^[0-9a-f]{64}$", description="The record's id, all 64 digits")],
    name: Annotated[
        str,
        Field(max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="Folder under restore_root"),
        _edge.Typed(),
    ],
    tier: Annotated[str | None, Field(max_length=63, description="From this tier only"), _edge.Typed()] = None,
    node: Annotated[str | None, Field(max_length=63, description="The node to restore on"), _edge.Typed()] = None,
) -> dict[str, Any]:
    """Every byte is compared with the manifest; each file comes from the nearest replica that has it right.

    Args:
        run: The run
        record: The record's id, all 64 digits
        name: Folder under restore_root
        tier: From this tier only
        node: The node to restore on
    """
    done: RestoredRecord = fetch(run, record, name, tier=tier, node=node)
    sources = [{"from": place, "files": count} for place, count in done.restored.files_by_place.items()]
    _edge.table("restore-sources", sources, description=f"{run}@{done.found.record.step} → {done.restored.path}")
    return {"record": record, "path": str(done.restored.path), "sources": sources, "verified": done.verified}
