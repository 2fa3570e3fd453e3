"""Bind data to a record, or to a run from now on, by hand: somebody says what it was trained with."""

from __future__ import annotations

from dataclasses import replace

from lakemark.errors import Usage
from lakemark.model.checkpoint import HEX64
from lakemark.model.entry import Contents, Draft
from lakemark.model.ledger import RunState
from lakemark.model.record import DataKind, DataRef, Evidence, Record
from lakemark.ports import Site
from lakemark.services import pins
from lakemark.services.appending import opened, recorded, require_writable


def bind(site: Site, run: str, record: str | None, *, data: str, reason: str) -> Record | None:
    """Says that `record` (None: the run from now on) was trained with `data`, `REPOSITORY/COMMIT`; pins that commit first.

    Raises Usage (not 64 hex), NotFound (record, commit), DataGone, Refused (pin too weak). Answers the record as bound.
    """
    repository, _, commit = data.rpartition("/")
    if not repository or not HEX64.fullmatch(commit):
        raise Usage(
            f"--data {data!r} is not REPOSITORY/COMMIT with a full commit id",
            advice="See `lakemark as-of` for commits.",
        )
    state = opened(site, run)
    found = recorded(state, record) if record else None
    pins.versions(site).resolve(repository, commit)
    pins.keep(site, repository, commit, run=run)
    said = DataRef(repository=repository, commit=commit, evidence=Evidence.DECLARED)
    refs = _replaced(found.record.data if found else (), said)
    bound = replace(found.record, data=refs) if found else None

    def decide(state: RunState) -> Draft:
        require_writable(state)
        return Draft(
            kind="bound",
            timeline=found.record.timeline if found else state.timeline,
            body={"data": [ref.as_json() for ref in refs]},
            record=record,
            contents=Contents(record=bound) if bound else None,
            reason=reason,
        )

    site.ledger.append(run, decide, site.stamp(f"bind:{record or run}:{data}:{state.sequence}"))
    return bound


def _replaced(old: tuple[DataRef, ...], said: DataRef) -> tuple[DataRef, ...]:
    """What is said takes the place of everything of that repository, and of whatever was not known.

    Of data that lies elsewhere it says nothing: references of other kinds stay, also of kinds this version does not know.
    """
    return (*(ref for ref in old if _stays(ref, said)), said)


def _stays(ref: DataRef, said: DataRef) -> bool:
    if ref.kind == DataKind.LAKEFS:
        return ref.repository != said.repository and ref.evidence != Evidence.AMBIGUOUS
    return ref.kind != DataKind.NONE
