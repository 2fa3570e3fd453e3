"""Place a save: where it goes in its run's history, and the entry that is to say so.

While the ledger is in distress a save is sealed all the same, and its entry waits: the ledger at hand may be old, so what
the trainer, its directory and the run file say of the save goes before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from lakemark.errors import Conflict, LakemarkError
from lakemark.model.checkpoints.record import Code, DataRef, Evidence, Record, record_for
from lakemark.model.checkpoints.whole import grew
from lakemark.model.entries.attempts import RESUMED, ResumedBody
from lakemark.model.entries.committed import CommittedBody
from lakemark.model.ledger.entry import Draft
from lakemark.model.ledger.measures import told
from lakemark.model.ledger.moments import saved_at
from lakemark.model.ledger.run import Fork, RecordState, RunState
from lakemark.model.runs.placing import Placement, Save, place, standing, timeline_of
from lakemark.model.runs.whose import Owner
from lakemark.model.values.names import printable
from lakemark.ports import Directory, RunFile, Site
from lakemark.services.directories import bind
from lakemark.services.ledger import committed
from lakemark.services.saves.accept import Taken
from lakemark.services.saves.known_files import records_of
from lakemark.services.saves.lost_ledger import ledger_may_fail
from lakemark.services.saves.to_commit import ToCommit


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What the entry of a save is to say. record: `known`'s, where these very bytes are a record already.

    body: of the entry. Hot keeps it as well, for whoever finishes what a crash left. timelines: how many the run had: where it
    has more by now, the save may go elsewhere.
    """

    placement: Placement
    record: Record
    body: CommittedBody
    known: RecordState | None
    timelines: int = 0


def place_save(site: Site, save: ToCommit, taken: Taken) -> Claim:
    """Where the save goes; the timeline that it needs is open then. Raises Conflict (other bytes at this step), InDistress."""
    as_save = _as_save(site, save, taken)
    placement = place(save.state, as_save)
    if placement.collides is not None:
        raise Conflict(
            f"{save.asked.run}@{save.asked.step} is {placement.collides[:12]} in timeline {placement.timeline}, "
            "with other bytes",
            advice="If these are the right ones, commit them with --supersede; the old record stays listed.",
        )
    if placement.fork is not None:
        save = _with_timeline(site, save, as_save, placement, fork=placement.fork)
        placement = place(save.state, replace(as_save, placed=placement.timeline))
    return _claim(site, save, taken, placement)


def place_waiting(site: Site, save: ToCommit, taken: Taken) -> Claim:
    """Where the save goes as far as can be told: of no timeline that would have to be opened now, and never refused.

    Its data is what its process is known to have opened; where only the old ledger could say, it is ambiguous.
    """
    state, as_save, said = save.state, _as_save(site, save, taken), _run_file(site, save.asked.run)
    placed = place(state, as_save)
    if placed.known is not None:
        return _claim(site, save, taken, placed)
    told = [as_save.resumed_timeline, as_save.directory_timeline, said.timeline if said else None]
    timeline = max([number for number in told[:2] if number] or [number for number in told if number] or [1])
    if timeline in state.timelines:
        timeline = timeline_of(state, as_save)
    other = standing(state, timeline, as_save.step)
    placement = replace(
        placed,
        timeline=timeline,
        fork=None,
        collides=None,
        supersedes=placed.supersedes,
        conflicts=other.record.id if other and placed.supersedes is None else None,
        data=_data(as_save, said, placed.data),
    )
    return _claim(site, save, taken, placement)


def _data(save: Save, said: RunFile | None, guessed: tuple[DataRef, ...]) -> tuple[DataRef, ...]:
    if save.announced:
        return save.data
    if said is not None and said.attempt == save.attempt:
        return said.data
    return tuple(replace(ref, evidence=Evidence.AMBIGUOUS) for ref in guessed)


def _run_file(site: Site, run: str) -> RunFile | None:
    try:
        return site.spool.read_run_file(site.run_file(run))
    except LakemarkError:  # there may be none, on a node where nobody opened the run
        return None


def _as_save(site: Site, save: ToCommit, taken: Taken) -> Save:
    known = {site.journal.known(file) for file in taken.identities}
    sealed = frozenset(identity for identity in known if identity)
    return replace(
        save.as_save(),
        content=taken.landed.manifest.content,
        newest_mtime=taken.written_at,
        oldest_mtime=taken.begun_at,
        sealed_again=sealed,
        grown=frozenset(_grown(site, save, taken, sealed)),
        beside=_beside(site, save),
    )


def _grown(site: Site, save: ToCommit, taken: Taken, sealed: frozenset[str]) -> Iterator[str]:
    """Of the records that it holds files of, those of its step that it has whole."""
    for identity in sealed & save.state.records.keys() if save.asked.found else ():
        if save.state.records[identity].record.step == save.asked.step:
            before = site.ledger.manifest(save.asked.run, identity)
            now, base = taken.landed.manifest, save.asked.path.parent
            source = Path(committed(site, save.state.records[identity]).source or "")
            # Taken when only one of the folders of its step was there.
            if source != save.asked.path and source in taken.members:
                now = now.below(source.relative_to(base).as_posix())
            if grew(before, now):
                yield identity


def _beside(site: Site, save: ToCommit) -> frozenset[str]:
    """Records of the same step whose source is another path of this node that still holds their files."""
    if not save.asked.found:
        return frozenset()
    same = [standing(save.state, timeline, save.asked.step) for timeline in save.state.timelines]
    return frozenset(one.record.id for one in same if one is not None and _lies(site, save.asked.path, one))


def _lies(site: Site, path: Path, found: RecordState) -> bool:
    body = committed(site, found)
    if body.node is None or site.ledger.site().node_now(body.node) != site.node:
        return False
    if body.source is None or Path(body.source) == path:
        return False
    source = Path(body.source)
    return site.files.exists(source) and set(records_of(site, [source]) or ()) == {found.record.id}


def _with_timeline(site: Site, save: ToCommit, as_save: Save, placement: Placement, *, fork: Fork) -> ToCommit:
    """Opens the timeline of a process that went back by itself, and binds its directory to it: its next saves go there, too."""
    body = ResumedBody(
        record=fork.record or None,
        attempt=save.attempt,
        fork=fork,
        inferred=True,
        directory=printable(save.directory),
    )

    def decide(state: RunState) -> Draft | None:
        # Another save of the same process may have opened it meanwhile; two would part what belongs together.
        if place(state, as_save).timeline != placement.timeline:
            return None
        return RESUMED.draft(body, timeline=placement.timeline, reason=placement.why)

    run = save.asked.run
    request = f"inferred:{run}:{placement.timeline}:{as_save.content}"
    with ledger_may_fail():
        entry, state = site.ledger.append(run, decide, site.stamp(request))
    if entry is None:
        return replace(save, state=state)
    bound = Directory(run=run, timeline=placement.timeline, attempt=save.attempt or "", sequence=state.sequence)
    bind(site, save.directory, bound)
    site.progress.step("commit.timeline")
    return replace(save, state=state, bound=bound)


def _claim(site: Site, save: ToCommit, taken: Taken, placement: Placement) -> Claim:
    known = save.state.records[placement.known] if placement.known is not None else None
    return Claim(
        placement=placement,
        record=_record(site, save, taken, placement) if known is None else known.record,
        body=_body(site, save, taken, placement),
        known=known,
        timelines=len(save.state.timelines),
    )


def _record(site: Site, save: ToCommit, taken: Taken, placement: Placement) -> Record:
    asked, spooled = save.asked, save.asked.spooled
    base = record_for(
        taken.landed.manifest,
        run=asked.run,
        timeline=placement.timeline,
        step=asked.step,
        saved_at=_saved_at(site, save, taken, parent=placement.parent),
        node=site.node,
    )
    data = placement.data
    # An announcement is its process's own word; of any other save there is what the attempt noted that it read.
    if spooled is None and save.attempt is not None:
        data = site.spool.with_reads(site.spool_of(asked.run), save.attempt, data)
    return replace(
        base,
        data=data,
        code=asked.code or (Code.from_json(dict(spooled.code)) if spooled and spooled.code else None),
        metrics={**taken.metrics, **asked.metrics, **(spooled.metrics if spooled else {})},
        parent=placement.parent,
        attempt=save.attempt,
        supersedes=placement.supersedes,
        announced=spooled is not None,
    )


def _saved_at(site: Site, save: ToCommit, taken: Taken, *, parent: str | None) -> datetime:
    """As announced; else by its files. Not before the step that it came from, nor before the process that announced it began."""
    spooled, before = save.asked.spooled, save.state.records.get(parent or "")
    if spooled is not None:
        told, attempt = spooled.saved_at, save.state.attempts.get(spooled.attempt or "")
    else:
        told, attempt = site.now() if site.simulated_clock else taken.landed.newest_mtime, None
    after = (before.instant if before else None, attempt.started_at if attempt else None)
    return saved_at(told, now=site.now(), after=after)


def _body(site: Site, save: ToCommit, taken: Taken, placement: Placement) -> CommittedBody:
    seconds = save.asked.spooled.saved_seconds if save.asked.spooled is not None else None
    return CommittedBody(
        attempt=save.attempt,
        supersedes=placement.supersedes,
        conflicts_with=placement.conflicts,
        ambiguous=placement.ambiguous,
        tier=site.hot.name,
        node=site.node,
        linked=taken.landed.linked,
        source=printable(save.asked.path),
        directory=printable(save.directory),
        # So that a directory on another node gets the same: nothing else says that a run keeps a link beside its saves.
        pointers=dict(taken.pointed) or None,
        notes=(*taken.notes, *_of_whose(save), *_twins(save, taken)) or None,
        saved_seconds=None if seconds is None else told(seconds),
        landed_seconds=told(taken.landed_seconds),
        size_bytes=taken.landed.manifest.size_bytes,
    )


def _of_whose(save: ToCommit) -> Iterator[str]:
    """What its place does not say of itself: that it is older than the run, or of a life that nobody can tell."""
    told = save.asked.whose
    if save.asked.adopted:
        yield f"adopted: {told.why}" if told is not None else "adopted"
    elif told is not None and told.owner is Owner.AMBIGUOUS and save.asked.spooled is None:
        yield told.why


def _twins(save: ToCommit, taken: Taken) -> Iterator[str]:
    content = taken.landed.manifest.content
    same = (found.record for found in save.state.live() if found.record.content == content)
    other = next((record for record in same if record.step != save.asked.step), None)
    # That its very files are another step's is said already.
    if other is not None and not any(f"step {other.step}" in note for note in taken.notes):
        yield f"it has the bytes of step {other.step}"
