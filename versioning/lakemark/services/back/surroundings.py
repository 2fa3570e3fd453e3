"""What a rollback's briefing rests on beside ledger and plan, read off the site."""

from __future__ import annotations

from lakemark.model.back.briefing import Surroundings
from lakemark.ports import Site


def around(site: Site, run: str) -> Surroundings:
    """For the run's rollbacks, as seen from this node now."""
    approval = site.policies.approval
    return Surroundings(
        now=site.now(),
        approval_required=approval.required,
        alone_after=approval.alone_after,
        restore_root=site.restore_root,
        directory=site.ledger.run(run).watch.get(site.node),
    )
