"""Keeping data commits alive: a pin is recorded before it is made, and forgotten before it is unmade."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from contextlib import suppress

from lakemark.errors import Conflict, LakemarkError, Misconfigured, Refused
from lakemark.model.entry import Draft
from lakemark.model.record import DataKind, DataRef
from lakemark.model.site_ledger import Pin, SiteState
from lakemark.ports import DataVersions, MadePin, Site, Strength
from lakemark.services.appending import Settled, require_deletable

_ORDER = (Strength.NONE, Strength.PLAIN, Strength.GUARDED)


def versions(site: Site) -> DataVersions:
    """The site's data versions. Raises Misconfigured where it has none."""
    if site.data is None:
        raise Misconfigured(
            "this site has no data versioning (`data: none` in lakemark.yaml)",
            advice="Name a lakeFS endpoint under `data:`, or leave --data out.",
        )
    return site.data


def keep(site: Site, repository: str, commit: str, *, run: str | None) -> MadePin:
    """Pins `commit`: entry first, then the branch. The same commit again is the same pin.

    Raises Refused where the pin came out weaker than the site's `require_pin`.
    """
    data = versions(site)
    pin = _wanted(site, repository, commit, run=run)
    site.progress.step("pin.recorded")
    made = data.pin(repository, commit, branch=pin.branch, nonce=pin.nonce)
    site.progress.step("pin.made")
    if _ORDER.index(made.strength) < _ORDER.index(site.policies.require_pin):
        raise Refused(
            f"the pin of {repository}@{commit[:12]} is only {made.strength}: {made.why_plain or 'no reason given'}",
            advice=f"Allow the guard in that repository, or set data.require_pin: {made.strength}",
        )
    return made


def needed(site: Site) -> dict[tuple[str, str], list[str]]:
    """(repository, commit) -> who needs it: runs not closed, unpruned records, open rollbacks."""
    found: dict[tuple[str, str], list[str]] = {}
    for run in site.ledger.runs():
        state = site.ledger.run(run)
        if not state.closed:
            for number in sorted(state.timelines):
                latest = [interval for interval in state.intervals if interval.timeline == number][-1:]
                _note(found, [ref for interval in latest for ref in interval.data], f"run {run}")
        for record in state.records.values():
            if record.pruned is None:
                _note(found, record.record.data, f"record {record.record.id[:12]}")
        for rollback in state.rollbacks.values():
            if rollback.open:
                _note(found, _planned(rollback.plan), f"rollback {rollback.id}")
    return found


def settle(site: Site) -> list[str]:
    """One pass over the pins: makes recorded ones that are missing, starts and ends the grace of those nobody needs.

    Answers what it did, a sentence each. Raises Refused where a newer version forbids unpinning.
    """
    data = versions(site)
    wanted = needed(site)
    done: list[str] = []
    for pin in list(site.ledger.site().pins.values()):
        key = (pin.repository, pin.commit)
        shown = f"{pin.repository}@{pin.commit[:12]}"
        if pin.state == "unpinned":
            _remove(site, data, pin)
        elif key in wanted:
            if pin.state == "unpinning":
                keep(site, *key, run=pin.run)
                done.append(f"kept {shown}: needed again by {wanted[key][0]}")
            elif data.pin_strength(pin.repository, pin.commit, branch=pin.branch) is Strength.NONE:
                done.append(f"{_mend(site, pin)} the pin of {shown}")
        elif pin.state == "pinned" and _append(site, "unpinning", pin, reason="nothing needs it"):
            done.append(f"started the grace of {shown}: nothing needs it")
        elif pin.state == "unpinning" and site.now() - pin.changed_at >= site.policies.grace:
            done.extend(_unpin(site, data, pin, shown))
    return done


def _wanted(site: Site, repository: str, commit: str, *, run: str | None) -> Pin:
    nonce = secrets.token_hex(8)
    fresh = f"pin-{commit[:12]}-{nonce}"

    def decide(state: SiteState) -> Draft:
        standing = state.pin_of(repository, commit)
        if standing is not None and standing.state == "pinned":
            raise Settled(standing)
        branch = standing.branch if standing else fresh
        body = {"repository": repository, "commit": commit, "pin": branch, "run": run}
        return Draft(kind="pinned", body=body | {"nonce": standing.nonce if standing else nonce})

    try:
        entry = site.ledger.append_site(decide, site.stamp(f"pinned:{fresh}"))
    except Settled as settled:
        answer: Pin = settled.answer
        return answer
    return site.ledger.site().pins[str(entry.body["pin"])]


def _mend(site: Site, pin: Pin) -> str:
    """Makes a missing pin again; one whose branch was moved (a merge into it does that) is given up for a new one."""
    try:
        keep(site, pin.repository, pin.commit, run=pin.run)
    except Conflict:
        _append(site, "unpinned", pin, reason="its branch was moved: it keeps another commit now")
        keep(site, pin.repository, pin.commit, run=pin.run)
        return "replaced"
    return "made again"


def _unpin(site: Site, data: DataVersions, pin: Pin, shown: str) -> list[str]:
    if not _append(site, "unpinned", pin, reason=f"nothing needed it for {site.policies.grace}"):
        return []
    site.progress.step("pin.forgotten")
    _remove(site, data, pin)
    return [f"unpinned {shown}"]


def _append(site: Site, kind: str, pin: Pin, *, reason: str) -> bool:
    """False where the pin changed since it was looked at: somebody needs it again."""

    def decide(state: SiteState) -> Draft:
        require_deletable(state)
        now = state.pins[pin.branch]
        if (now.state, now.changed_at) != (pin.state, pin.changed_at):
            raise Settled(now)
        body = {"repository": pin.repository, "commit": pin.commit, "pin": pin.branch}
        return Draft(kind=kind, body=body, reason=reason)

    try:
        sequence = site.ledger.site().sequence
        site.ledger.append_site(decide, site.stamp(f"{kind}:{pin.branch}:{site.node}:{sequence}"))
    except Settled:
        return False
    return True


def _remove(site: Site, data: DataVersions, pin: Pin) -> None:
    """Once `unpinned` is recorded, whoever comes by takes the branch away."""
    key = f"unpinned:{pin.branch}"
    if site.journal.last_looked(key) is None:
        with suppress(Conflict):  # the branch is somebody else's by now: it stays
            data.unpin(
                pin.repository, pin.commit, branch=pin.branch, nonce=pin.nonce, reason="no record or run needs it"
            )
        site.journal.looked(key, at=site.now())


def _note(found: dict[tuple[str, str], list[str]], refs: Iterable[DataRef], who: str) -> None:
    for ref in refs:
        if ref.kind == DataKind.LAKEFS:
            users = found.setdefault((ref.repository, ref.commit), [])
            if who not in users:
                users.append(who)


def _planned(plan: object) -> list[DataRef]:
    rows = plan.get("data", ()) if isinstance(plan, dict) else ()
    found: list[DataRef] = []
    for row in rows if isinstance(rows, list | tuple) else ():
        try:
            found.append(DataRef(repository=str(row["repository"]), commit=str(row["commit"])))
        except (LakemarkError, ValueError, KeyError, TypeError):
            continue
    return found
