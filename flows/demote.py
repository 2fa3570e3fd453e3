"""Hot to warm to cold, and releases, as residence says."""

from __future__ import annotations

from typing import Any

from prefect import flow, get_run_logger

from flows import _edge
from lakemark.services.node.duties import collect
from lakemark.services.node.swept import Swept
from lakemark.services.tiers.demote import Demoted, demote as demote_run


@_edge.step
def move(run: str, node: str | None) -> Demoted:
    """One pass over the replicas of one run."""
    here = _edge.site(background=True)
    _edge.require_node(here, node)
    return demote_run(here, run)


@_edge.step
def collect_condemned(node: str | None) -> Swept:
    """Removes what nothing claims any more, after the grace."""
    here = _edge.site(background=True)
    _edge.require_node(here, node)
    swept = Swept()
    collect(here, swept)
    return swept


@flow(name="demote", log_prints=False, persist_result=False, result_serializer="json")
def demote(run: str | None = None, node: str | None = None, stale_after_minutes: int | None = None) -> dict[str, Any]:
    """Moves the replicas of `run`, or of every run, as far as they are due."""
    logger = get_run_logger()
    if _edge.late(stale_after_minutes):
        logger.info("scheduled too long ago: a newer run does this")
        return {"late": True}
    runs = [run] if run else list(_edge.site().ledger.runs())
    result: dict[str, Any] = {"replicated": [], "released": [], "pending": []}
    for name in runs:
        done: Demoted = move(name, node)
        result["replicated"] += [{"record": one.record, "tier": one.tier, "why": one.why} for one in done.replicated]
        result["released"] += [
            {"record": one.record, "tier": one.place.tier, "survivor": one.survivor.tier, "why": one.why}
            for one in done.released
        ]
        result["pending"] += [{"what": one.what, "why": one.why} for one in done.pending]
        for identity in done.thinned:
            logger.warning(
                "dropped the last copy of %s: hot is below min_free and retention would not keep it", identity
            )
    collected: Swept = collect_condemned(node)
    for said in collected.said:
        logger.info(said)
    result["pending"] += [{"what": one.what, "why": one.why} for one in collected.pending]
    _edge.table("demote-moves", result["replicated"] + result["released"], description="Replicas added and released")
    return result
