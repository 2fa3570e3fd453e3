"""Restore a checkpoint below `restore_root`, by id."""

from __future__ import annotations

from typing import Any

from prefect import flow
from pydantic import BaseModel, ConfigDict, Field

from flows import _edge
from lakemark.services.restore import RestoredRecord
from lakemark.services.restore import restore as restore_record


class Wanted(BaseModel):
    """Which record, and the name of the folder under `restore_root` it goes to."""

    model_config = ConfigDict(extra="forbid")
    run: str = Field(max_length=63, description="The run")
    record: str = Field(pattern="^[0-9a-f]{64}$", description="The record's id, all 64 digits")
    name: str = Field(max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="Folder under restore_root")
    tier: str | None = Field(default=None, max_length=63, description="From this tier only")
    node: str | None = Field(default=None, max_length=63, description="The node to restore on")


@_edge.step
def fetch(wanted: Wanted) -> RestoredRecord:
    """Restores into restore_root, which is created if need be."""
    here = _edge.site()
    _edge.require_node(here, wanted.node)
    return restore_record(here, wanted.run, wanted.record, to=here.restore_root / wanted.name, tier=wanted.tier)


@flow(name="restore", log_prints=False, persist_result=False, result_serializer="json")
def restore(wanted: Wanted) -> dict[str, Any]:
    """Every byte is compared with the manifest; each file comes from the nearest replica that has it right."""
    done: RestoredRecord = fetch(wanted)
    sources = [{"from": place, "files": count} for place, count in done.restored.files_by_place.items()]
    _edge.table("restore-sources", sources, description=f"{wanted.run}@{done.found.record.step} → {done.restored.path}")
    return {"record": wanted.record, "path": str(done.restored.path), "sources": sources, "verified": done.verified}
