"""`as-of`: four questions about a time, each answered by itself and never in place of another."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from lakemark.cli.commands.records import no_data
from lakemark.cli.output import instant, pairs, short
from lakemark.cli.session import Answer, Session, session
from lakemark.errors import LakemarkError
from lakemark.model.runs.then import doubts, known_then
from lakemark.model.runs.timeline import as_of as as_of_lineage
from lakemark.model.values.instants import to_text
from lakemark.model.views import data_view

if TYPE_CHECKING:
    from lakemark.model.ledger.run import RecordState, RunState


def as_of(run: str, when: str, /) -> Answer:
    """What a run and its data were at some time.

    latest: the newest record at that time, in today's lineage. latest_known_then: what anybody would have named at that
    time. trained_with: the data `latest` was trained with, whatever branches were. branch_heads: where branches were.
    notes: whose clock was wrong, and so may be of another time.

    Parameters
    ----------
    run: str
        Its name.
    when: str
        3d, 90m (ago), or ISO 8601 with an offset.
    """
    here = session()
    at = here.when(when)
    state = here.history.run(run)
    found = as_of_lineage(state, at)
    known = known_then(state, at)
    notes = list(dict.fromkeys((*doubts(state, found, at=at), *(doubts(state, known) if known else ()))))
    heads = _heads(here, state, at)
    aliases = _aliases(here, state.run, at)
    document = {
        "at": to_text(at),
        "latest": here.history.view(found),
        "latest_known_then": here.history.view(known) if known else None,
        "trained_with": [data_view(ref) for ref in found.record.data],
        "branch_heads": heads,
        "aliases": aliases,
        "notes": notes,
    }
    lines = pairs(
        [
            ("at", instant(at)),
            ("latest", _text(found)),
            ("known then", _text(known) if known else "no record"),
            *(("trained with", f"{ref.repository}@{ref.commit} ({ref.evidence})") for ref in found.record.data),
            ("trained with", "" if found.record.data else no_data()),
            *(("branch head", _head_text(one)) for one in heads),
            *(("alias", f"{one['alias']} {short(one['record'])}") for one in aliases),
            *(("note", note) for note in notes),
        ]
    )
    return Answer(document=document, lines=lines)


def branches_at(state: RunState, at: datetime) -> set[tuple[str, str]]:
    """Branches the run reads at some time, without those that a rollback made after `at`: they had no head then."""
    rolled_back = {timeline.sequence for timeline in state.timelines.values() if timeline.rollback is not None}
    found: set[tuple[str, str]] = set()
    made: set[tuple[str, str]] = set()
    for interval in state.intervals:
        named = {(ref.repository, ref.branch) for ref in interval.data if ref.branch}
        # One that an interval of before reads, too, was there before the rollback.
        made |= (named - found) if interval.sequence in rolled_back and interval.opened_at > at else set()
        found |= named
    return found - made


def _heads(here: Session, state: RunState, at: datetime) -> list[dict[str, Any]]:
    if here.settings.data is None:
        return []
    from lakemark.services.data.observe import head_at, stands_still

    heads: list[dict[str, Any]] = []
    for repository, branch in sorted(branches_at(state, at)):
        row: dict[str, Any] = {"repository": repository, "branch": branch}
        try:
            # A tag or a commit's id: where it is it was at any time, and it has no head.
            if stands_still(here.site, repository, branch):
                continue
            head = head_at(here.site, repository, branch, at)
        except LakemarkError as error:
            here.note(f"{repository}/{branch}: {error}")
            heads.append({**row, "commit": None, "precision": f"not known: {error}"})
        else:
            heads.append({**row, "commit": head.commit, "precision": head.precision})
    return heads


def _aliases(here: Session, run: str, at: datetime) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for alias, named in sorted(here.history.site().aliases.items()):
        # At that very instant counts; rows are in the ledger's order, so the last one held then.
        then = [one for one in named if one[0] <= at and one[1] == run]
        if then:
            found.append({"alias": alias, "run": run, "record": then[-1][2], "since": to_text(then[-1][0])})
    return found


def _text(found: RecordState) -> str:
    record = found.record
    return f"step {record.step}, timeline {record.timeline}, saved {instant(found.instant)} ({short(record.id)})"


def _head_text(head: dict[str, Any]) -> str:
    return f"{head['repository']}/{head['branch']} {short(head['commit'])} ({head['precision']})"
