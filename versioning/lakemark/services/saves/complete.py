"""Complete a record by what is known later: metrics that evaluations find out, and announcements that came after it.

A pass may find a save before its trainer says what it is. Nothing is landed or read again for that; also where the files have
gone since, what was said of them is said of the record. It keeps its id; retention's `best` goes by the newest metrics.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from lakemark.errors import LakemarkError, Usage
from lakemark.model.checkpoints.completing import Completed, Word, completed
from lakemark.model.checkpoints.manifest import Manifest
from lakemark.model.checkpoints.record import Code, Record
from lakemark.model.entries.bound import BOUND, METRIC_ADDED, BoundBody, MetricAddedBody
from lakemark.model.ledger.entry import Attachments, Draft
from lakemark.model.ledger.run import RecordState, RunState
from lakemark.model.runs.placing import timeline_of
from lakemark.model.runs.timeline import segments
from lakemark.model.values.canonical import digest
from lakemark.model.values.names import is_log, printable
from lakemark.ports import Site, Spooled
from lakemark.services.ledger import committed, opened, recorded, require_writable
from lakemark.services.saves.known_files import records_of
from lakemark.services.saves.to_commit import Commit, resolve

_LONGEST_NAME: Final = 200
_REASON: Final = "its trainer announced it after it was recorded"
# Times of files come to the record in microseconds.
_ROUNDED: Final = timedelta(milliseconds=1)


def add_metrics(site: Site, run: str, record: str, metrics: Mapping[str, float], *, reason: str) -> Record:
    """The record with `metrics`, of which a new value takes an old one's place. What it says already is not said again.

    Raises Usage (none, a name that is empty or longer than 200 characters, no finite number), NotFound, Refused.
    """
    if not metrics:
        raise Usage("no metric is given", advice="Write NAME=NUMBER, such as mmlu=0.61.")
    require_numbers(metrics)
    recorded(opened(site, run), record)

    def decide(state: RunState) -> Draft | None:
        require_writable(state)
        found = state.records[record].record
        new: dict[str, float] = {name: value for name, value in metrics.items() if found.metrics.get(name) != value}
        if not new:
            return None
        return METRIC_ADDED.draft(
            MetricAddedBody(metrics=new),
            timeline=found.timeline,
            record=record,
            contents=Attachments(record=replace(found, metrics={**found.metrics, **new})),
            reason=reason,
        )

    # With the sequence: a value may go from one to another and back.
    sequence = site.ledger.run(run).sequence
    request = f"metric:{record}:{digest({**metrics})[:16]}:{sequence}"
    return site.ledger.append(run, decide, site.stamp(request)).state.records[record].record


def require_numbers(metrics: Mapping[str, float]) -> None:
    """Raises Usage for what is no metric's name or value."""
    for name, value in metrics.items():
        if not 0 < len(name) <= _LONGEST_NAME:
            raise Usage(f"a metric's name has {len(name)} characters, not 1 to {_LONGEST_NAME}", advice="Shorten it.")
        if not math.isfinite(value):
            raise Usage(
                f"the metric {name} is {value}, not a finite number", advice="Leave a metric that has no value out."
            )


def complete(site: Site, record: Record, spooled: Spooled) -> tuple[Record, tuple[str, ...]]:
    """The record with what the announcement adds, and what a person should know of that.

    Raises InDistress, Refused, Corrupt, StoreUnavailable: then the announcement is still worth keeping.
    """
    word = Word(
        attempt=spooled.attempt,
        data=spooled.data,
        metrics=spooled.metrics,
        code=Code.from_json(dict(spooled.code)) if spooled.code else None,
    )
    in_files = _in_files(site, record, spooled)
    now = completed(record, word, in_files=in_files)
    # Metrics first: by the record as it is bound already, those in its files would be its process's own.
    for kind in ("metric_added", "bound") if now.bound or now.metrics else ():
        record = _append(site, record, spooled, kind=kind, word=word, in_files=in_files)
    return record, now.notes


def recorded_before(site: Site, state: RunState, spooled: Spooled, *, lies: bool) -> RecordState | None:
    """The record of the very bytes that were announced; None where there is none, or nothing proves it.

    lies: they lie there still, as announced; else sizes and times tell, as far as the ledger has them. What lies there of one
    that has lost its last sound replica is no record's: it may be all that there is, and is to be landed again.
    """
    if not lies:
        return _of_ledger(site, state, spooled)
    found = _of_files(site, state, spooled)
    lost = found is not None and found.pruned is None and not any(one.sound for one in found.replicas.values())
    return None if lost else found


def _append(
    site: Site, record: Record, spooled: Spooled, *, kind: str, word: Word, in_files: Mapping[str, float]
) -> Record:
    def decide(state: RunState) -> Draft | None:
        require_writable(state)
        # On the state it is appended to: somebody may have bound it, or added metrics, meanwhile.
        before = state.records[record.id].record
        now = completed(before, word, in_files=in_files)
        if not (now.bound if kind == "bound" else now.metrics):
            return None
        return _bound(before, now) if kind == "bound" else _metrics_added(before, now)

    # By the announcement: told once more after a crash, it is the same entry.
    stamp = site.stamp(f"{kind}:{record.id}:{spooled.file.name}")
    return site.ledger.append(record.run, decide, stamp).state.records[record.id].record


def _metrics_added(before: Record, now: Completed) -> Draft:
    # What else it says is `bound`'s, which follows.
    told = before.with_metrics(now.record.metrics) if now.bound else now.record
    contents = Attachments(record=told)
    return METRIC_ADDED.draft(
        MetricAddedBody(metrics=now.metrics), timeline=told.timeline, record=told.id, contents=contents, reason=_REASON
    )


def _bound(before: Record, now: Completed) -> Draft:
    told = now.record.with_metrics(before.metrics)
    contents = Attachments(record=told)
    return BOUND.draft(
        BoundBody(data=told.data), timeline=told.timeline, record=told.id, contents=contents, reason=_REASON
    )


def _in_files(site: Site, record: Record, spooled: Spooled) -> Mapping[str, float]:
    """What the framework wrote itself; asked only where that makes a difference."""
    other = [name for name, value in spooled.metrics.items() if record.metrics.get(name, value) != value]
    if not other:
        return {}
    try:
        return site.recogniser.judge(spooled.path).metrics
    except LakemarkError:  # they lie there no more
        return {}


def _of_files(site: Site, state: RunState, spooled: Spooled) -> RecordState | None:
    try:
        members = () if site.files.exists(spooled.path) else site.recogniser.judge(spooled.path).members
        records = set(records_of(site, members or [spooled.path]) or ())
    except LakemarkError:
        return None
    found = state.records.get(next(iter(records))) if len(records) == 1 else None
    return found if found is not None and found in _at_step(site, state, spooled) else None


def _of_ledger(site: Site, state: RunState, spooled: Spooled) -> RecordState | None:
    # Without what it was announced of, or where files have another clock than records, the next save looks the same.
    if not spooled.identity or site.simulated_clock:
        return None
    written = max(_instant(mtime_ns) for _, _, mtime_ns in spooled.identity.values())
    for found in _at_step(site, state, spooled):
        # What was written later than the record's newest file is another save of that step.
        if written > found.record.saved_at + _ROUNDED or not _lay_at(site, found, spooled.path):
            continue
        if _is_of(spooled, site.ledger.manifest(state.run, found.record.id)):
            return found
    return None


def _at_step(site: Site, state: RunState, spooled: Spooled) -> list[RecordState]:
    """The step's records in the lineage of the announcing process, the newest first: in another one its save is its own."""
    save = resolve(
        site, Commit(path=spooled.path, run=state.run, step=spooled.step, spooled=spooled, found=True), state
    )
    lines = segments(state, timeline_of(state, save.as_save()))
    mine = {number for number, bound in lines if bound is None or spooled.step <= bound}
    ids = [row[2] for number in mine for row in state.by_step.get(number, ()) if row[0] == spooled.step]
    return sorted((state.records[identity] for identity in ids), key=lambda found: -found.sequence)


def _lay_at(site: Site, found: RecordState, path: Path) -> bool:
    body = committed(site, found)
    here = body.node is not None and site.ledger.site().node_now(body.node) == site.node
    return here and body.source == printable(path)


def _is_of(spooled: Spooled, manifest: Manifest) -> bool:
    """Whether what was announced are files of the manifest, as far as their sizes tell. A log may have grown since."""
    sizes = {file.path: file.size_bytes or 0 for file in manifest.regular}
    if "." in (spooled.identity or {}) and len(sizes) == 1:
        sizes = {".": next(iter(sizes.values()))}
    return all(
        path in sizes and (sizes[path] == size or (is_log(path) and sizes[path] > size))
        for path, (_, size, _) in (spooled.identity or {}).items()
    )


def _instant(time_ns: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=time_ns // 1000)
