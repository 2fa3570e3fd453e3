"""`verify`: read back, compare, record what was seen; and recompute what must hold."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from lakemark.cli.commands.records import place_text
from lakemark.cli.output import plain, short, size
from lakemark.cli.session import Answer, Session, session, would
from lakemark.errors import Corrupt, LakemarkError, Refused, StoreUnavailable, Usage

if TYPE_CHECKING:
    from fractions import Fraction

    from lakemark.model.ledger.run import RecordState
    from lakemark.ports import Patience
    from lakemark.services.health.invariants import SampledData
    from lakemark.services.tiers.verify import ReplicaLook

# Enough to notice that a store lost much; which ones is new each time, so that a small loss shows some day.
_SAMPLED_OBJECTS = 8
# A replica that is gone as a whole is damaged in each of its files.
_MOST_PATHS = 100
_LEDGER_SHARE = 2_000


def verify(
    target: str | None = None,
    /,
    *,
    tier: str | None = None,
    sample: str | None = None,
    repair: bool = False,
    invariants: bool = False,
    dry_run: bool = False,
) -> Answer:
    """Read replicas back and compare every byte with the manifest; sample the data they were trained with.

    What was seen is recorded. Exits with 4 where something is damaged, lost or violated, with 6 where something could
    not be reached and the rest was right.

    Parameters
    ----------
    target: str
        RUN or RECORD; by default everything.
    tier: str
        Replicas in this tier only.
    sample: str
        Only a share of the records, such as 10%, chosen at random. 100%: all of them, and every object of their data,
        of which otherwise 8 are read, other ones each time.
    repair: bool
        Make damaged replicas again from sound ones.
    invariants: bool
        Also work out anew, from ledger and stores, what must hold.
    dry_run: bool
        Say what would be read, and change nothing.
    """
    from lakemark.ports import Patience
    from lakemark.services.health.invariants import violations
    from lakemark.services.tiers.verify import verify as read_back

    here = session()
    # Chosen once: replicas and data of the same records are read.
    records = _sampled(_chosen(here, target), sample)
    if dry_run:
        return _would_read(here, records, tier)
    result = read_back(here.site, records, tier=tier)
    # The same trouble for each replica is one line.
    for error in dict.fromkeys(map(str, result.unrecorded)):
        here.warn(f"the ledger does not know yet what was seen: {error}")
    # Who asks for one run need not pay for reading the ledger.
    if target is None and not here.site.reads_only:
        for said in _checked_ledger(here):
            here.warn(said)
    damaged = result.damaged
    repaired, failed = _repaired(here, damaged) if repair else ([], [])
    unreachable = [look for look in result.looks if look.error is not None]
    patience = Patience()
    data, silent = _read_data(here, records, sample, patience)
    rules = violations(here.site, patience) if invariants else ()
    broken = [{"rule": one.rule, "what": one.what, "why": one.why} for one in rules]
    document = {
        "checked": len(result.looks),
        "ok": sum(look.ok for look in result.looks),
        "damaged": [_damage(look) for look in damaged],
        "repaired": repaired,
        "data_lost": data.lost,
        "data_sampled": data.sampled,
        "violations": broken,
        "unsteady": [_named(look) for look in result.looks if look.unsteady],
        "unrecorded": list(dict.fromkeys(map(str, result.unrecorded))),
        "unreachable": [
            {**_named(look), "why": str(look.error), "next": look.error.advice} for look in unreachable if look.error
        ]
        + silent
        + failed,
    }
    return Answer(document=document, lines=_lines(document), exit_code=_code(document))


def _checked_ledger(here: Session) -> list[str]:
    """A larger share of the ledger's entries than a sweep reads; what it finds stays in `status`."""
    from lakemark.services.recovery.check import check_ledger

    try:
        return check_ledger(here.site, share=_LEDGER_SHARE, now_due=True)
    except LakemarkError as error:
        return [f"the ledger's entries could not be read: {error}"]


def _chosen(here: Session, target: str | None) -> list[RecordState]:
    if target is None:
        runs = [here.site.ledger.run(run) for run in here.site.ledger.runs()]
        return [found for state in runs for found in state.live()]
    run, found = here.history.run_or_record(target, now=here.now)
    state = here.site.ledger.run(run)
    if found is not None:
        return [state.records[found.record.id]]
    return list(state.live())


def _sampled(records: list[RecordState], share: str | None) -> list[RecordState]:
    if share is None:
        return records
    part = _share(share)
    # Rounded up: a share of a few records is at least one, not none.
    count = -(-len(records) * part.numerator // part.denominator)
    # Not a seeded choice: the same ones each time would leave the others unread for ever.
    return secrets.SystemRandom().sample(records, count)


def _share(text: str) -> Fraction:
    from lakemark.settings.units import share as read_share

    try:
        return read_share(text)
    except ValueError as error:
        raise Usage(f"--sample: {error}", advice="Write a share such as 10%.") from None


def _would_read(here: Session, records: list[RecordState], tier: str | None) -> Answer:
    site = here.site
    if tier is not None and all(place.tier != tier for found in records for place in found.replicas):
        # Raises for a name that is none: a dry run that reads nothing must not look as if all was well.
        site.store(tier)
    said = [
        f"read {found.record.run}@{found.record.step} back from {place_text(place.tier, place.node)}"
        f" ({size(found.record.size_bytes)})"
        for found in records
        for place in found.replicas
        # hot of another node is read back by that node.
        if place.tier in site.tiers and place.node in (None, site.node) and tier in (None, place.tier)
    ]
    return would(*said)


def _repaired(here: Session, damaged: list[ReplicaLook]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    from lakemark.services.tiers.replicate import replicate

    done: list[dict[str, Any]] = []
    failed: list[dict[str, Any]] = []
    for look in damaged:
        try:
            # What the ledger could not be told stands as sound there, and a copy to where one stands copies nothing.
            here.require_sound()
            _require_known_damage(here, look)
            replicate(here.site, look.run, look.record, to=look.place.tier)
        except LakemarkError as error:
            failed.append({**_named(look), "why": f"not repaired: {error}", "next": error.advice})
        else:
            done.append(_named(look))
    return done, failed


def _require_known_damage(here: Session, look: ReplicaLook) -> None:
    from lakemark.services.ledger import recorded

    replica = recorded(here.site.ledger.run(look.run), look.record).replicas.get(look.place)
    if replica is not None and replica.sound:
        raise Refused(
            "the ledger does not know of the damage", advice="Mend the ledger first: lakemark ledger recover --dry-run."
        )


def _read_data(
    here: Session, records: list[RecordState], share: str | None, patience: Patience
) -> tuple[SampledData, list[dict[str, Any]]]:
    from lakemark.services.health.invariants import sampled_data

    # Of 100% of the records all objects are asked for, as the help says.
    sample = None if share is not None and _share(share) == 1 else _SAMPLED_OBJECTS
    found = sampled_data(here.site, records, sample=sample, patience=patience)
    if found.why is None:
        return found, []
    # A row of the same shape as a replica's, so that readers of `unreachable` need one way only.
    nobody = dict.fromkeys(("record", "run", "step", "node"))
    why = f"{found.unread} data commit(s) were not read: {found.why}"
    return found, [{**nobody, "tier": "lakefs", "why": why, "next": found.why.advice}]


def _named(look: ReplicaLook) -> dict[str, Any]:
    place = look.place
    return {"record": look.record, "run": look.run, "step": look.step, "tier": place.tier, "node": place.node}


def _damage(look: ReplicaLook) -> dict[str, Any]:
    paths = [{"path": one.path, "why": one.why, "missing": one.missing} for one in look.damages[:_MOST_PATHS]]
    return {**_named(look), "suspect": all(one.suspect for one in look.damages), "paths": paths}


def _code(document: dict[str, Any]) -> int:
    # What was repaired is right now, and no reason to fail.
    left = len(document["damaged"]) - len(document["repaired"])
    if left or document["data_lost"] or document["violations"]:
        return Corrupt.exit_code
    # Less than damage: what could not be looked at may be right.
    return StoreUnavailable.exit_code if document["unreachable"] else 0


def _lines(document: dict[str, Any]) -> list[str]:
    from lakemark.services.health.invariants import next_of

    lines = [f"{document['ok']} of {document['checked']} replica(s) are right, byte for byte"]
    for one in document["damaged"]:
        # A look counts as damaged by its damages, so there is one.
        first = one["paths"][0]
        lines.append(
            f"DAMAGED {_text(one)}: {first['path'] or 'the replica'}: {first['why']} ({len(one['paths'])} path(s))"
        )
    lines += [f"repaired {_text(one)}" for one in document["repaired"]]
    lines += [
        f"data {one['repository']}@{short(one['commit'])}: bytes of {one['sampled']} were read"
        for one in document["data_sampled"]
        if one["sampled"]
    ]
    for one in document["data_lost"]:
        shown = ", ".join(one["paths"][:3]) or "the whole commit"
        lines.append(f"DATA LOST {one['repository']}@{short(one['commit'])}: {shown} ({one['sampled'] or 'no commit'})")
    lines += [f"VIOLATED {one['rule']}: {one['what']} {one['why']}" for one in document["violations"]]
    lines += [f"  {advice}" for advice in next_of(one["rule"] for one in document["violations"])]
    lines += [f"UNSTEADY {_text(one)}: one reading found damage that the next did not" for one in document["unsteady"]]
    lines += [f"not reached: {_text(one)}: {one['why']}" for one in document["unreachable"]]
    lines += [f"  {advice}" for advice in dict.fromkeys(one["next"] for one in document["unreachable"])]
    return [plain(line) for line in lines]


def _text(one: dict[str, Any]) -> str:
    place = place_text(one["tier"], one["node"])
    return place if one["run"] is None else f"{one['run']}@{one['step']} in {place}"
