"""Tend data versions: one pass over branches and pins, each on its own, and a note of what is wrong with them."""

from __future__ import annotations

from dataclasses import dataclass, field

from lakemark.errors import DataGone, LakemarkError, NotFound, StoreUnavailable
from lakemark.model.runs.data_looks import Pause, nodes_of, pause
from lakemark.ports import Site
from lakemark.services.data.note import keep_note, noted
from lakemark.services.data.observe import observe
from lakemark.services.data.pins import settle

_NEXT = "lakemark sweep looks again; `lakemark pins` lists all."


@dataclass(slots=True, kw_only=True)
class Tended:
    """said: what was done or seen, a sentence each. failed: (what, why) of what could not be looked after."""

    said: list[str] = field(default_factory=list)
    failed: list[tuple[str, LakemarkError]] = field(default_factory=list)


def tend_data(site: Site) -> Tended:
    """Observes branches and settles pins. Raises nothing for what a single one of them can't have: it is in `failed`."""
    before = noted(site)
    looked = observe(site)
    kept = settle(site, proven=before.proven)
    result = Tended(said=[*looked.said, *kept.said], failed=[*looked.failed, *kept.failed])
    # Guards read whole at a head need no reading again while the head stays: the next look asks for less.
    proven = {name: seen.head for name, seen in kept.seen.items() if seen.head is not None and seen.guarded}
    wrong = [(what, str(error), _advice(error)) for what, error in result.failed]
    keep_note(site, wrong, proven=proven, before=before)
    return result


def data_pause(site: Site, *, wrong: bool, turn: int) -> Pause:
    """As `model.data_looks.pause`, of this node among those that the ledger knows."""
    state = site.ledger.site()
    tiers = {name: seen.retired for name, seen in state.tiers.items()}
    return pause(site.node, nodes=nodes_of(tiers, retired_nodes=state.retired_nodes), wrong=wrong, turn=turn)


def _advice(error: LakemarkError) -> str:
    if isinstance(error, DataGone | NotFound):
        return "Bring the data back; a run goes on with what there is by: lakemark run open RUN --repin"
    if isinstance(error, StoreUnavailable):
        return "Start it: commits go on, and catch up by the next sweep."
    return f"{error.advice} {_NEXT}"
