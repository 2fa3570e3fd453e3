"""Commit a checkpoint: recognise it, seal it in hot, and append the one entry that binds it to its data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from lakemark.errors import Conflict, Incomplete, LakemarkError, Refused
from lakemark.model.checkpoint import Manifest, gaps_of
from lakemark.model.entry import Contents, Draft
from lakemark.model.ledger import RecordState, RunState
from lakemark.model.placing import Placement, Save, place
from lakemark.model.record import Code, Record, record_for
from lakemark.ports import Checkpoint, Directory, Landed, Site, Spooled, Verdict
from lakemark.services.appending import Settled, opened, require_writable

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


def commit(site: Site, asked: Commit) -> Committed:
    """Commits one checkpoint, durably.

    Raises NotFound (run, path), Incomplete (not a finished checkpoint, or still changing), Conflict (other bytes at this
    step), Refused (names, links, disk full, closed run), Denied. Whatever it raises, nothing of it stays in hot or ledger.
    """
    state = opened(site, asked.run)
    require_writable(state)
    if state.closed:
        raise Refused(f"the run {asked.run} is closed", advice=f"lakemark run reopen {asked.run} --reason …")
    landed, manifest = _land(site, asked)
    site.progress.step("commit.landed")
    adopted: Record | None = None
    try:
        for _ in range(_TRIES):
            placement = _placement(site, asked, landed, manifest)
            record = _record(site, asked, placement, manifest=manifest, landed=landed)
            if placement.known is not None:
                site.hot.discard(landed)
                return _done(site, asked, _state_of(site, asked.run, record.id).record, placement, new=False)
            if adopted is None or adopted.id != record.id:
                adopted = _adopt(site, landed, record, instead_of=adopted, manifest=manifest)
            site.progress.step("commit.adopted")
            if _append(site, asked, placement, Contents(record=record, manifest=manifest), linked=landed.linked):
                site.progress.step("commit.recorded")
                return _done(site, asked, record, placement, new=True)
    except LakemarkError:
        _undo(site, landed, adopted, manifest)
        raise
    _undo(site, landed, adopted, manifest)
    raise Conflict(
        f"the ledger of {asked.run} moved {_TRIES} times while step {asked.step} was being committed",
        advice="Commit it again; it is still where the trainer saved it.",
    )


def _state_of(site: Site, run: str, record: str) -> RecordState:
    return site.ledger.run(run).records[record]


def _land(site: Site, asked: Commit) -> tuple[Landed, Manifest]:
    found = site.recogniser.judge(asked.path)
    roles = dict(found.roles)
    if asked.spooled is not None:
        roles |= asked.spooled.roles
    if found.verdict is not Verdict.COMPLETE and asked.spooled is None:
        raise Incomplete(
            f"{asked.path} is {found.verdict}: {found.why}", advice="Commit it when the trainer has finished it."
        )
    announced = asked.spooled is not None or not asked.found
    quiet = (
        asked.quiet_seconds if asked.quiet_seconds is not None else (0.0 if announced else site.policies.quiet_seconds)
    )
    landed = site.hot.land(asked.path, quiet_seconds=quiet, roles=roles, progress=site.progress)
    known = sorted({file.role for file in landed.manifest.regular} - {"other"})
    declared = bool(asked.spooled and asked.spooled.roles)
    gaps = gaps_of(known) if declared else found.gaps
    resumable = not gaps if declared else found.resumable
    manifest = landed.manifest.judged(framework=found.framework, roles=known, resumable=resumable, gaps=gaps)
    return landed, manifest


def _placement(site: Site, asked: Commit, landed: Landed, manifest: Manifest) -> Placement:
    save = _save(site, asked, landed, manifest)
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


def _save(site: Site, asked: Commit, landed: Landed, manifest: Manifest) -> Save:
    spooled = asked.spooled
    directory = site.journal.directory(asked.directory or asked.path.parent)
    if directory is not None and directory.run != asked.run:
        directory = None
    known = {site.journal.known(file) for file in site.workspace.identities(asked.path)}
    return Save(
        step=asked.step,
        content=manifest.content,
        announced=spooled is not None,
        found=asked.found,
        attempt=(spooled.attempt if spooled else None)
        or (directory.attempt if directory else _newest(site, asked.run)),
        resumed_timeline=spooled.timeline if spooled else None,
        directory_timeline=directory.timeline if directory else None,
        data=spooled.data if spooled else (),
        newest_mtime=None if site.simulated_clock else landed.newest_mtime,
        sealed_again=frozenset(identity for identity in known if identity),
        supersede=asked.supersede,
    )


def _newest(site: Site, run: str) -> str | None:
    attempt = site.ledger.run(run).attempt
    return attempt.id if attempt else None


def _record(site: Site, asked: Commit, placement: Placement, *, manifest: Manifest, landed: Landed) -> Record:
    spooled = asked.spooled
    base = record_for(
        manifest,
        run=asked.run,
        timeline=placement.timeline,
        step=asked.step,
        saved_at=_saved_at(site, spooled, landed),
        node=site.node,
    )
    save = _save(site, asked, landed, manifest)
    code = asked.code or (Code.from_json(dict(spooled.code)) if spooled and spooled.code else None)
    return replace(
        base,
        data=placement.data,
        code=code,
        metrics=dict(asked.metrics) | dict(spooled.metrics if spooled else {}),
        parent=placement.parent,
        attempt=save.attempt,
        supersedes=placement.supersedes,
    )


def _saved_at(site: Site, spooled: Spooled | None, landed: Landed) -> datetime:
    if spooled is not None:
        return spooled.saved_at
    return site.now() if site.simulated_clock else min(landed.newest_mtime, site.now())


def _adopt(site: Site, landed: Landed, record: Record, *, instead_of: Record | None, manifest: Manifest) -> Record:
    if instead_of is not None:
        site.hot.drop(Checkpoint(record=instead_of, manifest=manifest), now=site.now())
    site.hot.adopt(landed, record)
    return record


def _append(site: Site, asked: Commit, placement: Placement, contents: Contents, *, linked: bool) -> bool:
    """False where the ledger moved so that the save would be placed elsewhere now."""
    record = contents.record
    if record is None:
        return False
    body = {
        "attempt": record.attempt,
        "supersedes": record.supersedes,
        "conflicts_with": None,
        "tier": site.hot.name,
        "node": site.node,
        "linked": linked,
        "source": str(asked.path),
    }

    def decide(state: RunState) -> Draft:
        require_writable(state)
        if record.id in state.records:
            raise Settled(state.records[record.id].record)
        again = place(state, _again(asked, placement, record))
        if (again.timeline, again.supersedes, again.collides) != (placement.timeline, placement.supersedes, None):
            raise Settled(None)
        return Draft(kind="committed", timeline=record.timeline, body=body, contents=contents, saved_at=record.saved_at)

    try:
        site.ledger.append(asked.run, decide, site.stamp(f"commit:{record.id}"))
    except Settled as settled:
        return settled.answer is not None
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
    body = {
        "record": fork.record or None,
        "attempt": save.attempt,
        "fork": fork.as_json(),
        "inferred": True,
        "directory": str(asked.directory or asked.path.parent),
    }

    def decide(state: RunState) -> Draft:
        if place(state, save).timeline != placement.timeline:
            raise Settled(None)
        return Draft(kind="resumed", timeline=placement.timeline, body=body, reason=placement.why)

    try:
        site.ledger.append(asked.run, decide, site.stamp(f"inferred:{asked.run}:{placement.timeline}:{save.content}"))
    except Settled:
        return
    directory = asked.directory or asked.path.parent
    sequence = site.ledger.run(asked.run).sequence
    bound = Directory(run=asked.run, timeline=placement.timeline, attempt=save.attempt or "", sequence=sequence)
    site.journal.bind_directory(directory, bound)
    site.progress.step("commit.timeline")


def _done(site: Site, asked: Commit, record: Record, placement: Placement, *, new: bool) -> Committed:
    site.journal.remember(site.workspace.identities(asked.path), record=record.id, why="committed")
    site.progress.step("commit.remembered")
    if asked.spooled is not None:
        site.workspace.unspool(asked.spooled)
    site.progress.step("commit.acknowledged")
    return Committed(record=record, new=new, why=placement.why)


def _undo(site: Site, landed: Landed, adopted: Record | None, manifest: Manifest) -> None:
    if adopted is None:
        site.hot.discard(landed)
    elif adopted.id not in site.ledger.run(adopted.run).records:
        site.hot.drop(Checkpoint(record=adopted, manifest=manifest), now=site.now())
