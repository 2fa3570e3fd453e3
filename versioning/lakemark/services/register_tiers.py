"""Register tiers: claim the places a configuration names, and record their identities on the site's branch."""

from __future__ import annotations

from lakemark.errors import LakemarkError, Refused
from lakemark.model.entry import Draft
from lakemark.model.site_ledger import SiteState
from lakemark.ports import CheckpointStore, Identity, Site
from lakemark.services.appending import Settled, require_writable, tier_key


def register_tier(site: Site, store: CheckpointStore) -> Identity:
    """Claims the store's place for this ledger if nobody has, and records it. The same again changes nothing.

    Raises Refused: the place is another ledger's, is not empty, or is not the one the ledger knows under this name.
    """
    name = tier_key(site, store)
    known = site.ledger.site().tiers.get(name)
    if known is not None and not known.retired:
        found = store.identity()
        if found is None or found.id != known.id:
            shown = f"is tier {found.id[:8]}" if found else "has no identity file"
            raise Refused(
                f"the place of the tier {store.name} {shown}; the ledger knows it as {known.id[:8]}",
                advice="Mount the right disk, or give the new place another tier's name in lakemark.yaml.",
            )
        return found
    identity = store.claim(site.ledger.id, now=site.now())

    def decide(state: SiteState) -> Draft:
        require_writable(state)
        now = state.tiers.get(name)
        if now is not None and not now.retired:
            raise Settled(None)
        body = {
            "tier": name,
            "id": identity.id,
            "class": store.tier_class,
            "tier_kind": store.kind,
            "domain": store.domain,
        }
        return Draft(kind="tier_registered", body=body)

    try:
        site.ledger.append_site(decide, site.stamp(f"tier:{name}:{identity.id}:{site.ledger.site().sequence}"))
    except Settled:
        return register_tier(site, store)
    return identity


def register_all(site: Site) -> dict[str, Identity | LakemarkError]:
    """Every tier of the site; for each what it is, or the error that kept it out."""
    result: dict[str, Identity | LakemarkError] = {}
    for name, store in site.tiers.items():
        try:
            result[name] = register_tier(site, store)
        except LakemarkError as error:
            result[name] = error
    return result
