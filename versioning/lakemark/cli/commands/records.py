"""`ls`, `show`, `log`: reading records and entries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from lakemark.cli.options import Whole
from lakemark.cli.output import instant, pairs, short, size, table, told
from lakemark.cli.session import Answer, Session, session
from lakemark.errors import Usage
from lakemark.model.ledger.entry import SITE
from lakemark.model.ledger.moments import Sure
from lakemark.model.views import entry_view

if TYPE_CHECKING:
    from lakemark.model.ledger.run import RecordState, Replica

_MOST = 1_000
_LOG = 100


@dataclass(frozen=True, kw_only=True)
class Filters:
    """Which records are listed."""

    since: str | None = None
    """WHEN: saved at or after it."""

    until: str | None = None
    """WHEN: saved at or before it."""

    tier: str | None = None
    """Those with a replica in this tier."""

    all_timelines: bool = False
    """Also records outside the current lineage."""

    pruned: bool = False
    """Also what was pruned."""

    expiring: str | None = None
    """Those that retention gives up within this time, such as 7d."""

    limit: Whole = 50
    """How many, from 1 to 1000."""

    after: str | None = None
    """`next` of the page before."""


def ls(run: str | None = None, /, *, filters: Annotated[Filters | None, Parameter(name="*")] = None) -> Answer:
    """List records, newest first.

    WHEN is 3d or 90m (ago), or ISO 8601 with an offset. A RECORD, in other commands, is id:HEX, 8 or more digits of an
    id, RUN@STEP, RUN@latest, RUN@WHEN, RUN~TIMELINE@STEP or RUN@best:METRIC.

    Parameters
    ----------
    run: str
        The run; without it all runs.
    """
    from lakemark.index import Selection

    here = session()
    asked = filters or Filters()
    if not 1 <= asked.limit <= _MOST:
        raise Usage(f"--limit {asked.limit} is not from 1 to {_MOST}", advice="Page on with --after.")
    if asked.tier is not None and asked.tier not in here.settings.tiers:
        known = ", ".join(here.settings.tiers)
        raise Usage(f"--tier {asked.tier!r} is no tier of this site", advice=f"Tiers are {known}.")
    wanted = Selection(
        run=here.history.name(run) if run else None,
        since=here.when(asked.since) if asked.since else None,
        until=here.when(asked.until) if asked.until else None,
        tier=asked.tier,
        all_timelines=asked.all_timelines,
        pruned=asked.pruned,
        limit=asked.limit,
        after=asked.after,
    )
    within = _span(asked.expiring) if asked.expiring else None
    page = here.history.page(wanted)
    # After the page was cut: why a record is kept is worked out, and stands in no index. A page may come out short.
    records = [found for found in page.records if _expires(here, found, within)]
    if page.next:
        here.note(f"there are more: --after {page.next}")
    return Answer(
        document={"records": [here.history.view(found) for found in records], "next": page.next},
        lines=record_table(records) or ["no record"],
    )


def show(record: str, /) -> Answer:
    """Show a record with its manifest and the Git commit that carries it.

    Parameters
    ----------
    record: str
        Which: id:HEX, RUN@STEP, RUN@latest, RUN@WHEN, RUN@best:METRIC.
    """
    here = session()
    found = here.history.found(record, now=here.now)
    commit = here.history.index.revision(found.record.run, found.sequence)
    # Manifests are not in the index: Git is read for this one alone.
    manifest = here.parts.ledger.manifest_at(commit, of=found.record)
    view = here.history.view(found)
    document = {**view, "manifest": manifest.as_json(), "git_commit": commit}
    return Answer(document=document, lines=record_lines(found, view, git_commit=commit))


def log(run: str, /, *, limit: Whole = _LOG) -> Answer:
    """Show a run's entries in order, oldest first; `site` for the site's own.

    Parameters
    ----------
    run: str
        The run, or `site`.
    limit: int
        The newest so many.
    """
    here = session()
    if limit < 1:
        raise Usage(f"--limit {limit} is not 1 or more", advice="Leave it out for the newest 100.")
    index = here.history.index
    # No run can be called so: the name is the site's branch.
    branch = SITE if run.lower() == SITE else here.history.name(run)
    entries = index.log(branch, limit=limit)
    views = [entry_view(entry, git_commit=index.revision(branch, entry.sequence)) for entry in entries]
    rows = [
        (
            entry.sequence,
            instant(entry.recorded_at),
            entry.timeline,
            entry.kind,
            short(entry.record),
            entry.actor,
            entry.reason or "",
        )
        for entry in entries
    ]
    heads = ("entry", "recorded", "timeline", "kind", "record", "actor", "reason")
    return Answer(document={"entries": views}, lines=table(heads, rows))


def record_table(records: list[RecordState]) -> list[str]:
    """Records for people, a line each."""
    rows = [
        (
            short(found.record.id),
            found.record.run,
            found.record.timeline,
            found.record.step,
            instant(found.instant),
            size(found.record.size_bytes),
            data_text(found),
            places(found),
            marks(found),
        )
        for found in records
    ]
    return table(("record", "run", "timeline", "step", "saved", "size", "data", "replicas", ""), rows)


def record_lines(found: RecordState, view: Mapping[str, object], *, git_commit: str | None = None) -> list[str]:
    """A record for people."""
    record = found.record
    return pairs(
        [
            ("record", record.id),
            ("run", f"{record.run}, timeline {record.timeline}"),
            ("step", str(record.step)),
            ("saved", f"{instant(found.instant)} on {record.node}"),
            ("recorded", instant(found.recorded_at)),
            ("size", f"{size(record.size_bytes)} in {record.files} file(s)"),
            ("framework", record.framework),
            ("roles", ", ".join(record.roles)),
            ("resumable", {None: "not known", True: "yes", False: f"no: {', '.join(record.gaps)}"}[record.resumable]),
            *(("data", f"{ref.repository}@{ref.commit} ({ref.branch or '-'}, {ref.evidence})") for ref in record.data),
            ("data", "" if record.data else no_data()),
            ("code", f"{record.code.repository}@{record.code.commit}" if record.code else None),
            ("metrics", ", ".join(f"{name}={value:g}" for name, value in sorted(record.metrics.items()))),
            ("parent", short(record.parent) if record.parent else None),
            *(("replica", _replica_text(replica)) for replica in found.replicas.values()),
            ("safe since", view["safe_at"] and told(str(view["safe_at"]))),
            ("kept by", "; ".join(str(why) for why in _listed(view["kept_by"]))),
            ("expires", view["expires_at"] and told(str(view["expires_at"]))),
            ("state", marks(found)),
            ("git commit", git_commit),
        ]
    )


def data_text(found: RecordState) -> str:
    """`data@1234567890ab`, with a mark where it is not certain."""
    refs = [f"{ref.repository}@{short(ref.commit)}" for ref in found.record.data]
    # Data that was guessed, as several intervals fit: shown, and not to be taken for certain.
    return ", ".join(refs) + ("" if found.record.bound or not refs else " (ambiguous)") or "-"


def places(found: RecordState) -> str:
    """Tiers with a replica; `!` after one that is not sound."""
    return " ".join(
        place_text(place.tier, place.node) + ("" if replica.sound else "!")
        # As they came: hot first, as a rule.
        for place, replica in sorted(found.replicas.items(), key=lambda pair: pair[1].replicated_at)
    )


def place_text(tier: str, node: str | None) -> str:
    """`warm`, or `hot@node-a` for a node's own tier."""
    return f"{tier}@{node}" if node else tier


def marks(found: RecordState) -> str:
    """What sets a record apart from an ordinary one."""
    words = [
        ("superseded", found.superseded_by),
        ("in conflict", found.conflicts_with),
        ("ambiguous", found.ambiguous),
        ("held", found.held),
        ("quarantined", found.quarantined),
        ("pruned", found.pruned),
        ("of about that time, as its clock was wrong", found.sure is Sure.HELD),
    ]
    return ", ".join(word for word, is_so in words if is_so)


def _expires(here: Session, found: RecordState, within: timedelta | None) -> bool:
    if within is None:
        return True
    until = _expiry(here, found)
    # Not `now + within`, which may lie beyond the calendar.
    return until is not None and until - here.now <= within


def _expiry(here: Session, found: RecordState) -> datetime | None:
    context = here.history.context(found.record.run)
    kept = context.kept.get(found.record.id)
    # Of a run too large to say, or of a record that is gone already.
    if kept is None or found.pruned is not None:
        return None
    # Kept by nothing: it goes with the next pass, so it expires now.
    return kept.until if kept.reasons else context.now


def _span(text: str) -> timedelta:
    from lakemark.model.values.instants import duration

    try:
        return duration(text.lower())
    except OverflowError:
        return timedelta.max
    except ValueError as error:
        raise Usage(f"--expiring: {error}", advice="Write it as 7d or 12h.") from None


def _replica_text(replica: Replica) -> str:
    place = place_text(replica.place.tier, replica.place.node)
    return f"{place}, read back {instant(replica.verified_at)}{'' if replica.sound else ', NOT SOUND'}"


def _listed(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else []


def no_data() -> str:
    """What is said of a record without data: that the site versions none, or that nobody knows and what to do."""
    here = session()
    if here.settings.data is None:
        return "this site versions none"
    return here.advised("not known; bind it with `lakemark bind`")
