"""Request a rollback: decide what it would go back to and give up, and put that plan before people."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import sha256

from lakemark.errors import DataGone, LakemarkError, NotFound, Refused
from lakemark.model.back.rollback import moved, plan_rollback
from lakemark.model.back.rollback_plan import Flags, PlanData, RollbackPlan
from lakemark.model.checkpoints.record import DataKind
from lakemark.model.entries.rollbacks import ROLLBACK_REQUESTED, RollbackRequestedBody
from lakemark.model.ledger.entry import Draft
from lakemark.model.ledger.run import RecordState, RollbackState, RunState
from lakemark.model.runs.activity import still_writing
from lakemark.model.values.canonical import JSON, canonical
from lakemark.model.values.instants import later
from lakemark.ports import Site
from lakemark.services.back.restore import fastest
from lakemark.services.data.pins import versions
from lakemark.services.ledger import checkpoint, opened, recorded, require_deletable, still

SAMPLED_OBJECTS = 8
_PROBE_BYTES = 32 * 2**20
_MODEL_ALONE = "this site versions no data: the model goes back alone, and what it reads stays as it is"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is asked for: `record` of `run` (resolved already), because of `reason`. at: the instant that was named.

    key: the same key is the same rollback, whatever became of it. flow_run: the Prefect run that waits for the decision.
    """

    run: str
    record: str
    reason: str
    requester: str
    at: datetime | None = None
    flags: Flags = field(default_factory=Flags)
    key: str | None = None
    flow_run: str | None = None


def plan(site: Site, wish: Wish, *, keep: bool = True) -> RollbackPlan:
    """The plan, kept as `plans/<digest>.json`; changes nothing else. keep=False: not even that.

    Raises NotFound, Refused (target unusable or unbound, its data can't be read, the run is being written),
    StoreUnavailable.
    """
    state = opened(site, wish.run)
    target = recorded(state, wish.record)
    now = site.now()
    wish = without_data(site, wish)
    made = plan_rollback(
        state,
        target,
        reason=wish.reason,
        requester=wish.requester,
        expires_at=later(now, site.policies.approval.expires_after),
        flags=wish.flags,
        at=wish.at,
        others=[site.ledger.run(run) for run in site.ledger.runs() if run != wish.run],
    )
    if site.data is None:
        made = made.advised(notes=[_MODEL_ALONE])
    made = _from_heads(site, made)
    # Before people are asked: an approval of what can't be done is worth nothing.
    sampled = require_holds(site, made)
    made = _advised(site, state, target, made, sampled=sampled)
    # By its digest: two plans never overwrite one another, and what was approved can be read later.
    if keep:
        site.notes.save(site.home / "plans" / f"{made.digest}.json", made.as_json())
    return made


def _from_heads(site: Site, made: RollbackPlan) -> RollbackPlan:
    """With `--move-branch`: each branch's head of now is part of the plan, and moving it from any other one is not.

    Raises Refused where a branch is gone, or the data was asked for by a tag or commit: there is nothing to move.
    """
    if not made.flags.move_branch:
        return made
    data = versions(site)
    items: list[PlanData] = []
    notes: list[str] = []
    for item in made.data:
        head = data.head(item.repository, item.branch) if item.branch else None
        if head is None:
            raise Refused(
                f"{item.repository} has no branch {item.branch or 'that this data came from'}: it can't be moved",
                advice="Leave --move-branch out: the data of that day is opened as a branch of its own all the same.",
            )
        diff = data.diff(item.repository, head, item.commit)
        more = "" if diff.complete else " or more"
        notes.append(
            f"{item.repository}/{item.branch} is at {head[:12]}; moved back, {diff.added} object(s) are added,"
            f" {diff.removed} removed, {diff.changed} changed{more}"
        )
        why = data.movable(item.repository, str(item.branch))
        notes.extend([f"{item.repository}/{item.branch} can't be moved as it is now: {why}"] if why else [])
        items.append(replace(item, moves_from=head))
    return replace(made, data=tuple(items)).advised(notes=notes)


def without_data(site: Site, wish: Wish) -> Wish:
    """Where the site versions no data, only the model can go back, and that is what is planned. Raises Refused for data."""
    if site.data is not None:
        return wish
    if wish.flags.data_only or wish.flags.move_branch:
        raise Refused(
            "this site versions no data (`data: none`): there is none to bring back, and no branch to move",
            advice="Leave --data-only and --move-branch out: the model goes back alone.",
        )
    return replace(wish, flags=replace(wish.flags, model_only=True))


def request(site: Site, wish: Wish) -> RollbackState:
    """Appends the request, with its plan. The same wish while one is open is that one. Raises as `plan` does."""
    wish = without_data(site, wish)
    identity = _identity(site.ledger.run(wish.run), wish)
    # Before planning, which reads data: a request is sent again where its answer was lost.
    now = site.now()
    standing = _same(site.ledger.run(wish.run), wish, identity, now=now)
    if standing is not None:
        return standing
    made = plan(site, wish)
    body = RollbackRequestedBody(
        rollback=identity,
        plan=made.as_json(),
        digest=made.digest,
        requester=wish.requester,
        expires_at=made.expires_at,
        flow_run=wish.flow_run,
    )

    def decide(state: RunState) -> Draft | None:
        require_deletable(state)
        # Two may ask for the same at once: they get one rollback.
        if _same(state, wish, identity, now=now) is not None:
            return None
        reasons = moved(made, state)
        if reasons:
            raise Refused(f"the run moved while the plan was made: {reasons[0]}", advice="Request it again.")
        return ROLLBACK_REQUESTED.draft(body, timeline=state.timeline, record=wish.record, reason=wish.reason)

    appended = site.ledger.append(wish.run, decide, site.stamp(f"rollback_requested:{identity}"))
    same = _same(appended.state, wish, identity, now=now)
    if appended.entry is None and same is not None:
        return same
    site.progress.step("rollback.requested")
    return still(appended.state.rollbacks, identity, what="rollback")


def identity_of(key: str) -> str:
    """The id of the rollback that is requested with `key`."""
    return "rb-" + sha256(key.encode()).hexdigest()[:10]


def find(site: Site, identity: str) -> tuple[str, RollbackState]:
    """(run, state) of a rollback id or of a plan digest (at least 8 digits of it). Raises NotFound."""
    text = identity.lower()
    for run in site.ledger.runs():
        for state in site.ledger.outline(run).rollbacks:
            if state.id == text or (len(text) >= 8 and state.digest.startswith(text)):  # noqa: PLR2004
                return run, state
    raise NotFound(f"there is no rollback {identity!r}", advice="lakemark rollback ls")


def require_holds(site: Site, made: RollbackPlan) -> list[str]:
    """Raises Refused where the plan does not hold: its run moved, its target or its data is lost, the run is being written.

    Answers of which of its data's objects bytes were read, in words.
    """
    state = site.ledger.run(made.run)
    lost, sampled = ([], []) if made.flags.model_only else unreadable(site, made)
    reasons = list(moved(made, state, data_gone=lost))
    writing = None if made.flags.while_running else still_writing(state, site.now())
    if writing is not None:
        reasons.append(f"the run seems to be written still: {writing}")
    if not reasons:
        return sampled
    if lost:
        advice = "Only the model can be brought back: add --model-only, and that will be recorded."
    elif writing is not None and len(reasons) == 1:
        advice = "Stop the trainer, then ask again with --while-running."
    elif any("nobody knows what data" in reason for reason in reasons):
        advice = f"lakemark bind {made.target.record[:12]} --data REPOSITORY/COMMIT --reason '…', or --model-only."
    else:
        advice = f"lakemark ls {made.run} --all-timelines shows other targets."
    raise Refused(f"{made.run} can't be rolled back to step {made.target.step}: {'; '.join(reasons)}", advice=advice)


def unreadable(site: Site, made: RollbackPlan) -> tuple[list[str], list[str]]:
    """The plan's data that can't be read any more, with the paths that are lost; and which objects were tried, in words.

    Bytes are read; nothing else proves it. Other objects each time: what one look passed over, the next one finds.
    """
    lost: list[str] = []
    sampled: list[str] = []
    for item in made.data:
        shown = f"{item.repository}@{item.commit[:12]}"
        try:
            found = versions(site).readable(
                item.repository, item.commit, sample=SAMPLED_OBJECTS, seed=secrets.randbits(32)
            )
        # Only these are statements about the data; a server that is away raises, and the plan waits for it.
        except (DataGone, NotFound) as error:
            lost.append(f"{shown} ({error})")
            continue
        sampled.append(f"of the data {shown} bytes were read: {found.said}")
        if found.lost:
            more = f" and {len(found.lost) - 3} more" if len(found.lost) > 3 else ""  # noqa: PLR2004
            lost.append(f"{shown} ({', '.join(found.lost[:3])}{more} collected; {found.said})")
    return lost, sampled


def _advised(
    site: Site, state: RunState, target: RecordState, made: RollbackPlan, *, sampled: list[str]
) -> RollbackPlan:
    place = fastest(site, target)
    notes = list(sampled)
    seconds: float | None = None
    if place is not None and not made.flags.data_only:
        rate = _rate(site, target, place.tier)
        seconds = round(max(made.size_bytes / rate, 0.1), 1) if rate else None
        notes.append(f"time estimated from reading {place.tier} just now" if rate else "how long it takes is not known")
    return made.advised(
        source_tier=place.tier if place else None,
        estimated_seconds=seconds,
        data_changes=_data_changes(site, state, made),
        notes=notes,
    )


def _rate(site: Site, target: RecordState, tier: str) -> float | None:
    """Bytes a second, measured on the beginning of the target's largest file."""
    store = site.tiers[tier]
    try:
        held = checkpoint(site, target, tier=None if store.place.node else tier)
        file = max(held.manifest.regular, key=lambda file: file.size_bytes)
        begun, read = site.seconds(), 0
        with store.open(held, file) as stream:
            while read < _PROBE_BYTES and (chunk := stream.read(2**20)):
                read += len(chunk)
        spent = site.seconds() - begun
    # An estimate is not worth failing for.
    except (LakemarkError, ValueError):
        return None
    return read / spent if spent > 0 and read else None


def _data_changes(site: Site, state: RunState, made: RollbackPlan) -> dict[str, JSON] | None:
    interval = state.interval
    now = {ref.repository: ref.commit for ref in interval.data if ref.kind == DataKind.LAKEFS} if interval else {}
    changes = {"added": 0, "removed": 0, "changed": 0}
    known = False
    for item in made.data:
        if item.repository not in now:
            continue
        try:
            diff = versions(site).diff(item.repository, now[item.repository], item.commit)
        except LakemarkError:
            return None
        known = True
        for name, count in (("added", diff.added), ("removed", diff.removed), ("changed", diff.changed)):
            changes[name] += count
    return dict(changes) if known else None


def _same(state: RunState, wish: Wish, identity: str, *, now: datetime) -> RollbackState | None:
    if identity in state.rollbacks:
        return state.rollbacks[identity]
    for standing in state.rollbacks.values():
        # One that ran out is not in the way of a new one, also where nobody has noted that yet.
        if not standing.open or now >= standing.expires_at:
            continue
        try:
            made = RollbackPlan.from_json(dict(standing.plan))
        except LakemarkError:
            continue
        same = (made.target.record, made.reason, made.requester, made.flags, made.timeline)
        if same == (wish.record, wish.reason, wish.requester, wish.flags, state.timeline):
            return standing
    return None


def _identity(state: RunState, wish: Wish) -> str:
    """`rb-` and ten hex digits: the same for the same key; else for the same wish at the same count of rollbacks."""
    if wish.key is not None:
        return identity_of(wish.key)
    flags = wish.flags.as_json()
    named: list[JSON] = [
        state.run,
        wish.record,
        wish.reason,
        wish.requester,
        flags,
        state.timeline,
        len(state.rollbacks),
    ]
    return "rb-" + sha256(canonical(named)).hexdigest()[:10]


def open_rollbacks(site: Site) -> Iterable[tuple[str, RollbackState]]:
    """(run, request) of every rollback that is neither applied nor ended."""
    for run in site.ledger.runs():
        for state in site.ledger.outline(run).rollbacks:
            if state.open:
                yield run, state
