"""Tend data versions: one pass over branches and pins, each on its own, and a note of what is wrong with them."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field

from lakemark.errors import DataGone, LakemarkError, NotFound, StoreUnavailable
from lakemark.model.runs.data_looks import Pause, nodes_of, pause
from lakemark.ports import Patience, Site
from lakemark.services.data.note import DataWrong, keep_note, noted
from lakemark.services.data.observe import observe
from lakemark.services.data.pins import settle, versions

_NEXT = "lakemark sweep looks again; `lakemark pins` lists all."


@dataclass(slots=True, kw_only=True)
class Tended:
    """said: what was done or seen, a sentence each. failed: (what, why) of what could not be looked after."""

    said: list[str] = field(default_factory=list)
    failed: list[tuple[str, LakemarkError]] = field(default_factory=list)


def tend_data(site: Site, patience: Patience | None = None) -> Tended:
    """Observes branches and settles pins. Raises nothing for what a single one of them can't have: it is in `failed`."""
    before = noted(site)
    # Where nothing was ever pinned nothing is asked, and no client made, which takes keys that may be missing.
    asks = bool(site.ledger.site().pins)
    patience = patience or Patience()
    # Half of it at most: however many branches there are, pins, which keep data alive, get their turn.
    half = Patience(patience.left_seconds / 2)
    with versions(site).patient(half) if asks else nullcontext():
        looked = observe(site)
    patience.left_seconds += half.left_seconds - patience.left_seconds / 2
    with versions(site).patient(patience) if asks else nullcontext():
        kept = settle(site, proven=before.proven)
    result = Tended(said=[*looked.said, *kept.said], failed=[*looked.failed, *kept.failed])
    # Guards read whole at a head need no reading again while the head stays: the next look asks for less. What was not
    # seen this time was read all the same: else a slow server would be asked for the same guards at each pass.
    standing = {pin.branch for pin in site.ledger.site().pins.values() if pin.state == "pinned"}
    proven = {name: head for name, head in before.proven.items() if name in standing and name not in kept.seen}
    proven |= {name: seen.head for name, seen in kept.seen.items() if seen.head is not None and seen.guarded}
    wrong = [_wrong(site, what, error) for what, error in result.failed]
    if any(one.unknown for one in wrong):
        # A server that does not answer takes nothing back of what was found wrong while it did.
        told = looked.judged | kept.judged | {one.what for one in wrong if not one.unknown}
        kept_wrong = {one.what: one for one in before.wrong if not one.unknown and one.what not in told}
        wrong = [one for one in wrong if one.what not in kept_wrong] + list(kept_wrong.values())
    keep_note(site, wrong, proven=proven, before=before)
    return result


def _wrong(site: Site, what: str, error: LakemarkError) -> DataWrong:
    unknown = isinstance(error, StoreUnavailable)
    return DataWrong(what=what, why=str(error), next=_advice(error), since=site.now(), unknown=unknown)


def data_pause(site: Site, *, wrong: bool, turn: int) -> Pause:
    """As `model.data_looks.pause`, of this node among those that the ledger knows."""
    state = site.ledger.site()
    tiers = {name: seen.retired for name, seen in state.tiers.items()}
    return pause(site.node, nodes=nodes_of(tiers, retired_nodes=state.retired_nodes), wrong=wrong, turn=turn)


def _advice(error: LakemarkError) -> str:
    if isinstance(error, DataGone | NotFound):
        return "Bring the data back; a run goes on with what there is by: lakemark run open RUN --repin"
    if isinstance(error, StoreUnavailable):
        return f"{error.advice} Commits go on, and catch up by the next sweep."
    return f"{error.advice} {_NEXT}"
