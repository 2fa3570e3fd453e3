"""Commit a checkpoint: recognise it, seal it in hot, and append the one entry that binds it to its data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from lakemark.errors import Conflict, Incomplete, LakemarkError, Refused, Usage
from lakemark.model.checkpoint import gaps_of
from lakemark.model.entry import Contents, Draft
from lakemark.model.ledger import RunState
from lakemark.model.placing import Placement, Save, place
from lakemark.model.record import Code, Record, record_for
from lakemark.ports import Checkpoint, Directory, KnownFile, Landed, Site, Spooled, Verdict
from lakemark.services.appending import Settled, announced, opened, require_identity, require_writable, tier_key

_TRIES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """What is asked for. spooled: the trainer announced it. found: a sweep saw it; nobody asked for this very commit.

    quiet_seconds: how long its files must not have changed; None: the site's rule (0 where it was announced or asked for).
    """

    path: Path
    run: str
    step: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    code: Code | None = None
    supersede: bool = False
    found: bool = False
    spooled: Spooled | None = None
    directory: Path | None = None
    quiet_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """new: False where this very content was a record already."""

    record: Record
    new: bool
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Taken:
    """identities: of the trainer's files before they were landed; what it writes afterwards is another save."""

    landed: Landed
    identities: tuple[KnownFile, ...]

    def checkpoint(self, record: Record) -> Checkpoint:
        return Checkpoint(record=record, manifest=self.landed.manifest)


def commit(site: Site, asked: Commit) -> Committed:
    """Commits one checkpoint, durably.

    Raises NotFound (run, path), Incomplete (not a finished checkpoint, or still changing), Conflict (other bytes at this
    step), Refused (names, links, disk full, closed run, another tier in hot's place), Denied. Whatever it raises, nothing of
    it stays in hot or ledger.
    """
    state = opened(site, asked.run)
    require_writable(state)
    _require_open(state)
    _require_numbers(asked.metrics)
    if tier_key(site, site.hot) in site.ledger.site().tiers:
        require_identity(site, site.hot)
    asked = _announced(site, asked)
    taken = _land(site, asked)
    site.progress.step("commit.landed")
    adopted: Record | None = None
    try:
        for _ in range(_TRIES):
            placement = _placement(site, asked, taken)
            record = _record(site, asked, placement, taken)
            if placement.known is not None:
                _undo(site, taken, adopted)
                known = site.ledger.run(asked.run).records[placement.known].record
                return _done(site, asked, Committed(record=known, new=False, why=placement.why), taken)
            if adopted is None or adopted.id != record.id:
                adopted = _adopt(site, taken, record, instead_of=adopted)
            site.progress.step("commit.adopted")
            new = _append(site, asked, placement, record, taken=taken)
            if new is not None:
                site.progress.step("commit.recorded")
                return _done(site, asked, Committed(record=record, new=new, why=placement.why), taken)
    except LakemarkError:
        _undo(site, taken, adopted)
        raise
    _undo(site, taken, adopted)
    raise Conflict(
        f"the ledger of {asked.run} moved {_TRIES} times while step {asked.step} was being committed",
        advice="Commit it again; it is still where the trainer saved it.",
    )


def _require_open(state: RunState) -> None:
    if state.closed:
        raise Refused(f"the run {state.run} is closed", advice=f"lakemark run reopen {state.run} --reason …")


def _require_numbers(metrics: Mapping[str, float]) -> None:
    wrong = next((name for name, value in metrics.items() if not math.isfinite(value)), None)
    if wrong is not None:
        raise Usage(
            f"the metric {wrong} is {metrics[wrong]}, not a finite number",
            advice="Leave a metric that has no value out.",
        )


def _announced(site: Site, asked: Commit) -> Commit:
    """With what the trainer said of this very save, where it did: that is better than any guess."""
    if asked.spooled is not None:
        return asked
    here = [one for one in announced(site, asked.run) if (one.path, one.step) == (asked.path, asked.step)]
    return replace(asked, spooled=max(here, key=lambda one: one.saved_at, default=None))


def _land(site: Site, asked: Commit) -> _Taken:
    found = site.recogniser.judge(asked.path)
    roles = dict(found.roles)
    if asked.spooled is not None:
        roles |= asked.spooled.roles
    if found.verdict is not Verdict.COMPLETE and asked.spooled is None:
        raise Incomplete(
            f"{asked.path} is {found.verdict}: {found.why}", advice="Commit it when the trainer has finished it."
        )
    finished = asked.spooled is not None or not asked.found
    quiet = (
        asked.quiet_seconds if asked.quiet_seconds is not None else (0.0 if finished else site.policies.quiet_seconds)
    )
    identities = site.workspace.identities(asked.path)
    landed = site.hot.land(asked.path, quiet_seconds=quiet, roles=roles, progress=site.progress)
    known = sorted({file.role for file in landed.manifest.regular} - {"other"})
    declared = bool(asked.spooled and asked.spooled.roles)
    gaps = gaps_of(known) if declared else found.gaps
    resumable = not gaps if declared else found.resumable
    manifest = landed.manifest.judged(framework=found.framework, roles=known, resumable=resumable, gaps=gaps)
    return _Taken(landed=replace(landed, manifest=manifest), identities=identities)


def _placement(site: Site, asked: Commit, taken: _Taken) -> Placement:
    save = _save(site, asked, taken)
    placement = place(site.ledger.run(asked.run), save)
    if placement.collides is not None:
        raise Conflict(
            f"{asked.run}@{asked.step} is {placement.collides[:12]} in timeline {placement.timeline}, with other bytes",
            advice="If these are the right ones, commit them with --supersede; the old record stays listed.",
        )
    if placement.fork is not None:
        _open_inferred(site, asked, save, placement)
        return place(site.ledger.run(asked.run), replace(save, resumed_timeline=placement.timeline))
    return placement


def _save(site: Site, asked: Commit, taken: _Taken) -> Save:
    spooled = asked.spooled
    directory = site.journal.directory(asked.directory or asked.path.parent)
    if directory is not None and directory.run != asked.run:
        directory = None
    known = {site.journal.known(file) for file in taken.identities}
    return Save(
        step=asked.step,
        content=taken.landed.manifest.content,
        announced=spooled is not None,
        found=asked.found,
        attempt=(spooled.attempt if spooled else None)
        or (directory.attempt if directory else _newest(site, asked.run)),
        resumed_timeline=spooled.timeline if spooled else None,
        directory_timeline=directory.timeline if directory else None,
        data=spooled.data if spooled else (),
        newest_mtime=None if site.simulated_clock else taken.landed.newest_mtime,
        sealed_again=frozenset(identity for identity in known if identity),
        supersede=asked.supersede,
    )


def _newest(site: Site, run: str) -> str | None:
    attempt = site.ledger.run(run).attempt
    return attempt.id if attempt else None


def _record(site: Site, asked: Commit, placement: Placement, taken: _Taken) -> Record:
    spooled = asked.spooled
    base = record_for(
        taken.landed.manifest,
        run=asked.run,
        timeline=placement.timeline,
        step=asked.step,
        saved_at=_saved_at(site, spooled, taken.landed),
        node=site.node,
    )
    code = asked.code or (Code.from_json(dict(spooled.code)) if spooled and spooled.code else None)
    return replace(
        base,
        data=placement.data,
        code=code,
        metrics=dict(asked.metrics) | dict(spooled.metrics if spooled else {}),
        parent=placement.parent,
        attempt=_save(site, asked, taken).attempt,
        supersedes=placement.supersedes,
    )


def _saved_at(site: Site, spooled: Spooled | None, landed: Landed) -> datetime:
    if spooled is not None:
        return spooled.saved_at
    return site.now() if site.simulated_clock else min(landed.newest_mtime, site.now())


def _adopt(site: Site, taken: _Taken, record: Record, *, instead_of: Record | None) -> Record:
    """Names the landed tree; where it has the name of a record it did not become, from there."""
    if instead_of is None:
        site.hot.adopt(taken.landed, record)
        return record
    old = taken.checkpoint(instead_of)
    site.hot.put(
        taken.checkpoint(record), lambda file: site.hot.open(old, file), now=site.now(), progress=site.progress
    )
    _undo(site, taken, instead_of)
    return record


def _append(site: Site, asked: Commit, placement: Placement, record: Record, *, taken: _Taken) -> bool | None:
    """True: appended. False: it was there. None: the ledger moved so that the save would be placed elsewhere now."""
    contents = Contents(record=record, manifest=taken.landed.manifest)
    body = {
        "attempt": record.attempt,
        "supersedes": record.supersedes,
        "conflicts_with": placement.conflicts,
        "tier": site.hot.name,
        "node": site.node,
        "linked": taken.landed.linked,
        "source": str(asked.path),
    }
    wanted = (placement.timeline, placement.supersedes, placement.conflicts)

    def decide(state: RunState) -> Draft:
        require_writable(state)
        if record.id in state.records:
            raise Settled(True)  # noqa: FBT003 - whether the record is there
        _require_open(state)
        again = place(state, _again(asked, placement, record))
        if (again.timeline, again.supersedes, again.collides) != wanted:
            raise Settled(False)  # noqa: FBT003
        return Draft(kind="committed", timeline=record.timeline, body=body, contents=contents, saved_at=record.saved_at)

    try:
        site.ledger.append(asked.run, decide, site.stamp(f"commit:{record.id}"))
    except Settled as settled:
        return False if settled.answer else None
    return True


def _again(asked: Commit, placement: Placement, record: Record) -> Save:
    """Only what may have changed since: whether the step is still free, or still held by the record to be superseded."""
    return Save(
        step=record.step,
        content=record.content,
        announced=True,
        attempt=record.attempt,
        resumed_timeline=placement.timeline,
        data=placement.data,
        supersede=asked.supersede or placement.supersedes is not None,
    )


def _open_inferred(site: Site, asked: Commit, save: Save, placement: Placement) -> None:
    fork = placement.fork
    if fork is None:
        return
    directory = asked.directory or asked.path.parent
    body = {
        "record": fork.record or None,
        "attempt": save.attempt,
        "fork": fork.as_json(),
        "inferred": True,
        "directory": str(directory),
    }

    def decide(state: RunState) -> Draft:
        if place(state, save).timeline != placement.timeline:
            raise Settled(None)
        return Draft(kind="resumed", timeline=placement.timeline, body=body, reason=placement.why)

    try:
        site.ledger.append(asked.run, decide, site.stamp(f"inferred:{asked.run}:{placement.timeline}:{save.content}"))
    except Settled:
        return
    sequence = site.ledger.run(asked.run).sequence
    bound = Directory(run=asked.run, timeline=placement.timeline, attempt=save.attempt or "", sequence=sequence)
    site.journal.bind_directory(directory, bound)
    site.progress.step("commit.timeline")


def _done(site: Site, asked: Commit, made: Committed, taken: _Taken) -> Committed:
    site.journal.remember(taken.identities, record=made.record.id, why="committed")
    site.progress.step("commit.remembered")
    if asked.spooled is not None:
        site.workspace.unspool(asked.spooled)
    site.progress.step("commit.acknowledged")
    return made


def _undo(site: Site, taken: _Taken, adopted: Record | None) -> None:
    if adopted is None:
        site.hot.discard(taken.landed)
    elif adopted.id not in site.ledger.run(adopted.run).records:
        site.hot.drop(taken.checkpoint(adopted), now=site.now())
