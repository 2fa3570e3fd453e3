"""Read replicas back and compare every byte with the manifest."""

from __future__ import annotations

from typing import Any

from prefect import flow

from flows import _edge
from lakemark.errors import Corrupt
from lakemark.services.tiers.verify import Verified, verify as verify_records


@_edge.step
def read_back(run: str, tier: str | None, node: str | None) -> Verified:
    """Reads every reachable replica of a run back, and records what was seen."""
    here = _edge.site(background=True)
    _edge.require_node(here, node)
    records = [found for found in here.ledger.run(run).records.values() if found.pruned is None]
    return verify_records(here, records, tier=tier)


@flow(name="verify", log_prints=False, persist_result=False, result_serializer="json")
def verify(
    run: str | None = None, tier: str | None = None, node: str | None = None, stale_after_minutes: int | None = None
) -> dict[str, Any]:
    """Fails (Corrupt) where a replica is damaged, after recording which; one out of reach is listed, not failed."""
    if _edge.late(stale_after_minutes):
        return {"late": True}
    runs = [run] if run else list(_edge.site().ledger.runs())
    looks = [look for name in runs for look in read_back(name, tier, node).looks]
    rows = [
        {"run": look.run, "step": look.step, "tier": look.place.tier, "ok": look.ok, "why": str(look.error or "")}
        for look in looks
    ]
    _edge.table("verify", rows, description="Replicas read back")
    damaged = [look for look in looks if look.damages]
    if damaged:
        first = damaged[0]
        raise Corrupt(
            f"{len(damaged)} replica(s) are damaged, among them {first.run}@{first.step} in {first.place.tier}",
            advice="The next demotion makes them again from a sound replica; see `lakemark verify`.",
        )
    return {"checked": len(looks), "ok": sum(look.ok for look in looks)}
