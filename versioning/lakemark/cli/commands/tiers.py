"""`tiers`, `tier init`, `tier rename`, `node rename`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lakemark.cli.output import short, size, table
from lakemark.cli.rehearsing import rehearsed
from lakemark.cli.session import Answer, Session, session, would
from lakemark.errors import LakemarkError, Misconfigured, StoreUnavailable
from lakemark.model.ledger.entry import SITE, Entry
from lakemark.model.ledger.site import SiteState
from lakemark.model.values.instants import duration_text

if TYPE_CHECKING:
    from lakemark.ports import Site, TierPlace


def tiers(*, explain: bool = False) -> Answer:
    """List tiers: what each is, whether it is the one the ledger knows, what lies in it.

    Parameters
    ----------
    explain: bool
        Also say what each tier's durability rests on, and its residence.
    """
    here = session()
    counts = _counts(here)
    rows = [_row(here, name, store, counts) for name, store in here.site.tiers.items()]
    shown = [
        (
            row["name"],
            row["class"],
            row["kind"],
            short(row["id"]),
            row["state"],
            row["domain"],
            size(row["used_bytes"]),
            size(row["capacity_bytes"]),
            row["records"],
        )
        for row in rows
    ]
    heads = ("tier", "class", "kind", "id", "state", "domain", "used", "capacity", "records")
    lines = table(heads, shown)
    if explain:
        lines += ["", *(f"{row['name']}: {row['durability']}; {_residence(here, row['name'])}" for row in rows)]
    away = any(row["state"] == "away" for row in rows)
    return Answer(document={"tiers": rows}, lines=lines, exit_code=StoreUnavailable.exit_code if away else 0)


def init_tier(name: str, /, *, dry_run: bool = False) -> Answer:
    """Make the place that lakemark.yaml names a tier of this ledger, and record its identity.

    An empty place is claimed; one of another ledger, or one with other things in it, is Refused.

    Parameters
    ----------
    name: str
        The tier.
    dry_run: bool
        Say what would be done, and change nothing.
    """
    from lakemark.services.tiers.register import register_tier, registrable

    here = session()
    store = here.site.store(name)
    if dry_run:
        found, known = registrable(here.site, store)
        said = f"record the tier {name}, which is {short(found.id)}" if found else f"claim the place of {name}"
        return would("change nothing: it is registered" if known else said, tier=name, id=found.id if found else None)
    register_tier(here.site, store)
    row = _row(here, name, store, _counts(here))
    return Answer(document={"tiers": [row]}, lines=[f"{name} is tier {row['id']}, {row['state']}"])


def rename_tier(old: str, new: str, /, *, dry_run: bool = False) -> Answer:
    """Say that a tier is called otherwise on purpose: rename it in lakemark.yaml first, then give this command.

    Its replicas stay where they are and follow the name. Safe to repeat.

    Parameters
    ----------
    old: str
        What the ledger calls it.
    new: str
        What lakemark.yaml calls it now.
    dry_run: bool
        Say what would be done, and change nothing.
    """
    from lakemark.services.tiers.rename import rename_tier as rename

    here = session()
    configured(here, new)
    if dry_run:
        return _would_rename(here, lambda site: rename(site, old, new), f"call the tier {old} {new}", old, tier=new)
    followed = rename(here.site, old, new)
    row = _row(here, new, here.site.tiers[new], _counts(here))
    return Answer(
        document={"tiers": [row], "runs": followed},
        lines=[f"the tier {old} is called {new}; the replicas of {len(followed)} run(s) followed"],
    )


def rename_node(old: str, new: str, /, *, dry_run: bool = False) -> Answer:
    """Say that this node is called otherwise on purpose: set `node:` or $LAKEMARK_NODE first, then give this command on it.

    The replicas in its hot follow the name. Safe to repeat.

    Parameters
    ----------
    old: str
        What the ledger calls it.
    new: str
        What it is called now.
    dry_run: bool
        Say what would be done, and change nothing.
    """
    from lakemark.services.tiers.rename import rename_node as rename

    here = session()
    if dry_run:
        return _would_rename(here, lambda site: rename(site, old, new), f"call the node {old} {new}", old, node=new)
    followed = rename(here.site, old, new)
    return Answer(
        document={"node": new, "runs": followed},
        lines=[f"the node {old} is called {new}; the replicas of {len(followed)} run(s) followed"],
    )


def _would_rename(here: Session, do: Callable[[Site], object], said: str, old: str, **named: str) -> Answer:
    """The site's entry says it; a run's, also of an earlier rename that did not reach every run, that its replicas follow."""

    def told(entry: Entry) -> str:
        return f"{said} from now on" if entry.branch == SITE else f"let the replicas of {entry.branch} follow"

    (new,) = named.values()
    otherwise = f"{old} is called {new}, and the replicas of all runs followed"
    return rehearsed(here, do, dict.fromkeys(("tier_renamed", "node_renamed"), told), otherwise=otherwise, **named)


def configured(here: Session, name: str) -> TierPlace:
    """The store of a tier that lakemark.yaml names. Raises Misconfigured."""
    if name not in here.site.tiers:
        known = ", ".join(here.site.tiers)
        raise Misconfigured(f"lakemark.yaml has no tier {name!r}; it has {known}", advice="See `lakemark tiers`.")
    return here.site.tiers[name]


def state_of(site: SiteState, key: str, store: TierPlace) -> tuple[str, str | None]:
    """In a word what a tier's place is, and its id as far as that is known."""
    seen = site.tiers.get(key)
    try:
        found = store.identity()
    except LakemarkError as error:
        return f"away: {error}", seen.id if seen else None
    if seen is None:
        return ("not registered", found.id) if found else ("not claimed", None)
    # Before what lies there: a retired name has no place, whatever was put there since.
    if seen.retired:
        return "retired", seen.id
    if found is None:
        return "absent: no identity file", seen.id
    return ("present", found.id) if found.id == seen.id else (f"another tier: {short(found.id)}", seen.id)


def _row(here: Session, name: str, store: TierPlace, counts: dict[str, int]) -> dict[str, Any]:
    from lakemark.services.ledger import tier_key

    told, identity = state_of(here.site.ledger.site(), tier_key(here.site, store), store)
    # The word is for programs, what follows for people.
    state, _, why = told.partition(": ")
    if why:
        here.note(f"{name} is {told}")
    used: int | None = None
    capacity = here.settings.tiers[name].capacity
    if state == "present":
        try:
            usage = store.usage()
        except LakemarkError as error:
            here.note(f"{name}: {error}")
        else:
            used, capacity = usage.used_bytes, capacity if capacity is not None else usage.capacity_bytes
    return {
        "name": name,
        "class": store.tier_class,
        "kind": store.kind,
        "id": identity,
        "state": state,
        "detail": why or None,
        "domain": store.domain,
        "used_bytes": used,
        "capacity_bytes": capacity,
        "records": counts.get(name, 0),
        "durability": _durability(store),
    }


def _counts(here: Session) -> dict[str, int]:
    counts: dict[str, int] = {}
    for run in here.site.ledger.runs():
        for found in here.site.ledger.run(run).records.values():
            for place in found.replicas:
                # hot of another node is another place, although its tier has the same name.
                if place.node in (None, here.site.node):
                    counts[place.tier] = counts.get(place.tier, 0) + 1
    return counts


def _durability(store: TierPlace) -> str:
    place = {
        "tree": "files on this node's own disk, fsynced; gone with the node",
        "directory": "objects in a directory, fsynced; as durable as its file system",
        "s3": "objects in an S3 store, read back after writing; as durable as the store",
    }
    return f"{place.get(store.kind, store.kind)}; failure domain {store.domain}"


def _residence(here: Session, name: str) -> str:
    rules = here.site.policies.residence.get(name)
    if rules is None or (rules.keep_last is None and rules.keep_for is None):
        return "what comes here stays until retention takes it"
    parts = [f"the {rules.keep_last} newest stay"] if rules.keep_last is not None else []
    parts += [f"younger than {duration_text(rules.keep_for)} stays"] if rules.keep_for is not None else []
    return f"{', '.join(parts)}; a slower replica must have settled for {duration_text(rules.settle)}"
